"""Many points at once: the arithmetic of `evaluate`, whatever the sizes; test_properties compares them at random."""

from __future__ import annotations

import time
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lmp.errors import EvaluationError, UnknownVariable
from lmp.formula import ArrayProgram, Expr, Number, evaluate_exact, evaluate_many, parse, parse_condition

from .strategies import formulas, points_with_fractions


def many(formula, **values):
    return evaluate_many(formula, {k: np.array(v) if isinstance(v, list) else v for k, v in values.items()})


@pytest.mark.parametrize(
    ("formula", "values", "expected"),
    [
        ("2 * {a} + {b}", {"a": [1, 2, 3], "b": 10}, [12, 14, 16]),
        ("{a} // {b} + {a} % {b}", {"a": [-7, 7], "b": [2, -2]}, [-3, -5]),  # -4 + 1, -4 + -1
        ("{a} / 2 * 4", {"a": [1, 2]}, [2, 4]),
        ("{a} / 2 + {a} / 2", {"a": [1, 3]}, [1, 3]),
        ("ceil({a} / 4)", {"a": [-5, 4, 5]}, [-1, 1, 2]),
        ("floor({a} / 4 + 0.5)", {"a": [1, 2, 5]}, [0, 1, 1]),
        ("min({a}, 3, {b})", {"a": [1, 9], "b": [5, 2]}, [1, 2]),
        ("{a} ** {b}", {"a": [2, -3], "b": [10, 3]}, [1024, -27]),
        ("where({b} == 0, 0, {a} // {b})", {"a": [5, 6], "b": [0, 2]}, [0, 3]),
        ("where({b} != 0 and {a} // {b} > 2, 1, 2)", {"a": [5, 6], "b": [0, 2]}, [2, 1]),
        ("where({a} > 1, where({b} > 1, {a}, {b}), -{a})", {"a": [1, 2, 3], "b": [9, 1, 2]}, [-1, 1, 3]),
        ("where({a} == 1, 0.5, 1) * 2", {"a": [1, 2]}, [1, 2]),
        ("7", {"a": [1, 2]}, [7, 7]),
    ],
)
def test_values(formula, values, expected):
    found = many(formula, **values)
    assert found.tolist() == expected
    assert found.dtype == np.int64


@pytest.mark.parametrize(
    ("formula", "values", "expected"),
    [
        ("{a} * {a}", {"a": [2**40, 1]}, [2**80, 1]),
        ("{a} + 1", {"a": [2**63 - 1]}, [2**63]),
        ("-{a}", {"a": [-(2**63)]}, [2**63]),
        ("{a} // -1", {"a": [-(2**63)]}, [2**63]),
        ("{a} ** 5", {"a": [10**6]}, [10**30]),
        ("{a} * 10 ** 30", {"a": [0, 1]}, [0, 10**30]),
        ("{a}", {"a": [2**64, 1]}, [2**64, 1]),
    ],
)
def test_values_beyond_64_bits_are_exact(formula, values, expected):
    found = many(formula, **values)
    assert found.tolist() == expected
    assert found.dtype == object


@pytest.mark.parametrize(
    "formula",
    ["{a} * {a} // {a}", "{a} ** 9 % 7", "where({a} > 5, {a}, {a} ** 40)", "min({a} ** 9, 3)", "{a} ** 9 - {a} ** 9"],
)
def test_what_comes_back_within_64_bits_is_int64(formula):
    found = many(formula, a=[2**50, 3])
    assert found.dtype == np.int64 or max(map(abs, found.tolist())) >= 2**63


def test_arrays_broadcast():
    found = evaluate_many("{a} * 10 + {b}", {"a": np.arange(3)[:, None], "b": np.arange(4, dtype=np.uint8), "c": 1})
    assert found.tolist() == [[10 * a + b for b in range(4)] for a in range(3)]
    chosen = evaluate_many("where({a} > 1, {b}, {c})", {"a": np.arange(3)[:, None], "b": np.arange(2), "c": 7})
    assert chosen.tolist() == [[7, 7], [7, 7], [0, 1]]


def test_no_points_and_no_arrays():
    assert evaluate_many("{a} + 1", {"a": np.array([], dtype=int)}).shape == (0,)
    assert evaluate_many("{a} + 1", {"a": 2}).item() == 3


@pytest.mark.parametrize(
    ("formula", "values", "message"),
    [
        ("{a} / 2", {"a": [2, 3]}, "{a} / 2 is 3/2, not an integer: use // or ceil(...) where it divides"),
        ("1 // {a}", {"a": [1, 0]}, "division by zero in 1 // {a}"),
        ("{a}", {"a": [1.5]}, "a is an array of float64: give integers"),
        ("{a}", {"a": 1.5}, "a is 1.5: give an integer"),
        ("{a} + {b}", {"a": [1, 2], "b": [1, 2, 3]},
         "the arrays do not broadcast against one another: a (2,), b (3,)"),
        ("${{A}}(x=1)", {"a": [1]}, "${{A}}(x=1) is a reference: it must be expanded before it has a value"),
        ("{a} ** {a}", {"a": [99999]},
         "a power has more than 13000 bits: the formula grows beyond what can be printed"),
    ],
)  # fmt: skip
def test_errors_are_those_of_evaluate(formula, values, message):
    with pytest.raises(EvaluationError) as caught:
        many(formula, **values)
    assert str(caught.value) == message


def test_an_unknown_name():
    with pytest.raises(UnknownVariable, match="seqlen has no value: did you mean seq_len"):
        many("where({a} > 0, {seqlen}, 1)", a=[0, 1], seq_len=1)


def test_a_million_points_are_quick():
    points = {"b": np.arange(10**6) % 64 + 1, "s": np.arange(10**6) % 4096 + 1, "c": np.arange(10**6), "h": 4096}
    evaluate_many("{b}", points)
    start = time.perf_counter()
    found = evaluate_many("2 * {b} * {s} * {h} * ({s} + {c}) + 3 * {b} * {s} + {c} // 16 - {c} % 7", points)
    assert time.perf_counter() - start < 1.0
    # the last point: b = 999999 % 64 + 1 = 64, s = 999999 % 4096 + 1 = 576
    assert found[-1] == 2 * 64 * 576 * 4096 * (576 + 999999) + 3 * 64 * 576 + 999999 // 16 - 999999 % 7


def test_a_fraction_that_is_not_chosen_leaves_whole_numbers() -> None:
    # found by the property test: 2 * -1 > -1 is false, so 0 / -1 = 0; 2 * 2 > 2, so 2
    formula = parse("where({a} + {a} > {a}, {a}, {w} / {a})")
    found = evaluate_many(formula, {"a": np.array([-1, 2]), "w": np.array([0, 1])})
    assert [int(v) for v in found] == [0, 2]


def test_single_numbers_on_both_sides_of_a_where_may_be_of_any_size() -> None:
    found = many("where({a} > 1, {b}, 3 * 2 ** 80) // 3", a=[1, 2], b=2**31)
    # 2 ** 80 where a is 1; 2147483648 // 3 = 715827882 where it is 2
    assert found.tolist() == [2**80, 715827882]
    # numpy takes 2 ** 63 for an unsigned number, whose sum with an int64 is wrong without an error
    assert many("{a} + where({a} > 1, 4, 2 ** 63)", a=[1, 2]).tolist() == [2**63 + 1, 6]


def test_fractions_where_they_are_asked_for() -> None:
    sizes = np.array([Fraction(1, 2), Fraction(17, 32), 2], dtype=object)
    program = ArrayProgram([parse("{n} * {w} + 1"), parse("{n}"), parse_condition("{w} < 1")], fractions=True)
    cost, count, small = program({"n": np.array([[3], [64]]), "w": sizes})
    # 3/2 + 1, 51/32 + 1, 6 + 1; 32 + 1, 34 + 1, 128 + 1
    assert cost.tolist() == [[Fraction(5, 2), Fraction(83, 32), 7], [33, 35, 129]]
    assert [type(value) for value in cost.tolist()[1]] == [int, int, int]
    assert (count.dtype, small.tolist()) == (np.int64, [[True, True, False]] * 2)
    (whole, *_) = program({"n": np.array([64, 96]), "w": Fraction(17, 32)})
    assert (whole.tolist(), whole.dtype) == ([35, 52], np.int64)  # 34 + 1, 51 + 1
    with pytest.raises(EvaluationError, match="w is an array of object: give integers"):
        ArrayProgram(program.formulas)({"n": 1, "w": sizes})
    with pytest.raises(EvaluationError, match="w is an array of float64: give integers"):
        program({"n": 1, "w": np.array([0.5])})


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(formulas, st.lists(points_with_fractions, min_size=1, max_size=4))
def test_fractions_at_each_point(formula: Expr, at: list[dict[str, Number]]) -> None:
    def alone() -> list[Number]:
        return [evaluate_exact(formula, point) for point in at]

    def together() -> list[Number]:
        arrays = {name: np.array([point[name] for point in at], dtype=object) for name in at[0]}
        (found,) = ArrayProgram([formula], fractions=True)(arrays)
        return list(found.tolist())

    try:
        expected = alone()
    except EvaluationError:
        with pytest.raises(EvaluationError):
            together()
    else:
        assert together() == expected
