"""The launches of a step as polynomials of the call's sizes, from the exact lists at a few calls.

In one regime every size of a launch is a sum of products of batch, new tokens and cached tokens. Its coefficients are
solved for exactly at as many calls as there are terms, and held against exact lists at further calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lmp.formula import read_number
from lmp.predict.eager import Asked, is_wide
from lmp.predict.rows import Row
from lmp.predict.serve.regimes import Calls, Sizes

Powers = tuple[int, int, int]
TERMS: tuple[Powers, ...] = tuple((b, q, c) for q in (0, 1, 2) for b in (0, 1) for c in (0, 1) if q + c <= 2)
"""Powers of batch, new tokens and cached tokens in the terms of a size."""
MOST_SAMPLES = 48
"""Calls, the first ones of a regime, among which those of a structure are chosen."""
CHECKS = 3
"""Calls at which a solved structure is held against the exact list."""
BYTES = frozenset({"read", "write", "written"})
ROUNDED, BYTES_OFF = 1, Fraction(1, 200)
"""Bytes may differ from their polynomial by rounding, and by half a per cent: a GPU's part of a fused kernel is worked
out in proportion, and a tensor may be attributed to another kernel that has one of the same size."""
Values: TypeAlias = NDArray[np.float64]


Words: TypeAlias = tuple[tuple[str, object], ...]


@dataclass(frozen=True)
class Form:
    """What one launch is, without its sizes: two launches of one form differ in numbers alone."""

    record: type[Row] | None
    """The record of its rows; None: peak and bandwidth alone."""
    choices: tuple[Words, ...]
    """Fields that are no sizes, of each row of which the fastest is taken; without a row, of the product."""
    names: tuple[str, ...]
    """Its sizes, in the order of the numbers."""
    repeat: int
    place: str
    """Where the model runs it."""


Formed = tuple[Form, tuple[int, ...]]
"""A launch at one call: its form and its sizes."""


def form_of(asked: Asked) -> Formed:
    """The form of a launch, and its sizes."""
    kernel = asked.kernel
    place = f"{kernel.operation} in {kernel.path or 'the model'}"
    if not asked.rows:
        moved = (math.ceil(read_number(cost)) for cost in (kernel.read, kernel.write))
        words = (("dtype", asked.dtype), ("wide", is_wide(kernel)))
        return Form(None, (words,), ("flops", "read", "write"), kernel.repeat, place), (kernel.flops, *moved)
    record = type(asked.rows[0])
    every = [{name: getattr(row, name) for name in record.model_fields} for row in asked.rows]
    sizes = {name: value for name, value in every[0].items() if isinstance(value, int) and not isinstance(value, bool)}
    # The rows are of one work: they differ in words alone.
    choices = tuple(
        tuple((name, value) for name, value in fields.items() if name not in sizes and name != "device")
        for fields in every
    )
    return Form(record, choices, tuple(sizes), kernel.repeat, place), tuple(sizes.values())


@dataclass(frozen=True)
class Structure:
    """Launches of all calls of one regime."""

    forms: tuple[Form, ...]
    terms: tuple[Powers, ...]
    coefficients: tuple[Values, ...]
    """Of each launch, one row a size and one column a term."""

    def sizes(self, calls: Calls) -> list[Values]:
        """Of each launch, one row a call and one column a size: whole numbers."""
        batch, new, cached = calls.astype(np.float64).T
        values = np.stack([batch**b * new**q * cached**c for b, q, c in self.terms], axis=1)
        return [np.rint(values @ matrix.T) for matrix in self.coefficients]


def solved(samples: Sequence[Sizes], exact: Callable[[Sizes], Sequence[Formed]]) -> Structure | None:
    """The structure through samples of one regime.

    ``exact``: the launches of a call. None if the samples are too few, if their lists differ in more than numbers, or
    if one is not on the polynomials.
    """
    samples = samples[:MOST_SAMPLES]
    terms = _terms(samples)
    own = _independent(samples, terms)
    checks = _others(samples, own)
    if len(own) < len(terms) or len(checks) < CHECKS:
        return None
    formed = {call: exact(call) for call in (*own, *checks)}
    forms = [tuple(form for form, _ in found) for found in formed.values()]
    if any(one != forms[0] for one in forms[1:]):
        return None
    inverse = _inverse([_at(call, terms) for call in own])
    solution = []
    for number, form in enumerate(forms[0]):
        matrix = [
            [_dot(row, [formed[call][number][1][size] for call in own]) for row in inverse]
            for size in range(len(form.names))
        ]
        for call in checks:
            found = [_dot(row, _at(call, terms)) for row in matrix]
            if not all(map(_agree, form.names, found, formed[call][number][1])):
                return None
        solution.append(np.array([[float(value) for value in row] for row in matrix]).reshape(-1, len(terms)))
    return Structure(forms[0], terms, tuple(solution))


def _others(samples: Sequence[Sizes], own: Sequence[Sizes]) -> list[Sizes]:
    """Samples beside a structure's own: those first whose sizes are most unlike what was seen."""
    seen = [set(values) for values in zip(*own, strict=True)]
    left, found = [call for call in samples if call not in own], list[Sizes]()
    while left and len(found) < CHECKS:
        call = max(left, key=lambda one: sum(size not in known for size, known in zip(one, seen, strict=True)))
        found.append(call)
        left.remove(call)
        for size, known in zip(call, seen, strict=True):
            known.add(size)
    return found


def _agree(name: str, found: Fraction, exact: int) -> bool:
    """Whether a size of a polynomial is that of the exact list."""
    off = abs(found - exact)
    return off == 0 or (name in BYTES and (off <= ROUNDED or off <= BYTES_OFF * exact))


def _terms(samples: Sequence[Sizes]) -> tuple[Powers, ...]:
    """The terms that differ between the samples: one whose size never changes is a constant."""
    changes = [len(set(values)) > 1 for values in zip(*samples, strict=True)]
    return tuple(
        term for term in TERMS if all(change or not power for change, power in zip(changes, term, strict=True))
    )


def _at(call: Sizes, terms: Sequence[Powers]) -> list[int]:
    return [math.prod(size**power for size, power in zip(call, term, strict=True)) for term in terms]


def _dot(left: Sequence[Fraction], right: Sequence[int]) -> Fraction:
    return sum((a * b for a, b in zip(left, right, strict=True)), Fraction(0))


def _independent(samples: Sequence[Sizes], terms: Sequence[Powers]) -> list[Sizes]:
    """Samples at which the terms have independent values, as far as there are any."""
    found: list[Sizes] = []
    reduced: list[tuple[int, list[Fraction]]] = []
    for call in samples:
        row = [Fraction(value) for value in _at(call, terms)]
        for pivot, other in reduced:
            row = [a - row[pivot] * b for a, b in zip(row, other, strict=True)]
        pivot = next((index for index, value in enumerate(row) if value), -1)
        if pivot >= 0:
            reduced.append((pivot, [value / row[pivot] for value in row]))
            found.append(call)
        if len(found) == len(terms):
            break
    return found


def _inverse(rows: Sequence[Sequence[int]]) -> list[list[Fraction]]:
    """The inverse of a regular matrix, exact."""
    size = len(rows)
    work = [[*map(Fraction, row), *(Fraction(i == j) for j in range(size))] for i, row in enumerate(rows)]
    for column in range(size):
        pivot = next(row for row in range(column, size) if work[row][column])
        work[column], work[pivot] = work[pivot], work[column]
        work[column] = [value / work[column][column] for value in work[column]]
        for row in range(size):
            if row != column and work[row][column]:
                factor = work[row][column]
                work[row] = [a - factor * b for a, b in zip(work[row], work[column], strict=True)]
    return [row[size:] for row in work]
