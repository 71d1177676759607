"""Counts of layers that the structure of a model may give: formulas to be tried, in the number of its layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lmp.formula import Expr, maximum, minimum, num, simplify, var
from lmp.trace.fit import Sample
from lmp.workload.base import RUNTIME, Turn


def structural(name: str, few: int, changed: Mapping[str, int], most: int) -> list[Expr]:
    """Counts that a model's structure gives: of its layers, of those before or after some layer, of every n-th.

    ``few``: the number of layers in the base run; ``changed``: its values of what other runs had other values of.
    """
    layers = var(name)
    small = [n for n, v in changed.items() if n not in RUNTIME and n != name and 0 < v <= max(most, few)]
    found: list[Expr] = [layers]
    found += [var(n) for n in small]
    found += [minimum(layers, var(n)) for n in small]
    found += [simplify(layers - var(n)) for n in small]
    found += [maximum(simplify(layers - var(n)), num(0)) for n in small]
    found += [layers // 2, (layers + 1) // 2]
    found += [layers // var(n) for n in small]
    found += [simplify(layers - layers // var(n)) for n in small]
    found += [simplify(layers - k) for k in (1, 2, 3)]
    # Every k-th layer, from the first or from the k-th on, and all the others.
    periodic = [f for k in range(3, few + 1) for f in (layers // k, (layers + (k - 1)) // k)]
    return [*found, *periodic, *(simplify(layers - f) for f in periodic)]


def stacked(name: str, column: Sequence[Sample]) -> list[Expr]:
    """A count of layers alike in several stacks, of which some always have as many: one line through all samples.

    Through three numbers of layers at least: there is a line through any two.
    """
    counts = {(s.point.values[name], s.value) for s in column}
    (first, low), (last, high) = min(counts), max(counts)
    slope, rest = divmod(high - low, last - first) if last > first else (0, 1)
    start = low - slope * first
    few = len({layers for layers, _ in counts}) < 3
    if few or rest or slope <= 0 or any(count != slope * layers + start for layers, count in counts):
        return []
    return [simplify(slope * var(name) + start)]


def in_turn(name: str, turn: Turn) -> list[Expr]:
    """Counts of the layers before kinds come in turn; of every k-th one from any layer on, with some of those before.

    And of all the others.
    """
    layers = var(name)
    every: list[Expr] = [num(first) for first in range(1, turn.start + 1)]
    every += [
        simplify((layers + more) // k + first)
        for k in range(2, turn.period + 1)
        if turn.period % k == 0
        for first in sorted(range(-turn.start, turn.start + 1), key=abs)
        for more in range(k)
    ]
    return [*every, *(simplify(layers - f) for f in every)]
