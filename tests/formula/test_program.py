"""A compiled program gives what `evaluate` gives, and fails where it fails."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmp.errors import EvaluationError, UnknownVariable
from lmp.formula import (
    Expr,
    Number,
    Program,
    evaluate,
    evaluate_condition,
    evaluate_exact,
    parse,
    parse_condition,
    settled,
    to_text,
    var,
)
from lmp.formula.evaluate import exact

from .strategies import NAMES, conditions, formulas, huge, points, points_with_fractions


def outcome(compute) -> object:  # type: ignore[no-untyped-def]
    try:
        return compute()
    except EvaluationError as error:
        return str(error)


@settings(max_examples=500)
@given(st.lists(formulas, min_size=1, max_size=3), points)
def test_a_program_is_evaluate(found: list[Expr], at: dict[str, int]) -> None:
    together = outcome(lambda: Program(found)(at))
    alone = [outcome(lambda f=f: evaluate(f, at)) for f in found]
    # Several formulas fail with the error of the first that does.
    assert together == next((a for a in alone if isinstance(a, str)), alone)


@given(formulas, st.fixed_dictionaries(dict.fromkeys(NAMES, huge)))
def test_at_values_of_any_size(formula: Expr, at: dict[str, int]) -> None:
    assert outcome(lambda: Program([formula])(at)) == outcome(lambda: [evaluate(formula, at)])


@given(conditions(formulas), points)
def test_conditions(condition, at) -> None:  # type: ignore[no-untyped-def]
    assert outcome(lambda: Program([condition])(at)) == outcome(lambda: [int(evaluate_condition(condition, at))])


@settings(max_examples=300)
@given(st.lists(formulas, min_size=1, max_size=3), points_with_fractions)
def test_exactly_is_evaluate_exact(found: list[Expr], at: dict[str, Number]) -> None:
    program = Program(found)
    together = outcome(lambda: program.exactly(at))
    alone = [outcome(lambda f=f: evaluate_exact(f, at)) for f in found]
    assert together == next((a for a in alone if isinstance(a, str)), alone)
    if not isinstance(together, str):
        assert all(isinstance(value, int) or value.denominator > 1 for value in together)


def test_bytes_of_half_an_element() -> None:
    program = Program(["{n} * {w_bytes} + {m}", "{n}"])
    # 3 * 17/32 + 1 = 51/32 + 32/32
    assert program.exactly({"n": 3, "m": 1, "w_bytes": Fraction(17, 32)}) == [Fraction(83, 32), 3]
    # 64 * 17/32 + 1: a whole number is an int
    (whole, _) = program.exactly({"n": 64, "m": 1, "w_bytes": Fraction(17, 32)})
    assert (type(whole), whole) == (int, 35)
    assert program({"n": 3, "m": 1, "w_bytes": 2}) == program.exactly({"n": 3, "m": 1, "w_bytes": 2}) == [7, 3]
    # 2**70 * 1/2 = 2**69: beyond what the compiled steps take
    assert program.exactly({"n": 2**70, "m": 0, "w_bytes": Fraction(1, 2)}) == [2**69, 2**70]
    with pytest.raises(EvaluationError, match=r"w_bytes is 0\.5: give an integer"):
        program.exactly({"n": 3, "m": 1, "w_bytes": 0.5})  # type: ignore[dict-item]
    with pytest.raises(UnknownVariable, match="w_bytes has no value"):
        program.exactly({"n": 3, "m": 1})


@given(formulas, points, st.sets(st.sampled_from(NAMES)))
def test_numbers_put_in_beforehand(formula: Expr, at: dict[str, int], fixed: set[str]) -> None:
    (rest,) = settled([formula], {name: at[name] for name in fixed})
    others = {name: value for name, value in at.items() if name not in fixed}
    expected = outcome(lambda: exact(formula, at))
    found = outcome(lambda: exact(rest, others))
    assert found == expected or (isinstance(found, str) and isinstance(expected, str))


def test_what_stands_twice_is_computed_once() -> None:
    one = Program([parse("{a} * {b} * {c} + {d}")])
    assert len(one) == 3  # a*b, a*b*c, + d
    assert len(Program([*one.formulas, *one.formulas, parse("7 * ({a} * {b} * {c} + {d})")])) == 4
    assert len(Program([parse("{a} * {b} * {c}"), parse("{b} * {a}")])) == 2


def test_only_the_side_that_is_taken_needs_a_value() -> None:
    program = Program([parse("where({a} == 0, 5, 12 // {a} + max({a}, 7 % {a})) * 2")])
    assert program({"a": 0}) == [10]
    assert program({"a": 4}) == [14]  # 3 + max(4, 3) = 7
    with pytest.raises(EvaluationError, match=r"division by zero in 7 % \{a\}"):
        Program([parse("7 % {a}")])({"a": 0})


def test_exact_where_fractions_cancel_out() -> None:
    assert Program([parse("{a} / 3 + {a} / 6")])({"a": 2}) == [1]
    assert Program([parse("ceil({a} / 3) * 0.5")])({"a": 4}) == [1]
    with pytest.raises(EvaluationError, match="is 2/3, not an integer"):
        Program([parse("{a} / 3")])({"a": 2})


def test_numbers_that_are_too_large_are_refused_as_elsewhere() -> None:
    for text in ("{a} ** {a}", "2 ** 13000", "({a} ** 400) ** 3"):
        with pytest.raises(EvaluationError, match="more than 13000 bits"):
            Program([parse(text)])({"a": 10**6})
    assert Program([parse("{a} ** 400")])({"a": 10}) == [10**400]


def test_names() -> None:
    program = Program([parse("{b} + {a}"), parse_condition("{c} > 1")])
    assert program.names == ("a", "b", "c")
    assert program({"a": np.int64(1), "b": 2, "c": 3, "unused": 4}) == [3, 1]
    with pytest.raises(UnknownVariable, match="c has no value: the names are a, b"):
        program({"a": 1, "b": 2})
    with pytest.raises(EvaluationError, match=r"a is 1\.5: give an integer"):
        program({"a": 1.5, "b": 2, "c": 3})  # type: ignore[dict-item]


def test_a_reference_must_be_expanded_first() -> None:
    with pytest.raises(EvaluationError, match="is a reference"):
        Program([parse("1 + ${{a.B}}(n=1)")])


def test_a_condition_that_is_decided_leaves_one_side() -> None:
    (rest,) = settled([parse("where({a} > 1, {b} * ({a} + 2), {c})")], {"a": 3})
    assert to_text(rest) == "{b} * 5"
    assert settled([var("a")], {}) == [var("a")]
