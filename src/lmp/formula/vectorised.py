"""The values of a formula at many points at once, as exact as `evaluate` at each of them.

Every step carries the bounds of its values. Where they prove that the step's result fits, it is computed in int64;
where they do not, in Python integers; and where fractions arise, by the functions of `evaluate` itself.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from lmp.formula.nodes import (
    MAX_BITS,
    Add,
    And,
    Call,
    Compare,
    Condition,
    Div,
    Expr,
    FloorDiv,
    Mod,
    Mul,
    Node,
    Not,
    Num,
    Number,
    Or,
    Pow,
    Ref,
    Var,
    Where,
)
from lmp.formula.parse import parse
from lmp.formula.walk import free_variables

Array = Any
"""A numpy array; numpy is imported where it is first needed, not with the package."""

INT64 = (-(2**63), 2**63 - 1)


@dataclass(frozen=True, slots=True)
class _Values:
    """A number, or an array of int64 or of exact Python numbers, with bounds that no value passes."""

    data: Array
    low: Number
    high: Number
    whole: bool = True
    """Whether every value is an int. Arrays of int64 always are."""

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


class _Points(dict[str, _Values]):
    """The values of the variables, and of the nodes that stand in several places."""

    def __init__(self, values: Mapping[str, _Values], several: frozenset[Node]) -> None:
        super().__init__(values)
        self.several = several
        self.found: dict[Node, _Values] = {}


def evaluate_many(formula: Expr | str, values: Mapping[str, Any]) -> Array:
    """The values of the formula where each name is an int or an array of ints, broadcast against one another.

    An int64 array, or one of Python ints where int64 is too small. Raises what `evaluate` raises at any of the points.
    """
    (found,) = evaluate_all([parse(formula) if isinstance(formula, str) else formula], values)
    return found


def evaluate_all(formulas: Sequence[Expr | Condition], values: Mapping[str, Any]) -> list[Array]:
    """What `evaluate_many` gives for each formula, and an array of bool for each condition.

    What stands in several places is computed once.
    """
    import numpy as np

    points = _Points({name: _given(name, value) for name, value in values.items()}, _standing_twice(formulas))
    try:
        shape = np.broadcast_shapes(*(np.shape(p.data) for p in points.values()))
    except ValueError:
        shapes = ", ".join(f"{name} {np.shape(p.data)}" for name, p in points.items() if p.is_array)
        raise EvaluationError(f"the arrays do not broadcast against one another: {shapes}") from None
    return [_everywhere(formula, points, shape) for formula in formulas]


def _everywhere(formula: Expr | Condition, points: _Points, shape: tuple[int, ...]) -> Array:
    import numpy as np

    if math.prod(shape) == 0:
        return np.empty(shape, dtype=bool if isinstance(formula, Condition) else np.int64)
    if isinstance(formula, Condition):
        return np.broadcast_to(guarded(lambda: _holds(formula, points)), shape).copy()
    result = _tight(guarded(lambda: _exact(formula, points)))
    if not result.whole:
        # Fractions may have gone into it, and none be left: at these points all are whole.
        flat = np.ravel(np.asarray(result.data, dtype=object))
        for value in flat:
            if not isinstance(value, int):
                raise not_an_integer(formula, value)
    narrow = _within(result.low, result.high)
    return np.broadcast_to(np.asarray(result.data, dtype=np.int64 if narrow else object), shape).copy()


def _standing_twice(formulas: Iterable[Node]) -> frozenset[Node]:
    """The nodes, other than numbers and variables, that more than one node has below it."""
    seen: set[Node] = set()
    twice: set[Node] = set()
    pending: list[Node] = list(formulas)
    while pending:
        node = pending.pop()
        if node in seen:
            if node.children:
                twice.add(node)
        else:
            seen.add(node)
            pending.extend(node.children)
    return frozenset(twice)


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
    return _Values(array.astype(np.int64 if _within(low, high) else object), low, high)


def _exact(expr: Expr, points: _Points) -> _Values:
    found = points.found.get(expr)
    if found is None:
        found = _computed(expr, points)
        if expr in points.several:
            points.found[expr] = found
    return found


def _computed(expr: Expr, points: _Points) -> _Values:
    match expr:
        case Num(int() as value):
            return _point(value)
        case Var(name):
            return points[name] if name in points else unknown(name, points)
        case Num() | Add() | Mul() | Div():
            return _over(*_ratio(expr, points))
        case FloorDiv(left, right) | Mod(left, right):
            divisor = _ratio(right, points)
            _refuse_zero(expr, divisor[0])
            if isinstance(expr, FloorDiv):
                return _floored(_ratio(left, points), divisor)
            return _remainder(_exact(left, points), _over(*divisor))
        case Pow(left, right):
            return _power(_exact(left, points), _exact(right, points))
        case Call("min" | "max" as function, arguments):
            return reduce(_EXTREME[function], (_exact(argument, points) for argument in arguments))
        case Call(function, (argument,)):
            return _rounded(function, _ratio(argument, points))
        case Where():
            return _where(expr, points)
        case Ref():
            raise not_expanded(expr)
    raise TypeError(f"not a formula: {expr!r}")


# Steps: the bounds of the result, then the result


def _step(
    ufunc: Callable[..., Array],
    exactly: Callable[..., Number],
    bounds: Callable[..., tuple[Number, Number]],
    *operands: _Values,
) -> _Values:
    """One operation: ``ufunc`` where the bounds of the result allow it, ``exactly`` on each point where they do not."""
    import numpy as np

    if not any(operand.is_array for operand in operands):
        return _point(exactly(*(operand.data for operand in operands)))
    low, high = bounds(*operands)
    if not _within(low, high) and all(operand.whole for operand in operands):
        operands = tuple(map(_tight, operands))
        low, high = bounds(*operands)
    if _within(low, high) and all(operand.fits for operand in operands):
        return _Values(ufunc(*(operand.data for operand in operands)), low, high)
    whole = all(operand.whole for operand in operands)
    data = [_as_objects(operand) for operand in operands]
    if whole and math.ceil(max(-low, high)).bit_length() < MAX_BITS:
        return _Values(ufunc(*data), low, high)
    return _collected(np.frompyfunc(exactly, len(data), 1)(*data))


def _point(value: Number) -> _Values:
    return _Values(value, value, value, isinstance(value, int))


def _as_objects(values: _Values) -> Array:
    """The data as Python numbers."""
    return values.data.astype(object) if values.is_array else values.data


def _within(low: Number, high: Number) -> bool:
    return INT64[0] <= low and high <= INT64[1]


def _tight(values: _Values) -> _Values:
    """The same values with the bounds that they really have, in int64 where that holds them."""
    import numpy as np

    if not values.is_array:
        return values
    low, high = values.data.min(), values.data.max()
    low, high = (int(low), int(high)) if values.whole else (low, high)
    narrow = values.whole and _within(low, high) and values.data.dtype == object
    return replace(values, data=values.data.astype(np.int64) if narrow else values.data, low=low, high=high)


def _collected(array: Array) -> _Values:
    """An array of exact numbers of any kind."""
    whole = all(isinstance(value, int) for value in array.flat)
    return _tight(_Values(array, 0, 0, whole))


def _plus(left: _Values, right: _Values) -> _Values:
    import numpy as np

    return _step(np.add, lambda a, b: plus((a, b)), lambda a, b: (a.low + b.low, a.high + b.high), left, right)


def _times(left: _Values, right: _Values) -> _Values:
    import numpy as np

    def bounds(a: _Values, b: _Values) -> tuple[Number, Number]:
        corners = (a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high)
        return min(corners), max(corners)

    return _step(np.multiply, lambda a, b: times((a, b)), bounds, left, right)


_Ratio = tuple[_Values, _Values | None]
"""What is above the line and what, if anything, below it: fractions that cancel out in the end never arise."""


def _ratio(expr: Expr, points: _Points) -> _Ratio:
    match expr:
        case Num(Fraction() as value):
            return _point(value.numerator), _point(value.denominator)
        case Add(terms):
            return reduce(_ratio_plus, (_ratio(term, points) for term in terms))
        case Mul(factors):
            return reduce(_ratio_times, (_ratio(factor, points) for factor in factors))
        case Div(left, right):
            above, below = _ratio(right, points)
            _refuse_zero(expr, above)
            return _ratio_times(_ratio(left, points), (_point(1) if below is None else below, above))
    return _exact(expr, points), None


def _ratio_plus(left: _Ratio, right: _Ratio) -> _Ratio:
    (a, b), (c, d) = left, right
    if b is None and d is None:
        return _plus(a, c), None
    if b is not None and d is not None and not b.is_array and not d.is_array and b.data == d.data:
        return _plus(a, c), b
    above = _plus(a if d is None else _times(a, d), c if b is None else _times(c, b))
    return _ratio_times((above, b), (_point(1), d))


def _ratio_times(left: _Ratio, right: _Ratio) -> _Ratio:
    (a, b), (c, d) = left, right
    above, below = _times(a, c), d if b is None else b if d is None else _times(b, d)
    if below is not None and max(above.largest, below.largest).bit_length() > MAX_BITS // 2:
        return _over(above, below), None
    return above, below


def _over(above: _Values, below: _Values | None) -> _Values:
    """The quotient, as integers where every division is exact."""
    import numpy as np

    if below is None:
        return above
    if not above.is_array and not below.is_array:
        return _point(divided(above.data, below.data))
    if above.whole and below.whole:
        rest = _step(np.remainder, QUOTIENT[Mod], _mod_bounds, above, below)
        if not np.any(rest.data):
            return _step(np.floor_divide, QUOTIENT[FloorDiv], _floor_bounds, above, below)
    return _collected(np.frompyfunc(divided, 2, 1)(_as_objects(above), _as_objects(below)))


def _floored(left: _Ratio, right: _Ratio) -> _Values:
    """``left // right``; (a / b) // (c / d) is (a * d) // (b * c)."""
    import numpy as np

    (a, b), (c, d) = left, right
    above, below = a if d is None else _times(a, d), c if b is None else _times(c, b)
    return _step(np.floor_divide, QUOTIENT[FloorDiv], _floor_bounds, above, below)


def _remainder(left: _Values, right: _Values) -> _Values:
    import numpy as np

    return _step(np.remainder, QUOTIENT[Mod], _mod_bounds, left, right)


def _refuse_zero(expr: Expr, divisor: _Values) -> None:
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


def _power(base: _Values, exponent: _Values) -> _Values:
    import numpy as np

    def bounds(a: _Values, e: _Values) -> tuple[int, int]:
        if e.low < 0 or not a.whole or not e.whole or a.largest.bit_length() * e.high > MAX_BITS:
            beyond = 1 << MAX_BITS
            return -beyond, beyond
        most = a.largest ** int(e.high)
        return (0 if a.low >= 0 else -max(most, 1)), max(most, 1)

    return _step(np.power, power, bounds, base, exponent)


def _minimum(left: _Values, right: _Values) -> _Values:
    import numpy as np

    return _chosen(np.minimum, min, left, right)


def _maximum(left: _Values, right: _Values) -> _Values:
    import numpy as np

    return _chosen(np.maximum, max, left, right)


_EXTREME = {"min": _minimum, "max": _maximum}


def _chosen(ufunc: Callable[..., Array], choose: Callable[..., Any], left: _Values, right: _Values) -> _Values:
    def bounds(a: _Values, b: _Values) -> tuple[Number, Number]:
        return choose(a.low, b.low), choose(a.high, b.high)

    return _step(ufunc, choose, bounds, left, right)


def _rounded(function: str, ratio: _Ratio) -> _Values:
    """``floor(a / b)`` is a // b, ``ceil(a / b)`` is -(-a // b)."""
    (above, below), one = ratio, (_point(1), None)
    if above.whole and below is None:
        return above
    if function == "floor":
        return _floored(ratio, one)
    minus = _point(-1)
    return _times(minus, _floored((_times(minus, above), below), one))


# Conditions: a side that fails at points that do not need it is given those that do


def _where(expr: Where, points: _Points) -> _Values:
    import numpy as np

    taken = _holds(expr.condition, points)
    if np.all(taken):
        return _exact(expr.then, points)
    if not np.any(taken):
        return _exact(expr.otherwise, points)
    try:
        then, otherwise = _exact(expr.then, points), _exact(expr.otherwise, points)
    except EvaluationError:
        return _where_needed(expr, taken, points)
    fast = then.fits and otherwise.fits
    data = np.where(taken, *(v.data if fast else _as_objects(v) for v in (then, otherwise)))
    low, high = min(then.low, otherwise.low), max(then.high, otherwise.high)
    return _Values(data, low, high, then.whole and otherwise.whole)


def _where_needed(expr: Where, taken: Array, points: _Points) -> _Values:
    import numpy as np

    taken = np.broadcast_to(taken, _shape(expr, points))
    sides = [(taken, expr.then), (~taken, expr.otherwise)]
    found = [(mask, _exact(side, _at(mask, side, points))) for mask, side in sides]
    data = np.empty(taken.shape, dtype=np.int64 if all(values.fits for _, values in found) else object)
    for mask, values in found:
        data[mask] = values.data
    low, high = min(values.low for _, values in found), max(values.high for _, values in found)
    return _Values(data, low, high, all(values.whole for _, values in found))


def _holds(condition: Condition, points: _Points) -> Array:
    """An array of bool, or a single one."""
    import numpy as np

    match condition:
        case Compare(relation, left, right):
            operands = _exact(left, points), _exact(right, points)
            if not any(values.is_array for values in operands):
                return np.bool_(RELATION[relation](*(values.data for values in operands)))
            fast = all(values.fits for values in operands)
            data = (values.data if fast else _as_objects(values) for values in operands)
            return RELATION[relation](*data)
        case Not(part):
            return ~_holds(part, points)
        case And(parts) | Or(parts):
            held = _holds(parts[0], points)
            for part in parts[1:]:
                undecided = ~held if isinstance(condition, Or) else held
                if np.all(undecided):
                    held = _holds(part, points)
                elif np.any(undecided):
                    undecided = np.broadcast_to(undecided, _shape(condition, points))
                    held = np.broadcast_to(held, undecided.shape).copy()
                    held[undecided] = _holds(part, _at(undecided, part, points))
            return held
    raise TypeError(f"not a condition: {condition!r}")


def _shape(node: Node, points: _Points) -> tuple[int, ...]:
    """The shape of all points that the node depends on."""
    import numpy as np

    needed = free_variables(node)
    return np.broadcast_shapes(*(np.shape(values.data) for name, values in points.items() if name in needed))


def _at(mask: Array, node: Node, points: _Points) -> _Points:
    """The points under the mask; names that the node does not need keep a place, for messages, but no array."""
    import numpy as np

    needed = free_variables(node)

    def masked(values: _Values) -> _Values:
        return replace(values, data=np.broadcast_to(values.data, mask.shape)[mask]) if values.is_array else values

    below = {name: masked(values) if name in needed else _point(0) for name, values in points.items()}
    return _Points(below, points.several)
