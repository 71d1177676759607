"""The independent oracle of linking: numbers put in first, and every reference followed down to the kernels.

lmp links formulas and then puts numbers in; both ways have to come to the same.

A reference is lexical: the class it names sees the values that the reference binds, and the two element sizes, and
nothing else of where it is used. What is met on the way down and does not fit is an InvalidAnalysis that names the
path through the tree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from lmp.formula import (
    Expr,
    Num,
    Ref,
    evaluate,
    evaluate_condition,
    free_variables,
    map_references,
    references,
)
from lmp.link.records import EvaluatedKernel, EvaluatedTotals, Evaluation, ViolatedAssumption
from lmp.link.references import COSTS, Lookup, References, Trail, decompose, guarded, invalid, join, short
from lmp.link.values import values_for
from lmp.records import MATMUL_CATEGORIES, UNIVERSAL, Kernel, ModuleAnalysis, Status

_RANK: tuple[Status, ...] = ("verified", "unverified", "failed")


def evaluate_analysis(analysis: ModuleAnalysis, lookup: Lookup, given: Mapping[str, int]) -> Evaluation:
    """What one call of the class costs at the point that ``given`` and the analysis's own config values make."""
    values = values_for(analysis, given)
    walk = _Walk(lookup)
    root = walk.enter(analysis, values, Trail(analysis.class_name))
    leaves = [leaf for leaf in root.leaves if leaf.repeat]
    met = walk.met
    not_verified: dict[str, Status] = {
        name: a.verification.status for name, a in met.items() if a.verification.status != "verified"
    }
    return Evaluation(
        class_name=analysis.class_name,
        values=values,
        totals=EvaluatedTotals(
            flops=sum(leaf.repeat * leaf.flops for leaf in leaves),
            matmul_flops=sum(leaf.repeat * leaf.matmul_flops for leaf in leaves),
            read=sum(leaf.repeat * leaf.read for leaf in leaves),
            write=sum(leaf.repeat * leaf.write for leaf in leaves),
            compulsory=root.compulsory,
            parameters_count=root.parameters_count,
        ),
        kernels=[leaf.record() for leaf in leaves],
        verification=max((a.verification.status for a in met.values()), key=_RANK.index),
        not_verified=not_verified,
        uncounted={name: a.uncounted for name, a in met.items() if a.uncounted},
        violated_assumptions=root.violated,
    )


NOT_WALKED = ("id", "inputs_from", "operands")
"""Fields of a kernel that the walk does not know: edges and operands have tests of their own."""


@dataclass(frozen=True)
class _Leaf:
    """A kernel that refers to nothing further. ``path`` and ``repeat`` count from the class that was entered."""

    path: str
    class_name: str
    line: int
    operation: str
    category: str
    repeat: int
    flops: int
    matmul_flops: int
    read: int
    write: int

    def record(self) -> EvaluatedKernel:
        fields = {n: getattr(self, n) for n in EvaluatedKernel.model_fields if n not in NOT_WALKED}
        return EvaluatedKernel(**fields)

    def under(self, step: str, repeat: int) -> _Leaf:
        return replace(self, path=join(step, self.path), repeat=repeat * self.repeat)


@dataclass(frozen=True)
class _Entered:
    """One class at one set of values."""

    leaves: list[_Leaf]
    violated: list[ViolatedAssumption]
    compulsory: int | None
    parameters_count: int | None

    def total(self, quantity: str) -> int:
        return sum(leaf.repeat * int(getattr(leaf, quantity)) for leaf in self.leaves)


class _Walk:
    """Enters classes, each once for the same values."""

    def __init__(self, lookup: Lookup) -> None:
        self._references = References(lookup)
        self._entered: dict[tuple[str, tuple[tuple[str, int], ...]], _Entered] = {}

    @property
    def met(self) -> dict[str, ModuleAnalysis]:
        return self._references.met

    def enter(self, analysis: ModuleAnalysis, values: dict[str, int], place: Trail) -> _Entered:
        with self._references.entered(analysis, place):
            key = (analysis.class_name, tuple(sorted(values.items())))
            if key not in self._entered:
                self._entered[key] = self._expand(analysis, values, place)
            return self._entered[key]

    def _expand(self, analysis: ModuleAnalysis, values: dict[str, int], place: Trail) -> _Entered:
        violated = self._violated(analysis, values, place)
        leaves: list[_Leaf] = []
        for kernel in analysis.kernels:
            here = place.at(kernel.line)
            repeat = self._repeat(analysis, kernel, values, here)
            if repeat == 0:
                continue
            formulas = self._references.formulas(analysis, kernel, here)
            if any(map(references, formulas)):
                leaves += self._composite(analysis, kernel, repeat, values, here, violated)
            else:
                costs = [self._value(analysis, formula, values, here) for formula in formulas]
                leaves.append(_leaf(analysis, kernel, repeat, *costs))
        compulsory = None
        if analysis.compulsory is not None:
            both = (analysis.compulsory.read, analysis.compulsory.write)
            compulsory = sum(self._number(analysis, text, values, place) for text in both)
        return _Entered(leaves, violated, compulsory, self._parameters_count(analysis, values, place))

    def _parameters_count(self, analysis: ModuleAnalysis, values: dict[str, int], place: Trail) -> int | None:
        if analysis.parameters_count is None:
            return None
        formula = self._references.formula(analysis, analysis.parameters_count, place)
        counts: dict[Ref, int] = {}
        for ref in references(formula):
            count = self._reference(analysis, ref, values, place, place.below(short(ref.target))).parameters_count
            if count is None:
                return None
            counts[ref] = count
        return self._value(analysis, map_references(formula, lambda ref: Num(counts[ref])), values, place)

    def _composite(
        self,
        analysis: ModuleAnalysis,
        kernel: Kernel,
        repeat: int,
        values: dict[str, int],
        here: Trail,
        violated: list[ViolatedAssumption],
    ) -> list[_Leaf]:
        """The leaves below the called module, as often as the formulas around the reference say."""

        def entered(ref: Ref) -> _Entered:
            step = kernel.path or short(ref.target)
            found = self._reference(analysis, ref, values, here, here.below(step))
            for condition in found.violated:
                violated.append(condition.model_copy(update={"path": join(step, condition.path)}))
            return found

        formulas = self._references.formulas(analysis, kernel, here)
        parts = decompose(formulas)
        times: dict[Ref, int] = {}
        if parts is not None:
            times = {ref: self._value(analysis, count, values, here) for ref, count in parts.times.items()}
        if parts is not None and min(times.values()) >= 0:
            own = [self._value(analysis, formula, values, here) for formula in parts.own]
            leaves = [
                leaf.under(kernel.path or short(ref.target), repeat * count)
                for ref, count in times.items()
                if count
                for leaf in entered(ref).leaves
            ]
            return leaves + ([_leaf(analysis, kernel, repeat, *own)] if any(own) else [])
        # Formulas that do something else to the references than to add them up cannot be broken down any further.
        inner = {ref: entered(ref) for ref in dict.fromkeys(ref for f in formulas for ref in references(f))}

        def value(formula: Expr, quantity: str | None) -> int:
            numbers = {ref: found.total(quantity) if quantity else 0 for ref, found in inner.items()}
            return self._value(analysis, map_references(formula, lambda ref: Num(numbers[ref])), values, here)

        whole = _leaf(analysis, kernel, repeat, *map(value, formulas, COSTS))
        own_flops = value(formulas[0], None)
        own_matmul = own_flops if kernel.category in MATMUL_CATEGORIES else 0
        return [replace(whole, matmul_flops=value(formulas[0], "matmul_flops") - own_flops + own_matmul)]

    def _reference(
        self, analysis: ModuleAnalysis, ref: Ref, values: dict[str, int], here: Trail, inside: Trail
    ) -> _Entered:
        target = self._references.target(ref.target, inside)
        bound = {name: values[name] for name in UNIVERSAL if name in values}
        for name, formula in self._references.bindings(analysis, ref, target, here).items():
            bound[name] = self._value(analysis, formula, values, here)
        return self.enter(target, bound, inside)

    def _violated(self, analysis: ModuleAnalysis, values: dict[str, int], place: Trail) -> list[ViolatedAssumption]:
        found = []
        for text in analysis.assumptions:
            condition = self._references.condition(analysis, text, place)
            if not guarded(analysis, place, partial(evaluate_condition, condition, values)):
                used = {name: values[name] for name in sorted(free_variables(condition))}
                found.append(ViolatedAssumption(path="", class_name=analysis.class_name, assumption=text, values=used))
        return found

    def _repeat(self, analysis: ModuleAnalysis, kernel: Kernel, values: dict[str, int], here: Trail) -> int:
        if isinstance(kernel.repeat, int):
            repeat = kernel.repeat
        else:
            repeat = self._number(analysis, kernel.repeat, values, here)
        if repeat < 0:
            raise invalid(analysis, here, f"a kernel is repeated {repeat} times")
        return repeat

    def _number(self, analysis: ModuleAnalysis, text: str, values: Mapping[str, int], here: Trail) -> int:
        """The value of a formula that refers to nothing."""
        return self._value(analysis, self._references.plain(analysis, text, here), values, here)

    def _value(self, analysis: ModuleAnalysis, formula: Expr, values: Mapping[str, int], here: Trail) -> int:
        return guarded(analysis, here, lambda: evaluate(formula, values))


def _leaf(analysis: ModuleAnalysis, kernel: Kernel, repeat: int, flops: int, read: int, write: int) -> _Leaf:
    matmul = flops if kernel.category in MATMUL_CATEGORIES else 0
    about = (analysis.class_name, kernel.line, kernel.operation, kernel.category)
    return _Leaf("", *about, repeat, flops, matmul, read, write)
