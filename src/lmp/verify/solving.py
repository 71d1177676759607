"""Finds sizes at which the evaluation of a formula takes a given arm, or the contradiction that excludes it."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from lmp.errors import FormulaError
from lmp.formula import (
    And,
    Compare,
    Condition,
    Expr,
    FloorDiv,
    Mod,
    Monomial,
    Not,
    Number,
    Or,
    Var,
    as_polynomial,
    free_variables,
    num,
    to_text,
    walk,
)
from lmp.formula.evaluate import exact, guarded
from lmp.verify.arms import Way, truths

LARGEST = 1 << 17
"""Sizes up to this are tried."""

DEPTH = 4
"""Most variables that a search changes at a time."""

SUGGESTED = 8
"""Most values that are tried for one variable to change one condition."""

_SMALL = (1, 2, 3, 4, 5, 6, 7, 8)


@dataclass(frozen=True)
class Domain:
    """The variables that a search may change, and the smallest value of each."""

    free: Collection[str]
    flags: Collection[str] = ()
    """Those that are 0 or 1."""
    absent: Collection[str] = ()
    """Those that may be 0, as a window that only some layers have."""

    def least(self, name: str) -> int:
        return 0 if name == "cache_len" or name in self.flags or name in self.absent else 1

    def most(self, name: str) -> int:
        return 1 if name in self.flags else LARGEST


@dataclass
class Budget:
    """Evaluations, or questions to the solver, that searches may still make: a repeatable bound of their time."""

    left: int


def solution(way: Way, base: Mapping[str, int], domain: Domain, budget: Budget) -> dict[str, int] | None:
    """Values near the base that meet all conditions of a way; None if none are found within the budget."""
    return _Search(way, domain, budget).repaired(dict(base), frozenset(), DEPTH)


@dataclass
class _Search:
    """Changes one variable of the first unmet condition at a time, until all are met."""

    way: Way
    domain: Domain
    budget: Budget

    def repaired(self, values: dict[str, int], changed: frozenset[str], depth: int) -> dict[str, int] | None:
        truth = truths(values)
        self.budget.left -= 1
        unmet = next(((c, wanted) for c, wanted in self.way if truth(c) is not wanted), None)
        if unmet is None:
            return values
        if depth == 0:
            return None
        condition, wanted = unmet
        for name in sorted(free_variables(condition) & set(self.domain.free) - changed):
            for value in self._suggested(condition, wanted, name, values):
                if self.budget.left <= 0:
                    return None
                found = self.repaired({**values, name: value}, changed | {name}, depth - 1)
                if found is not None:
                    return found
        return None

    def _suggested(self, condition: Condition, wanted: bool, name: str, values: Mapping[str, int]) -> list[int]:
        """Values of one variable at which a condition has the wanted result: fewest unmet conditions, then nearest."""
        now = values[name]
        least, most = self.domain.least(name), self.domain.most(name)
        about = [(c, w) for c, w in self.way if name in free_variables(c)]
        found: list[tuple[int, float, int]] = []
        for value in _tries([c for c, _ in about], name, values):
            if least <= value <= most and value != now:
                self.budget.left -= 1
                truth = truths({**values, name: value})
                if truth(condition) is wanted:
                    unmet = sum(truth(c) is not w for c, w in about)
                    found.append((unmet, max(value, now, 1) / max(1, min(value, now)), value))
        return [value for _, _, value in sorted(found)[:SUGGESTED]]


def _tries(conditions: Iterable[Condition], name: str, values: Mapping[str, int]) -> set[int]:
    """Values of one variable near which conditions may change, alone and combined with what must divide it."""
    now = values[name]
    found = {0, *_SMALL, now // 2, now - 1, now + 1, 2 * now, 4 * now}
    edges: set[int] = set()
    steps: set[int] = set()
    for node in (node for condition in conditions for node in walk(condition)):
        match node:
            case Compare(_, left, right):
                edges.update(_edges(left, right, name, values))
            case Mod(left, right) | FloorDiv(left, right):
                found.update(_near_multiples(left, right, name, values))
                part = _value(right, values)
                if part is not None and part > 1 and name in free_variables(left):
                    steps.add(int(part))
    for edge in edges:
        found.update((edge - 1, edge, edge + 1))
        for step in steps:
            below = edge // step * step
            found.update((below - step, below - 1, below, below + 1, below + step, below + step + 1, below + 2 * step))
    return found


def _edges(left: Expr, right: Expr, name: str, values: Mapping[str, int]) -> Iterator[int]:
    """Values of one variable beside which the larger of two sides changes."""
    if name not in free_variables(left) | free_variables(right):
        return

    def sign(value: int) -> int | None:
        difference = _value(left - right, {**values, name: value})
        return None if difference is None else (difference > 0) - (difference < 0)

    grid = [0, *(1 << k for k in range(LARGEST.bit_length()))]
    signs = [sign(value) for value in grid]
    for low, high, before, after in zip(grid, grid[1:], signs, signs[1:], strict=False):
        if before is None or after is None or before == after:
            continue
        while high - low > 1:
            middle = (low + high) // 2
            if sign(middle) == before:
                low = middle
            else:
                high = middle
        yield from (low, high)


def _near_multiples(left: Expr, right: Expr, name: str, values: Mapping[str, int]) -> Iterator[int]:
    whole, part = _value(left, values), _value(right, values)
    if whole is None or part is None or part <= 0:
        return
    if name in free_variables(left):
        step = int(part) if isinstance(left, Var) else 1
        for n in (step, int(part)):
            yield from (n - 1, n, n + 1, 2 * n - 1, 2 * n, 2 * n + 3, 3 * n, 3 * n + 1, 4 * n)
            yield from (values[name] // n * n, (values[name] // n + 1) * n)
    if name in free_variables(right) and whole > 0:
        size = int(whole)
        yield from (size - 1, size, size + 1, 2 * size, size // 2, size // 2 + 1)
        yield from (n for n in range(1, min(size, 64) + 1) if size % n == 0)


def _value(expr: Expr, values: Mapping[str, int]) -> Number | None:
    try:
        return guarded(lambda: exact(expr, values))
    except FormulaError:
        return None


# -- contradictions ---------------------------------------------------------------------------------------------------


def contradiction(way: Way, domain: Domain) -> str | None:
    """Text on conditions of a way that exclude one another; None if none are known to."""
    literals = list(itertools.chain.from_iterable(_literals(c, wanted) for c, wanted in way))
    known: dict[Condition, bool] = {}
    for condition, wanted in literals:
        plain, result = _plain(condition, wanted)
        if known.setdefault(plain, result) is not result:
            return f"{to_text(plain)} cannot be both"
    for condition, wanted in literals:
        follows = _follows(condition, known) if isinstance(condition, And | Or) else None
        if follows is not None and follows is not wanted:
            return f"{to_text(condition)} cannot be {'true' if wanted else 'false'} beside the others"
    bounds: dict[Terms, _Interval] = {}
    for condition, wanted in literals:
        if isinstance(condition, Compare):
            problem = _bounded(condition, wanted, domain, bounds)
            if problem is not None:
                return problem
    combined = (_beyond_its_terms(terms, interval, domain, bounds) for terms, interval in bounds.items())
    indivisible = (_indivisible(condition, known[condition], domain, bounds) for condition in known)
    return next(filter(None, itertools.chain(combined, indivisible)), None)


def _plain(condition: Condition, wanted: bool) -> tuple[Condition, bool]:
    """The condition with one of two opposite relations, and its result."""
    if isinstance(condition, Compare) and condition.relation in ("<=", "<", "!="):
        return Compare(_OPPOSITE[condition.relation], condition.left, condition.right), not wanted
    return condition, wanted


def _follows(condition: Condition, known: Mapping[Condition, bool]) -> bool | None:
    """The result that follows from known ones of its parts; None if it is open."""
    match condition:
        case Not(part):
            inner = _result(part, known)
            return None if inner is None else not inner
        case And(parts) | Or(parts):
            decisive = isinstance(condition, Or)
            inside = [_result(part, known) for part in parts]
            return decisive if decisive in inside else None if None in inside else not decisive
    return None


def _result(condition: Condition, known: Mapping[Condition, bool]) -> bool | None:
    plain, same = _plain(condition, True)
    return known[plain] is same if plain in known else _follows(condition, known)


def _indivisible(condition: Condition, holds: bool, domain: Domain, bounds: Mapping[Terms, _Interval]) -> str | None:
    """Text if a size is both smaller than another one and a multiple of it."""
    if not holds or not isinstance(condition, Compare) or condition.relation != "==" or condition.right != num(0):
        return None
    rest = condition.left
    if not isinstance(rest, Mod) or not isinstance(rest.left, Var) or domain.least(rest.left.name) < 1:
        return None
    terms, _, sign = _normal(rest.left - rest.right)
    interval = bounds.get(terms)
    if interval is None:
        return None
    smaller = interval.high if sign > 0 else None if interval.low is None else -interval.low
    if smaller is None or smaller >= 0:
        return None
    return f"{to_text(condition)}, {interval.high_from if sign > 0 else interval.low_from}"


def _literals(condition: Condition, wanted: bool) -> Iterator[tuple[Condition, bool]]:
    """The comparisons that must all have their results for a condition to have its own, as far as they are certain."""
    match condition:
        case Not(part):
            yield from _literals(part, not wanted)
        case And(parts) if wanted:
            for part in parts:
                yield from _literals(part, True)
        case Or(parts) if not wanted:
            for part in parts:
                yield from _literals(part, False)
        case _:
            yield condition, wanted


Terms = tuple[tuple[Monomial, Fraction], ...]
"""A sum of products without its constant, the first factor being 1."""


@dataclass
class _Interval:
    """Bounds of a sum, both included, and the conditions that gave them."""

    whole: bool
    """True if the sum is an integer."""
    low: Fraction | None = None
    high: Fraction | None = None
    low_from: str = ""
    high_from: str = ""
    excluded: dict[Fraction, str] = field(default_factory=dict)
    """Values that the sum does not have, with the conditions that say so."""

    def narrow(self) -> None:
        """Move a bound of an integer off the values that are excluded."""
        while self.whole and self.low in self.excluded:
            self.low_from = _both(self.low_from, self.excluded[self.low])
            self.low += 1
        while self.whole and self.high in self.excluded and not self.is_empty:
            self.high_from = _both(self.high_from, self.excluded[self.high])
            self.high -= 1

    @property
    def is_empty(self) -> bool:
        return self.low is not None and self.high is not None and self.low > self.high


def _both(first: str, second: str) -> str:
    return ", ".join(filter(None, (first, second)))


_WHOLE = (Var, FloorDiv, Mod)
"""Atoms of a sum whose values are integers."""

_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


def _normal(difference: Expr) -> tuple[Terms, Fraction, Fraction]:
    """A sum as its terms over the first one's factor, the constant that it is 0 at, and that factor."""
    terms = {m: Fraction(c) for m, c in as_polynomial(difference).items()}
    bound = -terms.pop((), Fraction(0))
    order = sorted(terms, key=str)
    lead = terms[order[0]] if order else Fraction(1)
    return tuple((m, terms[m] / lead) for m in order), bound / lead, lead


def _bounded(condition: Compare, wanted: bool, domain: Domain, bounds: dict[Terms, _Interval]) -> str | None:
    """Add the bound that a comparison sets to its sum of variables. Text if nothing is left between the bounds."""
    relation = condition.relation if wanted else _OPPOSITE[condition.relation]
    key, bound, lead = _normal(condition.left - condition.right)
    if not key:
        return None
    if lead < 0:
        relation = _MIRRORED[relation]
    whole = all(c.denominator == 1 and all(isinstance(a, _WHOLE) and n > 0 for a, n in m) for m, c in key)
    if key not in bounds:
        bounds[key] = _Interval(whole, low=_least(key, domain), low_from="the smallest size")
    interval = bounds[key]
    shown = f"{to_text(condition)} is {'true' if wanted else 'false'}"
    if relation == "!=":
        interval.excluded[bound] = shown
    if relation in (">", ">=", "=="):
        low = bound if relation != ">" else _above(bound, whole)
        if interval.low is None or low > interval.low:
            interval.low, interval.low_from = low, shown
    if relation in ("<", "<=", "=="):
        high = bound if relation != "<" else _below(bound, whole)
        if interval.high is None or high < interval.high:
            interval.high, interval.high_from = high, shown
    interval.narrow()
    return f"{interval.low_from}, {interval.high_from}" if interval.is_empty else None


def _beyond_its_terms(
    terms: Terms, interval: _Interval, domain: Domain, bounds: Mapping[Terms, _Interval]
) -> str | None:
    """Text if the bounds of each variable leave no value between the bounds of their sum."""
    least, least_from = _bound_of_sum(terms, 1, domain, bounds)
    if least is not None and interval.high is not None and least > interval.high:
        return _both(least_from, interval.high_from)
    most, most_from = _bound_of_sum(terms, -1, domain, bounds)
    if most is not None and interval.low is not None and most < interval.low:
        return _both(most_from, interval.low_from)
    return None


def _bound_of_sum(
    terms: Terms, sign: int, domain: Domain, bounds: Mapping[Terms, _Interval]
) -> tuple[Fraction | None, str]:
    """The least value of a sum that its terms' own bounds allow, or with ``sign`` -1 the most; and what says so."""
    whys: dict[str, None] = {}
    total = Fraction(0)
    for monomial, factor in terms:
        single = ((monomial, Fraction(1)),)
        alone = bounds.get(single) or _Interval(whole=True, low=_least(single, domain), low_from="the smallest size")
        bound, why = (alone.low, alone.low_from) if factor * sign > 0 else (alone.high, alone.high_from)
        if bound is None:
            return None, ""
        total += factor * bound
        whys[why] = None
    return total, ", ".join(whys)


def _above(bound: Fraction, whole: bool) -> Fraction:
    return Fraction(bound.__floor__() + 1) if whole else bound


def _below(bound: Fraction, whole: bool) -> Fraction:
    return Fraction(bound.__ceil__() - 1) if whole else bound


def _least(key: Sequence[tuple[Monomial, Fraction]], domain: Domain) -> Fraction | None:
    """The smallest value of a sum of products of variables; None if a term has a negative sign or no variables."""
    total = Fraction(0)
    for monomial, factor in key:
        if factor < 0 or not all(isinstance(atom, Var) and power > 0 for atom, power in monomial):
            return None
        least = 1
        for atom, power in monomial:
            if isinstance(atom, Var):
                least *= domain.least(atom.name) ** power
        total += factor * least
    return total
