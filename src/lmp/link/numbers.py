"""A linked model evaluated at one point: its totals, and the costs of every module and operator in it.

The formulas are compiled once (`lmp.formula.Program`); an evaluation after that takes a few hundred small steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, reduce
from typing import Any, NamedTuple, cast

from lmp.errors import EvaluationError, FormulaSyntaxError, InvalidAnalysis, LmpError, UnknownVariable
from lmp.formula import (
    Condition,
    Expr,
    Number,
    Program,
    add,
    evaluate,
    evaluate_exact,
    free_variables,
    num,
    parse,
    parse_condition,
    plain,
)
from lmp.formula.evaluate import not_an_integer
from lmp.link.records import EvaluatedKernel, EvaluatedTotals, Evaluation, ViolatedAssumption
from lmp.link.values import Point
from lmp.records import MATMUL_CATEGORIES, UNIVERSAL, ModelAnalysis, ModelKernel, Operands, Status, worst

IN_BYTES = frozenset({"read", "write", "compulsory"})
"""Quantities that may be fractions, where bytes of an element are. All others are whole numbers."""


class CostNumbers(NamedTuple):
    """FLOPs, matmul FLOPs among them, bytes read and bytes written: exact, bytes may be fractions."""

    flops: int = 0
    matmul_flops: int = 0
    read: Number = 0
    write: Number = 0

    @property
    def bytes(self) -> Number:
        return plain(self.read + self.write)

    def plus(self, other: CostNumbers) -> CostNumbers:
        return CostNumbers(
            self.flops + other.flops,
            self.matmul_flops + other.matmul_flops,
            plain(self.read + other.read),
            plain(self.write + other.write),
        )

    def times(self, count: int) -> CostNumbers:
        return CostNumbers(
            count * self.flops, count * self.matmul_flops, plain(count * self.read), plain(count * self.write)
        )


def intensity(flops: int, moved: Number) -> float | None:
    """FLOPs per byte; None if no byte is moved, or if a float cannot hold it."""
    try:
        return float(flops / moved) if moved else None
    except OverflowError:
        return None


def summed(costs: Iterable[CostNumbers]) -> CostNumbers:
    return reduce(CostNumbers.plus, costs, CostNumbers())


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
    once: CostNumbers
    total: CostNumbers


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
    total: CostNumbers
    children: tuple[ModuleNumbers | KernelNumbers, ...]

    def kernels(self) -> Iterator[KernelNumbers]:
        """Every kernel in it, in the order of the analysis."""
        for child in self.children:
            if isinstance(child, KernelNumbers):
                yield child
            else:
                yield from child.kernels()


@dataclass(frozen=True)
class _FormulaTree:
    """A kernel of the model with its formulas; a call of a module has the kernels inside."""

    kernel: ModelKernel
    path: str
    class_name: str
    repeat: Expr
    costs: tuple[Expr, ...]
    """flops, read, write; none for a module."""
    inside: tuple[_FormulaTree, ...] = ()

    def formulas(self) -> Iterator[Expr]:
        yield self.repeat
        yield from self.costs
        for node in self.inside:
            yield from node.formulas()


@dataclass
class ModelNumbers:
    """Numbers of one model. ``values`` below are those of `lmp.link.values.values_for`: one number for each name."""

    model: ModelAnalysis
    _totals: Program = field(init=False, repr=False)
    _sizes_at: tuple[Point, dict[str, int], dict[str, int]] = field(
        init=False, repr=False, default_factory=lambda: ({}, {}, {})
    )
    """The last point, its whole numbers, and the values of the operands' sizes there."""
    _size_formulas: dict[str, Expr] = field(init=False, repr=False, default_factory=dict)

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
            raise _unreadable_formula(self.model.class_name, error) from error

    @cached_property
    def repeats(self) -> tuple[Expr, ...]:
        """The repeats that are formulas. None of them may have a negative value."""
        pending, found = list(self._nodes), dict[Expr, None]()
        while pending:
            node = pending.pop()
            pending.extend(node.inside)
            if free_variables(node.repeat):
                found[node.repeat] = None
        return tuple(found)

    def totals(self, values: Point) -> EvaluatedTotals:
        """The costs of one call of the model, exact.

        Raises EvaluationError if a formula has no value, or no integer one where only bytes may be fractions.
        """
        try:
            found = self._run(self._totals, values)
            for index, value in enumerate(found):
                if index >= len(self.quantities) or list(self.quantities)[index] not in IN_BYTES:
                    _whole(self._totals.formulas[index], value)
        except LmpError as error:
            raise self._located_error(values, error) from error
        count = len(self.quantities)
        if min(found[count:], default=0) < 0:
            raise self._located_error(
                values, EvaluationError(f"{self.model.class_name}: a kernel runs less than 0 times")
            )
        named: dict[str, Any] = dict(zip(self.quantities, found, strict=False))
        return EvaluatedTotals.model_construct(
            flops=named["flops"],
            matmul_flops=named["matmul_flops"],
            read=named["read"],
            write=named["write"],
            compulsory=named.get("compulsory"),
            parameters_count=named.get("parameters_count"),
        )

    def tree(self, values: Point) -> ModuleNumbers:
        """The root module with everything in it that runs at these values."""
        program, nodes = self._tree
        try:
            numbers = iter(self._run(program, values))
        except LmpError:
            # A formula has no value. It may be inside a module that does not run, and so not be needed.
            return self._each_alone(values)
        return self._module(None, nodes, "", self.model.class_name, 1, 1, values, numbers)

    def _each_alone(self, values: Point) -> ModuleNumbers:
        """The root module, each formula evaluated where it is needed. Raises the error of the first without a value."""
        try:
            return self._module(None, self._nodes, "", self.model.class_name, 1, 1, values, None)
        except EvaluationError as error:
            broken = min(self.violated(values), key=lambda found: len(found.assumption), default=None)
            if broken is None:
                raise
            at = ", ".join(f"{name}={value}" for name, value in broken.values.items())
            raise EvaluationError(
                f"{self.model.class_name} has no figures at {at}: its formulas assume {broken.assumption}\n"
                "give sizes at which this holds"
            ) from error

    def violated(self, values: Point) -> list[ViolatedAssumption]:
        """The assumptions that do not hold at these values."""
        found = []
        for (text, condition), held in zip(self.assumptions.items(), self._evaluate_conditions(values), strict=True):
            if not held:
                used = {name: values[name] for name in sorted(free_variables(condition))}
                found.append(
                    ViolatedAssumption(path="", class_name=self.model.class_name, assumption=text, values=used)
                )
        return found

    def evaluation(self, values: Point, tree: ModuleNumbers | None = None) -> Evaluation:
        """The record that `lmp evaluate --json` prints."""
        tree = self.tree(values) if tree is None else tree
        statuses = {name: part.status for name, part in self.model.parts.items()}
        violated = self.violated(values)
        at_values: list[Status] = ["unverified"] if violated else []
        return Evaluation(
            class_name=self.model.class_name,
            values=dict(values),
            totals=self.totals(values),
            kernels=[self._record(kernel, values) for kernel in tree.kernels()],
            verification=worst([self.model.verification.status, *statuses.values(), *at_values]),
            not_verified={name: status for name, status in statuses.items() if status != "verified"},
            uncounted={name: part.uncounted for name, part in self.model.parts.items() if part.uncounted},
            violated_assumptions=violated,
            quantization=None if self.model.quantization is None else self.model.quantization.applied,
            warnings=[] if self.model.quantization is None else self.model.quantization.warnings,
        )

    def _record(self, found: KernelNumbers, values: Point) -> EvaluatedKernel:
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
            id=kernel.id,
            inputs_from=kernel.inputs_from,
            operands=self.operands(kernel, values) if once != CostNumbers() else None,
        )

    def operands(self, kernel: ModelKernel, values: Point) -> Operands | None:
        """The operands of a kernel with numbers; None if it has none, or if a size has no value at this point."""
        if kernel.operands is None:
            return None
        if self._sizes_at[0] is not values:
            self._sizes_at = values, {n: v for n, v in values.items() if isinstance(v, int)}, {}
        _, whole, known = self._sizes_at

        def number(size: int | str) -> int | str:
            if isinstance(size, int):
                return size
            if size not in known:
                known[size] = evaluate(self._size(size), whole)
            return known[size]

        try:
            return kernel.operands.with_sizes(number)
        except LmpError:
            return None

    def _size(self, text: str) -> Expr:
        if text not in self._size_formulas:
            self._size_formulas[text] = parse(text)
        return self._size_formulas[text]

    def has_fractions(self, values: Point) -> bool:
        """Whether bytes may be fractions: those of an element are, or the formulas have those of a checkpoint."""
        said = self.model.quantization
        return (said is not None and said.applied is not None) or any(
            isinstance(values.get(n), Fraction) for n in UNIVERSAL
        )

    def _run(self, program: Program, values: Point) -> list[Number]:
        return program.exactly(values) if self.has_fractions(values) else [*program(_integers(values))]

    # -- the tree ------------------------------------------------------------------------------------------------------

    @cached_property
    def _nodes(self) -> tuple[_FormulaTree, ...]:
        return self._read(self.model.kernels, "", self.model.class_name)

    @cached_property
    def _tree(self) -> tuple[Program, tuple[_FormulaTree, ...]]:
        return Program([formula for node in self._nodes for formula in node.formulas()]), self._nodes

    @cached_property
    def _condition_program(self) -> Program:
        return Program(self.assumptions.values())

    def _evaluate_conditions(self, values: Point) -> list[Number]:
        try:
            return self._condition_program.exactly(values)
        except EvaluationError as error:
            raise EvaluationError(f"{self.model.class_name}: {error}") from error
        except UnknownVariable as error:
            raise InvalidAnalysis(f"{self.model.class_name}: {error}") from error

    def _read(self, kernels: list[ModelKernel], path: str, class_name: str) -> tuple[_FormulaTree, ...]:
        nodes = []
        for kernel in kernels:
            place = _location(path, class_name, kernel)
            repeat = num(kernel.repeat) if isinstance(kernel.repeat, int) else self._parsed(kernel.repeat, place)
            if kernel.flops is None or kernel.memory_access is None:
                below = kernel.path or ""
                inside = self._read(kernel.kernels, below, kernel.class_name or class_name)
                nodes.append(_FormulaTree(kernel, below, kernel.class_name or class_name, repeat, (), inside))
            else:
                texts = (kernel.flops, kernel.memory_access.read, kernel.memory_access.write)
                costs = tuple(self._parsed(text, place) for text in texts)
                nodes.append(_FormulaTree(kernel, path, class_name, repeat, costs))
        return tuple(nodes)

    def _module(
        self,
        call: ModelKernel | None,
        nodes: tuple[_FormulaTree, ...],
        path: str,
        class_name: str,
        repeat: int,
        runs: int,
        values: Point,
        numbers: Iterator[Number] | None,
    ) -> ModuleNumbers:
        """The module's numbers. ``numbers``: the values of all its formulas, in order; None: evaluate when needed."""
        children: list[ModuleNumbers | KernelNumbers] = []
        for node in nodes:
            times = self._count(node, node.repeat, values, numbers)
            if times < 0 < runs:
                place = _location(path, class_name, node.kernel)
                raise InvalidAnalysis(f"{place}: a kernel is repeated {times} times\n{_redo(class_name)}")
            if numbers is None and not times:
                continue
            child: ModuleNumbers | KernelNumbers
            if node.costs:
                flops = self._count(node, node.costs[0], values, numbers)
                read, write = (self._amount(node, cost, values, numbers) for cost in node.costs[1:])
                once = CostNumbers(flops, flops if node.kernel.category in MATMUL_CATEGORIES else 0, read, write)
                child = KernelNumbers(
                    node.kernel, path, class_name, times, runs * times, once, once.times(runs * times)
                )
            else:
                child = self._module(
                    node.kernel, node.inside, node.path, node.class_name, times, runs * times, values, numbers
                )
            if times:
                children.append(child)
        total = summed(child.total for child in children)
        return ModuleNumbers(path, class_name, call, repeat, runs, total, tuple(children))

    def _count(self, node: _FormulaTree, formula: Expr, values: Point, numbers: Iterator[Number] | None) -> int:
        """A value that is a whole number whatever the bytes of an element are."""
        found = self._amount(node, formula, values, numbers)
        if isinstance(found, int):
            return found
        place = _location(node.path, node.class_name, node.kernel)
        raise EvaluationError(f"{place}: {not_an_integer(formula, found)}")

    def _amount(self, node: _FormulaTree, formula: Expr, values: Point, numbers: Iterator[Number] | None) -> Number:
        if numbers is not None:
            return next(numbers)
        place = _location(node.path, node.class_name, node.kernel)
        try:
            return (
                evaluate_exact(formula, values) if self.has_fractions(values) else evaluate(formula, _integers(values))
            )
        except UnknownVariable as error:
            raise InvalidAnalysis(f"{place}: {str(error).splitlines()[0]}\n{_redo(node.class_name)}") from error
        except EvaluationError as error:
            raise EvaluationError(f"{place}: {error}") from error

    def _located_error(self, values: Point, error: LmpError) -> LmpError:
        """The error with the kernel that causes it, if it is a kernel's; else the given error."""
        try:
            self._each_alone(values)
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
            raise _unreadable_formula(place, error) from error


def _integers(values: Point) -> Mapping[str, int]:
    """The same values, for functions that check themselves that all are integers."""
    return cast("Mapping[str, int]", values)


def _whole(formula: Expr | Condition, value: Number) -> None:
    if not isinstance(value, int):
        raise not_an_integer(formula, value)


def _location(path: str, class_name: str, kernel: ModelKernel) -> str:
    where = f"{path} ({class_name.rpartition('.')[2]})" if path else class_name
    return f"{where} line {kernel.line}"


def _unreadable_formula(place: str, error: FormulaSyntaxError) -> InvalidAnalysis:
    first, window, *_ = [*str(error).splitlines(), ""]
    return InvalidAnalysis(f"{place}: a formula cannot be read: {first}\n{window}")


def _redo(class_name: str) -> str:
    return f"run `lmp analyze-module {class_name} --fresh` to make the analysis again"
