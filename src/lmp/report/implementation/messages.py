"""What devices send to one another in a forward pass: primitives, moments and bytes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lmp.formula import to_text
from lmp.report.document.amounts import Number, Term
from lmp.report.document.parts import Block, Code, Inline, Line, Paragraph, Table
from lmp.report.facts import ModelFacts, Point
from lmp.report.implementation.named_modules import modules_of
from lmp.report.implementation.operators import joined, plain
from lmp.report.implementation.plans import Plans, Rule
from lmp.report.implementation.predicted import interval, time_of
from lmp.report.implementation.split_weights import weights_each
from lmp.report.implementation.styles import FOLDER, Collective, Style
from lmp.report.predictions import collective_time

COLUMNS = ("Operation", "Primitive", "When", "Data Size")


def degree_of(facts: ModelFacts, plans: Plans) -> int:
    """Devices that figures are stated for: at most eight, as many as the heads of keys and values can be split over."""
    heads = facts.named.get("config.num_key_value_heads")
    split = any(rule.pattern.endswith("k_proj") and rule.style == "colwise" for rule in plans.rules["tensor"])
    return next(n for n in (8, 4, 2, 1) if not (split and heads) or heads % n == 0)


@dataclass(frozen=True)
class Sent:
    """A collective of one rule's modules in a forward pass."""

    kind: str
    rule: Rule
    style: Style
    collective: Collective
    path: str
    """Of the first module."""
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
            path, count = modules[0][0], sum(n for _, n in modules)
            formula = _bytes(facts, path)
            for collective in style.collectives:
                yield Sent(kind, rule, style, collective, path, count, formula)
            for way in style.implementations:
                for collective in way.collectives:
                    size = _exchanged(facts, path, collective) if collective.primitive == "all_to_all" else formula
                    yield Sent(kind, rule, style, collective, path, count, size, way.name)


def _bytes(facts: ModelFacts, path: str) -> str | None:
    """Bytes of what a module returns, in prefill's formula; the whole tensor, before it is split."""
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
    if collective.counts is not None:
        # The experts of every device, on every device.
        whole = "num_local_experts" in collective.counts and "ep_size" in collective.counts
        return f"8 * {to_text(choice.experts)}" if whole else None
    row = _output(facts, path)
    return f"{to_text(choice.rows)} * {row[-1]} * {{a_bytes}}" if row else None


def pattern_blocks(facts: ModelFacts, plans: Plans, sent: Sequence[Sent]) -> list[Block]:
    degree, kept = degree_of(facts, plans), bool(facts.flows.kept)
    rows = [_sent_row(facts, one) for one in sent]
    rows += list(_stage_rows(facts, plans))
    searched = f"collectives in the forward hooks of the styles that the plans name, {FOLDER}"
    blocks: list[Block] = [
        Paragraph(
            f"Sizes are of the whole tensor, in one forward pass; tp devices ({degree} where a figure is given). In a "
            "ring each device sends 2 (tp - 1) / tp of it for an all_reduce, and (tp - 1) / tp for an all_gather or a "
            "reduce_scatter."
            + (" Logits are those of all positions; of the last one alone they are as in decode." if kept else "")
        ),
        Table(COLUMNS, rows, searched=searched),
    ]
    alternatives = _alternatives(sent)
    blocks += [Paragraph(alternatives)] if alternatives else []
    tensor = [one for one in sent if one.kind == "tensor" and one.formula is not None]
    if tensor:
        blocks += [
            Paragraph(
                [
                    f"Sent by each device in a forward pass, with tensor parallelism over {degree}",
                    *weights_each(facts, plans, degree),
                    ":",
                ]
            ),
            _totals(facts, tensor, degree),
        ]
    return blocks


def _alternatives(sent: Sequence[Sent]) -> list[Inline]:
    """Which rows of the table never happen in the same call."""
    line: list[Inline] = []
    for name, style in {one.rule.style: one.style for one in sent if one.way}.items():
        ways = [Code(way.name) for way in style.implementations if way.collectives]
        mine = next(one.rule.pattern for one in sent if one.rule.style == name)
        others = sorted({one.rule.style for one in sent if one.rule.pattern == mine and one.rule.style != name})
        line += [" " if line else "", "The rows of ", Code(name), f" are {len(ways)} alternatives"]
        line += [": a call has those of one (", *joined(ways), ")."]
        if others:
            line += [" They take the place of ", *joined([Code(other) for other in others])]
            line += [" for ", Code(mine), ": a plan has one of them."]
    return line


def _sent_row(facts: ModelFacts, one: Sent) -> list[Line]:
    exchange = one.collective.primitive == "all_to_all" and bool(one.collective.function)
    operation: list[Inline] = [
        *([Code(f"{one.collective.function}()"), " of "] if exchange else ["output of "]),
        Code(one.rule.pattern),
        f" ({one.rule.style}",
        f", {one.way})" if one.way else ")",
    ]
    times = facts.number("{n}", "", n=Term(constant=one.count, source="modules that the rule names"))
    moment = "after" if one.collective.primitive != "all_to_all" else "around"
    when: list[Inline] = [
        f"{moment} the module's forward(): ",
        facts.place(one.collective.file, one.collective.line, one.collective.symbol),
        "; modules in a forward pass: ",
        times,
    ]
    return [operation, one.collective.primitive, when, _size(facts, one)]


def _size(facts: ModelFacts, one: Sent) -> Line:
    if one.formula is None and one.collective.counts is not None:
        return [Code(one.collective.counts), " numbers of int64: how many rows go where"]
    if one.formula is None:
        return "none found (searched: the module's output, and products over experts, in an executed call)"
    cell: list[Inline] = [plain(one.formula), " each"]
    if one.collective.primitive == "all_to_all" and one.collective.counts is not None:
        cell.append(": how many rows each expert gets, whatever they are")
    elif one.collective.primitive == "all_to_all":
        cell.append(
            ": a row for every token and expert that it chooses, of all devices together, rows that stay included; "
            "only how they divide over pairs of devices depends on the routing"
        )
    for point in _chosen(facts):
        cell += [f"; {point.title}: ", facts.of_formula(one.formula, point, "B"), ", together "]
        cell.append(facts.number("{n} * {a}", "B", **_terms(one, point)))
    return cell


def _terms(one: Sent, point: Point) -> dict[str, Term]:
    assert one.formula is not None
    return {
        "n": Term(constant=one.count, source="modules that the rule names"),
        "a": Term(point=point.key, formula=one.formula),
    }


def _chosen(facts: ModelFacts) -> list[Point]:
    """One point of each phase: batch 1, the shorter cache."""
    found: dict[str, Point] = {}
    for point in facts.points:
        found.setdefault(point.phase, point)
    return list(found.values())


SHARE = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
"""Primitive -> how often (tp - 1) / tp of the tensor leaves each device of a ring."""


def _totals(facts: ModelFacts, sent: Sequence[Sent], degree: int) -> Table:
    rows: list[list[Line]] = []
    for point in facts.points:
        size = _ring(facts, sent, point, degree, "B")
        time = _ring(facts, sent, point, degree, "s")
        rows.append([point.title, size, time, *_predicted(facts, sent, point, degree)])
    bound = f"At {facts.device.name}'s link bandwidth, at least"
    columns = ("Point", "Bytes sent by a device", bound, "Predicted, one after another", "Interval")
    return Table(columns, rows, right=frozenset({1, 2, 3, 4}))


def _predicted(facts: ModelFacts, sent: Sequence[Sent], point: Point, degree: int) -> list[Line]:
    """The collectives' predicted time, each with its start and its steps, and the interval; or why it is not known."""
    messages: dict[tuple[str, int], int] = {}
    for one in sent:
        if one.collective.primitive in SHARE and one.formula is not None:
            size = math.ceil(facts.value(Term(point=point.key, formula=one.formula)))
            key = (one.collective.primitive, size)
            messages[key] = messages.get(key, 0) + one.count
    found = collective_time(facts.device.name, messages, degree) if messages and degree > 1 else "nothing is sent"
    if isinstance(found, str):
        return [f"none: {found}", ""]
    times, calibration = found
    return [time_of(facts, times, calibration), interval(facts, times, calibration)]


def _ring(facts: ModelFacts, sent: Sequence[Sent], point: Point, degree: int, unit: str) -> Number:
    terms: dict[str, Term] = {"tp": Term(constant=degree, source="devices, chosen for the report")}
    parts = []
    for number, one in enumerate(sent):
        share = SHARE.get(one.collective.primitive)
        if share is None or one.formula is None:
            continue
        terms[f"n{number}"] = Term(constant=share * one.count, source="modules that the rule names")
        terms[f"a{number}"] = Term(point=point.key, formula=one.formula)
        parts.append(f"{{n{number}}} * {{a{number}}}")
    whole = f"({' + '.join(parts)}) * ({{tp}} - 1) / {{tp}}"
    if unit == "s":
        terms["l"] = Term(constant=facts.device.link_bandwidth, source=facts.device.source)
        whole = f"({whole}) / {{l}}"
    return facts.number(whole, unit, **terms)


def _stage_rows(facts: ModelFacts, plans: Plans) -> Iterator[list[Line]]:
    flow = facts.flows.phases.get("prefill")
    if not plans.stages or flow is None or facts.inspection is None:
        return
    hidden = "{batch_size} * {seq_len} * {hidden_size} * {a_bytes}"
    logits = "{batch_size} * {seq_len} * {vocab_size} * {a_bytes}"
    known = facts.model.values
    for one in plans.stages:
        formula = logits if one.primitive == "broadcast" else hidden
        if not {"hidden_size", "vocab_size"} <= set(known):
            continue
        what = (
            "logits, from the last stage to all" if one.primitive == "broadcast" else "hidden states, to the next stage"
        )
        cell: list[Inline] = [plain(formula)]
        for point in _chosen(facts):
            cell += [f"; {point.title}: ", facts.of_formula(formula, point, "B")]
        when: list[Inline] = ["between stages of a pipeline: ", facts.place(one.file, one.line, one.symbol)]
        yield [what, one.primitive, when, cell]
