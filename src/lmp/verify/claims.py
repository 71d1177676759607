"""What an analysis claims at one point: its kernels' formulas with numbers put in, references followed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any

from lmp.errors import InvalidAnalysis, LmpError
from lmp.formula import (
    Expr,
    Num,
    Program,
    Ref,
    evaluate,
    evaluate_condition,
    is_open,
    map_references,
    parse,
    references,
)
from lmp.records import MATMUL_CATEGORIES, UNIVERSAL, Kernel, ModuleAnalysis

# How a finding names what it is about, where that is no quantity of a line.
UNCOVERED = "line without a kernel"
LISTED_FREE = "line listed as free"
LISTED_NOT_TAKEN = "line listed as not taken"
UNCOUNTED = "uncounted operator"
OTHER_CLASS = "class"
OPEN = "open references"
OTHER_PATH = "path"
LEFT_OUT = "phase left out"
PARAMETERS_COUNT = "parameters_count"
WHOLE_RUN = "matmul_flops of the whole run"

Lookup = Callable[[str], ModuleAnalysis]


@dataclass(frozen=True)
class Amounts:
    """The four quantities as exact integers, bytes at one pair of element sizes."""

    flops: int = 0
    matmul_flops: int = 0
    read: int = 0
    write: int = 0

    def __add__(self, other: Amounts) -> Amounts:
        return Amounts(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))

    def __bool__(self) -> bool:
        return self != Amounts()


QUANTITIES = tuple(field.name for field in fields(Amounts))


class Claims:
    """Evaluates analyses by name. A referenced class sees only what its reference binds, and the element sizes."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = functools.lru_cache(maxsize=None)(lookup)
        self._parsed: dict[str, Expr] = {}
        self._referring: dict[str, bool] = {}
        self._programs: dict[Any, Program] = {}
        self._totals: dict[tuple[str, str, tuple[tuple[str, int], ...]], int] = {}
        self._binding: tuple[Mapping[str, int], dict[Ref, tuple[ModuleAnalysis, dict[str, int]]]] = ({}, {})
        """What references are bound to in a kernel, whose quantities are all asked for at the same values."""
        self._open: list[str] = []
        self._unmet: dict[tuple[str, tuple[tuple[str, int], ...]], str | None] = {}
        self._unsettled: dict[str, bool] = {}

    def kernel(self, kernel: Kernel, values: Mapping[str, int]) -> Amounts:
        """All quantities of one kernel, times its repeat."""
        return Amounts(*(self.quantity(kernel, quantity, values) for quantity in QUANTITIES))

    def unsettled(self, analysis: ModuleAnalysis) -> dict[str, int]:
        """References that have no numbers yet, with the first line of each: those that name an attribute, and those to
        classes with such references somewhere below."""
        found: dict[str, int] = {}
        for kernel in analysis.kernels:
            for text in (kernel.flops, kernel.memory_access.read, kernel.memory_access.write):
                with suppress(LmpError):
                    for ref in references(self._parse(text)):
                        if self._is_unsettled(ref.target):
                            found.setdefault(ref.target, kernel.line)
        return found

    def _is_unsettled(self, target: str) -> bool:
        if target not in self._unsettled:
            self._unsettled[target] = is_open(target)
            if not is_open(target):
                with suppress(LmpError):  # what cannot be found is a finding where it is evaluated
                    self._unsettled[target] = bool(self.unsettled(self._lookup(target)))
        return self._unsettled[target]

    def unmet(self, analysis: ModuleAnalysis, values: Mapping[str, int]) -> str | None:
        """An assumption that does not hold of a class that runs in a call with these values, directly or further in.

        None too where a reference cannot be followed: that is a finding, whatever else holds.
        """
        try:
            return self._unmet_in(analysis, values)
        except LmpError:
            return None

    def _unmet_in(self, analysis: ModuleAnalysis, values: Mapping[str, int]) -> str | None:
        key = (analysis.class_name, tuple(sorted(values.items())))
        if key in self._unmet:
            return self._unmet[key]
        found: str | None = None
        self._unmet[key] = None  # references in a circle are a finding where they are evaluated
        for kernel in analysis.kernels:
            if not self._refers(kernel.flops) or self._repeat(kernel, values) == 0:
                continue
            for ref in references(self._parse(kernel.flops)):
                if self._is_unsettled(ref.target):
                    continue
                called, inner = self._bound(ref, values)
                for condition in called.assumptions:
                    if not evaluate_condition(condition, inner):
                        found = found or f"the assumption {condition} of {ref.target} does not hold"
                found = found or self._unmet_in(called, inner)
        self._unmet[key] = found
        return found

    def classes(self, kernel: Kernel) -> set[str]:
        """The classes that a kernel refers to, under the paths that they are defined at; those that can be followed, as
        others are findings of their own."""
        found = set()
        for text in (kernel.flops, kernel.memory_access.read, kernel.memory_access.write):
            with suppress(LmpError):
                found |= {self._lookup(ref.target).class_name for ref in references(self._parse(text))}
        return found

    def quantity(self, kernel: Kernel, quantity: str, values: Mapping[str, int]) -> int:
        repeat = self._repeat(kernel, values)
        if quantity in ("read", "write"):
            return repeat * self._value(getattr(kernel.memory_access, quantity), quantity, values)
        if quantity == "flops":
            return repeat * self._value(kernel.flops, "flops", values)
        if not self._refers(kernel.flops):
            return repeat * self._value(kernel.flops, "flops", values) if kernel.category in MATMUL_CATEGORIES else 0
        # Of a formula around references, only what the references contribute can be matmuls.
        return repeat * (self._value(kernel.flops, "matmul_flops", values) - self._value(kernel.flops, None, values))

    def _repeat(self, kernel: Kernel, values: Mapping[str, int]) -> int:
        return kernel.repeat if isinstance(kernel.repeat, int) else self._value(kernel.repeat, "flops", values)

    def _value(self, formula: str, quantity: str | None, values: Mapping[str, int]) -> int:
        """The formula with every reference replaced by that quantity of the class it names, or by 0."""

        def replace(ref: Ref) -> Expr:
            return Num(self._reference(ref, quantity, values) if quantity is not None else 0)

        parsed = self._parse(formula)
        if isinstance(parsed, Ref):  # as it is of most kernels that call a module
            return self._reference(parsed, quantity, values) if quantity is not None else 0
        if self._refers(formula):
            return evaluate(map_references(parsed, replace), values)
        (found,) = self._compiled(formula, [parsed])(values)
        return found

    def _compiled(self, key: Any, formulas: Sequence[Expr]) -> Program:
        """The same formulas are evaluated for each call at each point: compiled once."""
        if key not in self._programs:
            self._programs[key] = Program(formulas)
        return self._programs[key]

    def _reference(self, ref: Ref, quantity: str, values: Mapping[str, int]) -> int:
        if self._is_unsettled(ref.target):
            return 0  # the judge leaves out what runs there, and says so
        analysis, inner = self._bound(ref, values)
        return self._total(analysis, quantity, inner)

    def _bound(self, ref: Ref, values: Mapping[str, int]) -> tuple[ModuleAnalysis, dict[str, int]]:
        """The class that is referred to, and the values that it is given."""
        if self._binding[0] is not values:
            self._binding = (values, {})
        known = self._binding[1]
        if ref not in known:
            known[ref] = self._bind(ref, values)
        return known[ref]

    def _bind(self, ref: Ref, values: Mapping[str, int]) -> tuple[ModuleAnalysis, dict[str, int]]:
        analysis = self._lookup(ref.target)
        names = list(analysis.parameters)
        if len(ref.arguments) > len(names):
            raise InvalidAnalysis(f"a reference gives {ref.target} {len(ref.arguments)} arguments; it has {len(names)}")
        for name, _ in ref.bindings:
            if name not in analysis.parameters and name not in UNIVERSAL:
                raise InvalidAnalysis(f"a reference binds {name}, which {ref.target} does not have")
        given = [*zip(names, ref.arguments, strict=False), *ref.bindings]
        found = self._compiled(ref, [value for _, value in given])(values)
        bound = {name: value for (name, _), value in zip(given, found, strict=True)}
        return analysis, {name: values[name] for name in UNIVERSAL if name in values} | bound

    def _total(self, analysis: ModuleAnalysis, quantity: str, values: Mapping[str, int]) -> int:
        name = analysis.class_name
        key = (name, quantity, tuple(sorted(values.items())))
        if key not in self._totals:
            if name in self._open:
                raise InvalidAnalysis(f"references run in a circle: {' -> '.join([*self._open, name])}")
            self._open.append(name)
            try:
                self._totals[key] = sum(self.quantity(kernel, quantity, values) for kernel in analysis.kernels)
            finally:
                self._open.pop()
        return self._totals[key]

    def _refers(self, formula: str) -> bool:
        """Whether there is a reference in a formula."""
        if formula not in self._referring:
            self._referring[formula] = bool(references(self._parse(formula)))
        return self._referring[formula]

    def _parse(self, formula: str) -> Expr:
        if formula not in self._parsed:
            self._parsed[formula] = parse(formula)
        return self._parsed[formula]
