"""Claims of an analysis at one point: its kernels' formulas evaluated, with references followed."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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
from lmp.records import MATMUL_CATEGORIES, UNIVERSAL, Finding, FindingKind, Kernel, Lookup, ModuleAnalysis, Verification


@dataclass(frozen=True)
class About:
    """Subject of a finding: its kind, which code branches on, and its name, which readers see."""

    kind: FindingKind
    name: str
    operator: str | None = field(default=None, compare=False)
    """Name of an operator without a rule. Several of them at one line give one finding."""


OPERANDS = About(FindingKind.operands, "operands")
UNCOVERED = About(FindingKind.uncovered, "line without a kernel")
LISTED_FREE = About(FindingKind.listed_free, "line listed as free")
LISTED_NOT_TAKEN = About(FindingKind.listed_not_taken, "line listed as not taken")
UNCOUNTED = About(FindingKind.uncounted, "uncounted operator")
OTHER_CLASS = About(FindingKind.other_class, "class")
OTHER_PATH = About(FindingKind.other_path, "path")
LEFT_OUT = About(FindingKind.left_out, "phase left out")
ASSUMPTION = About(FindingKind.assumption, "assumption")
ARM = About(FindingKind.arm, "arm")
PARAMETERS_COUNT = About(FindingKind.parameters_count, "parameters_count")
WHOLE_RUN = About(FindingKind.whole_run, "matmul_flops of the whole run")

NOT_CORRECTABLE = (FindingKind.uncounted, FindingKind.whole_run)
"""Kinds of findings that no change of an analysis can correct."""


def separate_not_correctable(verification: Verification) -> tuple[list[Finding], Verification]:
    """The findings that the author must correct, and the verification without the others.

    The others are operators without a rule, and differences between lmp's counter and torch's. If there are only such
    findings, the verification is ``unverified``, with the reason.
    """
    own = [f for f in verification.findings if f.kind not in NOT_CORRECTABLE]
    others = [f for f in verification.findings if f.kind in NOT_CORRECTABLE]
    if own or not others:
        return own, verification
    reason = "lmp and torch.utils.flop_counter do not count the same on this model"
    if others[0].kind is FindingKind.uncounted:
        operators = ", ".join(uncounted_operators(verification))
        reason = f"operators without a rule: {operators}; their FLOPs are not in the formulas"
    reasons = [verification.reason] if verification.reason and verification.status == "unverified" else []
    update = {"status": "unverified", "reason": "; ".join([*reasons, reason]), "findings": []}
    return [], verification.model_copy(update=update)


def uncounted_operators(verification: Verification) -> list[str]:
    """Names of executed operators without a rule."""
    return sorted({f.operator for f in verification.findings if f.operator is not None})


class Amounts(NamedTuple):
    """The four quantities as exact integers; bytes are for one triple of element sizes."""

    flops: int = 0
    matmul_flops: int = 0
    read: int = 0
    write: int = 0

    def __add__(self, other: Amounts) -> Amounts:  # type: ignore[override]
        """The sum of each quantity."""
        flops, matmul_flops, read, write = self
        return Amounts(flops + other[0], matmul_flops + other[1], read + other[2], write + other[3])

    def __bool__(self) -> bool:
        return any(self)


QUANTITIES = Amounts._fields


class Claims:
    """Evaluates analyses by name. A referenced class sees only its bound values and the element sizes."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = functools.lru_cache(maxsize=None)(lookup)
        self._parsed: dict[str, Expr] = {}
        self._referring: dict[str, bool] = {}
        self._programs: dict[Any, Program] = {}
        self._together: dict[tuple[str, str, str], Program | None] = {}
        """FLOPs, read and written bytes of a kernel -> their program; None if one of them refers to a class."""
        self._totals: dict[tuple[str, tuple[tuple[str, int], ...]], Amounts] = {}
        """Class and its values -> the sums over its kernels."""
        self._binding: tuple[Mapping[str, int], dict[Ref, tuple[ModuleAnalysis, dict[str, int]]]] = ({}, {})
        """Current values, and the references bound at them: all quantities of a kernel use the same values."""
        self._open: list[str] = []
        self._unmet: dict[tuple[str, tuple[tuple[str, int], ...]], str | None] = {}
        self._unsettled: dict[str, bool] = {}

    def kernel(self, kernel: Kernel, values: Mapping[str, int]) -> Amounts:
        """All quantities of one kernel, times its repeat."""
        repeat = self.repeat(kernel, values)
        plain = self._plain(kernel)
        if plain is not None:
            try:
                flops, read, write = plain(values)
                matmul_flops = flops if kernel.category in MATMUL_CATEGORIES else 0
                return Amounts(repeat * flops, repeat * matmul_flops, repeat * read, repeat * write)
            except LmpError:
                pass  # the formula that fails is found below
        return Amounts(*[repeat * self._once(kernel, quantity, values) for quantity in QUANTITIES])

    def _plain(self, kernel: Kernel) -> Program | None:
        """FLOPs, read and written bytes of a kernel as one program; None if one of them refers to a class."""
        texts = (kernel.flops, kernel.memory_access.read, kernel.memory_access.write)
        if texts not in self._together:
            self._together[texts] = None
            with suppress(LmpError):
                if not any(self._refers(text) for text in texts):
                    self._together[texts] = Program([self._parse(text) for text in texts])
        return self._together[texts]

    def unsettled(self, analysis: ModuleAnalysis) -> dict[str, int]:
        """Reference -> first line of a kernel with it, for references without numbers so far.

        They name an attribute, or a class with such references at any depth.
        """
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
                with suppress(LmpError):  # a reference without an analysis is a finding where it is evaluated
                    self._unsettled[target] = bool(self.unsettled(self._lookup(target)))
        return self._unsettled[target]

    def unmet(self, analysis: ModuleAnalysis, values: Mapping[str, int]) -> str | None:
        """Text on the first assumption that fails for a class executed below a call with these values, at any depth.

        None if all hold. A reference that cannot be followed is left out: it is a finding in any case.
        """
        return self._unmet_in(analysis, values)

    def _unmet_in(self, analysis: ModuleAnalysis, values: Mapping[str, int]) -> str | None:
        key = (analysis.class_name, tuple(sorted(values.items())))
        if key in self._unmet:
            return self._unmet[key]
        found: str | None = None
        self._unmet[key] = None  # circular references are a finding where they are evaluated
        for kernel in analysis.kernels:
            # Where an assumption below is broken, the sizes of other references may be fractions.
            with suppress(LmpError):
                found = found or self._unmet_at(kernel, values)
        self._unmet[key] = found
        return found

    def _unmet_at(self, kernel: Kernel, values: Mapping[str, int]) -> str | None:
        if not self._refers(kernel.flops) or self.repeat(kernel, values) == 0:
            return None
        for ref in references(self._parse(kernel.flops)):
            if self._is_unsettled(ref.target):
                continue
            called, inner = self._bound(ref, values)
            for condition in called.assumptions:
                if not evaluate_condition(condition, inner):
                    return f"the assumption {condition} of {ref.target} does not hold"
            below = self._unmet_in(called, inner)
            if below is not None:
                return below
        return None

    def classes(self, kernel: Kernel) -> set[str]:
        """Paths of the classes that a kernel refers to, each as defined in its source.

        References that cannot be followed are left out: they are findings of their own.
        """
        found = set()
        for text in (kernel.flops, kernel.memory_access.read, kernel.memory_access.write):
            with suppress(LmpError):
                found |= {self._lookup(ref.target).class_name for ref in references(self._parse(text))}
        return found

    def quantity(self, kernel: Kernel, quantity: str, values: Mapping[str, int]) -> int:
        """One quantity of a kernel, times its repeat."""
        return self.repeat(kernel, values) * self._once(kernel, quantity, values)

    def _once(self, kernel: Kernel, quantity: str, values: Mapping[str, int]) -> int:
        """One quantity of a kernel that runs once."""
        if quantity in ("read", "write"):
            return self._value(getattr(kernel.memory_access, quantity), quantity, values)
        if quantity == "flops":
            return self._value(kernel.flops, "flops", values)
        if not self._refers(kernel.flops):
            return self._value(kernel.flops, "flops", values) if kernel.category in MATMUL_CATEGORIES else 0
        # In a formula around references, only the references can contribute matmul FLOPs.
        return self._value(kernel.flops, "matmul_flops", values) - self._value(kernel.flops, None, values)

    def repeat(self, kernel: Kernel, values: Mapping[str, int]) -> int:
        return kernel.repeat if isinstance(kernel.repeat, int) else self._value(kernel.repeat, "flops", values)

    def _value(self, formula: str, quantity: str | None, values: Mapping[str, int]) -> int:
        """The formula with each reference replaced by that quantity of its class, or by 0 if ``quantity`` is None."""

        def replace(ref: Ref) -> Expr:
            return Num(self._reference(ref, quantity, values) if quantity is not None else 0)

        parsed = self._parse(formula)
        if isinstance(parsed, Ref):  # most kernels that call a module are a single reference
            return self._reference(parsed, quantity, values) if quantity is not None else 0
        if self._refers(formula):
            return evaluate(map_references(parsed, replace), values)
        (found,) = self._compiled(formula, [parsed])(values)
        return found

    def _compiled(self, key: Any, formulas: Sequence[Expr]) -> Program:
        """Compiled program, cached: the same formulas are evaluated for each call at each point."""
        if key not in self._programs:
            self._programs[key] = Program(formulas)
        return self._programs[key]

    def _reference(self, ref: Ref, quantity: str, values: Mapping[str, int]) -> int:
        if self._is_unsettled(ref.target):
            return 0  # the judge leaves out operators that run there, and reports it
        analysis, inner = self._bound(ref, values)
        return self._total(analysis, quantity, inner)

    def _bound(self, ref: Ref, values: Mapping[str, int]) -> tuple[ModuleAnalysis, dict[str, int]]:
        """The referenced analysis, and the values bound to its variables."""
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
        key = (name, tuple(sorted(values.items())))
        if key in self._totals:
            return self._totals[key][QUANTITIES.index(quantity)]
        if name in self._open:
            raise InvalidAnalysis(f"references run in a circle: {' -> '.join([*self._open, name])}")
        self._open.append(name)
        try:
            with suppress(LmpError):  # another quantity may fail than the one that is asked for
                self._totals[key] = sum((self.kernel(kernel, values) for kernel in analysis.kernels), Amounts())
                return self._totals[key][QUANTITIES.index(quantity)]
            return sum(self.quantity(kernel, quantity, values) for kernel in analysis.kernels)
        finally:
            self._open.pop()

    def _refers(self, formula: str) -> bool:
        """True if a formula contains a reference."""
        if formula not in self._referring:
            self._referring[formula] = bool(references(self._parse(formula)))
        return self._referring[formula]

    def _parse(self, formula: str) -> Expr:
        if formula not in self._parsed:
            self._parsed[formula] = parse(formula)
        return self._parsed[formula]
