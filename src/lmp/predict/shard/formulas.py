"""The formulas of one GPU: those of the whole model with its divided sizes, and the collectives between."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from lmp.errors import LmpError, UsageError
from lmp.formula import (
    Expr,
    Number,
    add,
    ceil,
    evaluate,
    mul,
    neg,
    num,
    parse,
    read_number,
    simplify,
    to_size,
    to_text,
    var,
)
from lmp.link.numbers import ModelNumbers
from lmp.link.records import EvaluatedKernel
from lmp.link.sweep import plan as points
from lmp.link.values import Values
from lmp.predict.rewrite.graph import runs
from lmp.predict.shard.models import plan_of
from lmp.predict.shard.parallel import Parallel
from lmp.predict.shard.part import Part, main_input, share_of
from lmp.predict.shard.planning import Plan
from lmp.predict.shard.records import COLLECTIVE, WORDS, Kind, RankKernel
from lmp.records import MATMUL_CATEGORIES, MemoryAccess, ModelAnalysis, ModelKernel, Operand, Operands, Totals

Costs = tuple[Expr, Expr, Expr]
"""FLOPs, bytes read and bytes written of one execution."""


def rank_model(numbers: ModelNumbers, values: Mapping[str, Number], plan: Plan, parallel: Parallel) -> ModelAnalysis:
    """The analysis of one GPU of ``tp``, in formulas: what runs in a call like that at ``values``.

    The formulas hold where the same kernels run. They follow from the verified ones, and are not executed. Raises
    UsageError, with the allowed values, where the model does not divide.
    """
    plan.check(parallel)
    made = _Formulas(numbers, values, plan, parallel)
    kernels = list(made.inside(numbers.model.kernels, num(1)))
    totals = {name: to_text(simplify(add(*terms))) for name, terms in made.terms.items()}
    update = {"kernels": kernels, "totals": Totals(**totals), "compulsory": None, "parameters_count": None}
    return numbers.model.model_copy(update=update)


@dataclass(frozen=True)
class OneGpu:
    """One GPU of several, in formulas, and what its reader has to know."""

    analysis: ModelAnalysis
    notes: tuple[str, ...]


Planner = Callable[[ModelNumbers, Mapping[str, Number]], Plan]
"""How a model divides, from its formulas and the values of a call."""


def one_of(
    numbers: ModelNumbers, given: Mapping[str, Values], parallel: Parallel, planner: Planner = plan_of
) -> OneGpu:
    """One GPU of a model in the call that is given, from the formulas that hold there.

    Raises UsageError for several values of one name.
    """
    several = next((name for name, values in given.items() if len(values) > 1), None)
    if several is not None:
        raise UsageError(f"{several} has several values\ngive one: with --tp the formulas are those of one call")
    values = points(numbers.model, given, 1).fixed
    plan = planner(numbers, values)
    made = rank_model(numbers, values, plan, parallel)
    about = f"one GPU of {parallel.tp}" + (f", experts in {parallel.ep} groups" if parallel.ep > 1 else "")
    first = f"{about}: divided by data flow from the whole model's formulas; read and write include its collectives"
    return OneGpu(made, (first, *plan.notes()))


class _Formulas:
    def __init__(self, numbers: ModelNumbers, values: Mapping[str, Number], plan: Plan, parallel: Parallel) -> None:
        self.plan, self.parallel = plan, parallel
        self.part = Part(plan, parallel, values)
        self.whole_numbers = {name: value for name, value in values.items() if isinstance(value, int)}
        found = numbers.evaluation(values, numbers.tree(values)).kernels
        self.known = {kernel.id: kernel for kernel in found if kernel.id is not None}
        self.terms: dict[str, list[Expr]] = {name: [num(0)] for name in ("flops", "matmul_flops", "read", "write")}

    def inside(self, kernels: Sequence[ModelKernel], times: Expr) -> Iterator[ModelKernel]:
        """The kernels of a module that runs so often, each with the collective behind it."""
        for kernel in kernels:
            repeat = mul(times, num(kernel.repeat) if isinstance(kernel.repeat, int) else parse(kernel.repeat))
            if kernel.kernels or kernel.memory_access is None:
                yield kernel.model_copy(update={"kernels": list(self.inside(kernel.kernels, repeat))})
                continue
            costs = self._costs(kernel)
            self._count(costs, repeat, kernel.category)
            yield self._written(kernel, costs, self._divided(kernel))
            behind = self._collective(kernel)
            if behind is not None:
                assert behind.memory_access is not None
                moved = parse(behind.memory_access.read)
                self._count((num(0), moved, moved), repeat, COLLECTIVE)
                yield behind

    def _count(self, costs: Costs, times: Expr, category: str) -> None:
        for name, cost in zip(("flops", "read", "write"), costs, strict=True):
            self.terms[name].append(mul(times, cost))
        if category in MATMUL_CATEGORIES:
            self.terms["matmul_flops"].append(mul(times, costs[0]))

    @staticmethod
    def _written(kernel: ModelKernel, costs: Costs, operands: Operands | None) -> ModelKernel:
        flops, read, write = (to_text(simplify(cost)) for cost in costs)
        update = {"flops": flops, "memory_access": MemoryAccess(read=read, write=write), "operands": operands}
        return kernel.model_copy(update=update)

    def _divided(self, kernel: ModelKernel) -> Operands | None:
        """The operands of a kernel with the sizes of the part."""
        found = self.known.get(kernel.id or "")
        if kernel.operands is None or found is None or found.operands is None:
            return kernel.operands
        own = self.part.of(found).operands
        if own is None or own == found.operands:
            return kernel.operands
        update: dict[str, object] = {}
        for which in ("inputs", "outputs"):
            every, whole, mine = (getattr(one, which) for one in (kernel.operands, found.operands, own))
            here = iter(self._present(every, whole))
            part = {id(next(here, None)): pair for pair in zip(whole, mine, strict=True)}
            update[which] = [_resized(one, *part[id(one)]) if id(one) in part else one for one in every]
        for name in Operands.product_fields():
            sizes = [getattr(one, name) for one in (kernel.operands, found.operands, own)]
            if None not in sizes:
                update[name] = _size(*sizes)
        return kernel.operands.model_copy(update=update)

    def _collective(self, kernel: ModelKernel) -> ModelKernel | None:
        found = self.known.get(kernel.id or "")
        if self.parallel.tp == 1 or found is None or not runs(found):
            return None
        kind: Kind | None = "all_reduce" if kernel.id in self.plan.reduced else None
        kind = "all_gather" if kernel.id in self.plan.gathered else kind
        if kind is None or kernel.operands is None:
            return None
        moved = to_text(simplify(_bytes(kernel.operands.outputs[0])))
        update = {
            "operation": f"{WORDS[kind]} over {self.parallel.tp} GPUs", "category": COLLECTIVE, "flops": "0",
            "memory_access": MemoryAccess(read=moved, write=moved), "id": f"{kernel.id}.{kind}", "operands": None,
            "inputs_from": [kernel.id], "repeat": kernel.repeat,
        }  # fmt: skip
        return kernel.model_copy(update=update)

    # -- one kernel --------------------------------------------------------------------------------------------------

    def _costs(self, kernel: ModelKernel) -> Costs:
        assert kernel.memory_access is not None
        access = kernel.memory_access
        flops, read, write = parse(kernel.flops or "0"), parse(access.read), parse(access.write)
        found = self.known.get(kernel.id or "")
        if found is None or not runs(found):
            return flops, read, write
        own = self.part.of(found)
        return (
            _times(flops, found.flops, own.flops),
            self._moved(read, found, own, kernel, "inputs"),
            self._moved(write, found, own, kernel, "outputs"),
        )

    def _moved(self, cost: Expr, found: EvaluatedKernel, own: RankKernel, kernel: ModelKernel, which: str) -> Expr:
        """Bytes of the part: those of the whole less those of the places that other GPUs have."""
        name = "read" if which == "inputs" else "write"
        whole, its = (Fraction(read_number(getattr(one, name))) for one in (found, own))
        if whole == its or kernel.operands is None or found.operands is None or own.operands is None:
            return _times(cost, whole, its)
        formulas = self._present(getattr(kernel.operands, which), getattr(found.operands, which))
        pairs = list(zip(getattr(found.operands, which), getattr(own.operands, which), strict=True))
        shares = [share_of(one, mine) for one, mine in pairs]
        if len(formulas) < len(pairs):
            return _times(cost, whole, its)
        sizes = [self.part.bytes_of([one]) for one, _ in pairs]
        main = main_input(found.operands) if which == "inputs" else None
        if main is not None and whole != sum(sizes):
            # Of the others it has its part, and of what the whole reads beside them a share.
            others = [i for i in range(len(pairs)) if i != main]
            made = mul(num(shares[main]), add(cost, *(neg(_bytes(formulas[i])) for i in others)))
            made = add(made, *(mul(num(shares[i]), _bytes(formulas[i])) for i in others))
            return _times(made, own.ep, 1)
        absent = [(1 - share, formula) for share, formula in zip(shares, formulas, strict=True)]
        less = sum((size * (1 - share) for size, share in zip(sizes, shares, strict=True)), Fraction(0))
        made = add(cost, *(neg(mul(num(share), _bytes(formula))) for share, formula in absent if share))
        if own.ep > 1 and math.ceil((whole - less) / own.ep) == its:
            return _times(made, own.ep, 1)
        return made if whole - less == its else _times(cost, whole, its)

    def _present(self, formulas: Sequence[Operand], found: Sequence[Operand]) -> list[Operand]:
        """The formulas of each operand that the kernel has at this point."""
        free, made = list(formulas), []
        for one in found:
            same = next((o for o in free if o.name == one.name and self._sizes(o) == one.shape), None)
            if same is not None:
                free.remove(same)
                made.append(same)
        return made

    def _sizes(self, operand: Operand) -> list[int] | None:
        try:
            return [size if isinstance(size, int) else evaluate(size, self.whole_numbers) for size in operand.shape]
        except LmpError:
            return None


def _resized(formula: Operand, whole: Operand, part: Operand) -> Operand:
    """An operand with the sizes of its part."""
    sizes = zip(formula.shape, whole.shape, part.shape, strict=True)
    return formula.model_copy(update={"shape": [_size(*size) for size in sizes]})


def _size(formula: int | str, whole: int | str, part: int | str) -> int | str:
    """A size of the part: so much of the formula as it is at one point."""
    if whole == part:
        return formula
    every = num(formula) if isinstance(formula, int) else parse(formula)
    return to_size(simplify(mul(num(Fraction(part) / Fraction(whole)), every)))


def _bytes(operand: Operand) -> Expr:
    """Bytes of a tensor."""
    width = num(operand.width) if isinstance(operand.width, int) else var(f"{operand.width}_bytes")
    return mul(width, *(num(size) if isinstance(size, int) else parse(size) for size in operand.shape))


def _times(cost: Expr, whole: Number, own: Number) -> Expr:
    """A part of a cost that is so much of it at one point; rounded up where the whole does not divide."""
    if not whole or whole == own:
        return cost
    share = Fraction(own) / Fraction(whole)
    parts = round(1 / share)
    if share == Fraction(1, parts):
        return mul(num(share), cost)
    if own == math.ceil(Fraction(whole) / parts):
        return ceil(mul(num(Fraction(1, parts)), cost))
    return mul(num(share), cost)
