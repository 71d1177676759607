"""Combines formulas that each hold on one path into one formula that holds on all.

A sample is the value of a quantity at one point. Candidates are the formulas that symbolic runs derived on their paths.
A candidate that explains every sample is the result. Otherwise the samples are split by a condition of the model's
paths: ``{seq_len} == 1``, ``{cache_len} == 0``, a flag, or a window. Each side is fitted separately, and the formula
becomes ``where(condition, ..., ...)``.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lmp.errors import EvaluationError, FormulaError
from lmp.formula import (
    Compare,
    Condition,
    Expr,
    Not,
    Num,
    Program,
    Var,
    Where,
    all_of,
    any_of,
    as_polynomial,
    eq,
    evaluate_condition,
    num,
    simplify,
    simplify_condition,
    where,
)

MAX_DEPTH = 6
LEAST = {"batch_size": 1, "seq_len": 1, "cache_len": 0}
MOST_JOINED = 9
"""Number of conditions that are joined in pairs. The first ones are taken: they decide most."""


@dataclass(frozen=True, eq=False)
class Point:
    """Values of all variables at one executed call. Compared by identity: two calls are two points."""

    values: Mapping[str, int]


class Sample(NamedTuple):
    point: Point
    value: int


class Fitter:
    """Finds formulas for samples. Caches the values of candidates and conditions at each point."""

    def __init__(self, conditions: Sequence[Condition], flags: frozenset[str] = frozenset()) -> None:
        self.conditions = list(conditions)
        self.flags = flags
        self._values: dict[Expr, _Values] = {}
        self._truth: dict[Condition, dict[Point, bool | None]] = {}
        self._fitted: dict[Any, Expr | None] = {}

    def value(self, candidate: Expr, point: Point) -> int | None:
        """Value of the candidate at the point; None if it has none."""
        return self._of(candidate)[point]

    def _of(self, candidate: Expr) -> _Values:
        if candidate not in self._values:
            self._values[candidate] = _Values(candidate)
        return self._values[candidate]

    def holds(self, condition: Condition, point: Point) -> bool | None:
        """Truth of the condition at the point; None if it has no value, as after a division by 0."""
        known = self._truth.setdefault(condition, {})
        if point not in known:
            known[point] = None
            with contextlib.suppress(EvaluationError):
                known[point] = evaluate_condition(condition, point.values)
        return known[point]

    def fit(self, samples: Sequence[Sample], candidates: Sequence[Expr]) -> Expr | None:
        """One formula for all samples, with as few cases as possible; None if the candidates cannot explain them."""
        distinct = tuple(dict.fromkeys([*candidates, num(0)]))
        # Kernels with equal traffic have equal samples.
        key = (distinct, tuple(samples))
        if key not in self._fitted:
            self._fitted[key] = self._fit(samples, distinct)
        return self._fitted[key]

    def _fit(self, samples: Sequence[Sample], distinct: Sequence[Expr]) -> Expr | None:
        known = [self._of(c) for c in distinct]
        for candidate, values in zip(distinct, known, strict=True):
            if all(values[point] == value for point, value in samples):
                return candidate
        # Sets of samples are bitmasks: those that a candidate explains, and those where a condition holds.
        explained = [sum(1 << i for i, (p, value) in enumerate(samples) if of[p] == value) for of in known]
        everything = (1 << len(samples)) - 1
        splits: list[tuple[Condition, int]] = []
        for condition in self.conditions:
            held = [self.holds(condition, s.point) for s in samples]
            if None in held:
                continue  # a formula that contains it would have no value there either
            mask = sum(1 << i for i, holds in enumerate(held) if holds)
            # If two conditions split the samples alike, the first one is kept: it is the more natural.
            if 0 < mask < everything and not any(known in (mask, everything & ~mask) for _, known in splits):
                splits.append((condition, mask))
        # Of candidates that explain the same samples the first one is kept.
        labelled = [(candidate, mask) for mask, candidate in _first_of_each(explained, distinct).items() if mask]
        if not _may_be_told_apart(len(samples), [mask for _, mask in labelled], [mask for _, mask in splits]):
            return None
        together = [functools.reduce(int.__or__, of_one, 0) for of_one in _masks_with(labelled, len(samples))]
        for depth in range(1, MAX_DEPTH + 1):
            trees = [_Search(labelled, splits, together).split(everything, depth)]
            if depth <= 2:
                # A disjunction of two conditions: for example, a mask is made after a cache or beyond a window.
                trees.append(
                    _Search(labelled, [*splits, *_either(splits, everything)], together).split(everything, depth)
                )
            found = [t for t in trees if t is not None]
            if found:
                return self._written(min(found, key=lambda t: t.leaves))
        return None

    def _written(self, tree: _Tree) -> Expr:
        if tree.formula is not None:
            return tree.formula
        condition, inside, outside = tree.parts
        return self._choose(condition, self._written(inside), self._written(outside))

    def unexplained(self, samples: Sequence[Sample], candidates: Sequence[Expr]) -> list[Sample]:
        """Samples that no candidate explains. They need another symbolic run."""
        left = list(samples)
        for candidate in dict.fromkeys([*candidates, num(0)]):
            values = self._of(candidate)
            left = [s for s in left if values[s.point] != s.value]
            if not left:
                break
        return left

    def _choose(self, condition: Condition, inside: Expr, outside: Expr) -> Expr:
        """``where(condition, inside, outside)``, or a sum with a factor if the condition is a flag (0 or 1)."""
        match condition:
            case Compare(">", Var(name), Num(0)) if name in self.flags:
                # If each side has terms of its own, two separate cases are easier to read.
                more = as_polynomial(inside - outside)
                if inside == num(0) or all(c > 0 for c in more.values()):
                    return simplify(outside + Var(name) * (inside - outside))
        return joined(condition, simplify(inside), simplify(outside))


class _Values(dict[Point, int | None]):
    """Values of a formula at points; None where it has no value."""

    def __init__(self, formula: Expr) -> None:
        super().__init__()
        self._program = Program([formula])

    def __missing__(self, point: Point) -> int | None:
        value: int | None
        try:
            (value,) = self._program(point.values)
        except FormulaError:
            value = None
        self[point] = value
        return value


def _first_of_each(explained: Sequence[int], candidates: Sequence[Expr]) -> dict[int, Expr]:
    """Set of samples -> the first candidate that explains exactly these."""
    found: dict[int, Expr] = {}
    for mask, candidate in zip(explained, candidates, strict=True):
        found.setdefault(mask, candidate)
    return found


def _masks_with(labelled: Sequence[tuple[Expr, int]], number: int) -> Iterator[list[int]]:
    """Per sample the sets of explained samples that it is in."""
    return ([mask for _, mask in labelled if mask >> sample & 1] for sample in range(number))


def _may_be_told_apart(number: int, explained: Sequence[int], conditions: Sequence[int]) -> bool:
    """False if no tree of any depth fits: samples with equal results of every condition need one candidate."""
    groups: dict[tuple[int, ...], int] = {}
    for sample in range(number):
        results = tuple([mask >> sample & 1 for mask in conditions])
        groups[results] = groups.get(results, 0) | 1 << sample
    return all(any(not group & ~mask for mask in explained) for group in groups.values())


def _either(splits: list[tuple[Condition, int]], every: int) -> list[tuple[Condition, int]]:
    """Disjunctions of two conditions, the second one plain or negated. Each set of samples occurs once.

    ``every``: the set of all samples.
    """
    known = {mask for _, mask in splits} | {0, every}
    found = []
    for i, (first, a) in enumerate(splits[:MOST_JOINED]):
        for second, b in splits[i + 1 : MOST_JOINED]:
            for condition, mask in (((first, second), a | b), ((first, negated(second)), a | (every & ~b))):
                if mask not in known:
                    known.add(mask)
                    found.append((any_of(*condition), mask))
    return found


@dataclass(frozen=True)
class _Tree:
    """A leaf with a formula, or a condition with two subtrees."""

    leaves: int = 1
    formula: Expr | None = None
    parts: tuple[Condition, _Tree, _Tree] = field(default=())  # type: ignore[assignment]


@dataclass
class _Search:
    """Search for the condition tree with fewest leaves: the leaves are candidates, and the depth is limited.

    Of the trees with fewest leaves the first one is found. A branch is left out only if it cannot have fewer.
    """

    candidates: list[tuple[Expr, int]]
    splits: list[tuple[Condition, int]]
    together: Sequence[int]
    """Per sample the samples that some candidate explains together with it."""
    known: dict[tuple[int, int], _Tree | None] = field(default_factory=dict)
    fewest_of: dict[int, int] = field(default_factory=dict)

    def fewest(self, samples: int) -> int:
        """A number of leaves that no tree is below: samples of which no candidate explains two."""
        if samples not in self.fewest_of:
            left, number = samples, 0
            while left:
                first = (left & -left).bit_length() - 1
                left &= ~self.together[first]
                number += 1
            self.fewest_of[samples] = number
        return self.fewest_of[samples]

    def split(self, samples: int, depth: int) -> _Tree | None:
        key = samples, depth
        if key not in self.known:
            self.known[key] = self._find(samples, depth)
        return self.known[key]

    def _find(self, samples: int, depth: int) -> _Tree | None:
        for candidate, covered in self.candidates:
            if samples & ~covered == 0:
                return _Tree(formula=candidate)
        fewest = max(2, self.fewest(samples))
        if fewest > 1 << depth:
            return None
        best: _Tree | None = None
        tried: set[int] = set()
        for condition, met in self.splits:
            inside, outside = samples & met, samples & ~met
            if not inside or not outside or inside in tried:
                continue
            tried.update((inside, outside))
            most = best.leaves - 1 if best is not None else 2 << depth
            if self.fewest(inside) + self.fewest(outside) > most:
                continue
            then = self.split(inside, depth - 1)
            if then is None or then.leaves + self.fewest(outside) > most:
                continue
            otherwise = self.split(outside, depth - 1)
            if otherwise is None or then.leaves + otherwise.leaves > most:
                continue
            best = _Tree(then.leaves + otherwise.leaves, parts=(condition, then, otherwise))
            if best.leaves == fewest:
                break
        return best


def joined(condition: Condition, inside: Expr, outside: Expr) -> Expr:
    """``where(condition, inside, outside)``. Nested ones with an equal side are merged into one condition."""
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
    """The opposite condition. The opposite of "greater than the minimum" is "the minimum", as in ``{seq_len} == 1``."""
    match condition:
        case Compare(">", Var(name), Num(bound)) if LEAST.get(name) == bound:
            return eq(Var(name), bound)
    return simplify_condition(Not(condition))
