"""An analysis with numbers put in, and every reference followed down to the kernels.

A reference is lexical: the class it names sees the values that the reference binds, and the two element sizes, and
nothing else of where it is used. What is met on the way down and does not fit is an InvalidAnalysis that names the
path through the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from lmp.errors import (
    EvaluationError,
    FormulaSyntaxError,
    InvalidAnalysis,
    LmpError,
    NotFound,
    UnknownVariable,
)
from lmp.expand.point import canonical, point
from lmp.expand.records import EvaluatedKernel, EvaluatedTotals, Evaluation, Status, ViolatedAssumption
from lmp.formula import (
    Expr,
    Num,
    Ref,
    evaluate,
    evaluate_condition,
    free_variables,
    map_references,
    parse,
    parse_condition,
    references,
)
from lmp.records import MATMUL_CATEGORIES, UNIVERSAL, Kernel, ModuleAnalysis

Lookup = Callable[[str], ModuleAnalysis]
T = TypeVar("T")

COSTS = ("flops", "read", "write")
_RANK: tuple[Status, ...] = ("verified", "unverified", "failed")


def evaluate_analysis(analysis: ModuleAnalysis, lookup: Lookup, given: Mapping[str, int]) -> Evaluation:
    """What one call of the class costs at the point that ``given`` and the analysis's own config values make."""
    values = point(analysis, given)
    walk = _Walk(lookup)
    root = walk.enter(analysis, values, _Place(analysis.class_name))
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


@dataclass(frozen=True)
class _Place:
    """Where in the tree: for messages, and for the path of what is found there."""

    trail: str
    """Class of the root, then the modules below it: ``models.llama.LlamaMLP > gate_proj``."""
    line: int | None = None

    def below(self, step: str) -> _Place:
        return _Place(f"{self.trail} > {step}")

    def __str__(self) -> str:
        return self.trail if self.line is None else f"{self.trail} line {self.line}"


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
        fields = {name: getattr(self, name) for name in EvaluatedKernel.model_fields}
        return EvaluatedKernel(**fields)

    def under(self, step: str, repeat: int) -> _Leaf:
        return replace(self, path=_join(step, self.path), repeat=repeat * self.repeat)


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
        self._lookup = lookup
        self._entered: dict[tuple[str, tuple[tuple[str, int], ...]], _Entered] = {}
        self._open: list[str] = []
        self._parsed: dict[str, Expr] = {}
        self.met: dict[str, ModuleAnalysis] = {}

    def enter(self, analysis: ModuleAnalysis, values: dict[str, int], place: _Place) -> _Entered:
        name = analysis.class_name
        key = (name, tuple(sorted(values.items())))
        if name in self._open:
            circle = " > ".join(_short(n) for n in [*self._open[self._open.index(name) :], name])
            raise InvalidAnalysis(f"{place}: the references run in a circle: {circle}\n{_redo(name)}")
        if key not in self._entered:
            self.met[name] = analysis
            self._open.append(name)
            try:
                self._entered[key] = self._expand(analysis, values, place)
            finally:
                self._open.pop()
        return self._entered[key]

    def _expand(self, analysis: ModuleAnalysis, values: dict[str, int], place: _Place) -> _Entered:
        violated = self._violated(analysis, values, place)
        leaves: list[_Leaf] = []
        for kernel in analysis.kernels:
            here = replace(place, line=kernel.line)
            repeat = self._repeat(analysis, kernel, values, here)
            if repeat == 0:
                continue
            if any(references(self._parse(analysis, text, here)) for text in _formulas(kernel)):
                leaves += self._composite(analysis, kernel, repeat, values, here, violated)
            else:
                costs = [self._number(analysis, text, values, here) for text in _formulas(kernel)]
                leaves.append(_leaf(analysis, kernel, repeat, *costs))
        compulsory = None
        if analysis.compulsory is not None:
            both = (analysis.compulsory.read, analysis.compulsory.write)
            compulsory = sum(self._number(analysis, text, values, place) for text in both)
        return _Entered(leaves, violated, compulsory, self._parameters_count(analysis, values, place))

    def _parameters_count(self, analysis: ModuleAnalysis, values: dict[str, int], place: _Place) -> int | None:
        if analysis.parameters_count is None:
            return None
        formula = self._parse(analysis, analysis.parameters_count, place)
        counts: dict[Ref, int] = {}
        for ref in references(formula):
            count = self._reference(analysis, ref, values, place, place.below(_short(ref.target))).parameters_count
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
        here: _Place,
        violated: list[ViolatedAssumption],
    ) -> list[_Leaf]:
        """The leaves below the called module, as often as the formulas around the reference say."""
        formulas = [self._parse(analysis, text, here) for text in _formulas(kernel)]
        inner: dict[Ref, _Entered] = {}
        for ref in dict.fromkeys(ref for formula in formulas for ref in references(formula)):
            step = kernel.path or _short(ref.target)
            inner[ref] = self._reference(analysis, ref, values, here, here.below(step))
            for condition in inner[ref].violated:
                violated.append(condition.model_copy(update={"path": _join(step, condition.path)}))

        def value(formula: Expr, numbers: Mapping[Ref, int]) -> int:
            numbered = map_references(formula, lambda ref: Num(numbers.get(ref, 0)))
            return self._value(analysis, numbered, values, here)

        own = [value(formula, {}) for formula in formulas]
        wholes = [
            value(formula, {ref: entered.total(cost) for ref, entered in inner.items()})
            for formula, cost in zip(formulas, COSTS, strict=True)
        ]
        try:
            times = {ref: {value(f, {ref: 1}) - o for f, o in zip(formulas, own, strict=True)} for ref in inner}
        except EvaluationError:
            times = {ref: set() for ref in inner}
        if _adds_up(own, wholes, times, inner):
            leaves = [
                leaf.under(kernel.path or _short(ref.target), repeat * min(times[ref]))
                for ref, entered in inner.items()
                for leaf in entered.leaves
            ]
            return leaves + ([_leaf(analysis, kernel, repeat, *own)] if any(own) else [])
        # Formulas that do something else to the references than to add them up cannot be broken down any further.
        matmul = value(formulas[0], {ref: entered.total("matmul_flops") for ref, entered in inner.items()}) - own[0]
        return [replace(_leaf(analysis, kernel, repeat, *wholes), matmul_flops=matmul)]

    def _reference(
        self, analysis: ModuleAnalysis, ref: Ref, values: dict[str, int], here: _Place, inside: _Place
    ) -> _Entered:
        target = self._target(ref.target, inside)
        names = list(target.parameters)
        if len(ref.arguments) > len(names):
            raise self._invalid(
                analysis,
                here,
                f"the reference to {_short(ref.target)} gives {len(ref.arguments)} values, it takes {len(names)}"
                f" ({', '.join(names)})",
            )
        formulas = list(zip(names, ref.arguments, strict=False))
        for name, formula in ref.bindings:
            known = canonical(name) if name not in target.parameters else name
            if known not in target.parameters and known not in UNIVERSAL:
                raise self._invalid(
                    analysis,
                    here,
                    f"the reference to {_short(ref.target)} binds {name}, which it does not have"
                    f" (it has {', '.join(names) or 'no parameters'})",
                )
            if known in dict(formulas):
                raise self._invalid(analysis, here, f"the reference to {_short(ref.target)} binds {name} twice")
            formulas.append((known, formula))
        missing = [name for name in names if name not in dict(formulas) and name not in UNIVERSAL]
        if missing:
            raise self._invalid(
                analysis, here, f"the reference to {_short(ref.target)} does not bind {', '.join(missing)}"
            )
        bound = {name: values[name] for name in UNIVERSAL if name in values}
        for name, formula in formulas:
            bound[name] = self._value(analysis, formula, values, here)
        return self.enter(target, bound, inside)

    def _target(self, class_path: str, inside: _Place) -> ModuleAnalysis:
        if class_path not in self.met:
            try:
                found = self._lookup(class_path)
            except NotFound as error:
                raise type(error)(f"{inside}: {error.message}", error.searched) from error
            except KeyError as error:
                raise InvalidAnalysis(
                    f"{inside}: there is no analysis of {class_path}\nrun `lmp analyze-module {class_path}`"
                ) from error
            return found
        return self.met[class_path]

    def _violated(self, analysis: ModuleAnalysis, values: dict[str, int], place: _Place) -> list[ViolatedAssumption]:
        found = []
        for text in analysis.assumptions:
            condition = self._guard(analysis, place, partial(parse_condition, text))
            if not self._guard(analysis, place, partial(evaluate_condition, condition, values)):
                used = {name: values[name] for name in sorted(free_variables(condition))}
                found.append(ViolatedAssumption(path="", class_name=analysis.class_name, assumption=text, values=used))
        return found

    def _repeat(self, analysis: ModuleAnalysis, kernel: Kernel, values: dict[str, int], here: _Place) -> int:
        if isinstance(kernel.repeat, int):
            repeat = kernel.repeat
        else:
            repeat = self._number(analysis, kernel.repeat, values, here)
        if repeat < 0:
            raise self._invalid(analysis, here, f"a kernel is repeated {repeat} times")
        return repeat

    def _number(self, analysis: ModuleAnalysis, text: str, values: Mapping[str, int], here: _Place) -> int:
        """The value of a formula that refers to nothing."""
        return self._value(analysis, self._parse(analysis, text, here), values, here)

    def _value(self, analysis: ModuleAnalysis, formula: Expr, values: Mapping[str, int], here: _Place) -> int:
        return self._guard(analysis, here, lambda: evaluate(formula, values))

    def _parse(self, analysis: ModuleAnalysis, text: str, here: _Place) -> Expr:
        if text not in self._parsed:
            self._parsed[text] = self._guard(analysis, here, lambda: parse(text))
        return self._parsed[text]

    def _guard(self, analysis: ModuleAnalysis, here: _Place, compute: Callable[[], T]) -> T:
        """A formula that cannot be read or has an unknown name is the analysis's fault; one without a value here
        is the point's."""
        try:
            return compute()
        except FormulaSyntaxError as error:
            first, window, *_ = [*str(error).splitlines(), ""]
            raise InvalidAnalysis(f"{here}: a formula cannot be read: {first}\n{window}") from error
        except UnknownVariable as error:
            raise self._invalid(analysis, here, str(error).splitlines()[0]) from error
        except EvaluationError as error:
            raise EvaluationError(f"{here}: {error}") from error

    def _invalid(self, analysis: ModuleAnalysis, here: _Place, what: str) -> LmpError:
        return InvalidAnalysis(f"{here}: {what}\n{_redo(analysis.class_name)}")


def _formulas(kernel: Kernel) -> tuple[str, str, str]:
    """In the order of COSTS."""
    return kernel.flops, kernel.memory_access.read, kernel.memory_access.write


def _leaf(analysis: ModuleAnalysis, kernel: Kernel, repeat: int, flops: int, read: int, write: int) -> _Leaf:
    matmul = flops if kernel.category in MATMUL_CATEGORIES else 0
    about = (analysis.class_name, kernel.line, kernel.operation, kernel.category)
    return _Leaf("", *about, repeat, flops, matmul, read, write)


def _adds_up(own: list[int], wholes: list[int], times: dict[Ref, set[int]], inner: Mapping[Ref, _Entered]) -> bool:
    """Whether all three costs are those of the references, each equally often, and something of the kernel's own."""
    if any(len(found) != 1 or min(found) < 0 for found in times.values()):
        return False
    sums = [
        o + sum(min(times[ref]) * entered.total(cost) for ref, entered in inner.items())
        for o, cost in zip(own, COSTS, strict=True)
    ]
    return sums == wholes


def _join(step: str, path: str) -> str:
    return f"{step}.{path}" if path else step


def _short(class_path: str) -> str:
    return class_path.rpartition(".")[2]


def _redo(class_path: str) -> str:
    return f"run `lmp analyze-module {class_path} --fresh` to make the analysis again"
