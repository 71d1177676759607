"""The least time that a call takes: bars of its parts, and bounds at every stated point."""

from __future__ import annotations

from lmp.records import short
from lmp.report.bounds import Bound
from lmp.report.document.amounts import Number, Term
from lmp.report.document.parts import Block, Bold, Bullets, Code, Fence, Image, Inline, Line, Paragraph, Table
from lmp.report.facts import ModelFacts, Point
from lmp.report.folder import file_name
from lmp.report.implementation.assumptions import assumed
from lmp.report.implementation.device_memory import DEVICES, constant, devices_needed, needed_terms
from lmp.report.implementation.predicted import predicted_blocks
from lmp.report.implementation.timeline import layer_lines, model_lines


def seconds(facts: ModelFacts, name: str) -> Number:
    """A bound by its name."""
    return facts.number("{a} / 10 ** 12", "s", a=Term(name=name))


def timeline_blocks(facts: ModelFacts) -> list[Block]:
    device = facts.device
    blocks: list[Block] = [
        Paragraph(
            [
                Bold("A bound, not a measurement."),
                " Each operator takes at least the longest of: its matrix products at ",
                constant(facts, device.matmul_flops, "FLOP/s"),
                ", its other FLOPs at ",
                constant(facts, device.other_flops, "FLOP/s"),
                ", its bytes at ",
                constant(facts, device.bandwidth, "B/s"),
                f" (one {device.name}; where the model needs several, of one as if all fitted). Operators run one "
                "after another, each on all units of the device. Launches, waiting and caches are not in it.",
            ]
        ),
        Bullets(list(assumed(facts))),
    ]
    for phase in dict.fromkeys(point.phase for point in facts.points):
        point = next(p for p in facts.points if p.phase == phase)
        blocks.append(Paragraph(f"Whole model, {point.title}:"))
        blocks.append(Fence(list(model_lines(facts, point)), "text"))
        seen: dict[tuple[tuple[str, Bound], ...], str] = {}
        for path, layer in facts.bounds.layers(point.key).items():
            same = seen.setdefault(tuple(facts.bounds.inside(point.key, path).items()), path)
            if same != path:
                blocks.append(Paragraph([Code(path), " takes the same as ", Code(same), f" at {point.title}."]))
                continue
            blocks.append(Paragraph(["One ", Code(short(layer.class_name)), " (", Code(path), f"), {point.title}:"]))
            blocks.append(Fence(list(layer_lines(facts, point, path)), "text"))
    blocks.append(Paragraph(_columns_read(facts)))
    blocks.append(_bounds_table(facts))
    blocks += predicted_blocks(facts)
    plot = f"../assets/{file_name(facts.name)}-breakdown.svg"
    blocks.append(Image(plot, f"{facts.name}: bound time by part of the model at each stated point"))
    return blocks


def _columns_read(facts: ModelFacts) -> Line:
    line: list[Inline] = [
        Bold("Lower bound, fully fused"),
        ": all matrix products that this code does at the peak rate, or the compulsory traffic of 8.1 at the "
        "bandwidth, whichever takes longer. It is of this code's products: an algorithm that does fewer may take less.",
    ]
    if _is_spread(facts):
        line += [
            " ",
            Bold(SPREAD),
            ": the bound divided by the devices of 8.1, as if they shared all work evenly and sent one another "
            "nothing; all other columns are of one device.",
        ]
    if facts.bounds.is_routed:
        line += [
            " The columns ",
            Bold("uniform routing"),
            " have the expected number of experts of 8.1; all others are as if no two tokens shared an expert, but for "
            "the tokens/s fully fused, which are as if all tokens chose the same experts: no routing reads less.",
        ]
    return line


def _bounds_table(facts: ModelFacts) -> Table:
    routed, spread = facts.bounds.is_routed, _is_spread(facts)
    tokens = "seq_len" in facts.model.parameters
    columns = (
        "Point",
        "Bound, eager",
        *([SPREAD] * spread),
        *(["Eager, uniform routing"] * routed),
        "Compute bound",
        "Memory bound",
        "Vector bound",
        f"Lower bound, fully fused{', no two share' if routed else ''}",
        *(["Fully fused, uniform routing"] * routed),
        *([f"Tokens/s, eager, {'no two share' if routed else 'at most'}"] * tokens),
        *(["Tokens/s, eager, uniform routing"] * (routed and tokens)),
        *(["Tokens/s, fully fused, at most"] * tokens),
    )
    rows: list[list[Line]] = []
    for point in facts.points:
        name = f"bound.{point.key}"
        shares = [_part(facts, f"{name}.{limit}", f"{name}.total") for limit in ("compute", "memory", "vector")]
        even = [seconds(facts, f"{name}.uniform.total")] if routed else []
        over: list[Line] = (
            [over_devices(facts, point) if point.key in facts.flows.peaks else "not run"] if spread else []
        )
        row: list[Line] = [point.title, seconds(facts, f"{name}.total"), *over, *even, *shares, _fused(facts, point)]
        row += [_fused(facts, point, "uniform")] if routed else []
        row += [_tokens(facts, point, f"{name}.total")] if tokens else []
        row += [_tokens(facts, point, f"{name}.uniform.total")] if routed and tokens else []
        row += [_fused_tokens(facts, point)] if tokens else []
        rows.append(row)
    return Table(columns, rows, right=frozenset(range(1, len(columns))))


SPREAD = "Eager, over its devices"


def _is_spread(facts: ModelFacts) -> bool:
    """Whether some point takes more memory than one device has."""
    seen = [point for point in facts.points if point.key in facts.flows.peaks and facts.inspection is not None]
    return any(devices_needed(facts, point).value > 1 for point in seen)


def over_devices(facts: ModelFacts, point: Point) -> Number:
    """The bound divided by the devices that the point's memory takes."""
    return facts.number(
        f"{{t}} / (10 ** 12 * {DEVICES})", "s", t=Term(name=f"bound.{point.key}.total"), **needed_terms(facts, point)
    )


def _part(facts: ModelFacts, part: str, whole: str) -> Line:
    if not facts.named[whole]:
        return "none"
    return facts.number("100 * {a} / {b}", "%", a=Term(name=part), b=Term(name=whole))


def _fused(facts: ModelFacts, point: Point, way: str = "") -> Line:
    """All products at the peak rate, or the compulsory traffic at the bandwidth, whichever takes longer."""
    if facts.model.compulsory is None:
        return "no compulsory traffic known"
    return facts.number(FUSED, "s", **_fused_terms(facts, point, way))


FUSED = "max({m} / {p}, {c} / {b})"


def _fused_terms(facts: ModelFacts, point: Point, way: str = "") -> dict[str, Term]:
    source = facts.device.source
    counted = Term(point=point.key, quantity="compulsory")
    return {
        "m": Term(point=point.key, quantity="matmul_flops"),
        "p": Term(constant=facts.device.matmul_flops, source=source),
        "c": Term(name=f"routed.{point.key}.{way}.compulsory") if way else counted,
        "b": Term(constant=facts.device.bandwidth, source=source),
    }


def _fused_tokens(facts: ModelFacts, point: Point) -> Line:
    """New tokens a second at the lower bound; with experts, as if all tokens chose the same ones."""
    if facts.model.compulsory is None:
        return "no compulsory traffic known"
    tokens = Term(constant=point.values["batch_size"] * point.values["seq_len"], source="new tokens of the point")
    terms = _fused_terms(facts, point, "least" if facts.bounds.is_routed else "")
    return facts.number(f"floor({{n}} / {FUSED})", "", n=tokens, **terms)


def _tokens(facts: ModelFacts, point: Point, bound: str) -> Line:
    if not facts.named[bound]:
        return "none"
    tokens = point.values["batch_size"] * point.values["seq_len"]
    return facts.number(
        "floor({n} * 10 ** 12 / {a})", "",
        n=Term(constant=tokens, source="new tokens of the point"), a=Term(name=bound),
    )  # fmt: skip
