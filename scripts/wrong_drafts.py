"""Makes drafts that are wrong beyond small sizes, and reports which of them the gate refuses.

    python scripts/wrong_drafts.py [--number 10] [--seed 7] [--only TEXT] [--results DIR] [--write FILE]

Each draft is one of lmp's own analyses with one change. plain_evaluation.py, which shares no code with lmp, decides
that the draft differs from the right one at a point inside its own assumptions. lmp's judge confirms by execution that
the right one holds there. Right drafts must be taken, wrong ones refused. Exits with 1 otherwise.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from drafts import FORMULAS, Data, as_draft, formula, put
from plain_evaluation import Evaluation, NoValue

from lmp.agents.gate import Gate
from lmp.agents.subject import ClassSubject
from lmp.analyze.modules import analyze_modules, execution_of
from lmp.analyze.session import Options, Session
from lmp.errors import LmpError
from lmp.records import UNIVERSAL
from lmp.workload.paths import Unresolvable, resolve

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
    f"{MODELS}.gpt2.modeling_gpt2.GPT2MLP",
    f"{MODELS}.gpt2.modeling_gpt2.GPT2Block",
    f"{MODELS}.mixtral.modeling_mixtral.MixtralSparseMoeBlock",
    f"{MODELS}.mixtral.modeling_mixtral.MixtralExperts",
    f"{MODELS}.qwen3.modeling_qwen3.Qwen3Attention",
    f"{MODELS}.qwen3.modeling_qwen3.Qwen3MLP",
    f"{MODELS}.phi3.modeling_phi3.Phi3Attention",
    f"{MODELS}.phi3.modeling_phi3.Phi3MLP",
    f"{MODELS}.bert.modeling_bert.BertSelfAttention",
    f"{MODELS}.bert.modeling_bert.BertIntermediate",
    f"{MODELS}.t5.modeling_t5.T5LayerNorm",
    f"{MODELS}.t5.modeling_t5.T5DenseActDense",
    f"{MODELS}.mistral.modeling_mistral.MistralAttention",
)

Point = dict[str, int]


@dataclass(frozen=True)
class Wrong:
    """A changed draft, and where it is wrong: values of the workload's variables and of the element sizes."""

    kind: str
    draft: Data
    at: Point


class Maker:
    """Makes changes of one right draft. ``own``: a small point, as values of the workload's variables."""

    def __init__(self, right: Data, own: Point, sizes: Sequence[str], draw: random.Random, cache: bool) -> None:
        self.right, self.own, self.sizes, self.random, self.cache = right, own, sizes, draw, cache

    def made(self, kind: str) -> Wrong | None:
        found: Wrong | None = getattr(self, kind)()
        return found

    # -- costs under a condition -------------------------------------------------------------------------------------

    def beyond_tokens(self) -> Wrong | None:
        """Nothing beyond some thousand tokens."""
        limit = self.random.choice((997, 5003, 40009, 100003, 262139))
        return self._if(f"{{seq_len}} > {limit}", {"batch_size": 1, "seq_len": limit + 1})

    def beyond_batch(self) -> Wrong | None:
        limit = self.random.choice((64, 71, 131, 509, 1021))
        return self._if(f"{{batch_size}} > {limit}", {"batch_size": limit + 1, "seq_len": 2})

    def beyond_cache(self) -> Wrong | None:
        limit = self.random.choice((8191, 12007, 65537))
        return self._if(f"{{cache_len}} > {limit}", {"batch_size": 1, "seq_len": 1, "cache_len": limit + 1})

    def beyond_total(self) -> Wrong | None:
        limit = self.random.choice((3001, 9001, 131071))
        at = {"batch_size": 2, "seq_len": 3, "cache_len": limit - 1}
        return self._if(f"{{seq_len}} + {{cache_len}} > {limit}", at) if self.cache else None

    def at_one_length(self) -> Wrong | None:
        length = self.random.choice((513, 641, 1283, 4099))
        return self._if(f"{{seq_len}} == {length}", {"batch_size": 2, "seq_len": length})

    def at_one_batch_and_length(self) -> Wrong | None:
        batch, length = self.random.choice((67, 73, 83)), self.random.choice((479, 613, 2011))
        condition = f"{{batch_size}} == {batch} and {{seq_len}} == {length}"
        return self._if(condition, {"batch_size": batch, "seq_len": length})

    def at_a_remainder(self) -> Wrong | None:
        whole, rest = self.random.choice(((613, 5), (1009, 7), (457, 3)))
        return self._if(f"{{seq_len}} % {whole} == {rest}", {"batch_size": 2, "seq_len": whole + rest})

    def at_a_config_value(self) -> Wrong | None:
        """Nothing for one value of a config size."""
        return self._config(lambda name, value: (f"{{{name}}} == {value}", value))

    def beyond_a_config_value(self) -> Wrong | None:
        return self._config(lambda name, value: (f"{{{name}}} > {value - 1}", value))

    # -- other kinds -------------------------------------------------------------------------------------------------

    def a_quotient(self) -> Wrong | None:
        """A size that grows by one after some thousand."""
        part = self.random.choice((2053, 6007, 30011))
        at = {"batch_size": 1, "seq_len": part}
        return self._replace("seq_len", f"({{seq_len}} + {{seq_len}} // {part})", at)

    def a_cap(self) -> Wrong | None:
        name, most = self.random.choice((("seq_len", 4001), ("batch_size", 97), ("seq_len", 70001)))
        return self._replace(name, f"min({{{name}}}, {most})", {"batch_size": 1, "seq_len": 3, name: most + 5})

    def a_capped_config_size(self) -> Wrong | None:
        return self._config_text(lambda name, value: f"min({{{name}}}, {value - 1})")

    def a_capped_width(self) -> Wrong | None:
        """Elements of at most 16 bytes: no dtype of today is wider, and the variable may be."""
        name = self.random.choice(UNIVERSAL)
        return self._replace(name, f"min({{{name}}}, 16)", {"batch_size": 2, "seq_len": 3, name: 17})

    def a_width_alone(self) -> Wrong | None:
        name = self.random.choice(UNIVERSAL)
        width = self.random.choice((17, 19, 23))
        return self._replace(name, f"where({{{name}}} == {width}, 0, {{{name}}})", {"seq_len": 3, name: width})

    def an_assumption_of_lengths(self) -> Wrong | None:
        limit = self.random.choice((70003, 50021, 200003))
        return self._assume(f"{{seq_len}} <= {limit}", {"batch_size": 1, "seq_len": limit + 1})

    def an_assumption_of_batches(self) -> Wrong | None:
        limit = self.random.choice((65, 100, 300))
        return self._assume(f"{{batch_size}} <= {limit}", {"batch_size": limit + 1, "seq_len": 2})

    def an_assumption_of_points(self) -> Wrong | None:
        points = [(3, 11), (1, 17), (4, 1), (2, 6), (3, 1), (2, 150), (2, 9), (1, 1), (3, 8), (2, 4), (1, 6), (2, 1)]
        listed = " or ".join(f"({{batch_size}} == {b} and {{seq_len}} == {s})" for b, s in points)
        return self._assume(f"{listed} or {{seq_len}} > 18", {"batch_size": 5, "seq_len": 5})

    def a_pin(self) -> Wrong | None:
        names = [n for n in self.sizes if n in self.right["parameters"] and n in self.own]
        if not names:
            return None
        name = self.random.choice(names)
        draft = copy.deepcopy(self.right)
        draft["pinned"] = {**draft.get("pinned", {}), name: self.own[name]}
        return Wrong("a_pin", draft, {**self.own, "batch_size": 2, "seq_len": 3, name: 2 * self.own[name]})

    # -- how a change is made ----------------------------------------------------------------------------------------

    def _sites(self, wanted: Callable[[str], bool]) -> list[tuple[int, str]]:
        kernels = self.right["kernels"]
        plain = [i for i, k in enumerate(kernels) if k["kernel_type"] == "basic"]
        return [
            (i, which)
            for i in plain
            for which in FORMULAS
            if formula(kernels[i], which) != "0" and wanted(formula(kernels[i], which))
        ]

    def _changed(
        self, at: Mapping[str, int], change: Callable[[str], str], wanted: Callable[[str], bool]
    ) -> Wrong | None:
        sites = self._sites(wanted)
        if not sites:
            return None
        index, which = self.random.choice(sites)
        draft = copy.deepcopy(self.right)
        kernel = draft["kernels"][index]
        put(kernel, which, change(formula(kernel, which)))
        start = {"batch_size": 2, "seq_len": 3, "cache_len": 0}
        return Wrong("", draft, {**self.own, **start, **at})

    def _if(self, condition: str, at: Mapping[str, int]) -> Wrong | None:
        if not all(name in self.right["parameters"] for name in re.findall(r"\{(\w+)\}", condition)):
            return None
        return self._changed(at, lambda text: f"where({condition}, 0, {text})", lambda text: True)

    def _replace(self, name: str, by: str, at: Mapping[str, int]) -> Wrong | None:
        return self._changed(at, lambda text: text.replace(f"{{{name}}}", by), lambda text: f"{{{name}}}" in text)

    def _config(self, made: Callable[[str, int], tuple[str, int]]) -> Wrong | None:
        names = [n for n in self.sizes if n in self.right["parameters"] and n in self.own]
        if not names:
            return None
        name = self.random.choice(names)
        value = self.own[name] * self.random.choice((3, 5, 7))
        condition, there = made(name, value)
        return self._if(condition, {name: there})

    def _config_text(self, made: Callable[[str, int], str]) -> Wrong | None:
        names = [n for n in self.sizes if n in self.right["parameters"] and n in self.own]
        if not names:
            return None
        name = self.random.choice(names)
        value = self.own[name] * 32 * self.random.choice((3, 5))
        return self._replace(name, made(name, value), {name: value})

    def _assume(self, condition: str, at: Mapping[str, int]) -> Wrong | None:
        if not all(name in self.right["parameters"] for name in re.findall(r"\{(\w+)\}", condition)):
            return None
        draft = copy.deepcopy(self.right)
        draft["assumptions"] = [*draft["assumptions"], condition]
        return Wrong("", draft, {**self.own, "cache_len": 0, **at})


KINDS = (
    "beyond_tokens", "beyond_batch", "beyond_cache", "beyond_total", "at_one_length", "at_one_batch_and_length",
    "at_a_remainder", "at_a_config_value", "beyond_a_config_value", "a_quotient", "a_cap", "a_capped_config_size",
    "a_capped_width", "a_width_alone", "an_assumption_of_lengths", "an_assumption_of_batches",
    "an_assumption_of_points", "a_pin",
)  # fmt: skip


@dataclass(frozen=True)
class Result:
    """What the gate said of one draft. ``finding``: its first one."""

    class_name: str
    kind: str
    at: Point
    refused: bool
    finding: str
    seconds: float


class Study:
    """One gate a class, over stored analyses of lmp's own."""

    def __init__(self, results: Path) -> None:
        self.options = Options(results=results)
        self.session = Session(self.options, _quiet, takes_foreign=True)
        self.evaluation = Evaluation(lambda name: self.session.lookup(name).model_dump(mode="json"))

    def of(self, class_path: str, number: int, seed: int) -> Iterator[Result]:
        """The right draft's result, and those of ``number`` wrong ones."""
        analysis = next(o.analysis for o in analyze_modules([class_path], self.options, _quiet) if o.requested)
        right = as_draft(analysis)
        gate = Gate(ClassSubject(self.session, class_path, engine="submitted"))
        yield self._checked(gate, "right", right, {})
        self.execution = execution_of(class_path, self.session, analysis)
        self.analysis = analysis
        workload = self.execution.workload
        own = dict(self.execution.points_for(analysis)[0].values)
        kept = {*workload.flags, *workload.full_layers}
        sizes = [n for n in workload.hints if n not in kept]
        draw = random.Random(f"{class_path} {seed}")
        maker = Maker(right, own, sizes, draw, workload.has_cache)
        made = 0
        kinds = list(KINDS)
        draw.shuffle(kinds)
        for turn in range(8 * number):
            kind = kinds[turn % len(kinds)]
            wrong = maker.made(kind)
            if wrong is None or not self.is_wrong(right, wrong):
                continue
            yield self._checked(gate, kind, wrong.draft, wrong.at)
            made += 1
            if made == number:
                return

    def is_wrong(self, right: Data, wrong: Wrong) -> bool:
        """True if the right draft holds by execution at the point, and the changed one says something else.

        A draft that leaves the point out says nothing of it: that is wrong too where the module runs.
        """
        values = {n: v for n, v in wrong.at.items() if n not in UNIVERSAL}
        sizes = tuple(wrong.at.get(name, 2) for name in UNIVERSAL)
        judged = self.execution.judged_at(self.analysis, values, sizes)  # type: ignore[arg-type]
        if judged is None or judged.status != "verified":
            return False
        for numbers in self._variables(right, values):
            sized = {**numbers, **dict(zip(UNIVERSAL, sizes, strict=True))}
            if any(not self.evaluation.holds(c, sized) for c in wrong.draft["assumptions"]):
                return True
            if any(values.get(n, v) != v for n, v in wrong.draft.get("pinned", {}).items()):
                return True
            try:
                same = self._statements(right, sized) == self._statements(wrong.draft, sized)
            except NoValue:
                same = False
            if not same:
                return True
        return False

    def _statements(self, draft: Data, sized: Point) -> Any:
        return self.evaluation.statements(draft, sized, lambda kernel: (kernel.get("file"), kernel["line"]))

    def _variables(self, right: Data, values: Point) -> Iterator[Point]:
        """The values of the draft's variables at each call of the class in the execution at this point."""
        point = self.execution.executed_at(values)
        for call in point.calls if point is not None else ():
            if call.class_path == self.analysis.class_name:
                try:
                    yield {
                        n: resolve(n, path, call, values, int, point.config) for n, path in right["parameters"].items()
                    }
                except Unresolvable:
                    continue

    def _checked(self, gate: Gate, kind: str, draft: Data, at: Point) -> Result:
        began = time.process_time()
        verdict = gate.check(copy.deepcopy(draft))
        seconds = round(time.process_time() - began, 2)
        finding = verdict.findings[0].message[:300] if verdict.findings else ""
        verified = verdict.analysis is not None and verdict.analysis.verification.status == "verified"
        if verdict.analysis is not None and not verified:
            finding = f"taken, and not verified: {verdict.analysis.verification.reason}"
        return Result(gate.subject.source.class_path, kind, at, not verified, finding, seconds)


def _quiet(name: str, stage: str) -> None:
    pass


def summary(found: Sequence[Result]) -> dict[str, Any]:
    right, wrong = ([r for r in found if (r.kind == "right") is is_right] for is_right in (True, False))
    return {
        "classes": len({result.class_name for result in found}),
        "right": len(right),
        "right_taken": sum(not result.refused for result in right),
        "wrong": len(wrong),
        "wrong_refused": sum(result.refused for result in wrong),
        "kinds": {kind: f"{sum(r.refused for r in wrong if r.kind == kind)} of {sum(r.kind == kind for r in wrong)}"
                  for kind in KINDS},
        "core_seconds": round(sum(result.seconds for result in found), 1),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=10, help="wrong drafts of each class")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--only", default="", help="classes whose path holds this text")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--write", type=Path, metavar="FILE")
    given = parser.parse_args()
    found: list[Result] = []
    with tempfile.TemporaryDirectory() as folder:
        study = Study(given.results or Path(folder))
        for class_path in (name for name in CLASSES if given.only in name):
            try:
                for result in study.of(class_path, given.number, given.seed):
                    found.append(result)
                    mark = "ok    " if result.refused == (result.kind != "right") else "WRONG "
                    print(
                        mark,
                        result.class_name.rpartition(".")[2],
                        result.kind,
                        result.seconds,
                        result.finding[:160],
                        flush=True,
                    )
            except LmpError as error:
                print("left out", class_path, str(error).splitlines()[0], flush=True)
            if given.write is not None:
                record = {"seed": given.seed, **summary(found), "drafts": [asdict(result) for result in found]}
                given.write.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(summary(found), indent=1))
    failed = [result for result in found if result.refused == (result.kind == "right")]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
