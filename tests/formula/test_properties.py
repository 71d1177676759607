"""What holds for every formula, tried on random ones."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lmp.errors import EvaluationError
from lmp.formula import (
    Expr,
    as_polynomial,
    equal,
    evaluate,
    evaluate_many,
    free_variables,
    from_polynomial,
    parse,
    simplify,
    substitute,
    to_text,
    walk,
)
from lmp.formula.evaluate import exact
from lmp.formula.nodes import Num

from .strategies import NAMES, formulas, huge, points, points_with_fractions, polynomials, with_references


def value(formula: Expr, at: dict[str, int]) -> Fraction | int:
    """The exact value; a point without one is none to test at."""
    try:
        return exact(formula, at)
    except EvaluationError:
        assume(False)
        raise


def has_fraction(formula: Expr) -> bool:
    return any(isinstance(node, Num) and isinstance(node.value, Fraction) for node in walk(formula))


@given(with_references)
def test_what_is_printed_reads_back_as_the_same_nodes(formula):
    assert parse(to_text(formula)) == formula


@given(with_references)
def test_a_simplified_formula_reads_back(formula):
    simple = simplify(formula)
    again = parse(to_text(simple))
    assert equal(again, simple)
    assert again == simple or has_fraction(simple)  # 1/3 is read as a division


@settings(max_examples=400)
@given(formulas, points)
def test_simplifying_keeps_every_value(formula, at):
    expected = value(formula, at)
    assert exact(simplify(formula), at) == expected


@settings(max_examples=400)
@given(formulas, points_with_fractions)
def test_simplifying_keeps_every_value_at_fractions(formula, at):
    expected = value(formula, at)
    assert exact(simplify(formula), at) == expected


@given(polynomials)
def test_simplifying_twice_changes_nothing(formula):
    simple = simplify(formula)
    assert simplify(simple) == simple
    assert from_polynomial(as_polynomial(formula)) == simple


@given(formulas)
def test_a_simplified_formula_equals_its_original(formula):
    assert equal(formula, simplify(formula))


@given(polynomials, polynomials, polynomials)
def test_equality_is_that_of_algebra(a, b, c):
    assert equal(a * (b + c), c * a + b * a)
    assert equal((a - b) * (a + b), a * a - b**2)
    assert not equal(a, a + 1)


@given(polynomials, st.randoms())
def test_the_order_of_writing_does_not_matter(formula, random):
    terms = list(as_polynomial(formula).items())
    random.shuffle(terms)
    assert from_polynomial(dict(terms)) == simplify(formula)


@given(formulas, formulas, points)
def test_substituting_is_evaluating_inside_out(outer, inner, at):
    assume(isinstance(value(inner, at), int))
    expected = value(outer, {**at, "x": value(inner, at)})
    assert exact(substitute(outer, {"x": inner}), at) == expected


@settings(max_examples=300)
@given(formulas, st.lists(points, min_size=1, max_size=5), st.sets(st.sampled_from(NAMES)))
def test_many_points_are_each_point(formula, at, constant):
    agrees(formula, at, constant)


@settings(max_examples=300)
@given(formulas, st.lists(st.fixed_dictionaries(dict.fromkeys(NAMES, huge)), min_size=1, max_size=4))
def test_many_points_are_exact_beyond_64_bits(formula, at):
    agrees(formula, at, set())


def agrees(formula: Expr, at: list[dict[str, int]], constant: set[str]) -> None:
    """evaluate_many gives what evaluate gives at each point, or fails where evaluate fails at one of them."""
    at = [{**point, **{name: at[0][name] for name in constant}} for point in at]
    many = {name: at[0][name] if name in constant else np.array([p[name] for p in at], dtype=object) for name in NAMES}
    try:
        expected = [evaluate(formula, point) for point in at]
    except EvaluationError:
        with pytest.raises(EvaluationError):
            evaluate_many(formula, many)
        return
    found = evaluate_many(formula, many)
    assert found.shape == ((len(at),) if len(constant) < len(NAMES) else ())
    assert [int(v) for v in found.ravel()] == (expected if found.ndim else expected[:1])
    assert free_variables(formula) <= set(NAMES)
