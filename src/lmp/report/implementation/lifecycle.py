"""Each tensor of a call: who makes it, who reads it, when it dies, and its bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lmp.observe.flow import Flow, Peak, Tensor
from lmp.report.document.amounts import Number, Term
from lmp.report.document.parts import Code, Inline, Line
from lmp.report.facts import ModelFacts, Point
from lmp.report.implementation.catalog import catalogue_of
from lmp.report.implementation.figures import at_peak, held, last_position, named
from lmp.report.implementation.operators import (
    Catalogue,
    Row,
    assigned,
    code_at,
    kinds_of,
    of_layers,
    place_in,
    plain,
    pointer_at,
    row_pointer,
)


@dataclass
class _Alike:
    """Tensors of one maker with one formula: those of modules that do the same."""

    row: Row
    tensors: list[Tensor] = field(default_factory=list)

    @property
    def first(self) -> Tensor:
        return self.tensors[0]


def lifetimes(facts: ModelFacts, most: int | None = None) -> tuple[str, list[dict[str, Line]]]:
    """The call that is shown, and its tensors; with ``most`` the largest ones, in the order of their makers."""
    asked = {point.phase: point for point in reversed(facts.points)}
    phase, flow = next(((p, flow) for p, flow in facts.flows.phases.items() if p in asked), ("", None))
    if flow is None:
        return "", []
    point = asked[phase]
    catalogue = catalogue_of(facts)
    groups = _groups(facts, catalogue, phase, flow)
    given = [_weights(facts), *_given(facts, flow, phase, catalogue)]
    left = None if most is None else max(0, most - len(given))
    large = sorted(groups, key=lambda group: -group.first.bytes)[:left]
    rows = [_row(facts, catalogue, phase, flow, group, point) for group in groups if group in large]
    names = ("tensor", "created", "consumed", "lifetime")
    return point.title, [dict(zip(names, row, strict=True)) for row in (*given, *rows)]


def _groups(facts: ModelFacts, catalogue: Catalogue, phase: str, flow: Flow) -> list[_Alike]:
    kinds = kinds_of(facts, flow)
    found: dict[tuple[str, object], _Alike] = {}
    for tensor in flow.tensors:
        if tensor.maker is None or not tensor.bytes or not of_layers(flow, kinds, tensor):
            continue
        row = catalogue.row_of(phase, tensor.maker)
        group = found.setdefault((row.key, tensor.formula or tensor.bytes), _Alike(row))
        group.tensors.append(tensor)
    return list(found.values())


def _weights(facts: ModelFacts) -> list[Line]:
    cell: list[Inline] = ["weights"]
    if facts.inspection is not None:
        cell += [", ", facts.number("{a}", "B", a=Term(name="weight_bytes"))]
    return [cell, "loading, before the call", "every task that reads a parameter", "outlive the call"]


def _given(facts: ModelFacts, flow: Flow, phase: str, catalogue: Catalogue) -> list[list[Line]]:
    rows: list[list[Line]] = []
    for tensor in flow.tensors:
        if tensor.maker is None and tensor.kind == "input" and tensor.bytes and tensor.readers:
            name = next(iter(facts.model.interface), "input")
            readers = _keys(catalogue, phase, tensor.readers)
            rows.append([[Code(name), f", {tensor.dtype}"], "the caller", readers, "outlives the call"])
            break
    return rows


def _row(facts: ModelFacts, catalogue: Catalogue, phase: str, flow: Flow, group: _Alike, point: Point) -> list[Line]:
    tensor, row = group.first, group.row
    readers = [i for t in group.tensors for i in t.readers]
    created: list[Inline] = [f"{row.key} ", row_pointer(facts, row)]
    return [
        _named(facts, catalogue, group, point, phase),
        created,
        _keys(catalogue, phase, readers) or _unread(flow, tensor),
        _lifetime(facts, catalogue, phase, flow, group),
    ]


def _named(facts: ModelFacts, catalogue: Catalogue, group: _Alike, point: Point, phase: str) -> list[Inline]:
    tensor, row = group.first, group.row
    name = row.place.attribute.rpartition(".")[2]
    if not name and catalogue.ends_its_line(row):
        name = assigned(code_at(facts, row.place.file, row.place.line)) or ""
    cell: list[Inline] = [Code(name)] if name else [row.words]
    if row.place.attribute or not name:
        cell.append(" result" if row.place.attribute else "")
    cell.append(f", {tensor.dtype}, ")
    cell.append(bytes_of(facts, tensor, point, phase))
    if tensor.formula is not None:
        cell += [" = ", plain(tensor.formula)]
    if len(group.tensors) > 1:
        cell.append(f", at {len(group.tensors)} places")
    return [piece for piece in cell if piece != ""]


def bytes_of(facts: ModelFacts, tensor: Tensor, point: Point, phase: str) -> Number:
    """The tensor's bytes: by its formula, or as they were measured."""
    if tensor.formula is not None:
        return facts.of_formula(tensor.formula, point, "B")
    return facts.number("{a}", "B", a=Term(name=f"tensor.{phase}.{tensor.index}"))


def _keys(catalogue: Catalogue, phase: str, indices: Sequence[int]) -> str:
    keys = dict.fromkeys(catalogue.row_of(phase, i).key for i in indices)
    return ", ".join(sorted(keys, key=lambda key: int(key[1:])))


def _unread(flow: Flow, tensor: Tensor) -> str:
    if tensor.index in flow.returned:
        return "the caller: it is returned"
    return "the next call: it is in the KV cache" if tensor.kind == "cache" else "nothing"


def _lifetime(facts: ModelFacts, catalogue: Catalogue, phase: str, flow: Flow, group: _Alike) -> Line:
    tensor = group.first
    assert tensor.maker is not None
    if tensor.kind == "cache":
        return "outlives the call: in the KV cache"
    if tensor.end is None:
        return "outlives the call: returned" if tensor.index in flow.returned else "outlives the call"
    spans = {t.end - t.maker for t in group.tensors if t.end is not None and t.maker is not None}
    last = max(tensor.readers, default=tensor.maker)
    through = "to the end of the call"
    if tensor.end < len(flow.ops):
        through = _until(catalogue, phase, tensor, last, place_in(facts, flow, tensor.end - 1))
    length = f"{min(spans)}" if len(spans) == 1 else f"{min(spans)} to {max(spans)}"
    return f"{through}; alive during {length} tasks"


def _until(catalogue: Catalogue, phase: str, tensor: Tensor, last: int, place: str) -> str:
    assert tensor.end is not None
    row = catalogue.row_of(phase, tensor.end - 1)
    several = len({op.frames[0].path for op in row.ops[phase]}) > 1
    done = f"{row.key} in {place}" if several and place else row.key
    if tensor.end - 1 == last:
        return f"to its last reader, {done}"
    return f"to {done}, {tensor.end - 1 - last} after its last reader"


# --- the moment of most memory ---------------------------------------------------------------------------------------


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
