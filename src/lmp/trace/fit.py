"""From formulas that hold on one path each to one formula that holds on all.

A sample is what a quantity came to at one point. Candidates are the formulas that symbolic runs derived on their own
paths. One candidate that explains every sample is the answer; else the samples are split by a condition that the
model's paths depend on (``{seq_len} == 1``, ``{cache_len} == 0``, a flag, a window), and each side is explained by
itself: the formula becomes ``where(condition, ..., ...)``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lmp.errors import FormulaError
from lmp.formula import (
    Compare,
    Condition,
    Expr,
    Not,
    Num,
    Var,
    Where,
    all_of,
    any_of,
    evaluate,
    evaluate_condition,
    num,
    simplify,
    simplify_condition,
    where,
)

MAX_DEPTH = 4


@dataclass(frozen=True)
class Point:
    """Values of all variables at one executed call. Compared by identity: two calls are two points."""

    values: Mapping[str, int]

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


@dataclass(frozen=True)
class Sample:
    point: Point
    value: int


class Fitter:
    """Finds formulas for samples; remembers what candidates and conditions come to at each point."""

    def __init__(self, conditions: Sequence[Condition], flags: frozenset[str] = frozenset()) -> None:
        self.conditions = list(conditions)
        self.flags = flags
        self._values: dict[tuple[Expr, Point], int | None] = {}
        self._truth: dict[tuple[Condition, Point], bool] = {}

    def value(self, candidate: Expr, point: Point) -> int | None:
        """The candidate's value at the point, None where it has none."""
        if isinstance(candidate, Num):
            return candidate.value if isinstance(candidate.value, int) else None
        key = (candidate, point)
        if key not in self._values:
            try:
                self._values[key] = evaluate(candidate, point.values)
            except FormulaError:
                self._values[key] = None
        return self._values[key]

    def holds(self, condition: Condition, point: Point) -> bool:
        key = (condition, point)
        if key not in self._truth:
            self._truth[key] = evaluate_condition(condition, point.values)
        return self._truth[key]

    def fit(self, samples: Sequence[Sample], candidates: Sequence[Expr]) -> Expr | None:
        """One formula for all samples, or None when the candidates cannot explain them."""
        distinct = list(dict.fromkeys([*candidates, num(0)]))
        for depth in range(MAX_DEPTH + 1):
            found = self._split(list(samples), distinct, depth)
            if found is not None:
                return found
        return None

    def unexplained(self, samples: Sequence[Sample], candidates: Sequence[Expr]) -> list[Sample]:
        """Samples that no candidate explains: where another symbolic run is needed."""
        distinct = [*dict.fromkeys([*candidates, num(0)])]
        return [s for s in samples if all(self.value(c, s.point) != s.value for c in distinct)]

    def _split(self, samples: list[Sample], candidates: list[Expr], depth: int) -> Expr | None:
        for candidate in candidates:
            if all(self.value(candidate, s.point) == s.value for s in samples):
                return candidate
        if depth == 0:
            return None
        for condition in self.conditions:
            met = [s for s in samples if self.holds(condition, s.point)]
            if not met or len(met) == len(samples):
                continue
            missed = [s for s in samples if not self.holds(condition, s.point)]
            inside = self._split(met, candidates, depth - 1)
            outside = self._split(missed, candidates, depth - 1) if inside is not None else None
            if inside is not None and outside is not None:
                return self._choose(condition, inside, outside)
        return None

    def _choose(self, condition: Condition, inside: Expr, outside: Expr) -> Expr:
        """``where(condition, inside, outside)``; a flag, which is 0 or 1, multiplies what it switches on instead."""
        match condition:
            case Compare(">", Var(name), Num(0)) if name in self.flags:
                return simplify(outside + Var(name) * (inside - outside))
        return joined(condition, simplify(inside), simplify(outside))


def joined(condition: Condition, inside: Expr, outside: Expr) -> Expr:
    """``where(condition, inside, outside)``, nested ones with an equal side joined into one condition."""
    match inside, outside:
        case _, Where(second, same, rest) if same == inside:
            return where(simplify_condition(any_of(condition, second)), inside, rest)
        case _, Where(second, other, same) if same == inside:
            return where(simplify_condition(all_of(negated(condition), second)), other, inside)
        case Where(second, same, other), _ if same == outside:
            return where(simplify_condition(all_of(condition, negated(second))), other, outside)
        case Where(second, other, same), _ if same == outside:
            return where(simplify_condition(all_of(condition, second)), other, outside)
    return where(condition, inside, outside)


def negated(condition: Condition) -> Condition:
    """The opposite condition."""
    return simplify_condition(Not(condition))
