"""Costs of a called class by its own analysis, in numbers: a reference must cost what ran at the call."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from lmp.errors import InvalidAnalysis, LmpError
from lmp.formula import Expr, Num, Ref, evaluate, evaluate_condition, map_references, parse, parse_condition
from lmp.records import UNIVERSAL, Lookup, ModuleAnalysis
from lmp.trace.recording import Recording
from lmp.trace.rules import Move
from lmp.workload.calls import Call

BYTES = {"w_bytes": 3, "a_bytes": 5, "kv_bytes": 7}
"""Bytes of an element in samples and comparisons. They differ, so that a tensor of the wrong kind shows."""


class Costs(NamedTuple):
    """FLOPs, and bytes at ``BYTES``."""

    flops: int
    read: int
    write: int


class CalledCosts:
    """Evaluates the stored analysis of one class at the values of a call, with the analyses that it refers to."""

    def __init__(self, analysis: ModuleAnalysis, lookup: Lookup) -> None:
        self.analysis = analysis
        self._lookup = functools.cache(lookup)
        self._known: dict[tuple[str, tuple[tuple[str, int], ...]], Costs | None] = {}

    def at(self, values: Mapping[str, int]) -> Costs | None:
        """The costs at these values; None where the analysis has none: outside its assumptions, for example."""
        return self._of(self.analysis, {**values, **BYTES})

    def _of(self, analysis: ModuleAnalysis, values: Mapping[str, int]) -> Costs | None:
        key = analysis.class_name, tuple(sorted(values.items()))
        if key not in self._known:
            self._known[key] = None  # circular references have no costs
            try:
                if all(evaluate_condition(parse_condition(text), values) for text in analysis.assumptions):
                    self._known[key] = self._summed(analysis, values)
            except LmpError:
                pass  # the linker and the judge say what is wrong with it
        return self._known[key]

    def _summed(self, analysis: ModuleAnalysis, values: Mapping[str, int]) -> Costs:
        total = [0, 0, 0]
        for kernel in analysis.kernels:
            repeat = kernel.repeat if isinstance(kernel.repeat, int) else evaluate(parse(kernel.repeat), values)
            access = kernel.memory_access
            for index, text in enumerate((kernel.flops, access.read, access.write) if repeat else ()):
                replace = functools.partial(self._replaced, values=values, index=index)
                total[index] += repeat * evaluate(map_references(parse(text), replace), values)
        return Costs(*total)

    def _replaced(self, ref: Ref, values: Mapping[str, int], index: int) -> Expr:
        called = self._lookup(ref.target)
        given = {**dict(zip(called.parameters, ref.arguments, strict=False)), **dict(ref.bindings)}
        bound = {name: evaluate(formula, values) for name, formula in given.items()}
        found = self._of(called, {**{name: values[name] for name in UNIVERSAL}, **bound})
        if found is None:
            raise InvalidAnalysis(f"{ref.target} has no costs at {bound}")
        return Num(found[index])


def costs_of(call: Call, recording: Recording) -> Costs:
    """What ran during a call of a concrete run."""
    flops = read = write = 0
    for executed in recording.below(call):
        cost = executed.cost
        flops += cost.matmul_flops + cost.scalar_flops
        read += _bytes(cost.reads)
        write += _bytes(cost.writes)
    return Costs(flops, read, write)


def _bytes(moves: Iterable[Move]) -> int:
    return sum(m.elements * (BYTES[m.unit] if isinstance(m.unit, str) else m.unit) for m in moves)
