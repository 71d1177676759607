"""An expanded model with numbers put in: its totals, as often as one likes, and the costs of every module in it.

The formulas are compiled once (`lmp.formula.Program`); an evaluation after that is a few hundred small steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from lmp.errors import EvaluationError, FormulaSyntaxError, InvalidAnalysis, LmpError, UnknownVariable
from lmp.expand.records import EvaluatedKernel, EvaluatedTotals, Evaluation, Status, ViolatedAssumption
from lmp.formula import Condition, Expr, Program, add, evaluate, free_variables, num, parse, parse_condition
from lmp.records import MATMUL_CATEGORIES, ModelAnalysis, ModelKernel

_RANK: tuple[Status, ...] = ("verified", "unverified", "failed")


class Cost(NamedTuple):
    """FLOPs, the FLOPs of matmuls among them, and bytes."""

    flops: int = 0
    matmul_flops: int = 0
    read: int = 0
    write: int = 0

    @property
    def bytes(self) -> int:
        return self.read + self.write

    def plus(self, other: Cost) -> Cost:
        return Cost(*(a + b for a, b in zip(self, other, strict=True)))

    def times(self, count: int) -> Cost:
        return Cost(*(count * a for a in self))


def intensity(flops: int, moved: int) -> float | None:
    """FLOPs a byte; None where no byte is moved, and beyond what a float holds."""
    try:
        return flops / moved if moved else None
    except OverflowError:
        return None


@dataclass(frozen=True, slots=True)
class KernelNumbers:
    """One operator at one line. ``once`` is what one run costs, ``total`` all its ``runs`` in one call of the model."""

    kernel: ModelKernel
    path: str
    """The module that runs it, from the root down; empty for the root."""
    class_name: str
    """The class whose forward() the line belongs to."""
    repeat: int
    """Runs in one run of the module."""
    runs: int
    once: Cost
    total: Cost


@dataclass(frozen=True, slots=True)
class ModuleNumbers:
    """A module with everything in it. ``total`` is the cost of all its ``runs`` in one call of the model."""

    path: str
    class_name: str
    call: ModelKernel | None
    """The line that calls it; None for the root."""
    repeat: int
    """Runs in one run of the module around it."""
    runs: int
    total: Cost
    children: tuple[ModuleNumbers | KernelNumbers, ...]

    def kernels(self) -> Iterator[KernelNumbers]:
        """Every kernel in it, in the order of the analysis."""
        for child in self.children:
            if isinstance(child, KernelNumbers):
                yield child
            else:
                yield from child.kernels()


@dataclass(frozen=True)
class _Step:
    """A kernel of the model with its formulas."""

    kernel: ModelKernel
    path: str
    class_name: str
    repeat: Expr
    costs: tuple[Expr, ...]
    """flops, read, write; none for a module."""
    inside: tuple[_Step, ...] = ()

    def formulas(self) -> Iterator[Expr]:
        yield self.repeat
        yield from self.costs
        for step in self.inside:
            yield from step.formulas()


@dataclass
class ModelNumbers:
    """Numbers of one model. ``values`` below are those of `lmp.expand.point.point`: one integer for each name."""

    model: ModelAnalysis
    _totals: Program = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._totals = Program([*self.quantities.values(), *self.repeats])

    @cached_property
    def quantities(self) -> dict[str, Expr]:
        """flops, matmul_flops, read and write; compulsory and parameters_count where the analysis has them."""
        model, totals = self.model, self.model.totals
        texts = {"flops": totals.flops, "matmul_flops": totals.matmul_flops, "read": totals.read, "write": totals.write}
        found = {name: self._parsed(text, f"totals.{name}") for name, text in texts.items()}
        if model.compulsory is not None:
            both = (model.compulsory.read, model.compulsory.write)
            found["compulsory"] = add(*(self._parsed(text, "compulsory") for text in both))
        if totals.parameters_count is not None:
            found["parameters_count"] = self._parsed(totals.parameters_count, "totals.parameters_count")
        return found

    @cached_property
    def assumptions(self) -> dict[str, Condition]:
        """The conditions under which the formulas hold, by their text."""
        try:
            return {text: parse_condition(text) for text in self.model.assumptions}
        except FormulaSyntaxError as error:
            raise _unreadable(self.model.class_name, error) from error

    @cached_property
    def repeats(self) -> tuple[Expr, ...]:
        """How often things run, where that is a formula: no value of one may be negative."""
        pending, found = list(self._steps), dict[Expr, None]()
        while pending:
            step = pending.pop()
            pending.extend(step.inside)
            if free_variables(step.repeat):
                found[step.repeat] = None
        return tuple(found)

    def totals(self, values: Mapping[str, int]) -> EvaluatedTotals:
        """What one call of the model costs, in exact integers.

        Raises EvaluationError where a formula has no integer value.
        """
        try:
            found = self._totals(values)
        except LmpError as error:
            raise self._blamed(values, error) from error
        count = len(self.quantities)
        if min(found[count:], default=0) < 0:
            raise self._blamed(values, EvaluationError(f"{self.model.class_name}: a kernel runs less than 0 times"))
        named = dict(zip(self.quantities, found, strict=False))
        return EvaluatedTotals.model_construct(
            flops=named["flops"],
            matmul_flops=named["matmul_flops"],
            read=named["read"],
            write=named["write"],
            compulsory=named.get("compulsory"),
            parameters_count=named.get("parameters_count"),
        )

    def tree(self, values: Mapping[str, int]) -> ModuleNumbers:
        """The root module with everything in it that runs at these values."""
        program, steps = self._tree
        try:
            numbers = iter(program(values))
        except LmpError:
            # One formula has no value; it may be one that nothing needs, inside of what does not run.
            return self._module(None, steps, "", self.model.class_name, 1, 1, values, None)
        return self._module(None, steps, "", self.model.class_name, 1, 1, values, numbers)

    def violated(self, values: Mapping[str, int]) -> list[ViolatedAssumption]:
        """The assumptions that these values break."""
        found = []
        for (text, condition), held in zip(self.assumptions.items(), self._conditions(values), strict=True):
            if not held:
                used = {name: values[name] for name in sorted(free_variables(condition))}
                found.append(
                    ViolatedAssumption(path="", class_name=self.model.class_name, assumption=text, values=used)
                )
        return found

    def evaluation(self, values: Mapping[str, int], tree: ModuleNumbers | None = None) -> Evaluation:
        """Everything that `lmp evaluate --json` says."""
        tree = self.tree(values) if tree is None else tree
        statuses = {name: part.status for name, part in self.model.parts.items()}
        return Evaluation(
            class_name=self.model.class_name,
            values=dict(values),
            totals=self.totals(values),
            kernels=[_record(kernel) for kernel in tree.kernels()],
            verification=max(self.model.verification.status, *statuses.values(), key=_RANK.index),
            not_verified={name: status for name, status in statuses.items() if status != "verified"},
            uncounted={name: part.uncounted for name, part in self.model.parts.items() if part.uncounted},
            violated_assumptions=self.violated(values),
        )

    # -- the tree ------------------------------------------------------------------------------------------------------

    @cached_property
    def _steps(self) -> tuple[_Step, ...]:
        return self._entered(self.model.kernels, "", self.model.class_name)

    @cached_property
    def _tree(self) -> tuple[Program, tuple[_Step, ...]]:
        return Program([formula for step in self._steps for formula in step.formulas()]), self._steps

    @cached_property
    def _condition_program(self) -> Program:
        return Program(self.assumptions.values())

    def _conditions(self, values: Mapping[str, int]) -> list[int]:
        try:
            return self._condition_program(values)
        except EvaluationError as error:
            raise EvaluationError(f"{self.model.class_name}: {error}") from error
        except UnknownVariable as error:
            raise InvalidAnalysis(f"{self.model.class_name}: {error}") from error

    def _entered(self, kernels: list[ModelKernel], path: str, class_name: str) -> tuple[_Step, ...]:
        steps = []
        for kernel in kernels:
            place = _place(path, class_name, kernel)
            repeat = num(kernel.repeat) if isinstance(kernel.repeat, int) else self._parsed(kernel.repeat, place)
            if kernel.flops is None or kernel.memory_access is None:
                below = kernel.path or ""
                inside = self._entered(kernel.kernels, below, kernel.class_name or class_name)
                steps.append(_Step(kernel, below, kernel.class_name or class_name, repeat, (), inside))
            else:
                texts = (kernel.flops, kernel.memory_access.read, kernel.memory_access.write)
                costs = tuple(self._parsed(text, place) for text in texts)
                steps.append(_Step(kernel, path, class_name, repeat, costs))
        return tuple(steps)

    def _module(
        self,
        call: ModelKernel | None,
        steps: tuple[_Step, ...],
        path: str,
        class_name: str,
        repeat: int,
        runs: int,
        values: Mapping[str, int],
        numbers: Iterator[int] | None,
    ) -> ModuleNumbers:
        """``numbers`` are the values of all formulas below, in order; without them each is worked out when needed."""
        children: list[ModuleNumbers | KernelNumbers] = []
        total = Cost()
        for step in steps:
            times = self._worked_out(step, step.repeat, values) if numbers is None else next(numbers)
            if times < 0 < runs:
                place = _place(path, class_name, step.kernel)
                raise InvalidAnalysis(f"{place}: a kernel is repeated {times} times\n{_redo(class_name)}")
            if numbers is None and not times:
                continue
            child: ModuleNumbers | KernelNumbers
            if step.costs:
                flops, read, write = (
                    [self._worked_out(step, cost, values) for cost in step.costs]
                    if numbers is None
                    else (next(numbers), next(numbers), next(numbers))
                )
                once = Cost(flops, flops if step.kernel.category in MATMUL_CATEGORIES else 0, read, write)
                child = KernelNumbers(
                    step.kernel, path, class_name, times, runs * times, once, once.times(runs * times)
                )
            else:
                child = self._module(
                    step.kernel, step.inside, step.path, step.class_name, times, runs * times, values, numbers
                )
            if times:
                children.append(child)
                total = total.plus(child.total)
        return ModuleNumbers(path, class_name, call, repeat, runs, total, tuple(children))

    def _worked_out(self, step: _Step, formula: Expr, values: Mapping[str, int]) -> int:
        place = _place(step.path, step.class_name, step.kernel)
        try:
            return evaluate(formula, values)
        except UnknownVariable as error:
            raise InvalidAnalysis(f"{place}: {str(error).splitlines()[0]}\n{_redo(step.class_name)}") from error
        except EvaluationError as error:
            raise EvaluationError(f"{place}: {error}") from error

    def _blamed(self, values: Mapping[str, int], error: LmpError) -> LmpError:
        """The error of the kernel that is to blame, where it is a kernel's; else the one that there is."""
        try:
            self._module(None, self._steps, "", self.model.class_name, 1, 1, values, None)
        except LmpError as found:
            return found
        message = str(error)
        if isinstance(error, UnknownVariable):
            return InvalidAnalysis(f"{self.model.class_name}: {message}")
        name = self.model.class_name
        return type(error)(message if message.startswith(name) else f"{name}: {message}")

    def _parsed(self, text: str, place: str) -> Expr:
        try:
            return parse(text)
        except FormulaSyntaxError as error:
            raise _unreadable(place, error) from error


def _record(found: KernelNumbers) -> EvaluatedKernel:
    kernel, once = found.kernel, found.once
    return EvaluatedKernel(
        path=found.path,
        class_name=found.class_name,
        line=kernel.line,
        operation=kernel.operation,
        category=kernel.category,
        repeat=found.runs,
        flops=once.flops,
        read=once.read,
        write=once.write,
    )


def _place(path: str, class_name: str, kernel: ModelKernel) -> str:
    where = f"{path} ({class_name.rpartition('.')[2]})" if path else class_name
    return f"{where} line {kernel.line}"


def _unreadable(place: str, error: FormulaSyntaxError) -> InvalidAnalysis:
    first, window, *_ = [*str(error).splitlines(), ""]
    return InvalidAnalysis(f"{place}: a formula cannot be read: {first}\n{window}")


def _redo(class_name: str) -> str:
    return f"run `lmp analyze-module {class_name} --fresh` to make the analysis again"
