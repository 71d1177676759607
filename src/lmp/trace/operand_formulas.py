"""Finds the formulas of operands: of each shape, of each operand's presence, and of the sizes of products.

Costs decide which symbolic runs there are. A path with equal costs and other shapes has none of its own: there, sizes
that occur anywhere in the class are candidates too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from lmp.formula import Expr, num, simplify, substitute
from lmp.trace.fit import Point, Sample
from lmp.trace.observe import Item, Key, Observation
from lmp.trace.operands import PRESENT, OperandSizes, SizeKey, sizes
from lmp.trace.table import Table
from lmp.trace.variables import renamed


class OperandFitter:
    """The operands of all kernels of one table."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._known: dict[Any, Expr | None] = {}
        """Candidates and samples -> the formula. Most operators of a class have shapes in common."""

    def sizes(self, key: tuple[Key, int]) -> OperandSizes | None:
        """Formulas of the sizes of a kernel's operands; None if no formulas explain them at every sample."""
        columns: dict[SizeKey, list[Sample]] = {}
        points: list[Point] = []
        for _, point, observation in self._table.samples:
            item = observation.items.get(key)
            if item is None:
                continue
            if item.times > 1:
                return None  # a loop whose steps differ in shape
            points.append(point)
            for name, size in sizes(item.operator).items():
                columns.setdefault(name, []).append(Sample(point, int(size)))
        candidates: dict[SizeKey, dict[Expr, None]] = {}
        for name, size in self._symbolic(key):
            candidates.setdefault(name, {})[size] = None
        found: OperandSizes = {}
        for name, column in columns.items():
            if name[1] == PRESENT:
                there = {sample.point for sample in column}
                formula = self._fit([Sample(point, int(point in there)) for point in points], [num(1)])
            else:
                formula = self._fit(
                    column, [*candidates.get(name, {})], *self._further(candidates.get(name, {}), column)
                )
            if formula is None:
                return None
            found[name] = formula
        return found

    def _fit(self, column: list[Sample], *stages: Any) -> Expr | None:
        """The formula from the first stage of candidates with one. A stage is a list, or a function that makes it."""
        known = tuple(stages[0]), tuple(column)
        if known not in self._known:
            self._known[known] = self._fitted(column, stages)
        return self._known[known]

    def _fitted(self, column: list[Sample], stages: Iterable[Any]) -> Expr | None:
        for stage in stages:
            found = self._table.fitter.fit(column, stage() if callable(stage) else stage)
            if found is not None:
                return simplify(substitute(found, self._table.fixed_sizes))
        return None

    def _further(self, candidates: dict[Expr, None], column: list[Sample]) -> Iterator[Callable[[], list[Expr]]]:
        table = self._table
        yield lambda: [*candidates, *table.beyond_windows(candidates)]
        yield lambda: list(candidates | self._met)
        if table.specialised:
            yield lambda: list(table.at_config(candidates, column))

    def _symbolic(self, key: tuple[Key, int]) -> Iterator[tuple[SizeKey, Expr]]:
        """Sizes of a kernel in the symbolic runs, in the variables of the class."""
        for _, observation in self._table.formulas:
            item = observation.items.get(key)
            if item is not None:
                yield from _in_own_variables(item, observation)

    @functools.cached_property
    def _met(self) -> dict[Expr, None]:
        """Every size of an operand in the symbolic runs of the class."""
        return {
            size: None
            for _, observation in self._table.formulas
            for item in observation.items.values()
            if item.operator is not None
            for _, size in _in_own_variables(item, observation)
        }


def _in_own_variables(item: Item, observation: Observation) -> Iterator[tuple[SizeKey, Expr]]:
    for name, size in sizes(item.operator).items():
        own = renamed(size, dict(observation.rename))
        yield name, own if isinstance(own, Expr) else num(own)
