"""Times of a model's calls on a grid of batches and lengths: a reader of a page can move between its points.

Between points a time is interpolated: linearly in batch and length, in which a step is nearly linear. What that misses
is measured at points off the grid, and widens the interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

from lmp.errors import LmpError, first_line
from lmp.formula import Number
from lmp.predict.devices import Device
from lmp.predict.prediction import Predictor, Total
from lmp.predict.screen.asking import Answer, Ask, Subject, asked_for
from lmp.predict.screen.card import EAGER_NAME
from lmp.predict.screen.many import answers
from lmp.predict.shard.parallel import Parallel


@dataclass(frozen=True)
class Axes:
    """Batches and lengths of a phase, rising. A length is tokens in the cache in decode, new tokens in prefill."""

    phase: str
    batches: tuple[int, ...]
    lengths: tuple[int, ...]

    def sizes(self, batch: int, length: int) -> dict[str, Number]:
        """The call's values."""
        new, cached = (1, length) if self.phase == "decode" else (length, 0)
        return {"batch_size": batch, "seq_len": new, "cache_len": cached}

    @property
    def points(self) -> tuple[tuple[int, int], ...]:
        return tuple(product(self.batches, self.lengths))

    @property
    def centres(self) -> tuple[tuple[int, int], ...]:
        """A point off the grid in each cell: its middle. Cells of one pair of batches stand together."""
        cells = product(pairwise(self.batches), pairwise(self.lengths))
        return tuple(((b0 + b1) // 2, (l0 + l1) // 2) for (b0, b1), (l0, l1) in cells)


DECODE = Axes("decode", (1, 2, 4, 8, 16, 32, 64, 128, 256), (512, 2048, 8192, 32768, 131072))
PREFILL = Axes("prefill", (1, 4, 16), (128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768))
TP = (1, 2, 4, 8)


@dataclass(frozen=True)
class Way:
    """One way to run a model. ``word``: dtype of weights, activations and products; None: as the model is."""

    device: Device
    engine: str
    """Name of a profile, or eager mode: each operator of the class is a kernel."""
    tp: int = 1
    word: str | None = None
    ep: int = 1
    kv: str | None = None
    """Dtype of the cache; None: that of the activations."""


@dataclass(frozen=True)
class Table:
    """Microseconds of one way to run a phase, point by point of its axes: time, low and high end, and the bound."""

    way: Way
    axes: Axes
    us: tuple[Total | None, ...]
    """In the order of the axes' points; None where there is no time."""
    bounds: tuple[str | None, ...]
    missed: tuple[float, ...]
    """Error of what is interpolated in the middle of each cell, as a part of the time."""
    reason: str | None = None
    """Why there is no time at all."""


def tables(
    subject: Subject,
    ways: Sequence[Way],
    axes: Sequence[Axes],
    predictor: Predictor,
    given: Mapping[str, Number],
    progress: Callable[[int, int], None] = lambda done, all_: None,
) -> list[Table]:
    """A table for each phase and way. ``given`` are values that all calls have. A table without times says why."""
    found: list[Table] = []
    for number, phase in enumerate(axes):
        progress(number, len(axes))
        found += _tables(subject, _in_order(ways), phase, predictor, given)
    return found


def _in_order(ways: Sequence[Way]) -> list[Way]:
    """Neighbours have the most in common: what is worked out for one serves the next."""
    return sorted(ways, key=lambda way: (way.word or "", way.tp))


def _tables(
    subject: Subject, ways: Sequence[Way], axes: Axes, predictor: Predictor, given: Mapping[str, Number]
) -> Iterator[Table]:
    failed: dict[int, str] = {}
    asks: dict[tuple[int, tuple[int, int]], Ask] = {}
    for point in (*axes.points, *axes.centres):
        for number, way in enumerate(ways):
            if number in failed:
                continue
            try:
                asks[number, point] = _ask(way, {**given, **axes.sizes(*point)})
            except LmpError as error:
                failed[number] = first_line(error)
    made = dict(zip(asks, answers(subject, list(asks.values()), predictor), strict=True))
    for number, way in enumerate(ways):
        yield _table(way, axes, {point: made[number, point] for at, point in made if at == number}, failed.get(number))


def _ask(way: Way, sizes: Mapping[str, Number]) -> Ask:
    engine = None if way.engine == EAGER_NAME else way.engine
    return asked_for(way.device, sizes, engine, (way.word, way.kv), Parallel(way.tp, way.ep))


def _table(way: Way, axes: Axes, made: Mapping[tuple[int, int], Answer | LmpError], reason: str | None) -> Table:
    times = {point: found.us for point, found in made.items() if isinstance(found, Answer)}
    if reason is None and not any(point in times for point in axes.points):
        reason = next((first_line(found) for found in made.values() if isinstance(found, LmpError)), None)
    found = [made.get(point) for point in axes.points]
    return Table(
        way,
        axes,
        tuple(one.us if isinstance(one, Answer) else None for one in found),
        tuple(one.bound if isinstance(one, Answer) else None for one in found),
        tuple(_missed(axes, times, point) for point in axes.centres),
        reason,
    )


def _missed(axes: Axes, times: Mapping[tuple[int, int], Total], point: tuple[int, int]) -> float:
    """Part of the time by which interpolation misses it at a point."""
    guess = between(axes, {at: us[0] for at, us in times.items()}, point)
    if guess is None or point not in times:
        return 0.0
    return abs(math.expm1(math.log(guess / times[point][0]))) if guess and times[point][0] else 0.0


def between(axes: Axes, values: Mapping[tuple[int, int], float], point: tuple[int, int]) -> float | None:
    """A value of the grid at a point, linear in both sizes; None outside of it. `ondevice.js` does the same."""
    found = 0.0
    for (batch, one), (length, other) in product(_parts(axes.batches, point[0]), _parts(axes.lengths, point[1])):
        if (batch, length) not in values:
            return None
        found += one * other * values[batch, length]
    return found if found else None


def _parts(sizes: Sequence[int], at: int) -> list[tuple[int, float]]:
    """The sizes around one, with the weight of each; one alone where it is of the grid."""
    if at in sizes:
        return [(at, 1.0)]
    pair = next(((low, high) for low, high in pairwise(sizes) if low < at < high), None)
    if pair is None:
        return [(at, 1.0)]
    low, high = pair
    part = (at - low) / (high - low)
    return [(low, 1 - part), (high, part)]


def ways_on(
    device: Device, engines: Sequence[str], words: Sequence[str | None], tps: Sequence[int] = TP, **alike: Any
) -> list[Way]:
    """Every way to run a model on a device: each engine at each tp, with each dtype.

    ``alike``: what all of them have, ``ep`` and ``kv``.
    """
    return [Way(device, engine, tp, word, **alike) for word in words for tp in tps for engine in engines]
