"""The list of instructions that every back end works on."""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmp.errors import EvaluationError
from lmp.formula import Condition, Expr, Lowered, evaluate_exact, lower, mul, parse, parse_condition, ref, var
from lmp.formula.evaluate import FUNCTION, RELATION, divided, holds, plus, power, times

from .strategies import conditions, formulas, points


def listed(found: Lowered) -> list[tuple[str, *tuple[int, ...]]]:
    return [(instruction.operation, *instruction.operands) for instruction in found.instructions]


def test_variables_then_constants_then_instructions() -> None:
    found = lower([parse("where({b} < 4, {b} * 3 + {a}, max({a}, 1/3))")])
    assert found.names == ("a", "b")  # indices 0 and 1
    assert found.constants == (4, 3, 1)  # indices 2, 3 and 4, as they are read
    assert listed(found) == [
        ("<", 1, 2),  # 5
        ("*", 1, 3),  # 6
        ("+", 6, 0),  # 7
        ("/", 4, 3),  # 8
        ("max", 0, 8),  # 9
        ("where", 5, 7, 9),
    ]


def test_what_stands_twice_is_listed_once() -> None:
    one, two = parse("({a} + {b}) // 2"), parse("({a} + {b}) % 2")
    found = lower([one, two, one])
    assert listed(found) == [("+", 0, 1), ("//", 3, 2), ("%", 3, 2)]
    assert (found.index[one], found.index[two]) == (4, 5)


def test_products_are_as_they_are_written() -> None:
    assert listed(lower([parse("{b} * 2 * {a}"), parse("{a} * 2 * {b}")])) == [("*", 1, 2, 0), ("*", 0, 2, 1)]


def test_pairs_share_what_products_begin_with() -> None:
    one, two, three = parse("{c} * {b} * {a}"), parse("{b} * {d} * {a}"), parse("{b} * {a}")
    found = lower([one, two, three], pairs=True)
    # a, b, c, d are 0 to 3: a * b is 4, and both of the others multiply that.
    assert listed(found) == [("*", 0, 1), ("*", 4, 2), ("*", 4, 3)]
    assert [found.index[formula] for formula in (one, two, three)] == [5, 6, 4]


def test_a_reference_has_no_operands_and_keeps_its_node() -> None:
    reference = ref("a.B", n=var("x"))
    (instruction,) = lower([reference]).instructions
    assert instruction == ("ref", (), reference)


def test_a_formula_with_too_many_levels_is_refused() -> None:
    deep: Expr = var("x")
    for _ in range(100_000):
        deep = deep**1
    with pytest.raises(EvaluationError, match="nested too deeply"):
        lower([deep])


def test_what_is_no_formula_is_refused() -> None:
    with pytest.raises(TypeError, match="not a formula"):
        lower([Expr()])


def worked(found: Lowered, values: dict[str, int]) -> list[Any]:
    """The values at all indices, None for what has none: a back end of a few lines."""
    at: list[Any] = [*(values[name] for name in found.names), *found.constants]
    for operation, indices, _ in found.instructions:
        operands = [at[index] for index in indices]
        try:
            at.append(_one(operation, operands))
        except (EvaluationError, ZeroDivisionError):
            at.append(None)
    return at


def _one(operation: str, operands: list[Any]) -> Any:
    if operation in ("and", "or"):
        enough = operation == "or"
        return next((held for held in operands if held is None or held is enough), not enough)
    if operation == "where":
        return None if operands[0] is None else operands[1] if operands[0] else operands[2]
    return None if None in operands else _OPERATIONS[operation](*operands)


_OPERATIONS: dict[str, Callable[..., Any]] = {
    **RELATION,
    **{name: lambda *operands, name=name: FUNCTION[name](list(operands)) for name in FUNCTION},
    "+": lambda *operands: plus(operands),
    "*": lambda *operands: times(operands),
    "/": divided,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": power,
    "not": operator.not_,
}


@given(st.lists(st.one_of(formulas, conditions(formulas)), min_size=1, max_size=3), points, st.booleans())
def test_the_list_says_what_the_formulas_say(written: list[Expr | Condition], at: dict[str, int], pairs: bool) -> None:
    found = lower(written, pairs=pairs)
    values = worked(found, at)
    for formula in written:
        try:
            expected = holds(formula, at) if isinstance(formula, Condition) else evaluate_exact(formula, at)
        except EvaluationError:
            expected = None
        assert values[found.index[formula]] == expected


def test_constants_may_be_fractions() -> None:
    found = lower([mul(Fraction(1, 2), var("a")), parse_condition("{a} > 0.5")])
    assert found.constants == (Fraction(1, 2),)
    assert listed(found) == [("*", 1, 0), (">", 0, 1)]
