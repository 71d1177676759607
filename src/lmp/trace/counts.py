"""Candidate formulas for counts of layers, in the variable for the number of layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lmp.formula import Expr, maximum, minimum, num, simplify, var
from lmp.trace.fit import Sample
from lmp.workload.base import RUNTIME, LayerPattern


def structural(name: str, few: int, changed: Mapping[str, int], most: int) -> list[Expr]:
    """Candidates from the structure of a model: all layers, those before or after one layer, every k-th layer.

    ``few``: number of layers in the base run. ``changed``: base values of the variables that other runs changed.
    ``most``: largest count seen.
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
    # Every k-th layer, from the first or from the k-th on, and the remaining layers.
    periodic = [f for k in range(3, few + 1) for f in (layers // k, (layers + (k - 1)) // k)]
    return [*found, *periodic, *(simplify(layers - f) for f in periodic)]


def stacked(name: str, column: Sequence[Sample]) -> list[Expr]:
    """Candidate for alike layers in several stacks, some of them of constant depth: one line through all samples.

    The samples need at least three numbers of layers, because any two points lie on a line.
    """
    counts = {(s.point.values[name], s.value) for s in column}
    (first, low), (last, high) = min(counts), max(counts)
    slope, rest = divmod(high - low, last - first) if last > first else (0, 1)
    start = low - slope * first
    few = len({layers for layers, _ in counts}) < 3
    if few or rest or slope <= 0 or any(count != slope * layers + start for layers, count in counts):
        return []
    return [simplify(slope * var(name) + start)]


def in_pattern(name: str, pattern: LayerPattern) -> list[Expr]:
    """Candidates from a layer pattern: the layers before the pattern, and every k-th layer from any layer on.

    The second kind may add some of the layers before the pattern. The complement of each candidate is a candidate too.
    """
    layers = var(name)
    every: list[Expr] = [num(first) for first in range(1, pattern.start + 1)]
    every += [
        simplify((layers + more) // k + first)
        for k in range(2, pattern.period + 1)
        if pattern.period % k == 0
        for first in sorted(range(-pattern.start, pattern.start + 1), key=abs)
        for more in range(k)
    ]
    return [*every, *(simplify(layers - f) for f in every)]
