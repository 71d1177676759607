"""Plants errors in correct analyses, and reports which of them the gate finds.

    python scripts/gate_mutations.py [--number 200] [--seed 4] [--results DIR] [--write docs/gate.md]

The correct analyses are those of lmp's engine. Each planted error is submitted in the usual way. plain_evaluation.py
decides independently of lmp whether the error changes a number at a verified point. If so, the gate must refuse it. The
same number and seed give the same errors.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drafts import FORMULAS, Data, as_draft, formula, put
from plain_evaluation import Evaluation, NoValue

from lmp.agents.gate import Gate
from lmp.agents.subject import ClassSubject
from lmp.analyze.modules import analyze_modules
from lmp.analyze.session import Options, Session
from lmp.errors import NotFound
from lmp.formula import Add, Mul, parse, rewrite, to_text
from lmp.records import MATMUL_CATEGORIES, UNIVERSAL, ModuleAnalysis

MODELS = "transformers.models"
CLASSES = (
    "torch.nn.modules.linear.Linear",
    "torch.nn.modules.normalization.LayerNorm",
    "torch.nn.modules.sparse.Embedding",
    "torch.nn.modules.conv.Conv1d",
    f"{MODELS}.llama.modeling_llama.LlamaRMSNorm",
    f"{MODELS}.llama.modeling_llama.LlamaMLP",
    f"{MODELS}.llama.modeling_llama.LlamaAttention",
    f"{MODELS}.llama.modeling_llama.LlamaDecoderLayer",
    f"{MODELS}.gpt2.modeling_gpt2.GPT2Attention",
    f"{MODELS}.mixtral.modeling_mixtral.MixtralSparseMoeBlock",
)
SIZES = ((2, 2, 2), (3, 5, 7))
"""Bytes per element of weights, activations and the KV cache."""
START, END = "<!-- table: scripts/gate_mutations.py -->", "<!-- end of table -->"


# --- the kinds of errors ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Site:
    """A right draft, and what a planted error may make use of."""

    draft: Data
    subject: ClassSubject
    random: random.Random

    def kernel(self, draft: Data, wanted: Callable[[Data], bool] = lambda kernel: True) -> Data | None:
        found = [kernel for kernel in draft["kernels"] if wanted(kernel)]
        return self.random.choice(found) if found else None

    def cost(self, draft: Data, wanted: Callable[[str], bool] = lambda text: True) -> tuple[Data, str] | None:
        found = [(k, w) for k in draft["kernels"] for w in FORMULAS if formula(k, w) != "0" and wanted(formula(k, w))]
        return self.random.choice(found) if found else None


Kind = Callable[[Site, Data], str | None]
"""Changes the draft; says what it did, or None where the draft has no place for it."""


def a_factor(site: Site, draft: Data) -> str | None:
    found = site.cost(draft)
    if found is None:
        return None
    factor = site.random.choice((2, 3, 4))
    put(*found, f"{factor} * ({formula(*found)})")
    return f"{found[1]} times {factor}"


def a_swapped_variable(site: Site, draft: Data) -> str | None:
    names = list(draft["parameters"])
    found = site.cost(draft, lambda text: any(f"{{{n}}}" in text for n in names)) if len(names) > 1 else None
    if found is None:
        return None
    text = formula(*found)
    old = site.random.choice([n for n in names if f"{{{n}}}" in text])
    new = site.random.choice([n for n in names if n != old])
    places = [m.start() for m in re.finditer(re.escape(f"{{{old}}}"), text)]
    at = site.random.choice(places)
    put(*found, f"{text[:at]}{{{new}}}{text[at + len(old) + 2 :]}")
    return f"{found[1]}: {new} for {old}"


def _without_one(text: str, kind: type, site: Site) -> str | None:
    """The formula without one operand of one of its sums, or products."""
    count = 0

    def counted(node: Any) -> Any:
        nonlocal count
        count += len(node.children) if isinstance(node, kind) else 0
        return node

    rewrite(parse(text), counted)
    if not count:
        return None
    chosen, seen = site.random.randrange(count), 0

    def dropped(node: Any) -> Any:
        nonlocal seen
        if not isinstance(node, kind):
            return node
        at, seen = chosen - seen, seen + len(node.children)
        if not 0 <= at < len(node.children):
            return node
        rest = [child for index, child in enumerate(node.children) if index != at]
        return rest[0] if len(rest) == 1 else kind(tuple(rest))

    return to_text(rewrite(parse(text), dropped))


def a_missing_term(site: Site, draft: Data) -> str | None:
    found = site.cost(draft, lambda text: " + " in text and "${{" not in text)
    text = _without_one(formula(*found), Add, site) if found else None
    if found is None or text is None:
        return None
    put(*found, text)
    return f"{found[1]} without a term"


def a_missing_factor(site: Site, draft: Data) -> str | None:
    found = site.cost(draft, lambda text: " * " in text and "${{" not in text)
    text = _without_one(formula(*found), Mul, site) if found else None
    if found is None or text is None:
        return None
    put(*found, text)
    return f"{found[1]} without a factor"


def read_for_write(site: Site, draft: Data) -> str | None:
    kernel = site.kernel(draft, lambda k: k["memory_access"]["read"] != k["memory_access"]["write"])
    if kernel is None:
        return None
    access = kernel["memory_access"]
    access["read"], access["write"] = access["write"], access["read"]
    return f"read and write of line {kernel['line']} exchanged"


def the_wrong_element_size(site: Site, draft: Data) -> str | None:
    found = site.cost(draft, lambda text: "_bytes}" in text)
    if found is None:
        return None
    before = formula(*found)
    right = re.search(r"\{(\w+_bytes)\}", before)
    assert right is not None, "asked for above"
    wrong = site.random.choice([name for name in UNIVERSAL if name != right[1]])
    put(*found, before.replace(right[0], f"{{{wrong}}}", 1))
    return f"{found[1]}: {wrong} for {right[1]}"


def a_wrong_line(site: Site, draft: Data) -> str | None:
    """With the text of the line that it is moved to: nothing but the numbers can show it."""
    own = [k for k in draft["kernels"] if not k.get("file")]
    lines = sorted({k["line"] for k in own} | set(draft["free_lines"]) | set(draft["not_taken_lines"]))
    kernel = site.random.choice(own) if own else None
    others = [line for line in lines if kernel is not None and line != kernel["line"]]
    if kernel is None or not others:
        return None
    before, kernel["line"] = kernel["line"], site.random.choice(others)
    kernel["code"] = ""
    return f"line {kernel['line']} for {before}"


def a_dropped_kernel(site: Site, draft: Data) -> str | None:
    kernel = site.kernel(draft)
    if kernel is None:
        return None
    draft["kernels"].remove(kernel)
    return f"without {kernel['operation']} of line {kernel['line']}"


_BINDING = re.compile(r"(\w+)=([^,()]+|[^,()]*\([^()]*\)[^,()]*)(?=[,)])")


def a_wrong_binding(site: Site, draft: Data) -> str | None:
    kernel = site.kernel(draft, lambda k: "${{" in k["flops"] and "=" in k["flops"])
    if kernel is None:
        return None
    name, old = site.random.choice(_BINDING.findall(kernel["flops"]))
    choices = [f"{{{n}}}" for n in draft["parameters"]] + ["1", f"2 * ({old})"]
    new = site.random.choice([c for c in choices if c != old])
    for which in FORMULAS:
        put(kernel, which, formula(kernel, which).replace(f"{name}={old}", f"{name}={new}"))
    return f"line {kernel['line']} binds {name} to {new}, not {old}"


def a_missing_binding(site: Site, draft: Data) -> str | None:
    kernel = site.kernel(draft, lambda k: "${{" in k["flops"] and "=" in k["flops"])
    if kernel is None:
        return None
    name, old = site.random.choice(_BINDING.findall(kernel["flops"]))
    for which in FORMULAS:
        text = formula(kernel, which).replace(f"{name}={old}", "").replace("(, ", "(").replace(", , ", ", ")
        put(kernel, which, text.replace(", )", ")"))
    return f"line {kernel['line']} does not bind {name}"


def a_wrong_repeat(site: Site, draft: Data) -> str | None:
    kernel = site.kernel(draft)
    if kernel is None:
        return None
    before = kernel.get("repeat", 1)
    kernel["repeat"] = before + 1 if isinstance(before, int) else f"2 * ({before})"
    return f"line {kernel['line']} repeated {kernel['repeat']} times, not {before}"


def a_wrong_category(site: Site, draft: Data) -> str | None:
    kernel = site.kernel(draft, lambda k: k["kernel_type"] == "basic")
    if kernel is None:
        return None
    before = kernel["category"]
    kernel["category"] = "elementwise" if before in MATMUL_CATEGORIES else site.random.choice(("matmul", "maths"))
    return f"line {kernel['line']}: {kernel['category']} for {before}"


def a_wrong_path(site: Site, draft: Data) -> str | None:
    parameters = draft["parameters"]
    names = list(parameters)
    if len(names) < 2:
        return None
    name = site.random.choice(names)
    others = [p for p in parameters.values() if p != parameters[name]] + [f"{parameters[name]}_", "config.no_such"]
    before, parameters[name] = parameters[name], site.random.choice(others)
    return f"{name} from {parameters[name]}, not {before}"


def a_computing_line_listed_as_free(site: Site, draft: Data) -> str | None:
    kernel = site.kernel(draft, lambda k: any(formula(k, w) != "0" for w in FORMULAS))
    if kernel is None:
        return None
    place = (kernel.get("file"), kernel["line"])
    draft["kernels"] = [k for k in draft["kernels"] if (k.get("file"), k["line"]) != place]
    if place[0]:
        draft["free_lines_elsewhere"].setdefault(place[0], []).append(place[1])
    else:
        draft["free_lines"].append(place[1])
    return f"line {place[1]} listed as free"


def a_taken_line_listed_as_not_taken(site: Site, draft: Data) -> str | None:
    kernel = site.kernel(draft, lambda k: not k.get("file") and any(formula(k, w) != "0" for w in FORMULAS))
    if kernel is None:
        return None
    line = kernel["line"]
    draft["kernels"] = [k for k in draft["kernels"] if k.get("file") or k["line"] != line]
    draft["not_taken_lines"].append(line)
    return f"line {line} listed as not taken"


def a_wrong_text(site: Site, draft: Data) -> str | None:
    kernel = site.kernel(draft)
    if kernel is None:
        return None
    kernel["code"] = site.random.choice((f"{kernel['code']}.clone()", "x = self.f(x)", kernel["code"][1:] + "0"))
    return f"code of line {kernel['line']}: {kernel['code']}"


OTHER_CLASSES = (
    "torch.nn.modules.normalization.LayerNorm",
    f"{MODELS}.llama.modeling_llama.LlamaRMSNorm",
    "torch.nn.modules.linear.Lineer",
    "transformers.activations.SiLUActivation",
)


def a_wrong_class(site: Site, draft: Data) -> str | None:
    kernel = site.kernel(draft, lambda k: "${{" in k["flops"])
    if kernel is None:
        return None
    old = re.findall(r"\$\{\{([\w.]+)\}\}", kernel["flops"])[0]
    new = site.random.choice([name for name in OTHER_CLASSES if name != old])
    for which in FORMULAS:
        put(kernel, which, formula(kernel, which).replace(f"${{{{{old}}}}}", f"${{{{{new}}}}}"))
    return f"{new.rpartition('.')[2]} for {old.rpartition('.')[2]}"


def a_wrong_parameters_count(site: Site, draft: Data) -> str | None:
    text = draft.get("parameters_count")
    if not text or text == "0":
        return None
    draft["parameters_count"] = site.random.choice((f"2 * ({text})", f"{text} + 1", "0"))
    return f"parameters_count {draft['parameters_count']}"


KINDS: dict[str, Kind] = {
    "a factor too many": a_factor,
    "a swapped variable": a_swapped_variable,
    "a missing term": a_missing_term,
    "a missing factor": a_missing_factor,
    "read for write": read_for_write,
    "a wrong element size": the_wrong_element_size,
    "a wrong line": a_wrong_line,
    "a dropped kernel": a_dropped_kernel,
    "a wrong binding": a_wrong_binding,
    "a missing binding": a_missing_binding,
    "a wrong repeat": a_wrong_repeat,
    "a wrong category": a_wrong_category,
    "a wrong parameter path": a_wrong_path,
    "a computing line listed as free": a_computing_line_listed_as_free,
    "a line that runs listed as not taken": a_taken_line_listed_as_not_taken,
    "a wrong text of a line": a_wrong_text,
    "a wrong class in a reference": a_wrong_class,
    "a wrong parameters_count": a_wrong_parameters_count,
}


# --- planting and judging --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Planted:
    kind: str
    class_name: str
    what: str
    changes: bool
    """Whether a number differs at any verified point."""
    caught: bool
    finding: str
    """The first one."""


class Study:
    """Right drafts of some classes, with what runs them."""

    def __init__(self, session: Session, classes: Sequence[str], seed: int) -> None:
        self.session, self.random = session, random.Random(seed)
        self.evaluation = Evaluation(lambda name: as_draft(session.lookup(name)))
        self.subjects = {name: ClassSubject(session, name, engine="submitted") for name in classes}
        self.gates = {name: Gate(subject) for name, subject in self.subjects.items()}
        self.drafts = {name: as_draft(session.lookup(name)) for name in classes}
        self.right: dict[str, ModuleAnalysis] = {}
        for name, draft in self.drafts.items():
            verdict = self.gates[name].check(draft)
            if verdict.analysis is None or verdict.analysis.verification.status != "verified":
                raise SystemExit(f"the right analysis of {name} is refused: {verdict.findings}")
            self.right[name] = verdict.analysis

    def plant(self, number: int) -> Iterator[Planted]:
        """So many different errors, kinds and classes taking turns."""
        seen: set[str] = set()
        turns = [(kind, name) for name in self.drafts for kind in KINDS]
        while len(seen) < number:
            self.random.shuffle(turns)
            # One of each kind in turn, whatever class it falls to.
            for kind, name in sorted(turns, key=lambda turn: self._order(turn, turns)):
                draft = copy.deepcopy(self.drafts[name])
                what = KINDS[kind](Site(self.drafts[name], self.subjects[name], self.random), draft)
                text = json.dumps(draft, sort_keys=True)
                if what is None or text in seen or draft == self.drafts[name]:
                    continue
                seen.add(text)
                yield self.planted(kind, name, what, draft)
                if len(seen) == number:
                    return

    @staticmethod
    def _order(turn: tuple[str, str], turns: list[tuple[str, str]]) -> tuple[int, int]:
        same = [other for other in turns if other[0] == turn[0]]
        return same.index(turn), list(KINDS).index(turn[0])

    def planted(self, kind: str, name: str, what: str, draft: Data) -> Planted:
        verdict = self.gates[name].check(copy.deepcopy(draft))
        finding = verdict.findings[0].message if verdict.findings else ""
        return Planted(kind, name, what, self.changes(name, draft), not verdict.accepted, finding)

    def changes(self, name: str, draft: Data) -> bool:
        """Whether any statement, or the number of parameters, comes out otherwise than in the right draft."""
        from lmp.verify.resolve import resolve_all

        right, subject = self.drafts[name], self.subjects[name]

        def start(kernel: Any) -> tuple[str, int]:
            file = kernel.get("file") or subject.source.forward_file
            return file, self.gates[name].lines.statement_start(kernel.get("file"), kernel["line"])

        seen: set[Any] = set()
        for point in subject.points(self.right[name]):
            for call in (call for call in point.calls if call.class_path == name):
                values, _ = resolve_all(right["parameters"], call, point.values, point.config)
                other, failed = resolve_all(draft["parameters"], call, point.values, point.config)
                key = (*values.items(), *other.items())
                if key in seen:
                    continue
                seen.add(key)
                for numbers in SIZES:
                    sizes = dict(zip(UNIVERSAL, numbers, strict=True))
                    if not all(self.evaluation.holds(c, {**values, **sizes}) for c in right["assumptions"]):
                        continue
                    if failed or self._differ(right, {**values, **sizes}, draft, {**other, **sizes}, start):
                        return True
        return False

    def _differ(self, right: Data, values: Data, draft: Data, other: Data, start: Callable[[Any], Any]) -> bool:
        try:
            return bool(self._numbers(right, values, start) != self._numbers(draft, other, start))
        except (NoValue, SyntaxError, NotFound):
            return True

    def _numbers(self, draft: Data, values: dict[str, int], start: Callable[[Any], Any]) -> Any:
        count = draft.get("parameters_count")
        parameters = None if count is None else self.evaluation.number(count, values)
        return self.evaluation.statements(draft, values, start), parameters


def table(planted: Sequence[Planted]) -> str:
    rows = ["| planted error | planted | changes a number | caught | changes none | caught |", "|" + " --- |" * 6]

    def row(name: str, some: Sequence[Planted]) -> str:
        changing = [p for p in some if p.changes]
        other = [p for p in some if not p.changes]
        caught = [sum(p.caught for p in group) for group in (changing, other)]
        return f"| {name} | {len(some)} | {len(changing)} | {caught[0]} | {len(other)} | {caught[1]} |"

    rows += [row(kind, [p for p in planted if p.kind == kind]) for kind in KINDS]
    return "\n".join([*rows, row("**all**", planted)])


def study(results: Path, classes: Sequence[str], number: int, seed: int) -> list[Planted]:
    """Analyse the classes where there is no analysis of them yet, plant the errors, and hand them in."""
    options = Options(results=results)
    analyze_modules([*classes, *(c for c in OTHER_CLASSES if "Lineer" not in c)], options, lambda name, stage: None)
    session = Session(options, lambda name, stage: None, takes_foreign=True)
    return list(Study(session, classes, seed).plant(number))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the table into this page")
    parser.add_argument("--list", action="store_true", help="every planted error with its first finding")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        planted = study(given.results or Path(folder), CLASSES, given.number, given.seed)
    if given.list:
        for p in planted:
            mark = "caught" if p.caught else "MISSED" if p.changes else "passed"
            about = f"{p.kind} | {p.class_name.rpartition('.')[2]} | {p.what} | {p.finding}"
            print(f"{mark} {'*' if p.changes else ' '} {about}")
    print(table(planted))
    if given.write is not None:
        page = given.write.read_text()
        before, _, rest = page.partition(START)
        _, _, after = rest.partition(END)
        given.write.write_text(f"{before}{START}\n{table(planted)}\n{END}{after}")
    missed = [p for p in planted if p.changes and not p.caught]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
