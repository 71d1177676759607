"""What a call holds in the memory of devices, and what it moves there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lmp.report.document.amounts import Number, Term
from lmp.report.document.parts import Block, Fence, Inline, Line, Paragraph, Table
from lmp.report.facts import ModelFacts, Point
from lmp.report.implementation.assumptions import read_experts
from lmp.report.implementation.peaks import measured


def hierarchy_blocks(facts: ModelFacts) -> list[Block]:
    device = facts.device
    columns = (
        "Point",
        "Held: weights",
        "KV cache after",
        "Activations at the peak",
        "Read from memory",
        "Written",
        "Devices",
    )
    rows = [_held(facts, point) for point in facts.points]
    return [
        Paragraph(
            f"On {device.name} ({device.source}); eager execution, operator by operator: nothing stays on chip between "
            "two operators."
        ),
        Fence(_diagram(facts, facts.points[0]), "text"),
        Table(columns, rows, right=frozenset(range(1, 7))),
        Paragraph(
            [
                "Devices: the least number whose memory (",
                constant(facts, device.memory, "B"),
                " each) holds weights, KV cache and activations at the peak together, however they are split.",
            ]
        ),
        Paragraph(_compulsory(facts)),
        *read_experts(facts),
    ]


def _diagram(facts: ModelFacts, point: Point) -> list[Inline]:
    """The template's hierarchy with this model's bytes at one point."""
    device = facts.device
    lines: list[Inline] = [f"{point.title}\n\n", f"Global memory of {device.name}, "]
    lines += [constant(facts, device.memory, "B"), " at ", constant(facts, device.bandwidth, "B/s"), "\n"]
    if facts.inspection is not None:
        lines += ["    weights      ", facts.number("{a}", "B", a=Term(name="weight_bytes")), "\n"]
    if point.key in facts.flows.peaks:
        lines += ["    KV cache     ", measured(facts, point, "cache_after"), " when the call ends\n"]
        lines += ["    activations  ", measured(facts, point, "activations"), " at the peak\n"]
    lines += ["       ↓ load    ", facts.amount("read", point), " read by all operators together\n"]
    lines += ["On chip: ", *_quoted(facts, device.on_chip), f"; {device.units} units\n"]
    lines += ["       ↓ compute ", facts.amount("matmul_flops", point), " in matrix products at "]
    lines += [constant(facts, device.matmul_flops, "FLOP/s"), ",\n                 "]
    lines += [
        _other_flops(facts, point),
        " of everything else at ",
        constant(facts, device.other_flops, "FLOP/s"),
        "\n",
    ]
    lines += ["       ↓ store   ", facts.amount("write", point), " written\n"]
    lines += [f"Global memory of {device.name}"]
    return lines


def _quoted(facts: ModelFacts, text: str) -> Iterator[Inline]:
    """A text of the device's maker, with its megabytes as numbers."""
    for number, piece in enumerate(re.split(r"(\d+) MB", text)):
        yield constant(facts, int(piece) * 10**6, "B") if number % 2 else piece


def constant(facts: ModelFacts, value: int, unit: str) -> Number:
    return facts.number("{a}", unit, a=Term(constant=value, source=facts.device.source))


def _other_flops(facts: ModelFacts, point: Point) -> Number:
    terms = {"a": Term(point=point.key, quantity="flops"), "b": Term(point=point.key, quantity="matmul_flops")}
    return facts.number("{a} - {b}", "FLOP", **terms)


def _held(facts: ModelFacts, point: Point) -> list[Line]:
    known = facts.inspection is not None
    seen = point.key in facts.flows.peaks
    return [
        point.title,
        facts.number("{a}", "B", a=Term(name="weight_bytes")) if known else "unknown",
        measured(facts, point, "cache_after") if seen else "not run",
        measured(facts, point, "activations") if seen else "not run",
        facts.amount("read", point),
        facts.amount("write", point),
        devices_needed(facts, point) if known and seen else "unknown",
    ]


def devices_needed(facts: ModelFacts, point: Point) -> Number:
    """How many devices' memory it takes for weights, KV cache and activations."""
    return facts.number(DEVICES, "", **needed_terms(facts, point))


DEVICES = "ceil(({w} + {a}) / {m})"


def needed_terms(facts: ModelFacts, point: Point) -> dict[str, Term]:
    return {
        "w": Term(name="weight_bytes"),
        "a": Term(name=f"peak.{point.key}.total"),
        "m": Term(constant=facts.device.memory, source=facts.device.source),
    }


def _compulsory(facts: ModelFacts) -> Line:
    if facts.model.compulsory is None:
        return "The least traffic that any fusion could reach: none found (searched: the model's analysis)."
    line: list[Inline] = [
        "Of this traffic any fusion would still have to move (weights, inputs and cache once, outputs once): "
    ]
    for index, point in enumerate(facts.points):
        share = facts.number(
            "100 * {a} / {b}", "%",
            a=Term(point=point.key, quantity="compulsory"), b=Term(point=point.key, quantity="bytes"),
        )  # fmt: skip
        line += ["; " if index else "", f"{point.title}: ", facts.amount("compulsory", point), ", ", share]
    return [*line, "."]
