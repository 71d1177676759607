"""Evaluation of a formula for one set of values: exact, in Python's integers and fractions."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import NoReturn, TypeVar

from lmp.errors import EvaluationError, UnknownVariable
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
    number,
)
from lmp.formula.parse import parse, parse_condition

T = TypeVar("T")

RELATION: dict[str, Callable[..., bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def evaluate(formula: Expr | str, values: Mapping[str, int]) -> int:
    """The integer value of the formula with these integers for its variables.

    Raises UnknownVariable for a name that ``values`` lacks, EvaluationError if there is no integer value.
    """
    expr = parse(formula) if isinstance(formula, str) else formula
    result = guarded(lambda: exact(expr, integers(values)))
    if isinstance(result, int):
        return result
    raise not_an_integer(expr, result)


def evaluate_exact(formula: Expr | str, values: Mapping[str, Number]) -> Number:
    """As `evaluate`, but the values and the result may be fractions."""
    expr = parse(formula) if isinstance(formula, str) else formula
    return guarded(lambda: exact(expr, values))


def evaluate_condition(condition: Condition | str, values: Mapping[str, int]) -> bool:
    """True if the condition holds with these integers for its variables."""
    parsed = parse_condition(condition) if isinstance(condition, str) else condition
    return guarded(lambda: holds(parsed, integers(values)))


def exact(expr: Expr, values: Mapping[str, Number]) -> Number:
    """The value, which may be a fraction. An int is always an int here, never a Fraction with denominator 1."""
    match expr:
        case Num(value):
            return value
        case Var(name):
            return values[name] if name in values else unknown(name, values)
        case Add(terms):
            return plus([exact(term, values) for term in terms])
        case Mul(factors):
            return times([exact(factor, values) for factor in factors])
        case Div(left, right) | FloorDiv(left, right) | Mod(left, right):
            divisor = exact(right, values)
            if divisor == 0:
                raise division_by_zero(expr)
            return QUOTIENT[type(expr)](exact(left, values), divisor)
        case Pow(left, right):
            return power(exact(left, values), exact(right, values))
        case Call(function, arguments):
            return FUNCTION[function]([exact(argument, values) for argument in arguments])
        case Where(condition, then, otherwise):
            return exact(then if holds(condition, values) else otherwise, values)
        case Ref():
            raise not_expanded(expr)
    raise TypeError(f"not a formula: {expr!r}")


def holds(condition: Condition, values: Mapping[str, Number]) -> bool:
    match condition:
        case Compare(relation, left, right):
            return RELATION[relation](exact(left, values), exact(right, values))
        case And(parts):
            return all(holds(part, values) for part in parts)
        case Or(parts):
            return any(holds(part, values) for part in parts)
        case Not(part):
            return not holds(part, values)
    raise TypeError(f"not a condition: {condition!r}")


def plus(terms: Iterable[Number]) -> Number:
    total: Number = 0
    for term in terms:
        total = number(total + term)
    return total


def times(factors: Iterable[Number]) -> Number:
    product: Number = 1
    for factor in factors:
        product = number(product * factor)
    return product


def divided(left: Number, right: Number) -> Number:
    return number(Fraction(left, right))


def power(base: Number, exponent: Number) -> Number:
    """Exact power. Raises EvaluationError before it computes a result that is too large to print."""
    if not isinstance(exponent, int):
        raise EvaluationError(f"the exponent {exponent} is a fraction: only integer powers are exact")
    if base == 0 and exponent < 0:
        raise EvaluationError(f"division by zero: 0 ** {exponent}")
    size = max(abs(base.numerator), base.denominator)
    # A number of n bits is at least 2 ** (n - 1), so its power has more than (n - 1) * exponent bits.
    if (size.bit_length() - 1) * abs(exponent) > MAX_BITS:
        raise EvaluationError(f"a power has more than {MAX_BITS} bits: the formula grows beyond what can be printed")
    return number(base**exponent if exponent >= 0 else Fraction(base) ** exponent)


QUOTIENT: dict[type[Node], Callable[[Number, Number], Number]] = {
    Div: divided,
    FloorDiv: lambda left, right: number(left // right),
    Mod: lambda left, right: number(left % right),
}
FUNCTION: dict[str, Callable[[list[Number]], Number]] = {
    "min": min,
    "max": max,
    "ceil": lambda arguments: math.ceil(arguments[0]),
    "floor": lambda arguments: math.floor(arguments[0]),
}


def integers(values: Mapping[str, int]) -> dict[str, int]:
    """The values as Python ints, from any integer type."""
    found = {}
    for name, value in values.items():
        try:
            found[name] = int(operator.index(value))
        except TypeError:
            raise EvaluationError(f"{name} is {value!r}: give an integer") from None
    return found


def unknown(name: str, known: Iterable[str]) -> NoReturn:
    import difflib

    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    listed = f"the names are {', '.join(names)}" if names else "no values were given"
    raise UnknownVariable(f"{name} has no value: {f'did you mean {close[0]}? ' if close else ''}{listed}")


def division_by_zero(expr: Node) -> EvaluationError:
    return EvaluationError(f"division by zero in {_abbreviated(expr)}")


def not_expanded(expr: Node) -> EvaluationError:
    return EvaluationError(f"{_abbreviated(expr)} is a reference: it must be expanded before it has a value")


def not_an_integer(expr: Node, value: object) -> EvaluationError:
    return EvaluationError(f"{_abbreviated(expr)} is {value}, not an integer: use // or ceil(...) where it divides")


def _abbreviated(expr: Node) -> str:
    text = str(expr)
    return text if len(text) <= 100 else text[:97] + "..."


def guarded(compute: Callable[[], T]) -> T:
    """Compute, with an EvaluationError for a formula that is too deep. Only a program can build one: text cannot."""
    try:
        return compute()
    except RecursionError:
        raise EvaluationError("the formula is nested too deeply to be evaluated") from None
