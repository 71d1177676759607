"""The moment of a call at which most memory is alive, at every point."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lmp.observe.flow import Peak
from lmp.report.document.parts import Code, Inline
from lmp.report.facts import ModelFacts, Point
from lmp.report.implementation.figures import at_peak, held, last_position, named
from lmp.report.implementation.operators import pointer_at

MOST = 4
"""Parts of a peak that are named."""


def peak_rows(facts: ModelFacts) -> list[dict[str, object]]:
    """Activations, cache and weights at the peak of each point that was run."""
    return [
        {
            "point": point.title,
            **{name: at_peak(facts, point, name) for name in ("activations", "cache", "total")},
            "held": held(facts, point) or "weights unknown",
            "last": last_position(facts, point),
        }
        for point in facts.points
        if point.key in facts.flows.peaks
    ]


@dataclass(frozen=True)
class Moment:
    """Where the peak of alike points is, and of what."""

    points: tuple[Point, ...]
    words: str
    where: list[Inline]
    parts: list[Inline]
    more: int


def moments(facts: ModelFacts) -> Iterator[Moment]:
    """Points whose peak is at the same place share an entry."""
    seen: dict[object, list[Point]] = {}
    for point in facts.points:
        if point.key in facts.flows.peaks:
            peak = facts.flows.peaks[point.key]
            seen.setdefault((point.phase, peak.words, peak.frames[0].path if peak.frames else ""), []).append(point)
    for points in seen.values():
        peak = facts.flows.peaks[points[0].key]
        parts: list[Inline] = []
        for number, (words, _, count) in enumerate(peak.alive[:MOST]):
            size = named(facts, f"peak.{points[0].key}.alive.{number}")
            parts += [", " if number else "", size, f" of {words}{f' ({count} tensors)' if count > 1 else ''}"]
        yield Moment(tuple(points), peak.words, _where(facts, peak), parts, max(0, len(peak.alive) - MOST))


def _where(facts: ModelFacts, peak: Peak) -> list[Inline]:
    if not peak.frames or not peak.frames[0].lines:
        return []
    frame = peak.frames[0]
    caller = peak.frames[1] if frame.class_name.startswith("torch.") and len(peak.frames) > 1 else frame
    line = caller.lines[0]
    attribute = frame.path.rpartition(".")[2] if caller is not frame else ""
    where: list[Inline] = [" in ", Code(frame.path)] if frame.path else []
    return [*where, ", ", pointer_at(facts, line.file, line.line, attribute)]
