"""The moment of a call at which most memory is alive, at every stated point."""

from __future__ import annotations

from collections.abc import Iterator

from lmp.observe.flow import KEPT, Peak
from lmp.records import short
from lmp.report.document.amounts import Number, Term
from lmp.report.document.parts import Block, Bullets, Code, Inline, Line, Paragraph, Table
from lmp.report.facts import ModelFacts, Point
from lmp.report.implementation.kept import kept_activations
from lmp.report.implementation.operators import pointer_at

LAST = "Activations, logits of the last position alone"
MOST = 5
"""Parts of a peak that are named."""


def peak_blocks(facts: ModelFacts) -> list[Block]:
    """The peaks as a table, and what they are made of."""
    name = short(facts.model.class_name)
    columns = ("Point", "Activations", "KV cache", "Activations and KV cache", "With weights", LAST)
    points = [point for point in facts.points if point.key in facts.flows.peaks]
    if not points:
        why = facts.flows.reason or f"{name} is run inside of a model, whose memory is not its own"
        return [Paragraph("Peak:"), Table(columns, [], searched=f"a call of {name} with all its layers: {why}")]
    rows = [_row(facts, point) for point in points]
    return [
        Paragraph(
            "Peak of one call with all layers, from execution on the meta device: the most bytes that are alive at the "
            "same time beside the weights, in storages whose lifetimes Python's references decide, as on a GPU. Not in "
            "it: workspaces of kernels, the allocator's rounding, the CUDA context."
        ),
        Table(columns, rows, right=frozenset({1, 2, 3, 4, 5})),
        Bullets(list(_compositions(facts, points))),
    ]


def measured(facts: ModelFacts, point: Point, name: str) -> Number:
    """A number of the peak at a point: total, activations, cache, cache_before, cache_after."""
    return facts.number("{a}", "B", a=Term(name=f"peak.{point.key}.{name}"))


def with_weights(facts: ModelFacts, point: Point) -> Number | None:
    """Weights, KV cache and activations at the peak; None where the weights are not known."""
    if facts.inspection is None or point.key not in facts.flows.peaks:
        return None
    terms = {"a": Term(name=f"peak.{point.key}.total"), "w": Term(name="weight_bytes")}
    return facts.number("{a} + {w}", "B", **terms)


def _row(facts: ModelFacts, point: Point) -> list[Line]:
    whole = with_weights(facts, point)
    return [
        point.title,
        measured(facts, point, "activations"),
        measured(facts, point, "cache"),
        measured(facts, point, "total"),
        "weights unknown" if whole is None else whole,
        _last(facts, point),
    ]


def _last(facts: ModelFacts, point: Point) -> Line:
    """Activations where one position alone is asked for its logits; decode has one in any case."""
    kept = kept_activations(facts, point)
    if kept is not None:
        return kept
    return "the same: one position" if point.values["seq_len"] == 1 else f"no {KEPT}"


def _compositions(facts: ModelFacts, points: list[Point]) -> Iterator[Line]:
    """Where the peak of each phase is, and of what; points whose peak is at the same place share a sentence."""
    seen: dict[object, list[Point]] = {}
    for point in points:
        peak = facts.flows.peaks[point.key]
        seen.setdefault((point.phase, peak.words, peak.frames[0].path if peak.frames else ""), []).append(point)
    for alike in seen.values():
        yield _composition(facts, alike)


def _composition(facts: ModelFacts, points: list[Point]) -> list[Inline]:
    point, peak = points[0], facts.flows.peaks[points[0].key]
    line: list[Inline] = [f"{point.title}"]
    if len(points) > 1:
        more = "1 more point" if len(points) == 2 else f"{len(points) - 1} more points"
        line.append(f" (alike at {more} of {facts.called(point.phase)})")
    line += [": at the ", peak.words, *_where(facts, peak), ", with "]
    for number, (words, _, count) in enumerate(peak.alive[:MOST]):
        size = facts.number("{a}", "B", a=Term(name=f"peak.{point.key}.alive.{number}"))
        times = f" ({count} tensors)" if count > 1 else ""
        line += [", " if number else "", size, f" of {words}{times}"]
    if len(peak.alive) > MOST:
        line.append(f", and {len(peak.alive) - MOST} smaller parts")
    return line


def _where(facts: ModelFacts, peak: Peak) -> list[Inline]:
    if not peak.frames or not peak.frames[0].lines:
        return []
    frame = peak.frames[0]
    caller = peak.frames[1] if frame.class_name.startswith("torch.") and len(peak.frames) > 1 else frame
    line = caller.lines[0]
    attribute = frame.path.rpartition(".")[2] if caller is not frame else ""
    where: list[Inline] = [" in ", Code(frame.path)] if frame.path else []
    return [*where, ", ", pointer_at(facts, line.file, line.line, attribute)]
