"""Times of many steps as arrays, with the parts of their errors that a sum has to keep apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lmp.predict.prediction import Total

Array: TypeAlias = NDArray[np.float64]
Index: TypeAlias = NDArray[np.int64]
Parts = Mapping[str, Array]


def _added(one: Parts, other: Parts) -> Parts:
    found = dict(one)
    for name, part in other.items():
        found[name] = found[name] + part if name in found else part
    return found


def _each(parts: Parts, change: Callable[[Array], Array]) -> Parts:
    return {name: change(part) for name, part in parts.items()}


@dataclass(frozen=True)
class Side:
    """Half-widths of 80 % intervals on one side, in microseconds. `lmp.predict.prediction.total` has the rule."""

    alone: Array
    """Squares of what each shape errs by itself: they add up."""
    shared: Parts = field(default_factory=dict)
    """Kernel family and provenance -> what its kernels err together: it adds up before it is squared."""

    def __add__(self, other: Side) -> Side:
        return Side(self.alone + other.alone, _added(self.shared, other.shared))

    def __mul__(self, times: Array | float) -> Side:
        return Side(self.alone * np.square(times), _each(self.shared, lambda part: part * times))

    def changed(self, change: Callable[[Array], Array]) -> Side:
        """With a change of every array."""
        return Side(change(self.alone), _each(self.shared, change))

    @property
    def width(self) -> Array:
        return np.sqrt(self.alone + sum((np.square(part) for part in self.shared.values()), np.zeros_like(self.alone)))


@dataclass(frozen=True)
class Times:
    """Times of as many steps as the arrays are long, in microseconds. They add up, and can be multiplied by a count."""

    us: Array
    floor: Array
    """At dense peak and peak bandwidth."""
    below: Side
    above: Side
    parts: Parts = field(default_factory=dict)
    """Kernel family and provenance, as ``gemm/calibrated`` -> microseconds of its kernels."""
    beyond: Parts = field(default_factory=dict)
    """Sizes beyond what was measured, in words -> microseconds of the kernels that have them."""

    def __add__(self, other: Times) -> Times:
        return Times(
            self.us + other.us, self.floor + other.floor, self.below + other.below, self.above + other.above,
            _added(self.parts, other.parts), _added(self.beyond, other.beyond),
        )  # fmt: skip

    def __mul__(self, times: Array | float) -> Times:
        """``times``: at least 0."""
        parts, beyond = (_each(of, lambda part: part * times) for of in (self.parts, self.beyond))
        return Times(self.us * times, self.floor * times, self.below * times, self.above * times, parts, beyond)

    def picked(self, index: Index) -> Times:
        """The steps with these numbers."""
        return self._changed(lambda part: part[index])

    def grouped(self, group: Index, groups: int) -> Times:
        """Sums of the steps of each group. ``group``: of each step, the number of its group."""
        return self._changed(lambda part: np.bincount(group, part, groups))

    def _changed(self, change: Callable[[Array], Array]) -> Times:
        return Times(
            change(self.us), change(self.floor), self.below.changed(change), self.above.changed(change),
            _each(self.parts, change), _each(self.beyond, change),
        )  # fmt: skip

    def plus_us(self, us: Array | float, part: str = "overhead/stated") -> Times:
        """With a time that is as it was given: it has no interval."""
        more = np.broadcast_to(np.asarray(us, dtype=np.float64), self.us.shape)
        parts = _added(self.parts, {part: more}) if np.any(more) else self.parts
        return Times(self.us + more, self.floor + more, self.below, self.above, parts, self.beyond)

    @property
    def low(self) -> Array:
        return np.maximum(self.us - self.below.width, self.floor)

    @property
    def high(self) -> Array:
        return self.us + self.above.width

    def totals(self) -> list[Total]:
        """Microseconds of each step, and the ends of its interval."""
        return list(zip(self.us.tolist(), self.low.tolist(), self.high.tolist(), strict=True))

    def shares(self, step: int) -> dict[str, float]:
        """Of one step, each part's share of the time, the largest first."""
        return _shares(self.parts, step, float(self.us[step]))

    def shares_beyond(self, step: int) -> dict[str, float]:
        """Of one step, the share of kernels with sizes beyond what was measured."""
        return _shares(self.beyond, step, float(self.us[step]))


def _shares(parts: Parts, step: int, whole: float) -> dict[str, float]:
    found = {name: float(part[step]) / whole for name, part in parts.items() if part[step] > 0}
    return dict(sorted(found.items(), key=lambda item: -item[1]))
