"""Values: exact, and an error that says what to do where there is none."""

from __future__ import annotations

import numpy as np
import pytest

from lmp.errors import EvaluationError, FormulaError, UnknownVariable
from lmp.formula import evaluate, evaluate_condition, var

POINT = {"a": 7, "b": 2, "zero": 0, "seq_len": 16}


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        ("{a} / {b} * {b}", 7),  # 7/2 * 2, no rounding in between
        ("ceil({a} / {b})", 4),
        ("floor({a} / {b})", 3),
        ("ceil(-{a} / {b})", -3),
        ("floor(-{a} / {b})", -4),
        ("-{a} // {b}", -4),
        ("-{a} % {b}", 1),
        ("{a} % -{b}", -1),
        ("0.1 * 10 * {a}", 7),  # decimals are exact
        ("1.5 * {b}", 3),
        ("2 ** -1 * 4", 2),
        ("{zero} ** 0", 1),
        ("10 ** 40 + 1", 10**40 + 1),
        ("(10 ** 40 + 1) // 10 ** 20", 10**20),
        ("min({a}, {b}, 5)", 2),
        ("max({a} / 2, 3) * 2", 7),
        ("where({zero} == 0, {a}, 1 / {zero})", 7),
        ("where({zero} != 0 and 1 / {zero} > 0, 1, 2)", 2),
        ("where({zero} == 0 or 1 / {zero} > 0, 1, 2)", 1),
        ("where({zero} == 0, {a}, {unheard_of})", 7),
    ],
)
def test_values_are_exact(formula, value):
    assert evaluate(formula, POINT) == value
    assert type(evaluate(formula, POINT)) is int


def test_formulas_may_be_built_and_values_may_be_numpys():
    assert evaluate(2 * var("a") + 1, {"a": np.int64(3)}) == 7


def test_conditions():
    assert evaluate_condition("{b} < {a} and not {zero} > 0", POINT)
    assert not evaluate_condition("{a} <= {b} or {a} == 8", POINT)


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("{a} / {b}", "{a} / {b} is 7/2, not an integer: use // or ceil(...) where it divides"),
        ("{a} / {zero}", "division by zero in {a} / {zero}"),
        ("1 + {a} // ({b} - 2)", "division by zero in {a} // ({b} - 2)"),
        ("{a} % {zero}", "division by zero in {a} % {zero}"),
        ("{zero} ** -2", "division by zero: 0 ** -2"),
        ("4 ** 0.5", "the exponent 1/2 is a fraction: only integer powers are exact"),
        ("9 ** 9 ** 9 ** 9", "a power has more than 13000 bits: the formula grows beyond what can be printed"),
        (
            " * ".join(["9" * 900] * 5),
            "an integer has more than 13000 bits: the formula grows beyond what can be printed",
        ),
        ("${{A}}(x={a})", "${{A}}(x={a}) is a reference: it must be expanded before it has a value"),
    ],
)
def test_no_value_is_an_error_that_says_why(formula, message):
    with pytest.raises(EvaluationError) as caught:
        evaluate(formula, POINT)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("formula", "values", "message"),
    [
        ("{seqlen}", POINT, "seqlen has no value: did you mean seq_len? the names are a, b, seq_len, zero"),
        ("{x}", POINT, "x has no value: the names are a, b, seq_len, zero"),
        ("{x}", {}, "x has no value: no values were given"),
    ],
)
def test_an_unknown_name_is_answered_with_the_known_ones(formula, values, message):
    with pytest.raises(UnknownVariable) as caught:
        evaluate(formula, values)
    assert str(caught.value) == message


@pytest.mark.parametrize("value", [2.0, "2", None])
def test_a_value_that_is_no_integer_is_refused(value):
    with pytest.raises(EvaluationError, match=r"a is .*: give an integer"):
        evaluate("{a}", {"a": value})


def test_a_formula_built_too_deep_is_a_clean_error():
    deep = var("a")
    for _ in range(5000):
        deep = deep // 2
    with pytest.raises(FormulaError, match="nested too deeply"):
        evaluate(deep, {"a": 1})
