"""Loops over pieces of a size: 512 tokens at a time, two sequences at a time.

A run shows such a loop with one number of rounds, so its formulas hold for that number only. Runs with other numbers of
full pieces show how each coefficient depends on the number: a polynomial of low degree, with exact coefficients. The
formula is then in ``total // step`` full pieces and a rest of ``total % step``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from lmp.formula import (
    Condition,
    Expr,
    Polynomial,
    as_polynomial,
    ceil,
    eq,
    evaluate,
    free_variables,
    from_polynomial,
    ge,
    gt,
    num,
    simplify,
    substitute,
    var,
)

LARGEST_STEP = 1 << 16
"""Steps up to this are explored."""

MOST_DEGREE = 2
"""Degree in the number of pieces. 2: a piece that works on all pieces before it, as causal attention does."""

_FULL, _REST = var("full pieces"), var("rest of a piece")
"""Names with spaces: no variable of a module has one."""


@dataclass(frozen=True)
class Pieces:
    """``total`` is worked on ``step`` at a time."""

    total: Expr
    step: Expr
    unrolled: bool = False
    """True if code runs once for each piece. False: it only divides, as padding to whole blocks does."""

    def count(self, numbers: Mapping[str, int]) -> tuple[int, int]:
        """Number of full pieces, and the size of the rest."""
        full, rest = divmod(evaluate(self.total, numbers), evaluate(self.step, numbers))
        return full, rest

    def conditions(self) -> Iterator[Condition]:
        """Where other paths may be taken: more than one piece, no rest, and more than one full piece."""
        yield gt(self.total, self.step)
        yield eq(self.total % self.step, 0)
        if self.unrolled:
            yield ge(self.total, self.step)
        # A dimension of one piece broadcasts and needs no copy, nor does a rest of one.
        yield ge(self.total, 2 * self.step)
        yield eq(self.total % self.step, 1)

    def move(self, numbers: Mapping[str, int], size: int, names: Iterable[str]) -> dict[str, int] | None:
        """The point with ``total`` set to ``size`` through the first of these variables that can; None if none can."""
        for name in names:
            if name not in free_variables(self.total):
                continue
            at_0, at_1 = (evaluate(self.total, {**numbers, name: n}) for n in (0, 1))
            if at_1 > at_0 and (size - at_0) % (at_1 - at_0) == 0 and size > at_0:
                return {**numbers, name: (size - at_0) // (at_1 - at_0)}
        return None

    def in_any_number(self, seen: Mapping[tuple[int, int], Expr], name: str) -> list[Expr]:
        """Formulas for any number of pieces that agree with formulas of single numbers of full pieces and a rest.

        ``name``: the variable that the runs differ in. Runs without a rest are one family, those with a rest of 1
        another (a slice of one needs no copy), those with more a third. A family needs one run more than the degree.
        """
        if self._others(name) is None:
            return []
        found: dict[Expr, None] = {}
        for rest in (_REST, num(1), num(0)):
            own = {full: formula for (full, size), formula in sorted(seen.items()) if _kind_of_rest(size) == rest}
            split = [(full, self._split(formula, name, full, rest)) for full, formula in own.items()]
            family = [(full, polynomial) for full, polynomial in split if polynomial is not None]
            for degree in range(1, MOST_DEGREE + 1):
                if len(family) > degree:
                    found.update(dict.fromkeys(self._written(_through(family[-degree - 1 :]), rest)))
        return list(found)

    def _others(self, name: str) -> Expr | None:
        """What is added to a variable in the total, or what it is multiplied with; None if it is neither."""
        if as_polynomial(self.total).get(((var(name), 1),)) == 1:
            return self.total - var(name)
        ((monomial, factor), *more) = as_polynomial(self.total).items()
        if more or factor != 1 or any(power != 1 for _, power in monomial):
            return None
        return simplify(from_polynomial({tuple(m for m in monomial if m[0] != var(name)): 1}))

    def _split(self, formula: Expr, name: str, full: int, rest: Expr) -> Polynomial | None:
        """The formula at this number of full pieces, in the rest. Sizes inside ``//`` and the like are left alone.

        A product, such as all rows of a batch, must stand in it as a whole; else None.
        """
        others, product = self._others(name), as_polynomial(self.total)
        assert others is not None
        total: Expr = num(0)
        rows = full * self.step + rest
        factors = {atom for monomial in product for atom, _ in monomial} if len(product) == 1 else {var(name)}
        for monomial, coefficient in as_polynomial(formula).items():
            powers = {power for atom, power in monomial if atom in factors}
            powers |= {0} if factors - {atom for atom, _ in monomial} else set()
            if len(powers) > 1 and len(factors) > 1:
                return None
            term: Expr = num(coefficient)
            for atom, power in monomial:
                if atom not in factors or power < 0:
                    term = term * atom**power
                elif atom == var(name):
                    term = term * (rows if len(factors) > 1 else rows - others) ** power
            total = total + term
        return as_polynomial(total)

    def _written(self, polynomial: Polynomial, rest: Expr) -> list[Expr]:
        """The formula in full pieces and the rest; in pieces, the last included, and the total. Shortest first."""
        formula = from_polynomial(polynomial)
        full, started = self.total // self.step, ceil(self.total / self.step)
        ways = [substitute(formula, {_FULL.name: full, _REST.name: self.total % self.step})]
        if rest == _REST:
            whole = simplify(substitute(formula, {_REST.name: self.total - _FULL * self.step}))
            before = simplify(substitute(whole, {_FULL.name: _FULL - 1}))
            ways += [substitute(whole, {_FULL.name: full}), substitute(before, {_FULL.name: started})]
        return sorted(map(simplify, ways), key=lambda way: len(as_polynomial(way)))


def _kind_of_rest(size: int) -> Expr:
    return num(size) if size < 2 else _REST


def _through(points: Sequence[tuple[int, Polynomial]]) -> Polynomial:
    """The polynomial in the number of pieces whose coefficients pass through those of every point (Lagrange)."""
    total: Expr = num(0)
    for at, polynomial in points:
        weight: Expr = num(1)
        for other, _ in points:
            if other != at:
                weight = weight * (_FULL - other) * num(Fraction(1, at - other))
        total = total + weight * from_polynomial(polynomial)
    return as_polynomial(total)
