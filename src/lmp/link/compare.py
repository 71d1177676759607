"""Comparison of two models: operators that were added or removed, or that have other costs.

Modules are matched by their caller and their class, operators by their operation and the text of their line. Line
numbers are not used, because lines move. Formulas are equal if they have the same canonical form.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from fractions import Fraction
from functools import cached_property
from typing import get_args

from lmp.errors import UsageError
from lmp.formula import Expr, Num, Number, equal, mul, num, parse, simplify, to_text
from lmp.link import difference as d
from lmp.link.numbers import CostNumbers, ModelNumbers, ModuleNumbers
from lmp.link.values import CALL, Point, known_name, values_for
from lmp.records import MemoryAccess, ModelAnalysis, ModelKernel, worst

ALIKE = 0.6
"""Lowest similarity (difflib's ratio) of two texts that may be one line before and after an edit."""


@dataclass(frozen=True)
class Side:
    """A result to compare, the name that the user gave for it, and the values to evaluate it at."""

    given: str
    model: ModelAnalysis
    values: Point | None = None


def values_of_both(a: ModelAnalysis, b: ModelAnalysis, given: Point) -> tuple[dict[str, Number], dict[str, Number]]:
    """The values of both models: a given value goes to each model that has the name; others come from its config.

    Raises UsageError for a name that neither model has, and for a name without a value.
    """
    sides = a, b
    for written in given:
        if not any(_has(model, written) for model in sides):
            first, second = (", ".join(_parameter_names(model)) for model in sides)
            names = f"the names are {first}" if first == second else f"A has {first}; B has {second}"
            raise UsageError(f"neither of the two has a parameter {written!r}\n{names}")
    ours, theirs = ({name: value for name, value in given.items() if _has(model, name)} for model in sides)
    return values_for(a, ours), values_for(b, theirs)


def known_to_one(a: ModelAnalysis, b: ModelAnalysis, given: Iterable[str]) -> dict[str, str]:
    """The names among ``given`` that only one of the models has -> "A" or "B"."""
    return {name: "A" if _has(a, name) else "B" for name in given if _has(a, name) != _has(b, name)}


def _parameter_names(model: ModelAnalysis) -> list[str]:
    return [*dict.fromkeys((*CALL, *model.parameters))]


def _has(model: ModelAnalysis, written: str) -> bool:
    try:
        known_name(model, written)
    except UsageError:
        return False
    return True


def compare(a: Side, b: Side) -> d.Difference:
    """All differences of two models; with values on both sides also the costs at these values.

    Raises InvalidAnalysis for a formula that cannot be read, EvaluationError for one without a value.
    """
    left, right = _Model(a), _Model(b)
    found = _Comparison(left, right)
    found.modules_of(left.root, right.root)
    return d.Difference(
        a=_compared(left, right),
        b=_compared(right, left),
        values_differ=_values_that_differ(left, right),
        totals=_totals(left, right, found.same),
        kernels=found.kernels,
        lines=found.lines,
        modules=found.modules,
        unchanged=found.unchanged,
        free=found.free,
    )


def exceeded(found: d.Difference, limit: Fraction) -> list[d.Exceeded]:
    """Those of FLOPs, bytes (read and written) and parameters that rose by more than ``limit`` (0.01 is 1%).

    A quantity that one of the models does not have is left out: see `unsaid`.
    """
    over = []
    for quantity in _LIMITED:
        before, after = _limited(found, quantity)
        if before is not None and after is not None and after > before * (1 + limit):
            over.append(d.Exceeded(quantity=quantity, a=before, b=after, relative=_relative(before, after)))
    return over


def unsaid(found: d.Difference) -> list[d.Quantity]:
    """The quantities that cannot be compared with a limit, because one of the models does not have them."""
    return [quantity for quantity in _LIMITED if None in _limited(found, quantity)]


_LIMITED: dict[d.Quantity, tuple[d.TotalName, ...]] = {
    "flops": ("flops",),
    "bytes": ("read", "write"),
    "parameters": ("parameters_count",),
}


def _limited(found: d.Difference, quantity: d.Quantity) -> tuple[Number | None, Number | None]:
    totals = [found.totals[name] for name in _LIMITED[quantity]]
    return _sum_if_known(_value_if_known(total.a) for total in totals), _sum_if_known(
        _value_if_known(total.b) for total in totals
    )


def _sum_if_known(values: Iterable[Number | None]) -> Number | None:
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)


def _value_if_known(term: d.Term | None) -> Number | None:
    return None if term is None else term.value


# --- one model -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Module:
    """A module, or the model itself, with the kernels of its forward()."""

    path: str
    class_name: str
    runs: Expr
    call: ModelKernel | None
    kernels: Sequence[ModelKernel]


@dataclass(frozen=True)
class _Node:
    """A kernel of a module's forward(): an operator, or the call of a module (then ``inside``)."""

    kernel: ModelKernel
    around: _Module
    runs: Expr

    @cached_property
    def inside(self) -> _Module | None:
        kernel = self.kernel
        if kernel.memory_access is not None and kernel.flops is not None:
            return None
        return _Module(
            kernel.path or "", kernel.class_name or self.around.class_name, self.runs, kernel, kernel.kernels
        )

    @cached_property
    def step(self) -> str:
        """For the call of a module: its path from the calling module."""
        path = self.kernel.path or ""
        return path.removeprefix(f"{self.around.path}.") if self.around.path else path


class _Model:
    """One side, with the costs of each kernel if it has values."""

    def __init__(self, side: Side) -> None:
        self.side, self.model, self.values = side, side.model, side.values
        self.numbers = ModelNumbers(side.model)
        self.root = _Module("", side.model.class_name, Num(1), None, side.model.kernels)
        self._costs: dict[int, CostNumbers] | None = None
        if self.values is not None:
            tree = self.numbers.tree(self.values)
            self._costs = dict(_costs_by_kernel(tree))

    def nodes(self, module: _Module) -> list[_Node]:
        found = []
        for kernel in module.kernels:
            repeat = num(kernel.repeat) if isinstance(kernel.repeat, int) else parse(kernel.repeat)
            runs = module.runs if repeat == Num(1) else simplify(mul(module.runs, repeat))
            found.append(_Node(kernel, module, runs))
        return found

    def cost(self, kernel: ModelKernel) -> d.Costs | None:
        """The costs of all runs of a kernel; zero if it does not run."""
        if self._costs is None:
            return None
        return d.Costs(**self._costs.get(id(kernel), CostNumbers())._asdict())

    def file(self, kernel: ModelKernel, class_name: str) -> str | None:
        if kernel.file or class_name == self.model.class_name:
            return kernel.file or self.model.source.file
        part = self.model.parts.get(class_name)
        return None if part is None else part.file

    def kernel_place(self, node: _Node) -> d.KernelPlace:
        kernel, around = node.kernel, node.around
        flops, access = _cost_formulas(kernel)
        return d.KernelPlace(
            path=around.path,
            class_name=around.class_name,
            file=self.file(kernel, around.class_name),
            line=kernel.line,
            operation=kernel.operation,
            category=kernel.category,
            code=kernel.code,
            runs=to_text(node.runs),
            flops=flops,
            read=access.read,
            write=access.write,
            cost=self.cost(kernel),
        )

    def module_place(self, module: _Module) -> d.ModulePlace:
        cost = None if module.call is None else self.cost(module.call)
        return d.ModulePlace(path=module.path, class_name=module.class_name, runs=to_text(module.runs), cost=cost)


def _costs_by_kernel(module: ModuleNumbers) -> Iterator[tuple[int, CostNumbers]]:
    for child in module.children:
        if isinstance(child, ModuleNumbers):
            yield id(child.call), child.total
            yield from _costs_by_kernel(child)
        else:
            yield id(child.kernel), child.total


def _cost_formulas(kernel: ModelKernel) -> tuple[str, MemoryAccess]:
    assert kernel.flops is not None
    assert kernel.memory_access is not None
    return kernel.flops, kernel.memory_access


def _costs_nothing(kernel: ModelKernel) -> bool:
    flops, access = _cost_formulas(kernel)
    return flops == access.read == access.write == "0"


# --- what belongs together -------------------------------------------------------------------------------------------

_Pair = tuple[_Node | None, _Node | None]
_Key = Callable[[_Node], Hashable]


def _exactly(node: _Node) -> Hashable:
    kernel = node.kernel
    if node.inside is not None:
        return "module", node.step, node.inside.class_name
    return "kernel", kernel.function, _normalised(kernel.code), kernel.operation, kernel.category


def _by_step(node: _Node) -> Hashable:
    return node.step if node.inside is not None else None


def _by_class(node: _Node) -> Hashable:
    return node.inside.class_name if node.inside is not None else None


def _by_text(node: _Node) -> Hashable:
    """Key that matches an operator after it was moved into or out of a function."""
    kernel = node.kernel
    return None if node.inside is not None else (_normalised(kernel.code), kernel.operation)


def _normalised(code: str) -> str:
    return " ".join(code.split())


def pairs(a: Sequence[_Node], b: Sequence[_Node]) -> list[_Pair]:
    """The matching nodes, in the order of B; nodes of A alone keep their position."""
    found: dict[int, int] = {}  # of A -> of B
    keys = [_exactly(node) for node in a], [_exactly(node) for node in b]
    for block in SequenceMatcher(None, *keys, autojunk=False).get_matching_blocks():
        found.update((block.a + i, block.b + i) for i in range(block.size))
    _pair_by(_exactly, a, b, found)
    _pair_by(_by_step, a, b, found)
    _pair_by(_by_class, a, b, found, unique=True)
    _pair_by(_by_text, a, b, found)
    _pair_edited(a, b, found)
    last, placed = -1, [((j, 1, 0), (a[i], b[j])) for i, j in found.items()]
    pending: list[tuple[tuple[int, int, int], _Pair]] = []
    for i, node in enumerate(a):
        if i in found:
            last = found[i]
        else:
            pending.append(((last, 2, i), (node, None)))
    taken = set(found.values())
    pending += [((j, 1, 0), (None, node)) for j, node in enumerate(b) if j not in taken]
    return [pair for _, pair in sorted([*placed, *pending], key=lambda item: item[0])]


def _pair_by(key: _Key, a: Sequence[_Node], b: Sequence[_Node], found: dict[int, int], *, unique: bool = False) -> None:
    """Pair remaining nodes with equal keys, the first with the first; with ``unique``, only keys that occur once."""
    taken = set(found.values())
    left: defaultdict[Hashable, list[int]] = defaultdict(list)
    right: defaultdict[Hashable, list[int]] = defaultdict(list)
    for i, node in enumerate(a):
        if i not in found and key(node) is not None:
            left[key(node)].append(i)
    for j, node in enumerate(b):
        if j not in taken and key(node) is not None:
            right[key(node)].append(j)
    for name, ours in left.items():
        theirs = right[name]
        if not unique or len(ours) == len(theirs) == 1:
            found.update(zip(ours, theirs, strict=False))


def _pair_edited(a: Sequence[_Node], b: Sequence[_Node], found: dict[int, int]) -> None:
    """Pair operators with the same operation on lines with similar text."""
    taken = set(found.values())
    for i, node in enumerate(a):
        if i in found or node.inside is not None:
            continue
        best, choice = ALIKE, None
        for j, other in enumerate(b):
            same = (other.kernel.operation, other.kernel.category) == (node.kernel.operation, node.kernel.category)
            if j in taken or other.inside is not None or not same:
                continue
            ratio = SequenceMatcher(None, node.kernel.code, other.kernel.code, autojunk=False).ratio()
            if ratio > best or (ratio == best and choice is None):
                best, choice = ratio, j
        if choice is not None:
            found[i] = choice
            taken.add(choice)


# --- what differs ----------------------------------------------------------------------------------------------------


@dataclass
class _Comparison:
    a: _Model
    b: _Model
    kernels: list[d.KernelChange] = field(default_factory=list)
    lines: list[d.LineChange] = field(default_factory=list)
    modules: list[d.ModuleChange] = field(default_factory=list)
    unchanged: int = 0
    free: int = 0
    _known: dict[tuple[str, str], bool] = field(default_factory=dict)

    def same(self, a: str, b: str) -> bool:
        """True if two formulas have the same canonical form."""
        if a == b:
            return True
        if (a, b) not in self._known:
            self._known[a, b] = equal(parse(a), parse(b))
        return self._known[a, b]

    def modules_of(self, a: _Module | None, b: _Module | None) -> int:
        """Compare the kernels of two modules; returns the number of operators that differ."""
        ours = [] if a is None else self.a.nodes(a)
        theirs = [] if b is None else self.b.nodes(b)
        lines = _LineChanges(self.a, self.b)
        both = a is not None and b is not None
        count = 0
        for pair in pairs(ours, theirs) if both else _unpaired(ours, theirs):
            changes = self._pair(*pair, outermost=both)
            lines.add(*pair, changed=changes > 0)
            count += changes
        self.lines += lines.changes()
        return count

    def _pair(self, a: _Node | None, b: _Node | None, outermost: bool) -> int:
        inside = None if a is None else a.inside, None if b is None else b.inside
        if inside == (None, None):
            return self._kernel(a, b)
        place = len(self.modules)
        count = self.modules_of(*inside)
        if count:
            self.modules.insert(place, self._module(*inside, outermost))
        return count

    def _module(self, a: _Module | None, b: _Module | None, outermost: bool) -> d.ModuleChange:
        left = None if a is None else self.a.module_place(a)
        right = None if b is None else self.b.module_place(b)
        state = _state(left, right)
        alone = outermost and state != "changed"
        return d.ModuleChange(state=state, outermost=alone, a=left, b=right, change=self._change(left, right))

    def _kernel(self, a: _Node | None, b: _Node | None) -> int:
        if (a is None or b is None) and all(_costs_nothing(node.kernel) for node in (a, b) if node is not None):
            self.free += 1
            return 0
        same = a is not None and b is not None and self._same_formulas(a, b)
        left = None if a is None else self.a.kernel_place(a)
        right = None if b is None else self.b.kernel_place(b)
        if same and left is not None and right is not None and left.cost == right.cost:
            self.unchanged += 1
            return 0
        state, change = _state(left, right), self._change(left, right)
        self.kernels.append(d.KernelChange(state=state, same_formulas=same, a=left, b=right, change=change))
        return 1

    def _same_formulas(self, a: _Node, b: _Node) -> bool:
        texts = [
            (flops, access.read, access.write) for flops, access in (_cost_formulas(a.kernel), _cost_formulas(b.kernel))
        ]
        if a.runs == b.runs:
            return all(map(self.same, *texts))
        # More runs with lower costs may be equal; the number of runs is irrelevant if the costs are 0.
        return all(equal(mul(a.runs, parse(x)), mul(b.runs, parse(y))) for x, y in zip(*texts, strict=True))

    def _change(self, a: _AnyPlace | None, b: _AnyPlace | None) -> d.Costs | None:
        return _less(_cost(a), _cost(b), self.a.values is not None)


def _unpaired(a: Sequence[_Node], b: Sequence[_Node]) -> list[_Pair]:
    return [*((node, None) for node in a), *((None, node) for node in b)]


def _state(a: object, b: object) -> d.State:
    return "added" if a is None else "removed" if b is None else "changed"


_AnyPlace = d.KernelPlace | d.LinePlace | d.ModulePlace


def _cost(place: _AnyPlace | None) -> d.Costs | None:
    return None if place is None else place.cost


def _less(a: d.Costs | None, b: d.Costs | None, known: bool) -> d.Costs | None:
    """The costs of b minus those of a; a missing side has costs of 0."""
    if not known:
        return None
    nothing = d.Costs(**CostNumbers()._asdict())
    before, after = a or nothing, b or nothing
    return d.Costs(**{name: getattr(after, name) - getattr(before, name) for name in CostNumbers._fields})


# --- by line ---------------------------------------------------------------------------------------------------------

_SourceLine = tuple[str | None, int]


@dataclass
class _Line:
    """A line in both models, of one pair of modules, with all its kernels."""

    nodes: tuple[list[_Node], list[_Node]] = field(default_factory=lambda: ([], []))
    changed: bool = False


@dataclass
class _LineChanges:
    a: _Model
    b: _Model
    _found: dict[tuple[_SourceLine | None, _SourceLine | None], _Line] = field(default_factory=dict)

    def add(self, a: _Node | None, b: _Node | None, *, changed: bool) -> None:
        key = None if a is None else _source_line(a), None if b is None else _source_line(b)
        line = self._found.setdefault(key, _Line())
        line.changed = line.changed or changed
        for nodes, node in zip(line.nodes, (a, b), strict=True):
            if node is not None:
                nodes.append(node)

    def changes(self) -> list[d.LineChange]:
        self._join()
        found = []
        for line in self._found.values():
            if line.changed:
                a, b = (self._place(model, nodes) for model, nodes in zip((self.a, self.b), line.nodes, strict=True))
                change = _less(_cost(a), _cost(b), self.a.values is not None)
                found.append(d.LineChange(state=_state(a, b), a=a, b=b, change=change))
        return found

    def _join(self) -> None:
        """Move an operator that was added to, or removed from, a line of both models to that line."""
        for index in (0, 1):
            whole = {key[index]: key for key in reversed(self._found) if None not in key}
            for key in [key for key in self._found if key[1 - index] is None and key[index] in whole]:
                line, into = self._found.pop(key), self._found[whole[key[index]]]
                into.changed = into.changed or line.changed
                for nodes, more in zip(into.nodes, line.nodes, strict=True):
                    nodes.extend(more)

    def _place(self, model: _Model, nodes: list[_Node]) -> d.LinePlace | None:
        if not nodes:
            return None
        kernel, around = nodes[0].kernel, nodes[0].around
        costs = [cost for node in nodes if (cost := model.cost(node.kernel)) is not None]
        whole = {name: sum(getattr(cost, name) for cost in costs) for name in CostNumbers._fields} if costs else None
        return d.LinePlace(
            path=around.path,
            class_name=around.class_name,
            file=model.file(kernel, around.class_name),
            line=kernel.line,
            code=kernel.code,
            cost=None if whole is None else d.Costs(**whole),
        )


def _source_line(node: _Node) -> _SourceLine:
    return node.kernel.file, node.kernel.line


# --- the whole -------------------------------------------------------------------------------------------------------


def _compared(model: _Model, other: _Model) -> d.Compared:
    analysis = model.model
    statuses = {name: part.status for name, part in analysis.parts.items()}
    return d.Compared(
        given=model.side.given,
        class_name=analysis.class_name,
        config=analysis.config,
        distribution=analysis.source.distribution,
        version=analysis.source.version,
        attn_implementation=analysis.attn_implementation,
        dtype=analysis.dtype,
        verification=worst([analysis.verification.status, *statuses.values()]),
        not_verified={name: status for name, status in statuses.items() if status != "verified"},
        uncounted={name: part.uncounted for name, part in analysis.parts.items() if part.uncounted},
        values=None if model.values is None else dict(model.values),
        assumptions=[text for text in analysis.assumptions if text not in other.model.assumptions],
        violated_assumptions=[] if model.values is None else model.numbers.violated(model.values),
    )


def _values_that_differ(a: _Model, b: _Model) -> dict[str, tuple[Number | None, Number | None]]:
    ours, theirs = _values(a), _values(b)
    names = dict.fromkeys([*ours, *theirs])
    return {name: (ours.get(name), theirs.get(name)) for name in names if ours.get(name) != theirs.get(name)}


def _values(model: _Model) -> Point:
    return model.model.values if model.values is None else model.values


def _totals(a: _Model, b: _Model, same: Callable[[str, str], bool]) -> dict[d.TotalName, d.Total]:
    ours, theirs = _terms(a), _terms(b)
    found: dict[d.TotalName, d.Total] = {}
    for name in get_args(d.TotalName):
        before, after = ours.get(name), theirs.get(name)
        agree = before is after if before is None or after is None else same(before.formula, after.formula)
        old, new = _value_if_known(before), _value_if_known(after)
        change = None if old is None or new is None else new - old
        found[name] = d.Total(a=before, b=after, same_formula=agree, change=change, relative=_relative(old, new))
    return found


def _terms(model: _Model) -> dict[str, d.Term]:
    values = None if model.values is None else model.numbers.totals(model.values)
    return {
        name: d.Term(formula=to_text(formula), value=None if values is None else getattr(values, name))
        for name, formula in model.numbers.quantities.items()
    }


def _relative(before: Number | None, after: Number | None) -> float | None:
    if not before or after is None:
        return None
    try:
        return float(Fraction(after - before, before))
    except OverflowError:
        return None
