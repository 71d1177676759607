"""Where a tensor is divided, and the same place in a view of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """The place where a tensor is divided between GPUs; or, without an axis, parts of a sum that each GPU has."""

    shape: Shape
    axis: int | None
    extent: int
    """Places along the divided axis: all of it, or a factor where others are merged into it."""
    group: int
    """The `Groups` index of what is divided together."""

    @property
    def partial(self) -> bool:
        return self.axis is None


@dataclass
class Groups:
    """Tensors that are divided together. Each starts at a product, and joins with others where operands meet."""

    parent: list[int] = field(default_factory=list)
    units: list[int] = field(default_factory=list)
    """Places that cannot be divided further: heads, where columns become heads."""
    seeds: list[frozenset[int]] = field(default_factory=list)
    """Kernels at which it starts."""
    experts: list[bool] = field(default_factory=list)
    normed: list[bool] = field(default_factory=list)
    """A statistic over the divided axis is in it."""
    heads: list[bool] = field(default_factory=list)
    """Its places became heads of several elements each."""
    repeats: list[bool] = field(default_factory=list)
    """Several GPUs may have the same unit: each reads it for its own queries."""
    contracted: list[bool] = field(default_factory=list)
    """A product sums over it."""

    def new(self, extent: int, seeds: frozenset[int], experts: bool = False) -> int:
        self.parent.append(len(self.parent))
        self.units.append(extent)
        self.seeds.append(seeds)
        self.experts.append(experts)
        for flags in (self.normed, self.heads, self.repeats, self.contracted):
            flags.append(False)
        return len(self.parent) - 1

    def root(self, group: int) -> int:
        while self.parent[group] != group:
            group = self.parent[group]
        return group

    def split(self, layout: Layout, shape: Shape, places: int) -> None:
        """A view of a tensor of the group has so many places."""
        group = self.root(layout.group)
        self.units[group] = math.gcd(self.units[group], places)
        each = min(math.prod(shape), math.prod(layout.shape)) // places
        self.heads[group] |= each > math.prod(layout.shape) // layout.extent

    def join(self, one: int, other: int) -> int:
        one, other = self.root(one), self.root(other)
        if one == other:
            return one
        self.parent[other] = one
        self.units[one] = math.gcd(self.units[one], self.units[other])
        self.seeds[one] |= self.seeds[other]
        for flags in (self.experts, self.normed, self.heads, self.repeats, self.contracted):
            flags[one] |= flags[other]
        return one


def placed(layout: Layout, shape: Shape) -> tuple[int, int] | None:
    """The divided axis of a view or slice with this shape, and the places along it; None if it cannot be told."""
    made, axis, extent = layout.shape, layout.axis, layout.extent
    assert axis is not None
    if len(made) == len(shape) and made[axis] == shape[axis]:
        same = sum(a != b for a, b in zip(made, shape, strict=True))
        if same == 0 or all(b <= a for a, b in zip(made, shape, strict=True)):
            return axis, extent
    inserted = _inserted(made, shape)
    if inserted is not None:
        return axis + (inserted <= axis), extent
    if math.prod(shape) > math.prod(made):
        return _repeated(layout, shape)
    part = _part(layout, shape)
    if part in shape and part < extent:
        return len(shape) - 1 - shape[::-1].index(part), part
    found = sorted(_candidates(layout, shape))
    if found:
        *_, place, places = found[0]
        return place, places
    return _heads_of_part(shape, part)


def _inserted(made: Shape, shape: Shape) -> int | None:
    """Where a view has one axis more, which repeats the tensor."""
    if len(shape) != len(made) + 1:
        return None
    repeated = math.prod(shape) // max(1, math.prod(made))
    return next(
        (i for i in range(len(shape) - 1, -1, -1) if shape[:i] + shape[i + 1 :] == made and shape[i] == repeated > 1),
        None,
    )


def _repeated(layout: Layout, shape: Shape) -> tuple[int, int] | None:
    """The place in a view that repeats the tensor along one axis, behind the divided one if that may be."""
    times, rest = divmod(math.prod(shape), max(1, math.prod(layout.shape)))
    found = []
    for i in range(len(shape)):
        once = shape[:i] + shape[i + 1 :]
        place = placed(layout, once) if shape[i] == times and not rest else None
        if place is not None:
            found.append((i != place[0] + 1, place[0] + (i <= place[0]), place[1]))
    return min(found)[1:] if found else None


def _candidates(layout: Layout, shape: Shape) -> Iterator[tuple[bool, int, bool, int, int]]:
    """Axes that have the places, the best first: at the same stride; without a remainder; with one that is an axis."""
    assert layout.axis is not None
    extent, size_before = layout.extent, layout.shape[layout.axis]
    whole = math.prod(layout.shape) == math.prod(shape)
    others = math.prod(layout.shape) // extent
    stride = math.prod(layout.shape[layout.axis + 1 :])
    for axis, size in enumerate(shape):
        places = math.gcd(size, extent)
        if places == 1 and extent > 1:
            continue
        rest, behind = extent // places, math.prod(shape[axis + 1 :])
        each = math.prod(shape) // places
        moved = not (whole and behind == stride * rest)
        if rest == 1 and each <= others:
            yield moved, 0 if others % each == 0 else 3, size != size_before, axis, places
        elif rest > 1 and each % others == 0 and 1 < each // others <= rest and behind % (each // others) == 0:
            width = each // others
            yield moved, 1 + (width != rest), width not in _suffixes(shape, axis), axis, places


def _suffixes(shape: Shape, axis: int) -> set[int]:
    return {math.prod(shape[i:]) for i in range(axis + 1, len(shape))}


def _part(layout: Layout, shape: Shape) -> int:
    """Places that a slice of the divided axis has, as one of several merged weights; 0 if it is none."""
    others, elements = math.prod(layout.shape) // layout.extent, math.prod(shape)
    return 0 if elements % others or elements > math.prod(layout.shape) else elements // others


def _heads_of_part(shape: Shape, part: int) -> tuple[int, int] | None:
    """The heads of such a slice."""
    for axis in range(len(shape) - 2, -1, -1):
        if shape[axis] > 1 and part and part % shape[axis] == 0 and part // shape[axis] in _suffixes(shape, axis):
            return axis, shape[axis]
    return None
