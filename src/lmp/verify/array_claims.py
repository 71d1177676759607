"""Claims of an analysis at many points at once: as `Claims`, on arrays. Nothing is executed."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lmp.errors import InvalidAnalysis
from lmp.formula import (
    ArrayProgram,
    Condition,
    Expr,
    Num,
    Ref,
    is_open,
    map_references,
    parse,
    parse_condition,
    references,
    var,
)
from lmp.records import MATMUL_CATEGORIES, UNIVERSAL, Kernel, Lookup, ModuleAnalysis
from lmp.verify.claims import QUANTITIES
from lmp.verify.counted import Line

Array = Any
"""A numpy array with one entry per point: int64, or exact Python numbers."""

Values = Mapping[str, Array]
Costs = dict[str, Array]
"""Quantity -> its value at each point."""

MOST_DEPTH = 50
"""Largest depth of references: more would be a circle."""


@dataclass(frozen=True)
class Called:
    """The costs of one reference at each point, and where the assumptions of the classes below it hold."""

    costs: Costs
    holds: Array


class ArrayClaims:
    """Evaluates analyses on arrays. ``fractions``: element sizes may be fractions."""

    def __init__(self, lookup: Lookup, fractions: bool = False) -> None:
        self._lookup, self._fractions = lookup, fractions
        self._programs: dict[tuple[Expr | Condition, ...], ArrayProgram] = {}
        self._formulas: dict[str, Expr] = {}
        self._refers: dict[str, tuple[Ref, ...]] = {}

    def lines(
        self, analysis: ModuleAnalysis, values: Values, line_of: Callable[[Kernel], Line]
    ) -> tuple[dict[Line, Costs], Array]:
        """The costs of each line, and a mask of the points at which the assumptions of all called classes hold.

        Raises EvaluationError if a formula has no value at one of the points.
        """
        return self._summed(analysis, values, line_of, 0)

    def holds(self, analysis: ModuleAnalysis, values: Values) -> Array:
        """The points at which the assumptions of the analysis itself hold."""
        import numpy as np

        found: Array = np.ones(_count(values), dtype=bool)
        for held in self.values([parse_condition(text) for text in analysis.assumptions], values):
            found &= held
        return found

    def values(self, formulas: Sequence[Expr | Condition], values: Values) -> list[Array]:
        """The values of formulas and conditions, each an array with one entry per point."""
        import numpy as np

        key = tuple(formulas)
        if key not in self._programs:
            self._programs[key] = ArrayProgram(formulas, fractions=self._fractions)
        program, count = self._programs[key], _count(values)
        needed = set(program.lowered.names)
        found = program({name: value for name, value in values.items() if name in needed})
        return [np.broadcast_to(one, count) for one in found]

    def _summed(
        self, analysis: ModuleAnalysis, values: Values, line_of: Callable[[Kernel], Line], depth: int
    ) -> tuple[dict[Line, Costs], Array]:
        import numpy as np

        if depth > MOST_DEPTH:
            raise InvalidAnalysis(f"references run in a circle: {analysis.class_name}")
        found: dict[Line, Costs] = defaultdict(dict)
        holds: Array = np.ones(_count(values), dtype=bool)
        plain = self._plain(analysis, values)
        called: dict[Ref, Called] = {}
        for kernel in analysis.kernels:
            repeat = kernel.repeat if isinstance(kernel.repeat, int) else plain[kernel.repeat]
            inner = {ref for text in _texts(kernel) for ref in self._references(text)}
            for ref in inner:
                if ref not in called:
                    called[ref] = self._called(ref, values, depth)
                holds &= called[ref].holds | (np.asarray(repeat) == 0)
            at = found[line_of(kernel)]
            for quantity, cost in self._costs(kernel, values, plain, called).items():
                at[quantity] = at.get(quantity, 0) + repeat * cost
        return found, holds

    def _plain(self, analysis: ModuleAnalysis, values: Values) -> dict[str, Array]:
        """The formulas without references, computed together: they share most of their parts."""
        texts = dict.fromkeys(text for kernel in analysis.kernels for text in (*_texts(kernel), str(kernel.repeat)))
        own = [text for text in texts if not self._references(text)]
        # Python's integers: numpy's would overflow in sums and products.
        found = (one.astype(object) for one in self.values([self._parse(text) for text in own], values))
        return dict(zip(own, found, strict=True))

    def _costs(self, kernel: Kernel, values: Values, plain: Mapping[str, Array], called: Mapping[Ref, Called]) -> Costs:
        def of(text: str, quantity: str | None) -> Array:
            return plain[text] if text in plain else self._around(text, quantity, values, called)

        flops = of(kernel.flops, "flops")
        matmul: Array = flops if kernel.category in MATMUL_CATEGORIES else flops * 0
        if kernel.flops not in plain:  # in a formula around references, only they can contribute matmul FLOPs
            matmul = of(kernel.flops, "matmul_flops") - of(kernel.flops, None)
        access = kernel.memory_access
        return {
            "flops": flops,
            "matmul_flops": matmul,
            "read": of(access.read, "read"),
            "write": of(access.write, "write"),
        }

    def _around(self, text: str, quantity: str | None, values: Values, called: Mapping[Ref, Called]) -> Array:
        """The formula with each reference replaced by that quantity of its class, or by 0 if ``quantity`` is None."""
        formula = self._parse(text)
        if isinstance(formula, Ref):
            return called[formula].costs[quantity] if quantity is not None else called[formula].costs["flops"] * 0
        names = {ref: f"call_{index}_" for index, ref in enumerate(self._references(text))}

        def replace(ref: Ref) -> Expr:
            return Num(0) if quantity is None else var(names[ref])

        numbers = {} if quantity is None else {name: called[ref].costs[quantity] for ref, name in names.items()}
        (found,) = self.values([map_references(formula, replace)], {**values, **numbers})
        return found.astype(object)

    def _called(self, ref: Ref, values: Values, depth: int) -> Called:
        import numpy as np

        if is_open(ref.target):
            raise InvalidAnalysis(f"{ref.target} is an open reference")
        analysis = self._lookup(ref.target)
        given = dict([*zip(analysis.parameters, ref.arguments, strict=False), *ref.bindings])
        bound = {name: values[name] for name in UNIVERSAL if name in values}
        bound |= dict(zip(given, self.values(list(given.values()), values), strict=True))
        lines, below = self._summed(analysis, bound, lambda kernel: ("", 0), depth + 1)
        costs = lines.get(("", 0), {})
        nothing: Array = np.zeros(_count(values), dtype=object)
        return Called({q: costs.get(q, nothing) for q in QUANTITIES}, self.holds(analysis, bound) & below)

    def _references(self, text: str) -> tuple[Ref, ...]:
        if text not in self._refers:
            self._refers[text] = references(self._parse(text))
        return self._refers[text]

    def _parse(self, text: str) -> Expr:
        if text not in self._formulas:
            self._formulas[text] = parse(text)
        return self._formulas[text]


def _count(values: Values) -> int:
    return max((len(value) for value in values.values()), default=1)


def _texts(kernel: Kernel) -> tuple[str, str, str]:
    return kernel.flops, kernel.memory_access.read, kernel.memory_access.write


def each_line(analysis: ModuleAnalysis, statement_of: Callable[[str, int], int]) -> Callable[[Kernel], Line]:
    """The line of a kernel of this analysis: its file, and the first line of its statement."""

    @functools.cache
    def at(file: str, line: int) -> Line:
        return file, statement_of(file, line)

    return lambda kernel: at(kernel.file or analysis.source.file, kernel.line)


def differing(one: Mapping[Line, Costs], other: Mapping[Line, Costs], lines: Sequence[Line], quantity: str) -> Array:
    """The points at which the sum over some lines differs between two analyses."""
    import numpy as np

    return np.asarray(_sum(one, lines, quantity) != _sum(other, lines, quantity), dtype=bool)


def _sum(found: Mapping[Line, Costs], lines: Sequence[Line], quantity: str) -> Array:
    return sum((found[line][quantity] for line in lines if line in found), start=0)
