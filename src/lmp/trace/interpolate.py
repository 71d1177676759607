"""Formulas from concrete runs only, for classes that no symbolic run explains.

A cost is a polynomial in the sizes of the call with exact rational coefficients. It must pass through every sample, and
there must be more samples than coefficients. The module's own sizes are numbers in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from lmp.errors import FormulaError
from lmp.formula import Expr, evaluate, num, simplify, var
from lmp.trace.fit import Sample

FEW = 24
"""Number of samples that coefficients are computed from, spread evenly. The result is checked at all samples."""

PRIME = 2**61 - 1
"""Modulus of the solvability test.

A system without a solution modulo it has none: no denominator is a multiple of it.
"""

SPARE = 2
"""Number of samples beyond the number of coefficients that a polynomial must pass through.

At least one of them must differ from the others in its terms. Otherwise a square passes through three batch sizes,
whatever the number of phases.
"""


def polynomial(
    samples: Sequence[Sample], counts: Sequence[Expr] = (), cached: Sequence[Expr] = (), tokens: bool = True
) -> Expr | None:
    """The polynomial with fewest terms, among those tried, that passes through all samples; None if there is none.

    ``counts``: sizes that follow from the tokens, such as the number of chunks. ``cached``: sizes that may replace the
    cache length. Without ``tokens``, only the batch varies.
    """
    few = samples[:: max(1, len(samples) // FEW)]
    wanted = [Fraction(s.value) for s in few]
    known: dict[Expr, list[Fraction]] = {}
    for terms in _bases(counts, cached or (var("cache_len"),)) if tokens else _of_batches():
        for term in terms:
            if term not in known:
                known[term] = _values(term, few)
        if not all(known[term] for term in terms):
            continue  # a size with no value at some sample, such as chunks of no tokens
        columns = [known[term] for term in terms]
        found = _solved(columns, wanted) if _may_be_solved(columns, wanted) else None
        if found is None:
            continue
        total: Expr = num(0)
        for coefficient, term in zip(found, terms, strict=True):
            total = total + num(coefficient.numerator) / coefficient.denominator * term
        formula = simplify(total)
        if all(_goes_through(formula, s) for s in samples):
            return formula
    return None


def _values(term: Expr, samples: Sequence[Sample]) -> list[Fraction]:
    """Values of a term at the samples; empty if it has no value at one of them."""
    try:
        return [Fraction(evaluate(term, s.point.values)) for s in samples]
    except FormulaError:
        return []


def _goes_through(formula: Expr, sample: Sample) -> bool:
    try:
        return evaluate(formula, sample.point.values) == sample.value
    except FormulaError:
        return False


def _bases(counts: Sequence[Expr], cached: Sequence[Expr]) -> list[list[Expr]]:
    """Sets of terms to try together, smallest first."""
    b, s = var("batch_size"), var("seq_len")
    one = num(1)
    linear = [b * s, b, s, one]
    # Every batch entry with every other: texts with pictures.
    found: list[list[Expr]] = [[one], [b * s], [b, b * s], [b * b], linear, [b * b, b, one]]
    for c in cached:
        found += [[*linear, b * c, c], [*linear, b * c, b * s * c, c, s * c]]
        found.append([*linear, b * c, b * s * c, c, s * c, b * s * s, s * s])
    for n in counts:
        found += [[*linear, b * n, n], [*linear, b * n, n, b * n * s, n * s, b * n * n, n * n]]
    return found


def _of_batches() -> list[list[Expr]]:
    b = var("batch_size")
    one = num(1)
    return [[one], [b], [b, one], [b * b, b, one]]


def _may_be_solved(columns: list[list[Fraction]], wanted: list[Fraction]) -> bool:
    """True if `_solved` may succeed: the same elimination modulo a prime, which is faster than fractions."""
    table = [[v.numerator * pow(v.denominator, -1, PRIME) % PRIME for v in column] for column in (*columns, wanted)]
    rows = [list(row) for row in zip(*table, strict=True)]
    top = 0
    for column in range(len(columns)):
        at = next((r for r in range(top, len(rows)) if rows[r][column]), None)
        if at is None:
            continue
        rows[top], rows[at] = rows[at], rows[top]
        inverse = pow(rows[top][column], -1, PRIME)
        for r in range(top + 1, len(rows)):
            if factor := rows[r][column] * inverse % PRIME:
                rows[r] = [(a - factor * t) % PRIME for a, t in zip(rows[r], rows[top], strict=True)]
        top += 1
    return not any(row[-1] for row in rows[top:])


def _solved(columns: list[list[Fraction]], wanted: list[Fraction]) -> list[Fraction] | None:
    """Coefficients of the columns whose sum is ``wanted``; None if there are none, or too few samples."""
    width = len(columns)
    rows = [[column[i] for column in columns] + [value] for i, value in enumerate(wanted)]
    unlike = len({tuple(row) for row in rows})
    pivots: list[int] = []
    for column in range(width):
        at = next((r for r in range(len(pivots), len(rows)) if rows[r][column] != 0), None)
        if at is None:
            continue  # on these samples the term is a sum of the ones before it
        top = len(pivots)
        rows[top], rows[at] = rows[at], rows[top]
        rows[top] = [value / rows[top][column] for value in rows[top]]
        for r in range(len(rows)):
            if r != top and rows[r][column] != 0:
                factor = rows[r][column]
                rows[r] = [a - factor * t for a, t in zip(rows[r], rows[top], strict=True)]
        pivots.append(column)
    if any(row[width] != 0 for row in rows[len(pivots) :]) or len(rows) < len(pivots) + SPARE:
        return None
    if 1 < len(pivots) >= unlike:
        return None
    found = [Fraction(0)] * width
    for row, column in enumerate(pivots):
        found[column] = rows[row][width]
    return found
