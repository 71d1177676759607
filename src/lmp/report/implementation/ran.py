"""What of a class runs in this model: its operators in the order of a run, phase by phase, and what of it never does.

A class's analysis has every line that could run, in the class's own variables; a run has the operators that do, with
their shapes in the model's.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lmp.errors import LmpError
from lmp.formula import Div, Expr, Mul, Where, evaluate, num, parse, simplify, simplify_condition, substitute, to_text
from lmp.formula.nodes import Condition
from lmp.observe.flow import Line, Op
from lmp.records import Kernel
from lmp.report.facts import ModelFacts
from lmp.report.implementation.classes import Component
from lmp.report.implementation.compulsory import RUNTIME, Scope, scope_at
from lmp.report.implementation.naming import plain_formula

LIBRARY = "torch"
"""What stands in its files between a line and its operator is not told."""


@dataclass(frozen=True)
class Item:
    """An operator, or a call of a submodule, with the lines that lead to it, that of forward() first."""

    chain: tuple[Line, ...]
    child: str | None
    """Path of the submodule that runs there."""
    ops: Mapping[str, Op]
    """Phase -> the operator, or the first of the submodule's; without the phases in which it does not run."""

    @property
    def op(self) -> Op:
        return next(iter(self.ops.values()))


@dataclass(frozen=True, eq=False)
class Left:
    """Kernels of the class that ran in none of the runs shown, by what they run for."""

    condition: str | None
    """In the model's sizes of a run; None: nothing runs at this config."""
    kernels: tuple[Kernel, ...]
    is_stated: bool
    """Whether they cost something at a point of the report all the same."""


def instance_of(component: Component) -> str:
    """The module whose run is told: the first one that runs."""
    for path in component.paths:
        if any(_of(component, flow.ops, path) for flow in component.facts.flows.phases.values()):
            return path
    return component.paths[0]


@functools.lru_cache(maxsize=256)
def items_of(component: Component, path: str) -> tuple[Item, ...]:
    """What runs in one call of the module at a path, the phases in one sequence."""
    merged: list[Item] = []
    for phase, flow in component.facts.flows.phases.items():
        found = [Item(chain, child, {phase: op}) for chain, child, op in _of(component, flow.ops, path)]
        merged = _merged(merged, found) if merged else found
    return tuple(merged)


def _of(component: Component, ops: Sequence[Op], path: str) -> list[tuple[tuple[Line, ...], str | None, Op]]:
    found: list[tuple[tuple[Line, ...], str | None, Op]] = []
    own = _file(component, None)
    for op in ops:
        depth = next((i for i, frame in enumerate(op.frames) if frame.path == path), None)
        if depth is None:
            continue
        lines = tuple(reversed(op.frames[depth].lines))
        chain = (*lines[:1], *(line for line in lines[1:] if line.file == own or not _is_of_library(line)))
        child = op.frames[depth - 1].path if depth else None
        if child is not None and found and found[-1][:2] == (chain, child):
            continue
        found.append((chain, child, op))
    return found


def _is_of_library(line: Line) -> bool:
    return line.file.partition("/")[0] == LIBRARY


def _merged(one: list[Item], other: list[Item]) -> list[Item]:
    """Two sequences in one: what both have once."""
    matcher = difflib.SequenceMatcher(None, [_key(i) for i in one], [_key(i) for i in other], autojunk=False)
    merged: list[Item] = []
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            both = zip(one[a:b], other[c:d], strict=True)
            merged += [Item(x.chain, x.child, {**x.ops, **y.ops}) for x, y in both]
        else:
            merged += [*one[a:b], *other[c:d]]
    return merged


def _key(item: Item) -> tuple[tuple[Line, ...], str | None, str]:
    return item.chain, item.child, "" if item.child is not None else item.op.name


# --- shapes ----------------------------------------------------------------------------------------------------------


def shapes_told(component: Component, item: Item) -> str:
    """Operands and result; of each phase where no formula holds in all of them."""
    flows = component.facts.flows.phases
    texts = {phase: _shapes(op) for phase, op in item.ops.items()}
    for phase, op in item.ops.items():
        if texts[phase] is not None and all(
            _equal(op, other, flows[name].values) for name, other in item.ops.items() if name != phase
        ):
            return texts[phase] or ""
    known = {phase: text for phase, text in texts.items() if text is not None}
    if len(set(known.values())) == 1:
        return next(iter(known.values()))
    return "; ".join(f"in {phase} {text}" for phase, text in known.items())


def _shapes(op: Op) -> str | None:
    if op.shape is None:
        return None
    result = _shape(op.shape)
    if op.operands is None:
        return f"-> {result}"
    return f"{', '.join(map(_shape, op.operands)) or 'nothing'} -> {result}"


def _shape(shape: Sequence[str]) -> str:
    return f"[{', '.join(map(plain_formula, shape))}]"


def _equal(op: Op, other: Op, values: Mapping[str, int]) -> bool:
    """Whether the formulas of an operator hold at the run of another one; unknown ones of that are no objection."""
    if op.shape is None:
        return False
    if other.shape is None or other.operands is None or op.operands is None:
        return _sizes([op.shape], values) == [list(other.sizes)] if other.sizes else True
    return _sizes([*op.operands, op.shape], values) == _sizes([*other.operands, other.shape], values)


def _sizes(shapes: Sequence[Sequence[str]], values: Mapping[str, int]) -> list[list[int]] | None:
    try:
        return [[int(evaluate(parse(size), values)) for size in shape] for shape in shapes]
    except LmpError:
        return None


# --- conditions ------------------------------------------------------------------------------------------------------


def condition_of(component: Component, kernel: Kernel, path: str) -> str | None:
    """When a kernel costs anything, in the sizes of a run; empty: always; None: never at this config."""
    scope = scope_at(component.facts, component.class_name, path)
    if scope is None:
        return ""
    found: list[str] = []
    costs = [_settled(component.facts, text, scope) for text in _formulas(kernel)]
    for cost in costs:
        if cost == num(0):
            continue
        gate = gate_of(cost)
        if gate is None:
            return ""
        found.append(_plain(simplify_condition(gate)))
    return " or ".join(dict.fromkeys(found)) if found else None


def gate_of(formula: Expr) -> Condition | None:
    """The condition outside of which a formula is 0, where it is written so."""
    match formula:
        case Where(condition=condition, otherwise=otherwise) if otherwise == num(0):
            return condition
        case Mul(factors=factors):
            return next((gate for gate in map(gate_of, factors) if gate is not None), None)
        case Div(left, _):
            return gate_of(left)
    return None


def _formulas(kernel: Kernel) -> tuple[str, str, str]:
    return kernel.flops, kernel.memory_access.read, kernel.memory_access.write


def _settled(facts: ModelFacts, text: str, scope: Scope) -> Expr:
    """A class's formula in the sizes of a run, every value of the config put in."""
    from lmp.formula import settled

    fixed = {name: value for name, value in facts.points[0].values.items() if name not in RUNTIME}
    formula = substitute(parse(text), dict(scope))
    return simplify(settled([formula], fixed)[0])


def _plain(condition: Condition) -> str:
    return plain_formula(to_text(condition))


# --- what does not run -----------------------------------------------------------------------------------------------


def left_of(component: Component, path: str) -> Iterator[Left]:
    """Kernels that the class has and none of the runs of its instances shows."""
    facts = component.facts
    ran = {_place(line.file, line.line, op.words) for line, op in _executed(component)}
    stated = {
        _place(_file(component, k.kernel.file), k.kernel.line, k.kernel.operation)
        for point in facts.points
        for k in facts.kernels(point)
        if k.class_name == component.class_name and k.once.bytes
    }
    groups: dict[tuple[str | None, bool], list[Kernel]] = {}
    for kernel in component.analysis.kernels:
        is_own = kernel.kernel_type == "basic" and kernel.category != "call"
        moved = {kernel.memory_access.read, kernel.memory_access.write} != {"0"}
        place = _place(_file(component, kernel.file), kernel.line, kernel.operation)
        if is_own and moved and place not in ran:
            key = (condition_of(component, kernel, path), place in stated)
            groups.setdefault(key, []).append(kernel)
    for (condition, is_stated), kernels in groups.items():
        yield Left(condition, tuple(kernels), is_stated)


def only_elsewhere(component: Component, path: str) -> dict[str, list[Item]]:
    """Other instances of the class -> what runs in them and not in the one at ``path``; those alike once."""
    known = {_key(item)[::2] for item in items_of(component, path)}
    found: dict[str, list[Item]] = {}
    told: set[tuple[object, ...]] = set()
    for other in component.paths:
        more = [i for i in items_of(component, other) if i.child is None and _key(i)[::2] not in known]
        keys = tuple(_key(i)[::2] for i in more)
        if more and keys not in told:
            told.add(keys)
            found[other] = more
    return found


def _executed(component: Component) -> Iterator[tuple[Line, Op]]:
    for path in component.paths:
        for item in items_of(component, path):
            if item.child is None:
                for op in item.ops.values():
                    yield from ((line, op) for line in item.chain)


def _file(component: Component, file: str | None) -> str:
    return component.facts.sources[component.class_name].forward_file if file is None else file


def _place(file: str, line: int, words: str) -> tuple[str, int, str]:
    return file, line, plainly(words)


def plainly(words: str) -> str:
    """What an operator does, without how often it runs there and whether it is causal."""
    return re.sub(r", \d+ times$", "", words).removesuffix(" (causal)")


def kernel_of(component: Component, item: Item) -> Kernel | None:
    """What the class's analysis has for an operator."""
    words = plainly(item.op.words)
    lines = {(line.file, line.line) for line in item.chain}
    for kernel in component.analysis.kernels:
        if plainly(kernel.operation) == words and (_file(component, kernel.file), kernel.line) in lines:
            return kernel
    return None
