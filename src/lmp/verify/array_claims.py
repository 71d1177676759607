"""Claims of an analysis at many points at once: as `Claims`, on arrays. Nothing is executed."""

from __future__ import annotations

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
        self._programs: dict[Expr | Condition, ArrayProgram] = {}
        self._formulas: dict[str, Expr] = {}

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

        found = np.ones(_count(values), dtype=bool)
        for condition in analysis.assumptions:
            found &= self._of(parse_condition(condition), values)
        return found

    def value(self, formula: Expr | Condition, values: Values) -> Array:
        return self._of(formula, values)

    def _summed(
        self, analysis: ModuleAnalysis, values: Values, line_of: Callable[[Kernel], Line], depth: int
    ) -> tuple[dict[Line, Costs], Array]:
        import numpy as np

        if depth > MOST_DEPTH:
            raise InvalidAnalysis(f"references run in a circle: {analysis.class_name}")
        found: dict[Line, Costs] = defaultdict(dict)
        holds = np.ones(_count(values), dtype=bool)
        for kernel in analysis.kernels:
            repeat = kernel.repeat if isinstance(kernel.repeat, int) else self._exactly(kernel.repeat, values)
            called: dict[Ref, Called] = {}
            for text in (kernel.flops, kernel.memory_access.read, kernel.memory_access.write):
                for ref in references(self._parse(text)):
                    if ref not in called:
                        called[ref] = self._called(ref, values, depth)
            for one in called.values():
                holds &= one.holds | (np.asarray(repeat) == 0)
            at = found[line_of(kernel)]
            for quantity, cost in self._costs(kernel, values, called).items():
                at[quantity] = at.get(quantity, 0) + repeat * cost
        return found, holds

    def _costs(self, kernel: Kernel, values: Values, called: Mapping[Ref, Called]) -> Costs:
        flops = self._quantity(kernel.flops, "flops", values, called)
        matmul: Array = flops if kernel.category in MATMUL_CATEGORIES else flops * 0
        if called:  # in a formula around references, only the references can contribute matmul FLOPs
            own = self._quantity(kernel.flops, None, values, called)
            matmul = self._quantity(kernel.flops, "matmul_flops", values, called) - own
        access = kernel.memory_access
        return {
            "flops": flops,
            "matmul_flops": matmul,
            "read": self._quantity(access.read, "read", values, called),
            "write": self._quantity(access.write, "write", values, called),
        }

    def _quantity(self, text: str, quantity: str | None, values: Values, called: Mapping[Ref, Called]) -> Array:
        """The formula with each reference replaced by that quantity of its class, or by 0 if ``quantity`` is None."""
        formula = self._parse(text)
        if isinstance(formula, Ref):
            return called[formula].costs[quantity] if quantity is not None else called[formula].costs["flops"] * 0
        inner = references(formula)
        if not inner:
            return self._exactly(text, values)
        names = {ref: f"call_{index}_" for index, ref in enumerate(inner)}

        def replace(ref: Ref) -> Expr:
            return Num(0) if quantity is None else var(names[ref])

        numbers = {} if quantity is None else {name: called[ref].costs[quantity] for ref, name in names.items()}
        return self._of(map_references(formula, replace), {**values, **numbers}).astype(object)

    def _called(self, ref: Ref, values: Values, depth: int) -> Called:
        import numpy as np

        if is_open(ref.target):
            raise InvalidAnalysis(f"{ref.target} is an open reference")
        analysis = self._lookup(ref.target)
        given = [*zip(analysis.parameters, ref.arguments, strict=False), *ref.bindings]
        bound = {name: values[name] for name in UNIVERSAL if name in values}
        bound |= {name: self._of(formula, values) for name, formula in given}
        lines, below = self._summed(analysis, bound, lambda kernel: ("", 0), depth + 1)
        costs = lines.get(("", 0), {})
        nothing = np.zeros(_count(values), dtype=object)
        return Called({q: costs.get(q, nothing) for q in QUANTITIES}, self.holds(analysis, bound) & below)

    def _exactly(self, text: str, values: Values) -> Array:
        """Values of any size: numpy's integers would overflow in sums and products."""
        return self._of(self._parse(text), values).astype(object)

    def _of(self, formula: Expr | Condition, values: Values) -> Array:
        if formula not in self._programs:
            self._programs[formula] = ArrayProgram([formula], fractions=self._fractions)
        (found,) = self._programs[formula](values)
        return found

    def _parse(self, text: str) -> Expr:
        if text not in self._formulas:
            self._formulas[text] = parse(text)
        return self._formulas[text]


def _count(values: Values) -> int:
    return max((len(value) for value in values.values()), default=1)


def each_line(analysis: ModuleAnalysis, statement_of: Callable[[str, int], int]) -> Callable[[Kernel], Line]:
    """The line of a kernel of this analysis: its file, and the first line of its statement."""

    def line_of(kernel: Kernel) -> Line:
        file = kernel.file or analysis.source.file
        return file, statement_of(file, kernel.line)

    return line_of


def differing(one: Mapping[Line, Costs], other: Mapping[Line, Costs], lines: Sequence[Line], quantity: str) -> Array:
    """The points at which the sum over some lines differs between two analyses."""
    import numpy as np

    return np.asarray(_sum(one, lines, quantity) != _sum(other, lines, quantity), dtype=bool)


def _sum(found: Mapping[Line, Costs], lines: Sequence[Line], quantity: str) -> Array:
    return sum((found[line][quantity] for line in lines if line in found), start=0)
