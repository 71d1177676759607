"""What the solver says of conditions: the arithmetic stands beside each."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmp.formula import parse_condition
from lmp.verify.arms import Way, truths
from lmp.verify.deciding import follows, nearest, why_impossible
from lmp.verify.solving import Budget, Domain

DOMAIN = Domain({"s", "n"})


def way(*conditions: tuple[str, bool]) -> Way:
    return tuple((parse_condition(text), wanted) for text, wanted in conditions)


@pytest.mark.parametrize(
    "conditions",
    [
        # s + (256 - s % 256) % 256 is the next multiple of 256, so it leaves no rest.
        [("({s} + (256 - {s} % 256) % 256) % 256 == 0", False)],
        # A junction: the first part is false, so s >= n, and then s > 1 is false only for n = 1, which is excluded.
        [("{s} < {n} or {s} == 5", True), ("{s} == 5", False), ("{s} >= {n}", True)],
        [("{n} > 0 and {s} >= {n}", True), ("{s} > 1", False), ("{n} > 1", True)],
        # min(s, n) is at most n.
        [("min({s}, {n}) > {n}", True)],
    ],
)
def test_a_contradiction_is_found(conditions: list[tuple[str, bool]]) -> None:
    assert why_impossible(way(*conditions), DOMAIN)


def test_the_contradiction_names_the_conditions_that_make_it() -> None:
    found = why_impossible(way(("{n} > 3", True), ("{s} > 200", True), ("{s} + 63 < 164", True)), DOMAIN)
    assert found == "{s} > 200 is true, {s} + 63 < 164 is true"


def test_a_variable_that_may_be_absent_is_not_bounded_like_a_switch() -> None:
    # n = 4 meets both: it is no switch, which would be 0 or 1.
    conditions = way(("{n} > 3", True), ("{s} >= {n}", True))
    assert why_impossible(conditions, Domain((), absent={"n"})) is None
    assert why_impossible(conditions, Domain((), flags={"n"})) is not None


def test_a_condition_that_cannot_be_written_excludes_nothing() -> None:
    assert why_impossible(way(("2 ** {n} > 4", True), ("{s} > 3", True)), DOMAIN) is None


def test_rounding_is_that_of_python_for_any_sign() -> None:
    # (1 - s) // 3 at s = 2 is -1 // 3 = -1; at s = 1 it is 0.
    assert nearest(way(("(1 - {s}) // 3 == 0 - 1", True)), {"s": 1, "n": 1}, DOMAIN, (), Budget(100)) is not None
    assert why_impossible(way(("(1 - {s}) // 3 == 0", True), ("{s} > 1", True)), DOMAIN) is not None


def test_quotients_of_quotients_are_written() -> None:
    # s / 4 / 2 > 3 at s = 25: 3.125; the floor of s / 4 over 2 is at most s / 8.
    assert why_impossible(way(("{s} / 4 / 2 > 3", True), ("{s} > 24", False)), DOMAIN) is not None
    assert why_impossible(way(("{s} / 4 // 2 > 3", True), ("{s} > 32", False)), DOMAIN) is None  # 32
    assert why_impossible(way(("{s} / 4 // 2 > 3", True), ("{s} > 31", False)), DOMAIN) is not None


def test_what_follows_is_known() -> None:
    known = [parse_condition("{s} > {n}"), parse_condition("{n} > 4")]
    assert follows(parse_condition("{s} > 5"), known, DOMAIN)  # s > n >= 5
    assert not follows(parse_condition("{s} > 6"), known, DOMAIN)  # s = 6, n = 5


def test_a_point_differs_from_the_base_in_few_variables() -> None:
    base = {"s": 7, "n": 4, "m": 3}
    found = nearest(way(("{s} % {n} == 0", True), ("{m} < 9", True)), base, Domain({"s", "n", "m"}), {"s"}, Budget(100))
    assert found is not None
    assert (found["n"], found["m"]) == (4, 3)
    assert found["s"] % 4 == 0
    # s is not of the call here and n = 9 > s = 7 needs a change of n alone.
    again = nearest(way(("{n} > {s} + 1", True)), base, Domain({"n", "m"}), (), Budget(100))
    assert again is not None
    assert (again["s"], again["m"]) == (7, 3)
    assert again["n"] > 8


PARTS = st.sampled_from(
    ["{s} > {n}", "{s} % {n} == 0", "{s} // {n} > 2", "min({s}, 6) == {n}", "ceil({s} / 4) == {n}", "{s} * {n} == 12"]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(PARTS, st.booleans()), min_size=1, max_size=3))
def test_it_agrees_with_trying_all_small_sizes(conditions: list[tuple[str, bool]]) -> None:
    wanted = way(*conditions)
    some = any(
        all(truths({"s": s, "n": n})(condition) is result for condition, result in wanted)
        for s, n in itertools.product(range(1, 25), repeat=2)
    )
    if some:
        assert why_impossible(wanted, DOMAIN) is None
    point = nearest(wanted, {"s": 5, "n": 2}, DOMAIN, {"s", "n"}, Budget(100))
    if point is not None:
        truth = truths(point)
        assert all(truth(condition) is result for condition, result in wanted)
    else:
        assert not some
