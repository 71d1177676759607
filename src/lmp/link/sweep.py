"""A model evaluated at every combination of several values, in chunks, so that memory use is bounded.

The last axis varies fastest. A chunk is a block of the product. Its axes are broadcast only at the end, so a part of a
formula that depends on one axis is computed for that axis alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lmp.errors import EvaluationError, UsageError
from lmp.formula import ArrayProgram, Number, free_variables, number_text, settled
from lmp.link.numbers import IN_BYTES
from lmp.link.values import FOLLOWS, Point, Values, exact_size, known_name, lowest_of, values_for
from lmp.records import UNIVERSAL

if TYPE_CHECKING:
    from lmp.link.numbers import ModelNumbers
    from lmp.records import ModelAnalysis

Array = Any
"""A numpy array of one dimension: int64, or Python ints where int64 is too small."""

CHUNK_POINTS = 1 << 16
MAX_POINTS = 10**7


@dataclass(frozen=True)
class Chunk:
    """Consecutive points of a sweep. All arrays have one entry per point."""

    values: dict[str, Array]
    """Values of every name, in the order of `Sweep.names`."""
    costs: dict[str, Array]
    """flops, matmul_flops, read and write; compulsory and parameters_count where the analysis has them."""
    holds: Array
    """True at the points where all assumptions of the analysis hold."""
    broken: dict[str, int]
    """Assumption -> number of points at which it does not hold, if there are any."""

    def __len__(self) -> int:
        return len(self.holds)


@dataclass(frozen=True)
class Sweep:
    """Values for all names: several for the axes, one for every other name."""

    fixed: dict[str, Number]
    axes: dict[str, Values]
    follows: dict[str, str] = field(default_factory=dict)
    """Name -> the axis whose value it has at each point."""

    @property
    def size(self) -> int:
        return math.prod(map(len, self.axes.values()))

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that has a value, in the order of the analysis's own point."""
        return tuple(self.fixed)

    def chunks(self, numbers: ModelNumbers, points: int = CHUNK_POINTS) -> Iterator[Chunk]:
        """All points, at most ``points`` at a time.

        Raises EvaluationError, with the point, if a formula has no integer value.
        """
        changing = self.axes.keys() | self.follows.keys()
        fixed = {n: v for n, v in self.fixed.items() if n not in changing}
        sizes = itertools.chain.from_iterable(self.axes.get(name, (self.fixed[name],)) for name in UNIVERSAL)
        fractions = numbers.has_fractions(self.fixed) or not all(isinstance(size, int) for size in sizes)
        compiled = _Compiled(numbers, fixed, fractions)
        for block in _blocks([len(values) for values in self.axes.values()], points):
            picked = {name: v[part] for (name, v), part in zip(self.axes.items(), block, strict=True)}
            yield self._chunk(compiled, picked)

    def _chunk(self, compiled: _Compiled, picked: Mapping[str, Values]) -> Chunk:
        import numpy as np

        shape = tuple(len(values) for values in picked.values())
        placed = {
            name: _array(values).reshape([-1 if i == own else 1 for i in range(len(shape))])
            for own, (name, values) in enumerate(picked.items())
        }
        placed |= {name: placed[axis] for name, axis in self.follows.items()}
        costs, conditions = compiled.at(placed, shape)
        holds: Array = np.ones(math.prod(shape), dtype=bool)
        broken = {}
        for text, held in conditions.items():
            holds &= held
            count = int(held.size - np.count_nonzero(held))
            if count:
                broken[text] = count
        full = {
            name: np.broadcast_to(placed.get(name, _array([self.fixed[name]])), shape).reshape(-1)
            for name in self.names
        }
        return Chunk(full, costs, holds, broken)


def plan(model: ModelAnalysis, given: Mapping[str, Values], most: int = MAX_POINTS) -> Sweep:
    """The sweep over all names that have several values.

    Raises UsageError for values that `values_for` refuses, and for more than ``most`` points.
    """
    named: dict[str, Values] = {}
    for written, values in given.items():
        name = known_name(model, written)
        if name in named and tuple(named[name]) != tuple(values):
            raise UsageError(f"{name} is set twice: once as {written}\ngive it once")
        named[name] = _checked(name, written, values, lowest_of(model, name))
    fixed = values_for(model, {name: values[0] for name, values in named.items()})
    axes = {name: values for name, values in named.items() if len(values) > 1}
    follows = {n: axis for n, axis in FOLLOWS.items() if axis in axes and n not in named and n not in model.values}
    found = Sweep(fixed, axes, follows)
    if found.size > most:
        counts = " * ".join(f"{len(values):,} ({name})" for name, values in axes.items())
        raise UsageError(
            f"a sweep of {found.size:,} points, {counts}, is more than the {most:,} that are allowed\n"
            f"widen a step, as in 1:{max(axes[next(iter(axes))])}:*2, or allow more with --max-points"
        )
    return found


def _checked(name: str, written: str, values: Values, lowest: int) -> Values:
    if name in UNIVERSAL:
        return tuple(exact_size(written, value) for value in values)
    if min(values[0], values[-1]) < lowest or (not isinstance(values, range) and min(values) < lowest):
        raise UsageError(f"{written} is set to {min(values)}\ngive whole numbers of at least {lowest}")
    return values


class _Compiled:
    """The model's formulas, compiled, with the fixed values substituted."""

    def __init__(self, numbers: ModelNumbers, fixed: Point, fractions: bool) -> None:
        """``fractions``: whether bytes may be fractions, because those of an element are."""
        self._name = numbers.model.class_name
        self._names = list(numbers.quantities)
        formulas = settled([*numbers.quantities.values(), *numbers.repeats], fixed)
        self._conditions = dict(numbers.assumptions)
        self._program = ArrayProgram([*formulas, *self._conditions.values()], fractions=fractions)
        self._fixed = {n: v for n, v in fixed.items() if any(n in free_variables(c) for c in self._conditions.values())}

    def at(self, placed: Mapping[str, Array], shape: tuple[int, ...]) -> tuple[dict[str, Array], dict[str, Array]]:
        """Costs by name, and a mask for each condition; all arrays flat."""
        try:
            found = [array.reshape(-1) for array in self._program({**self._fixed, **placed})]
        except EvaluationError as error:
            raise self._first(placed, shape, error) from error
        count, last = len(self._names), len(self._program.formulas) - len(self._conditions)
        self._refuse_fractions(found[:last], placed, shape)
        for repeat in found[count:last]:
            if len(repeat) and repeat.min() < 0:
                index = int((repeat < 0).argmax())
                raise EvaluationError(
                    f"{self._name}: a kernel runs less than 0 times at {_values_text(placed, shape, index)}"
                )
        return dict(zip(self._names, found, strict=False)), dict(zip(self._conditions, found[last:], strict=True))

    def _refuse_fractions(self, found: Sequence[Array], placed: Mapping[str, Array], shape: tuple[int, ...]) -> None:
        """Only bytes may be fractions: FLOPs, parameters and repeats are whole numbers."""
        for index, array in enumerate(found):
            if array.dtype != object or (index < len(self._names) and self._names[index] in IN_BYTES):
                continue
            at = next((at for at, value in enumerate(array) if not isinstance(value, int)), None)
            if at is not None:
                what = self._names[index] if index < len(self._names) else "a repeat"
                raise EvaluationError(
                    f"{self._name}: {what} is {array[at]}, not an integer at {_values_text(placed, shape, at)}"
                )

    def _first(self, placed: Mapping[str, Array], shape: tuple[int, ...], error: EvaluationError) -> EvaluationError:
        """The error at the first point that has one, found by bisection: a chunk is too long to try each point."""
        import numpy as np

        flat = {name: np.broadcast_to(values, shape).reshape(-1) for name, values in placed.items()}
        first, last = 0, math.prod(shape)
        while last - first > 1:
            middle = (first + last) // 2
            try:
                self._program({**self._fixed, **{n: v[first:middle] for n, v in flat.items()}})
            except EvaluationError as found:
                last, error = middle, found
            else:
                first = middle
        at = _values_text(placed, shape, first)
        return EvaluationError(f"{self._name}: {error} at {at}\nleave that point out, or set other values")


def _values_text(placed: Mapping[str, Array], shape: tuple[int, ...], index: int) -> str:
    import numpy as np

    where = np.unravel_index(index, shape)
    axes = list(placed.items())[: len(shape)]
    values = {name: array.reshape(-1)[where[axis]] for axis, (name, array) in enumerate(axes)}
    return ", ".join(f"{name}={number_text(value)}" for name, value in values.items())


def _blocks(lengths: Sequence[int], most: int) -> Iterator[tuple[slice, ...]]:
    """Slices of the axes that cover the product in order, the last axis fastest; ``most`` points each at most."""
    if not lengths:
        yield ()
        return
    behind = math.prod(lengths[1:])
    step = most // behind
    if step >= 1:
        whole = tuple(slice(0, length) for length in lengths[1:])
        for start in range(0, lengths[0], step):
            yield (slice(start, min(start + step, lengths[0])), *whole)
    else:
        for index in range(lengths[0]):
            for rest in _blocks(lengths[1:], most):
                yield (slice(index, index + 1), *rest)


def _array(values: Values) -> Array:
    import numpy as np

    if isinstance(values, range) and max(abs(values[0]), abs(values[-1])) < 2**62:
        return np.arange(values.start, values.stop, values.step, dtype=np.int64)
    narrow = all(isinstance(value, int) and -(2**63) <= value < 2**63 for value in values)
    return np.array(values, dtype=np.int64 if narrow else object)
