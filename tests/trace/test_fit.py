"""Combining formulas that hold on one path each into one formula that holds on all."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Mapping

import pytest

from lmp.formula import Expr, Where, evaluate, num, parse, parse_condition, to_text, walk
from lmp.trace.fit import Fitter, Point, Sample, joined, negated

POINTS = [
    {"batch_size": b, "seq_len": s, "cache_len": c, "window": 8, "bias": f}
    for b, s, c, f in itertools.product((1, 2), (1, 5, 9), (0, 7), (0, 1))
]


def samples(value: Callable[[Mapping[str, int]], int], points: Iterable[Mapping[str, int]] = POINTS) -> list[Sample]:
    return [Sample(Point(p), value(p)) for p in points]


def fitter(*conditions: str, flags: Iterable[str] = ()) -> Fitter:
    return Fitter([parse_condition(c) for c in conditions], frozenset(flags))


def formulas(*texts: str) -> list[Expr]:
    return [parse(text) for text in texts]


def exact(found: Expr | None, wanted: list[Sample]) -> Expr:
    assert found is not None
    assert all(evaluate(found, s.point.values) == s.value for s in wanted)
    return found


TOKENS, KEYS, LAST = formulas("{batch_size} * {seq_len}", "{seq_len} + {cache_len}", "{batch_size}")


def test_one_formula_that_explains_everything_is_the_answer():
    wanted = samples(lambda p: p["batch_size"] * p["seq_len"])
    found = fitter("{seq_len} == 1", "{cache_len} == 0").fit(wanted, [KEYS, TOKENS])
    assert found is TOKENS


def test_what_is_nothing_everywhere_needs_no_candidate():
    assert to_text(exact(fitter().fit(samples(lambda p: 0), []), [])) == "0"


def test_one_condition():
    wanted = samples(lambda p: p["batch_size"] if p["seq_len"] == 1 else p["seq_len"] + p["cache_len"])
    found = exact(fitter("{cache_len} == 0", "{seq_len} == 1").fit(wanted, [KEYS, LAST]), wanted)
    assert to_text(found) == "where({seq_len} == 1, {batch_size}, {seq_len} + {cache_len})"


def test_two_conditions():
    def value(p: Mapping[str, int]) -> int:
        if p["cache_len"] == 0:
            return p["batch_size"] * p["seq_len"]
        return p["batch_size"] if p["seq_len"] == 1 else p["seq_len"] + p["cache_len"]

    wanted = samples(value)
    found = exact(fitter("{seq_len} == 1", "{cache_len} == 0").fit(wanted, [TOKENS, KEYS, LAST]), wanted)
    assert to_text(found).count("where(") <= 2


def test_three_conditions():
    def value(p: Mapping[str, int]) -> int:
        if p["seq_len"] > p["window"]:
            return 3
        if p["cache_len"] == 0:
            return p["batch_size"] * p["seq_len"]
        return p["batch_size"] if p["seq_len"] == 1 else 7 * p["seq_len"]

    wanted = samples(value)
    found = fitter("{seq_len} == 1", "{cache_len} == 0", "{seq_len} > {window}").fit(
        wanted, formulas("{batch_size} * {seq_len}", "{batch_size}", "7 * {seq_len}", "3")
    )
    exact(found, wanted)


def test_a_kernel_that_runs_on_one_path_only_is_nothing_on_the_others():
    wanted = samples(lambda p: p["batch_size"] * p["seq_len"] if p["cache_len"] > 0 else 0)
    found = exact(fitter("{cache_len} > 0").fit(wanted, [TOKENS]), wanted)
    assert to_text(found) == "where({cache_len} > 0, {batch_size} * {seq_len}, 0)"


def test_a_flag_multiplies_what_it_switches_on():
    wanted = samples(lambda p: p["batch_size"] * p["seq_len"] * p["bias"])
    found = exact(fitter("{bias} > 0", flags=["bias"]).fit(wanted, [TOKENS]), wanted)
    assert to_text(found) == "{batch_size} * {seq_len} * {bias}"
    # as one term beside those that do not depend on the flag
    wanted = samples(lambda p: p["seq_len"] + p["cache_len"] + p["batch_size"] * p["bias"])
    found = fitter("{bias} > 0", flags=["bias"]).fit(wanted, [KEYS, parse("{seq_len} + {cache_len} + {batch_size}")])
    assert "where" not in to_text(exact(found, wanted))


def test_the_same_condition_without_a_flag_is_a_condition():
    wanted = samples(lambda p: p["batch_size"] * p["seq_len"] * p["bias"])
    found = exact(fitter("{bias} > 0").fit(wanted, [TOKENS]), wanted)
    assert to_text(found) == "where({bias} > 0, {batch_size} * {seq_len}, 0)"


def test_samples_that_nothing_explains():
    wanted = samples(lambda p: p["batch_size"] * p["seq_len"] + 1000 * (p["seq_len"] == 9))
    fit = fitter("{seq_len} == 1")
    assert fit.fit(wanted, [TOKENS, KEYS]) is None
    left = fit.unexplained(wanted, [TOKENS, KEYS])
    assert {s.point.values["seq_len"] for s in left} == {9}
    assert len(left) == 8  # 2 batches, 2 caches, 2 flags
    assert fit.unexplained(samples(lambda p: 0), []) == []


def test_a_condition_that_cannot_tell_the_samples_apart_does_not_help():
    wanted = samples(lambda p: p["batch_size"] if p["seq_len"] == 1 else p["seq_len"] + p["cache_len"])
    assert fitter("{cache_len} == 0", "{batch_size} == 1").fit(wanted, [KEYS, LAST]) is None


def test_a_candidate_without_a_value_somewhere_explains_nothing_there():
    halves = parse("{seq_len} / 2")
    wanted = samples(lambda p: p["batch_size"], [p for p in POINTS if p["seq_len"] == 5])
    assert fitter().value(halves, wanted[0].point) is None
    assert fitter().value(parse("{nowhere}"), wanted[0].point) is None
    assert fitter().fit(wanted, [halves, LAST]) is LAST


def test_points_are_told_apart_by_identity():
    first, second = Point({"x": 1}), Point({"x": 1})
    assert first != second
    assert len({first, second}) == 2


A, B, C = "{seq_len} == 1", "{cache_len} == 0", "{cache_len} > {window}"


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        # where(A, x, where(B, x, y)) is where(A or B, x, y), and its three relatives
        ("{x}", f"where({B}, {{x}}, {{y}})"),
        ("{x}", f"where({B}, {{y}}, {{x}})"),
        (f"where({B}, {{x}}, {{y}})", "{x}"),
        (f"where({B}, {{y}}, {{x}})", "{x}"),
    ],
)
def test_nested_conditions_with_an_equal_side_are_joined(inside: str, outside: str):
    found = joined(parse_condition(A), parse(inside), parse(outside))
    assert to_text(found).count("where(") == 1
    assert to_text(found).count("{x}") == 1
    plain = parse(f"where({A}, {inside}, {outside})")
    for p in POINTS:
        point = {**p, "x": 100, "y": 200}
        assert evaluate(found, point) == evaluate(plain, point)


def test_what_differs_on_all_sides_stays_nested():
    found = joined(parse_condition(A), parse("{x}"), parse(f"where({B}, {{y}}, {{z}})"))
    assert to_text(found).count("where(") == 2


def test_negated():
    assert str(negated(parse_condition(A))) == "{seq_len} != 1"
    assert str(negated(negated(parse_condition(C)))) == C


def leaves(formula: Expr) -> int:
    return 1 + sum(isinstance(node, Where) for node in walk(formula))


def fewest_leaves(
    samples: frozenset[int], explained: list[frozenset[int]], held: list[frozenset[int]], depth: int
) -> int:
    """By trying every tree, without any shortcut; a large number if none fits."""
    if any(samples <= covered for covered in explained):
        return 1
    parts = [(samples & met, samples - met) for met in held] if depth else []
    return min(
        (sum(fewest_leaves(side, explained, held, depth - 1) for side in pair) for pair in parts if all(pair)),
        default=1000,
    )


@pytest.mark.parametrize("seed", range(12))
def test_no_tree_has_fewer_cases(seed: int):
    """Random costs on random paths: as few cases as a search of every tree finds, and none where it finds none."""
    draw = random.Random(seed)
    conditions = ["{seq_len} > 1", "{cache_len} > 0", "{batch_size} > 1"]
    candidates = ["{seq_len}", "{batch_size} * {seq_len}", "{cache_len} + 1", "7"]
    points = [{"batch_size": b, "seq_len": s, "cache_len": c} for b in (1, 3) for s in (1, 5, 6) for c in (0, 4)]
    paths = {tuple(draw.sample((0, 1), 1)[0] for _ in conditions): draw.choice(candidates) for _ in range(6)}

    def path(point: Mapping[str, int]) -> tuple[int, ...]:
        return int(point["seq_len"] > 1), int(point["cache_len"] > 0), int(point["batch_size"] > 1)

    costs = {key: parse(text) for key, text in paths.items()}
    wanted = samples(lambda p: evaluate(costs[path(p)], p) if path(p) in costs else 0, points)
    if seed % 4 == 3:
        wanted[0] = wanted[0]._replace(value=wanted[0].value + 100)  # nothing explains this one
    tried = [*map(parse, candidates), num(0)]
    explained = [frozenset(i for i, s in enumerate(wanted) if evaluate(c, s.point.values) == s.value) for c in tried]
    held = [frozenset(i for i, s in enumerate(wanted) if path(s.point.values)[at]) for at in range(3)]
    fewest = fewest_leaves(frozenset(range(len(wanted))), explained, held, 3)
    found = fitter(*conditions).fit(wanted, formulas(*candidates))
    assert (found is None) == (fewest >= 1000)
    if found is not None:
        exact(found, wanted)
        # A disjunction of two conditions may save a case, and equal sides are joined.
        assert leaves(found) <= fewest
