"""Section 7: the ways to spread a model over devices, and what its devices send one another then."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lmp.formula import to_text
from lmp.records import short
from lmp.report.document.amounts import Number, Term
from lmp.report.document.parts import Code, Inline, Line, Pointer
from lmp.report.facts import ModelFacts, Point
from lmp.report.implementation.figures import first_of_each_phase, interval, predicted
from lmp.report.implementation.operators import joined, plain, pointer_at
from lmp.report.implementation.plans import PLANS, Plans, Rule
from lmp.report.implementation.split_weights import has_parameter, modules_of
from lmp.report.implementation.styles import FOLDER, Collective, Style, Wait
from lmp.report.predictions import collective_time

SHARE = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
"""Primitive -> how often (tp - 1) / tp of the tensor leaves each device of a ring."""


# --- strategies ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Strategy:
    """One kind of parallelism, as the model's plans have it."""

    kind: str
    rules: tuple[Rule, ...]
    where: list[Inline]
    """Where the plan of each class begins."""
    applied: Pointer | None
    """What applies the plan."""
    searched: str


APPLIED = {
    "data": ("fsdp.py", "apply_fully_sharded_data_parallelism"),
    "tensor": ("tensor_parallel.py", "apply_tensor_parallelism"),
    "pipeline": ("pipeline_parallel.py", "pipeline_parallel_naive_forward"),
    "expert": ("expert_parallel.py", "apply_expert_parallelism"),
    "sequence": ("tensor_parallel.py", "SequenceParallel"),
}


def strategies(facts: ModelFacts, plans: Plans) -> dict[str, Strategy]:
    found = {kind: list(plans.rules[kind]) for kind in PLANS}
    found["sequence"] = [rule for rule in plans.rules["tensor"] if rule.style == "sequence_parallel"]
    return {kind: _strategy(facts, kind, rules) for kind, rules in found.items()}


def _strategy(facts: ModelFacts, kind: str, rules: Sequence[Rule]) -> Strategy:
    first: dict[str, Rule] = {}
    for rule in rules:
        first.setdefault(rule.holder, rule)
    where = joined([_rule_pointer(facts, rule) for rule in first.values()])
    config = short(facts.config_class) if facts.config_class else "no config class"
    names = ", ".join(PLANS.get(kind, PLANS["tensor"]))
    searched = f"{names} of {short(facts.model.class_name)}, {config} and their bases"
    return Strategy(kind, tuple(rules), where, _defined(facts, *APPLIED[kind]), searched)


def _rule_pointer(facts: ModelFacts, rule: Rule) -> Pointer:
    return pointer_at(facts, rule.file, rule.line, re.findall(r"\w+", rule.pattern)[-1] if rule.pattern else "")


def _defined(facts: ModelFacts, file: str, name: str) -> Pointer | None:
    """Where a function or class of transformers' parallelism begins."""
    relative = f"{FOLDER}/{file}"
    path = facts.trees.path_of(relative)
    if path is None or not path.is_file():
        return None
    lines = path.read_text(encoding="utf-8").splitlines()
    number = next((n for n, text in enumerate(lines, 1) if re.match(rf"\s*(?:def|class) {name}\b", text)), None)
    return facts.place(relative, number, name) if number is not None else None


def split_heads(facts: ModelFacts, plans: Plans) -> bool:
    """Whether the degree must divide the heads of keys and values."""
    named = any(rule.pattern.endswith("k_proj") and rule.style == "colwise" for rule in plans.rules["tensor"])
    return named and "config.num_key_value_heads" in facts.named


def names_attention(plans: Plans) -> bool:
    return any(re.search(r"attn|attention", rule.pattern) for rule in plans.rules["tensor"])


def style_rows(facts: ModelFacts, plans: Plans) -> list[dict[str, Line]]:
    """Each style of the plans, with the modules that have it and what it sends."""
    rules = [rule for kind in ("tensor", "expert") for rule in plans.rules[kind]]
    rules += [plans.implied] if plans.implied is not None else []
    rows: list[dict[str, Line]] = []
    for name in dict.fromkeys(rule.style for rule in rules):
        style = plans.styles.get(name)
        sends = style is not None and bool(style.collectives or style.implementations)
        mine = [_named(facts, rule.pattern, sends) for rule in rules if rule.style == name]
        patterns = [piece for n, one in enumerate(mine) for piece in ([", ", *one] if n else one)]
        where: Line = f"none found (searched: styles registered in {FOLDER})"
        if style is not None:
            where = [
                facts.place(style.file, style.line, style.class_name),
                ", registered at ",
                facts.place(style.registered[0], style.registered[1], name),
            ]
        rows.append({"style": Code(name), "modules": patterns, "class": where, "sends": _sends(style)})
    return rows


def _named(facts: ModelFacts, pattern: str, sends: bool) -> list[Inline]:
    parent, _, name = pattern.rpartition(".")
    if facts.inspection is None or modules_of(facts, pattern):
        return [Code(pattern)]
    if not has_parameter(facts, parent, name):
        return [Code(pattern), " (names nothing in this model)"]
    return [Code(pattern), " (a parameter: it is split, and sends nothing)" if sends else " (a parameter)"]


def _sends(style: Style | None) -> str:
    if style is None:
        return "unknown"
    if style.implementations:
        ways = (
            f"{i.name}: {', '.join(dict.fromkeys(c.primitive for c in i.collectives)) or 'what it chooses'}"
            for i in style.implementations
        )
        return f"by ep_implementation ({'; '.join(ways)})"
    return ", ".join(dict.fromkeys(c.primitive for c in style.collectives)) or "nothing"


# --- messages --------------------------------------------------------------------------------------------------------


def degree_of(facts: ModelFacts, plans: Plans) -> int:
    """Devices of the figures: those of the deployment, else at most eight that divide the heads of keys."""
    if facts.deployment.parallel.tp > 1:
        return facts.deployment.parallel.tp
    heads = facts.named.get("config.num_key_value_heads") if split_heads(facts, plans) else None
    return next(n for n in (8, 4, 2, 1) if not heads or heads % n == 0)


@dataclass(frozen=True)
class Sent:
    """A collective of one rule's modules in a forward pass."""

    kind: str
    rule: Rule
    style: Style
    collective: Collective
    count: int
    """Modules that have it."""
    formula: str | None
    """Bytes of the tensor, in the model's variables."""
    way: str = ""


def sent_of(facts: ModelFacts, plans: Plans) -> Iterator[Sent]:
    for kind in ("tensor", "expert"):
        rules = list(plans.rules[kind])
        if kind == "tensor" and plans.implied is not None:
            rules.insert(0, plans.implied)
        for rule in rules:
            style = plans.styles.get(rule.style)
            modules = modules_of(facts, rule.pattern)
            if style is None or not modules:
                continue
            path, number = modules[0][0], sum(n for _, n in modules)
            formula = _bytes(facts, path)
            for collective in style.collectives:
                yield Sent(kind, rule, style, collective, number, formula)
            for way in style.implementations:
                for collective in way.collectives:
                    size = _exchanged(facts, path, collective) if collective.primitive == "all_to_all" else formula
                    yield Sent(kind, rule, style, collective, number, size, way.name)


def _bytes(facts: ModelFacts, path: str) -> str | None:
    """Bytes of what a module returns; the whole tensor, before it is split."""
    shape = _output(facts, path)
    if shape is None:
        return None
    return " * ".join([*(f"({s})" if re.search(r"[-+/]", s) else s for s in shape if s != "1"), "{a_bytes}"])


def _output(facts: ModelFacts, path: str) -> Sequence[str] | None:
    """Shape of what a module returns, in prefill's formulas."""
    flow = facts.flows.phases.get("prefill")
    wild = re.sub(r"\.\d+(?=\.|$)", ".*", path)
    for other, shape in flow.outputs.items() if flow is not None else ():
        if re.sub(r"\.\d+(?=\.|$)", ".*", other) == wild:
            return shape
    return None


def _exchanged(facts: ModelFacts, path: str, collective: Collective) -> str | None:
    """Bytes of an exchange of rows between experts: counts of each expert, or rows as wide as the module's output."""
    choice = next((c for routing in facts.bounds.routings.values() for c in routing.choices), None)
    if choice is None:
        return None
    if collective.counts is not None:  # the experts of every device, on every device
        whole = "num_local_experts" in collective.counts and "ep_size" in collective.counts
        return f"8 * {to_text(choice.experts)}" if whole else None
    row = _output(facts, path)
    return f"{to_text(choice.rows)} * {row[-1]} * {{a_bytes}}" if row else None


def message_rows(facts: ModelFacts, plans: Plans, sent: Sequence[Sent]) -> list[dict[str, Line]]:
    """Operation, primitive, when and data size; the largest first."""
    first = facts.points[0]

    def size(one: Sent) -> float:
        known = one.formula is not None
        return one.count * float(facts.value(Term(point=first.key, formula=one.formula))) if known else 0.0

    rows = [_sent_row(facts, one) for one in sorted(sent, key=lambda one: -size(one))]
    return [*rows, *_stage_rows(facts, plans)]


def _sent_row(facts: ModelFacts, one: Sent) -> dict[str, Line]:
    exchange = one.collective.primitive == "all_to_all" and bool(one.collective.function)
    operation: list[Inline] = [
        *([Code(f"{one.collective.function}()"), " of "] if exchange else ["output of "]),
        Code(one.rule.pattern),
        f" ({one.rule.style}, {one.way})" if one.way else f" ({one.rule.style})",
    ]
    times = facts.number("{n}", "", n=Term(constant=one.count, source="modules that the rule names"))
    when: list[Inline] = [
        f"{'around' if exchange else 'after'} forward() of ",
        times,
        " modules: " if one.count > 1 else " module: ",
        facts.place(one.collective.file, one.collective.line, one.collective.symbol),
    ]
    return {"operation": operation, "primitive": one.collective.primitive, "when": when, "size": _size(facts, one)}


def _size(facts: ModelFacts, one: Sent) -> Line:
    if one.formula is None and one.collective.counts is not None:
        return [Code(one.collective.counts), " numbers of int64: how many rows go where"]
    if one.formula is None:
        return "none found (searched: the module's output, and products over experts, in an executed call)"
    # Every device sends as many rows of a gathered tensor: those that do not divide are padded.
    gathered = one.way and one.collective.primitive == "all_gather"
    padded = ", without rows that pad it to a multiple of the devices" if gathered else ""
    cell: list[Inline] = [plain(one.formula), f" each{padded}"]
    for point in first_of_each_phase(facts):
        terms = {
            "n": Term(constant=one.count, source="modules that the rule names"),
            "a": Term(point=point.key, formula=one.formula),
        }
        cell += [f"; {point.title}: ", facts.of_formula(one.formula, point, "B")]
        cell += [", together ", facts.number("{n} * {a}", "B", **terms)]
    return cell


def _stage_rows(facts: ModelFacts, plans: Plans) -> Iterator[dict[str, Line]]:
    if not {"hidden_size", "vocab_size"} <= set(facts.model.values) or facts.flows.phases.get("prefill") is None:
        return
    for one in plans.stages:
        last = "vocab_size" if one.primitive == "broadcast" else "hidden_size"
        formula = f"{{batch_size}} * {{seq_len}} * {{{last}}} * {{a_bytes}}"
        what = "logits, from the last stage to all" if last == "vocab_size" else "hidden states, to the next stage"
        cell: list[Inline] = [plain(formula)]
        for point in first_of_each_phase(facts):
            cell += [f"; {point.title}: ", facts.of_formula(formula, point, "B")]
        when: list[Inline] = ["between stages: ", facts.place(one.file, one.line, one.symbol)]
        yield {"operation": what, "primitive": one.primitive, "when": when, "size": cell}


def total_rows(facts: ModelFacts, sent: Sequence[Sent], degree: int) -> list[dict[str, Line]]:
    """What a device sends in a forward pass with tensor parallelism, its bound, and the predicted time."""
    tensor = [
        one for one in sent if one.kind == "tensor" and one.formula is not None and one.collective.primitive in SHARE
    ]
    rows: list[dict[str, Line]] = []
    for point in facts.points if tensor and degree > 1 else ():
        messages: dict[tuple[str, int], int] = {}
        for one in tensor:
            size = math.ceil(facts.value(Term(point=point.key, formula=one.formula)))
            key = (one.collective.primitive, size)
            messages[key] = messages.get(key, 0) + one.count
        found = collective_time(facts.device.name, messages, degree)
        row: dict[str, Line] = {"point": point.title, "bytes": _ring(facts, tensor, point, degree)}
        if isinstance(found, str):
            row |= {"time": f"none: {found}", "interval": ""}
        else:
            row |= {"time": predicted(facts, found[0][0], found[1]), "interval": interval(facts, *found)}
        rows.append(row)
    return rows


def _ring(facts: ModelFacts, sent: Sequence[Sent], point: Point, degree: int) -> Number:
    terms: dict[str, Term] = {"tp": Term(constant=degree, source="devices, chosen for the report")}
    for number, one in enumerate(sent):
        times = SHARE[one.collective.primitive] * one.count
        terms[f"n{number}"] = Term(constant=times, source="modules that the rule names")
        terms[f"a{number}"] = Term(point=point.key, formula=one.formula)
    parts = " + ".join(f"{{n{number}}} * {{a{number}}}" for number in range(len(sent)))
    return facts.number(f"({parts}) * ({{tp}} - 1) / {{tp}}", "B", **terms)


# --- overlap ---------------------------------------------------------------------------------------------------------


def collectives(sent: Sequence[Sent]) -> dict[str, list[Collective]]:
    """The collectives by how what follows waits for them."""
    calls = list(dict.fromkeys(one.collective for one in sent))
    functional = [c for c in calls if c.symbol.endswith("_autograd")]
    return {
        "late": [c for c in calls if c.asynchronous],
        "functional": functional,
        "moved": [c for c in calls if c.symbol == "redistribute"],
        "direct": [c for c in calls if not c.asynchronous and c.symbol != "redistribute" and c not in functional],
    }


def places(facts: ModelFacts, calls: Sequence[Collective]) -> list[Inline]:
    return joined([facts.place(c.file, c.line, c.symbol) for c in calls])


def host_waits(plans: Plans) -> list[tuple[str, Wait]]:
    """Where ways to spread experts make the host wait for the device."""
    ways = [way for rule in plans.rules["expert"] if rule.style in plans.styles
            for way in plans.styles[rule.style].implementations]  # fmt: skip
    return list(dict.fromkeys((way.name, wait) for way in ways for wait in way.waits))
