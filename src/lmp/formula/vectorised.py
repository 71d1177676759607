"""Formulas evaluated on numpy arrays: at many points at once, as exact as `evaluate` at each point.

Every array has bounds of its values. If the bounds prove that a result fits, it is computed in int64, else in Python
integers. An array of fractions is computed as whole numerators over one denominator where a sum or a product of it is
needed, else by the functions of `evaluate` itself.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from typing import Any

from lmp.errors import EvaluationError
from lmp.formula.evaluate import (
    QUOTIENT,
    RELATION,
    divided,
    division_by_zero,
    guarded,
    integers,
    not_an_integer,
    not_expanded,
    plus,
    power,
    times,
    unknown,
)
from lmp.formula.lowering import lower
from lmp.formula.nodes import MAX_BITS, Condition, Expr, FloorDiv, Mod, Node, Number
from lmp.formula.parse import parse
from lmp.formula.written import plain

Array = Any
"""A numpy array; numpy is imported where it is first needed, not with the package."""

INT64 = (-(2**63), 2**63 - 1)


@dataclass(frozen=True, slots=True)
class _Values:
    """A number, or an array of int64 or of exact Python numbers, with bounds of all values."""

    data: Array
    low: Number
    high: Number
    whole: bool = True
    """True if every value is an int, as in every array of int64."""

    @property
    def is_array(self) -> bool:
        return not isinstance(self.data, int | Fraction)

    @property
    def fits(self) -> bool:
        narrow = not self.is_array or self.data.dtype != object
        return self.whole and narrow and INT64[0] <= self.low and self.high <= INT64[1]

    @property
    def largest(self) -> int:
        return math.ceil(max(-self.low, self.high))


class ArrayProgram:
    """Formulas and conditions, lowered once. Call it with a number or an array of numbers for each name.

    With ``fractions`` values and results may be fractions: an array that holds one has Python's exact numbers. Without
    it both are integers.
    """

    def __init__(self, formulas: Iterable[Expr | Condition], *, fractions: bool = False) -> None:
        self.formulas = tuple(formulas)
        self.fractions = fractions
        self.lowered = lower(self.formulas)
        self._results = [self.lowered.index[formula] for formula in self.formulas]
        self.kept = self._used_again()
        """Indices that several instructions or results use: what is computed for them is kept."""

    def _used_again(self) -> set[int]:
        once, again = set[int](), set[int]()
        for used in (*(instruction.operands for instruction in self.lowered.instructions), self._results):
            for index in used:
                (again if index in once else once).add(index)
        return again

    def __call__(self, values: Mapping[str, Any]) -> list[Array]:
        """An array for each formula, as from `evaluate_many`, and an array of bool for each condition."""
        import numpy as np

        read = _given_exactly if self.fractions else _given
        points = _Points(self, {name: read(name, value) for name, value in values.items()})
        try:
            shape = np.broadcast_shapes(*(np.shape(p.data) for p in points.values.values()))
        except ValueError:
            shapes = ", ".join(f"{name} {np.shape(p.data)}" for name, p in points.values.items() if p.is_array)
            raise EvaluationError(f"the arrays do not broadcast against one another: {shapes}") from None
        return [
            _everywhere(formula, index, points, shape)
            for formula, index in zip(self.formulas, self._results, strict=True)
        ]


class _Points:
    """The values of the variables at some points, and computed values that are used again."""

    def __init__(self, program: ArrayProgram, values: Mapping[str, _Values]) -> None:
        self.program = program
        self.values = values
        self.found: dict[int, _Values] = {}


def evaluate_many(formula: Expr | str, values: Mapping[str, Any]) -> Array:
    """The values of the formula where each name is an int or an array of ints, broadcast against one another.

    An int64 array, or one of Python ints if int64 is too small. Raises the error that `evaluate` raises at a point.
    """
    (found,) = ArrayProgram([parse(formula) if isinstance(formula, str) else formula])(values)
    return found


def _everywhere(formula: Expr | Condition, index: int, points: _Points, shape: tuple[int, ...]) -> Array:
    import numpy as np

    if math.prod(shape) == 0:
        return np.empty(shape, dtype=bool if isinstance(formula, Condition) else np.int64)
    if isinstance(formula, Condition):
        return np.broadcast_to(guarded(lambda: _mask_of(index, points)), shape).copy()
    result = _tight(guarded(lambda: _exact(index, points)))
    whole = result.whole
    if not whole:
        # Fractions may have been computed, while all values at these points are integers.
        flat = np.ravel(np.asarray(result.data, dtype=object))
        fraction = next((value for value in flat if not isinstance(value, int)), None)
        if fraction is not None and not points.program.fractions:
            raise not_an_integer(formula, fraction)
        whole = fraction is None
    narrow = whole and _fits_int64(result.low, result.high)
    return np.broadcast_to(np.asarray(result.data, dtype=np.int64 if narrow else object), shape).copy()


def _given_exactly(name: str, value: Any) -> _Values:
    """As `_given`, for numbers that may be fractions."""
    import numpy as np

    if np.ndim(value) == 0:
        item: Any = value[()] if isinstance(value, np.ndarray) else value
        return _scalar(plain(item)) if isinstance(item, Fraction) else _given(name, item)
    array = np.asarray(value)
    if array.dtype != object or not any(isinstance(item, Fraction) for item in array.flat):
        return _given(name, array)
    exact = [plain(item) if isinstance(item, Fraction) else integers({name: item})[name] for item in array.flat]
    objects = np.empty(array.shape, dtype=object)
    objects.flat = exact
    return _collected(objects)


def _given(name: str, value: Any) -> _Values:
    import numpy as np

    if np.ndim(value) == 0:
        item: Any = value[()] if isinstance(value, np.ndarray) else value
        number = integers({name: item})[name]
        return _Values(number, number, number)
    array = np.asarray(value)
    if array.size == 0:
        return _Values(array.astype(np.int64), 0, 0)
    if array.dtype.kind not in "iu":
        try:
            array = np.frompyfunc(operator.index, 1, 1)(array)
        except TypeError:
            raise EvaluationError(f"{name} is an array of {array.dtype}: give integers") from None
    low, high = int(array.min()), int(array.max())
    return _Values(array.astype(np.int64 if _fits_int64(low, high) else object), low, high)


def _exact(index: int, points: _Points) -> _Values:
    found = points.found.get(index)
    if found is None:
        found = _computed(index, points)
        if index in points.program.kept:
            points.found[index] = found
    return found


def _computed(index: int, points: _Points) -> _Values:
    instruction = points.program.lowered.instruction(index)
    if instruction is None:
        leaf = points.program.lowered.leaf(index)
        if isinstance(leaf, str):
            return points.values[leaf] if leaf in points.values else unknown(leaf, points.values)
        return _scalar(leaf)
    operation, operands, node = instruction
    match operation:
        case "+" | "*" | "/":
            return _over(*_ratio(index, points))
        case "//" | "%":
            left, right = operands
            divisor = _ratio(right, points)
            _refuse_zero(node, divisor[0])
            if operation == "//":
                return _floored(_ratio(left, points), divisor)
            return _remainder(_exact(left, points), _over(*divisor))
        case "**":
            left, right = operands
            return _raise_to_power(_exact(left, points), _exact(right, points))
        case "min" | "max":
            return reduce(_EXTREME[operation], (_exact(operand, points) for operand in operands))
        case "ceil" | "floor":
            return _round_to_integer(operation, _ratio(operands[0], points))
        case "where":
            return _select(index, operands, points)
    raise not_expanded(node)


# Operations: the bounds of the result, then the result


def _apply(
    ufunc: Callable[..., Array],
    exactly: Callable[..., Number],
    bounds: Callable[..., tuple[Number, Number]],
    *operands: _Values,
) -> _Values:
    """Apply one operation: ``ufunc`` if the bounds of the result allow it, else ``exactly`` at each point."""
    import numpy as np

    if not any(operand.is_array for operand in operands):
        return _scalar(exactly(*(operand.data for operand in operands)))
    low, high = bounds(*operands)
    if not _fits_int64(low, high) and all(operand.whole for operand in operands):
        operands = tuple(map(_tight, operands))
        low, high = bounds(*operands)
    if _fits_int64(low, high) and all(operand.fits for operand in operands):
        return _Values(ufunc(*(operand.data for operand in operands)), low, high)
    whole = all(operand.whole for operand in operands)
    data = [_as_objects(operand) for operand in operands]
    if whole and math.ceil(max(-low, high)).bit_length() < MAX_BITS:
        return _Values(ufunc(*data), low, high)
    return _collected(np.frompyfunc(exactly, len(data), 1)(*data))


def _scalar(value: Number) -> _Values:
    return _Values(value, value, value, isinstance(value, int))


def _as_objects(values: _Values) -> Array:
    """The data as Python numbers."""
    return values.data.astype(object) if values.is_array else values.data


def _fits_int64(low: Number, high: Number) -> bool:
    return INT64[0] <= low and high <= INT64[1]


def _tight(values: _Values) -> _Values:
    """The same values with their exact bounds, in int64 if they fit."""
    import numpy as np

    if not values.is_array:
        return values
    low, high = values.data.min(), values.data.max()
    low, high = (int(low), int(high)) if values.whole else (low, high)
    narrow = values.whole and _fits_int64(low, high) and values.data.dtype == object
    return replace(values, data=values.data.astype(np.int64) if narrow else values.data, low=low, high=high)


def _collected(array: Array) -> _Values:
    """An array of exact numbers of any kind."""
    whole = all(isinstance(value, int) for value in array.flat)
    return _tight(_Values(array, 0, 0, whole))


def _add(left: _Values, right: _Values) -> _Values:
    import numpy as np

    return _apply(np.add, lambda a, b: plus((a, b)), lambda a, b: (a.low + b.low, a.high + b.high), left, right)


def _multiply(left: _Values, right: _Values) -> _Values:
    import numpy as np

    def bounds(a: _Values, b: _Values) -> tuple[Number, Number]:
        corners = (a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high)
        return min(corners), max(corners)

    return _apply(np.multiply, lambda a, b: times((a, b)), bounds, left, right)


_Ratio = tuple[_Values, _Values | None]
"""Numerator and denominator, None for 1: fractions that cancel out later are never computed."""


def _ratio(index: int, points: _Points) -> _Ratio:
    instruction = points.program.lowered.instruction(index)
    if instruction is None:
        leaf = points.program.lowered.leaf(index)
        if isinstance(leaf, Fraction):
            return _scalar(leaf.numerator), _scalar(leaf.denominator)
        values = _exact(index, points)
        return (values, None) if values.whole else _over_one_denominator(values)
    operation, operands, node = instruction
    match operation:
        case "+":
            return reduce(_ratio_plus, (_ratio(term, points) for term in operands))
        case "*":
            return reduce(_ratio_times, (_ratio(factor, points) for factor in operands))
        case "/":
            left, right = operands
            above, below = _ratio(right, points)
            _refuse_zero(node, above)
            return _ratio_times(_ratio(left, points), (_scalar(1) if below is None else below, above))
    return _exact(index, points), None


def _over_one_denominator(values: _Values) -> _Ratio:
    """Fractions as whole numerators over their least common denominator."""
    import numpy as np

    if not values.is_array:
        return _scalar(values.data.numerator), _scalar(values.data.denominator)
    below = math.lcm(*(value.denominator for value in set(values.data.flat)))
    above = np.frompyfunc(lambda value: int(value * below), 1, 1)(values.data)
    return _tight(_Values(above, int(values.low * below), int(values.high * below))), _scalar(below)


def _ratio_plus(left: _Ratio, right: _Ratio) -> _Ratio:
    (a, b), (c, d) = left, right
    if b is None and d is None:
        return _add(a, c), None
    if b is not None and d is not None and not b.is_array and not d.is_array and b.data == d.data:
        return _add(a, c), b
    above = _add(a if d is None else _multiply(a, d), c if b is None else _multiply(c, b))
    return _ratio_times((above, b), (_scalar(1), d))


def _ratio_times(left: _Ratio, right: _Ratio) -> _Ratio:
    (a, b), (c, d) = left, right
    above, below = _multiply(a, c), d if b is None else b if d is None else _multiply(b, d)
    if below is not None and max(above.largest, below.largest).bit_length() > MAX_BITS // 2:
        return _over(above, below), None
    return above, below


def _over(above: _Values, below: _Values | None) -> _Values:
    """The quotient, as integers if every division is exact."""
    import numpy as np

    if below is None:
        return above
    if not above.is_array and not below.is_array:
        return _scalar(divided(above.data, below.data))
    if above.whole and below.whole:
        rest = _apply(np.remainder, QUOTIENT[Mod], _mod_bounds, above, below)
        if not np.any(rest.data):
            return _apply(np.floor_divide, QUOTIENT[FloorDiv], _floor_bounds, above, below)
    return _collected(np.frompyfunc(divided, 2, 1)(_as_objects(above), _as_objects(below)))


def _floored(left: _Ratio, right: _Ratio) -> _Values:
    """``left // right``; (a / b) // (c / d) is (a * d) // (b * c)."""
    import numpy as np

    (a, b), (c, d) = left, right
    above, below = a if d is None else _multiply(a, d), c if b is None else _multiply(c, b)
    return _apply(np.floor_divide, QUOTIENT[FloorDiv], _floor_bounds, above, below)


def _remainder(left: _Values, right: _Values) -> _Values:
    import numpy as np

    return _apply(np.remainder, QUOTIENT[Mod], _mod_bounds, left, right)


def _refuse_zero(expr: Node, divisor: _Values) -> None:
    import numpy as np

    if divisor.low <= 0 <= divisor.high and np.any(np.equal(divisor.data, 0)):
        raise division_by_zero(expr)


def _floor_bounds(a: _Values, b: _Values) -> tuple[int, int]:
    if a.low >= 0 and b.low > 0:
        return a.low // b.high, a.high // b.low
    # A divisor is an integer here, so never closer to 0 than 1.
    return -a.largest, a.largest


def _mod_bounds(a: _Values, b: _Values) -> tuple[int, int]:
    return (0, b.largest) if b.low > 0 else (-b.largest, b.largest)


def _raise_to_power(base: _Values, exponent: _Values) -> _Values:
    import numpy as np

    def bounds(a: _Values, e: _Values) -> tuple[int, int]:
        if e.low < 0 or not a.whole or not e.whole or a.largest.bit_length() * e.high > MAX_BITS:
            beyond = 1 << MAX_BITS
            return -beyond, beyond
        most = a.largest ** int(e.high)
        return (0 if a.low >= 0 else -max(most, 1)), max(most, 1)

    return _apply(np.power, power, bounds, base, exponent)


def _minimum(left: _Values, right: _Values) -> _Values:
    import numpy as np

    return _extreme(np.minimum, min, left, right)


def _maximum(left: _Values, right: _Values) -> _Values:
    import numpy as np

    return _extreme(np.maximum, max, left, right)


_EXTREME = {"min": _minimum, "max": _maximum}


def _extreme(ufunc: Callable[..., Array], choose: Callable[..., Any], left: _Values, right: _Values) -> _Values:
    def bounds(a: _Values, b: _Values) -> tuple[Number, Number]:
        return choose(a.low, b.low), choose(a.high, b.high)

    return _apply(ufunc, choose, bounds, left, right)


def _round_to_integer(function: str, ratio: _Ratio) -> _Values:
    """``floor(a / b)`` is a // b, ``ceil(a / b)`` is -(-a // b)."""
    (above, below), one = ratio, (_scalar(1), None)
    if above.whole and below is None:
        return above
    if function == "floor":
        return _floored(ratio, one)
    minus = _scalar(-1)
    return _multiply(minus, _floored((_multiply(minus, above), below), one))


# Conditions: a side that fails at points that do not need it is evaluated at the other points alone


def _select(index: int, operands: tuple[int, ...], points: _Points) -> _Values:
    import numpy as np

    condition, if_so, if_not = operands
    taken = _mask_of(condition, points)
    if np.all(taken):
        return _exact(if_so, points)
    if not np.any(taken):
        return _exact(if_not, points)
    try:
        then, otherwise = _exact(if_so, points), _exact(if_not, points)
    except EvaluationError:
        return _select_where_needed(np.broadcast_to(taken, _shape_of(index, points)), if_so, if_not, points)
    fast = then.fits and otherwise.fits
    data = np.where(taken, *(v.data if fast else np.asarray(v.data, dtype=object) for v in (then, otherwise)))
    low, high = min(then.low, otherwise.low), max(then.high, otherwise.high)
    return _Values(data, low, high, then.whole and otherwise.whole)


def _select_where_needed(taken: Array, if_so: int, if_not: int, points: _Points) -> _Values:
    import numpy as np

    sides = [(taken, if_so), (~taken, if_not)]
    found = [(mask, _exact(side, _points_under(mask, side, points))) for mask, side in sides]
    data = np.empty(taken.shape, dtype=np.int64 if all(values.fits for _, values in found) else object)
    for mask, values in found:
        data[mask] = values.data
    low, high = min(values.low for _, values in found), max(values.high for _, values in found)
    return _Values(data, low, high, all(values.whole for _, values in found))


def _mask_of(index: int, points: _Points) -> Array:
    """Where the condition holds: an array of bool, or a single bool."""
    import numpy as np

    instruction = points.program.lowered.instruction(index)
    assert instruction is not None, "a condition is computed"
    operation, operands, _ = instruction
    if operation == "not":
        return ~_mask_of(operands[0], points)
    if operation in ("and", "or"):
        held = _mask_of(operands[0], points)
        for part in operands[1:]:
            undecided = ~held if operation == "or" else held
            if np.all(undecided):
                held = _mask_of(part, points)
            elif np.any(undecided):
                undecided = np.broadcast_to(undecided, _shape_of(index, points))
                held = np.broadcast_to(held, undecided.shape).copy()
                held[undecided] = _mask_of(part, _points_under(undecided, part, points))
        return held
    compared = [_exact(operand, points) for operand in operands]
    if not any(values.is_array for values in compared):
        return np.bool_(RELATION[operation](*(values.data for values in compared)))
    fast = all(values.fits for values in compared)
    return RELATION[operation](*(values.data if fast else _as_objects(values) for values in compared))


def _shape_of(index: int, points: _Points) -> tuple[int, ...]:
    """The shape of all points that the value depends on."""
    import numpy as np

    needed = points.program.lowered.variables(index)
    return np.broadcast_shapes(*(np.shape(values.data) for name, values in points.values.items() if name in needed))


def _points_under(mask: Array, index: int, points: _Points) -> _Points:
    """The points under the mask. Names that the value does not need stay, for messages, without their arrays."""
    import numpy as np

    needed = points.program.lowered.variables(index)

    def masked(values: _Values) -> _Values:
        return replace(values, data=np.broadcast_to(values.data, mask.shape)[mask]) if values.is_array else values

    below = {name: masked(values) if name in needed else _scalar(0) for name, values in points.values.items()}
    return _Points(points.program, below)
