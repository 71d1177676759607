"""The points at which a class is called, as text: sets of points with names, and calls that are alike as one.

Shapes are written in the sizes of the call and of the config where these give them at every point, else as numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from string import ascii_uppercase
from typing import Any

NONE = " None"

FEW = 4
"""Sizes of a dimension that are listed."""


@dataclass(frozen=True)
class InputAt:
    """An argument of forward() at one call."""

    name: str
    what: str
    """Dtype of a tensor, or the value."""
    shape: tuple[int, ...] | None = None
    layout: str = ""
    """How a tensor that is not contiguous lies in memory."""


@dataclass(frozen=True)
class CallAt:
    """A call of a class at one verification point; equal calls are one."""

    number: int
    """Of the point, from 1."""
    label: str
    runtime: Mapping[str, int]
    """batch_size, seq_len, cache_len."""
    changed: Mapping[str, Any] = field(default_factory=dict)
    """Config values or arguments that differ from the class's own."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Config values and arguments that a dimension may be."""
    inputs: tuple[InputAt, ...] = ()
    times: int = 1


class PointSets:
    """Names for sets of points, in the order in which they were asked for."""

    def __init__(self, every: Iterable[int]) -> None:
        self.every = frozenset(every)
        self._names: dict[frozenset[int], str] = {}

    def name(self, points: Collection[int]) -> str:
        """The name of a set; a single point and all points need none."""
        found = frozenset(points)
        if found == self.every:
            return "all points"
        if len(found) == 1:
            return f"point {next(iter(found))}"
        if found not in self._names:
            number = len(self._names)
            letters = ascii_uppercase[number % 26]
            self._names[found] = letters if number < 26 else f"{letters}{number // 26}"
        return self._names[found]

    def __str__(self) -> str:
        return "; ".join(f"{name} = {ranges(points)}" for points, name in self._names.items())


def ranges(points: Iterable[int]) -> str:
    """``1, 3-5``"""
    runs: list[list[int]] = []
    for point in sorted(points):
        if runs and point == runs[-1][-1] + 1:
            runs[-1].append(point)
        else:
            runs.append([point])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def points_text(calls: Sequence[CallAt], read: Collection[str]) -> Iterator[str]:
    """A line for each point: kind, sizes, and what differs there of the values that are ``read``."""
    seen: set[int] = set()
    said: dict[str, int] = {}
    for call in calls:
        if call.number in seen:
            continue
        seen.add(call.number)
        sizes = ", ".join(map(str, call.runtime.values()))
        differs = [f"{name}={value}" for name, value in call.changed.items() if name in read]
        text = ", ".join(differs)
        first = said.setdefault(text, call.number)
        more = "" if not differs else f"; {text}" if first == call.number else f"; as at {first}"
        label = f" {call.label}" if call.label else ""
        yield f"{call.number}.{label} ({sizes}){more}"


def calls_text(calls: Sequence[CallAt], sets: PointSets, read: Collection[str]) -> Iterator[str]:
    """The calls by what they are given: those with the same kinds of arguments are one entry."""
    forms: dict[tuple[Any, ...], list[CallAt]] = {}
    for call in calls:
        key = tuple((i.name, i.what, i.layout, None if i.shape is None else len(i.shape)) for i in call.inputs)
        forms.setdefault(key, []).append(call)
    common = _common(list(forms.values()))
    for alike in forms.values():
        at = sets.name({call.number for call in alike})
        most = max(call.times for call in alike)
        times = f", up to {most} calls alike" if most > 1 else ""
        lines = [_input(index, alike, read) for index in range(len(alike[0].inputs))]
        none = [line.removesuffix(NONE) for line in lines if line.endswith(NONE) and line not in common]
        shown = [line for line in lines if line not in common and not line.endswith(NONE)]
        shown += [f"None: {', '.join(none)}"] if none else []
        yield f"At {at}{times}: {'; '.join(shown) or 'no argument besides'}"
    if common:
        yield f"In all calls: {'; '.join(common)}"


def _common(forms: Sequence[Sequence[CallAt]]) -> list[str]:
    """What is no tensor and the same in every call, once there are several kinds of calls."""
    if len(forms) < 2:
        return []
    plain = [{f"{i.name} {i.what}" for i in calls[0].inputs if i.shape is None} for calls in forms]
    return sorted(set.intersection(*plain))


def _input(index: int, calls: Sequence[CallAt], read: Collection[str]) -> str:
    first = calls[0].inputs[index]
    if first.shape is None:
        return f"{first.name} {first.what}"
    dims = [_dimension(index, dim, calls, read) for dim in range(len(first.shape))]
    layout = f" ({first.layout})" if first.layout else ""
    return f"{first.name} {first.what} [{', '.join(dims)}]{layout}"


def _dimension(index: int, dim: int, calls: Sequence[CallAt], read: Collection[str]) -> str:
    """A size that gives the dimension at every call; else its numbers."""
    at: list[tuple[CallAt, int]] = []
    for call in calls:
        shape = call.inputs[index].shape
        assert shape is not None
        at.append((call, shape[dim]))
    if all(value == 1 for _, value in at):
        return "1"
    for name in calls[0].runtime:
        if all(call.runtime[name] == value for call, value in at):
            return name
    if all(call.runtime.get("seq_len", 0) + call.runtime.get("cache_len", 0) == value for call, value in at):
        return "seq_len + cache_len"
    known = [n for n in calls[0].sizes if n in read and all(call.sizes.get(n) == value for call, value in at)]
    if len(known) == 1:  # of several that are alike here, the source tells which one it is
        return known[0].rpartition(".")[2]
    distinct = list(dict.fromkeys(value for _, value in at))
    return " or ".join(map(str, distinct)) if len(distinct) <= FEW else f"one of {len(distinct)} sizes"
