"""The steps of one call that a diagram shows: operators of a leaf module, or of one statement, together."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from lmp.observe.flow import Flow, Op
from lmp.records import short
from lmp.report.facts import ModelFacts
from lmp.report.implementation.operators import PRODUCTS, Kind, kinds_of, layer_of, shape_of, shape_text


@dataclass
class Step:
    """Operators that a diagram shows as one: those of a leaf module, or of one statement."""

    number: int
    label: str
    what: str
    kind: Kind | None
    ops: list[Op]
    depends: list[Step] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    """What it takes that was there before the call: inputs, the KV cache."""
    from_layer_before: bool = False
    taken: list[Op] = field(default_factory=list)
    """Its operators whose results other steps take."""
    keeps: bool = False
    """Whether the KV cache has its results from then on."""
    wholes: dict[int, str] = field(default_factory=dict)
    """Operators that write a part of a tensor -> shape of the tensor that others take."""

    @property
    def shapes(self) -> list[str]:
        """Of the results that other steps take, the largest first; of its last one where they take none."""
        largest = sorted(self.taken or self.ops[-1:], key=lambda op: (math.prod(op.sizes), op.index), reverse=True)
        return list(dict.fromkeys(self.wholes.get(op.index) or shape_text(op) for op in largest))

    @property
    def shape(self) -> str:
        """The shapes as text: both of two, or the largest and how many more there are."""
        first, *others = self.shapes
        if len(others) > 1:
            return f"{first} and {len(others)} more"
        return " and ".join([first, *others])

    @property
    def products(self) -> list[Op]:
        return [op for op in self.ops if op.category in PRODUCTS]


def steps_of(facts: ModelFacts, flow: Flow) -> list[Step]:
    """The steps of one call, in order; of layers that are alike the first."""
    kinds = kinds_of(facts, flow)
    shown = {(kind.stack, kind.run): kind for kind in kinds}
    stacks = {kind.stack for kind in kinds}
    leaves = _leaves(flow)
    steps: list[Step] = []
    by_op: dict[int, Step] = {}
    skipped: set[int] = set()
    last: object = None
    for op in flow.ops:
        found = layer_of(op.frames[0].path)
        kind = shown.get((found[0], found[1])) if found else None
        if found is not None and found[0] in stacks and kind is None:
            skipped.add(op.index)
            continue
        key, label, what = _unit(op, leaves, facts.model.class_name)
        if (key, kind) != last or not steps:
            steps.append(Step(len(steps) + 1, label, what, kind, []))
            last = (key, kind)
        steps[-1].ops.append(op)
        by_op[op.index] = steps[-1]
    for step in steps:
        _connect(step, by_op, skipped, flow)
        step.label = _named(step, flow)
    return steps


def _leaves(flow: Flow) -> dict[str, bool]:
    """Modules that run operators and have no module below them that does -> whether they have a matrix product."""
    paths = {op.frames[0].path for op in flow.ops}
    products = {op.frames[0].path for op in flow.ops if op.category in PRODUCTS}
    leaves = (path for path in paths if path and not any(other.startswith(f"{path}.") for other in paths))
    return {path: path in products for path in leaves}


def _unit(op: Op, leaves: dict[str, bool], root: str) -> tuple[object, str, str]:
    """What an operator is shown as a part of: identity, label, and the class."""
    frame = op.frames[0]
    found = layer_of(frame.path)
    local = found[2] if found else frame.path
    what = short(frame.class_name)
    if frame.path in leaves and (not leaves[frame.path] or frame.class_name.startswith("torch.")):
        return frame.path, local or frame.path, what
    if op.category in PRODUCTS:
        return (frame.path, op.index), f"{local}: {op.words}".lstrip(": "), what
    helpers = _helpers(op)
    if helpers:
        return (frame.path, helpers[-1]), f"{local}: {helpers[-1]}()".lstrip(": "), what
    if frame.path in leaves:
        return (frame.path, "between"), f"{local}: {op.words}".lstrip(": "), what
    return (frame.path, frame.lines[-1].line), f"{local}: {op.words}".lstrip(": "), what


def _named(step: Step, flow: Flow) -> str:
    """Its label: the function that all of it stands in, or what it does where products cut the function in parts."""
    local, colon, said = step.label.rpartition(": ")
    if said.endswith("()"):
        path, helper = step.ops[0].frames[0].path, said.removesuffix("()")
        products = [op for op in flow.ops if op.category in PRODUCTS and op.frames[0].path == path]
        cutting = [set(_helpers(op)) for op in products if helper in _helpers(op)]
        if not cutting:
            return step.label
        inner = next((f for f in _helpers(step.ops[0]) if all(f in _helpers(op) for op in step.ops)), helper)
        if not any(inner in functions for functions in cutting):
            return f"{local}{colon}{inner}()"
    elif not said.endswith(step.ops[0].words):
        return step.label
    return f"{local}{colon}{_span([op.words for op in step.ops])}"


def _span(words: list[str]) -> str:
    """What operators do one after another: the first and the last of many."""
    different = list(dict.fromkeys(words))
    if len(different) == 1:
        return words[0] if len(words) == 1 else f"{words[0]} ×{len(words)}"
    return ", ".join(words) if len(words) == 2 else f"{words[0]} … {words[-1]}"


def _helpers(op: Op) -> list[str]:
    """The functions that an operator of a module stands in, the innermost first."""
    return [line.function for line in op.frames[0].lines if line.function not in PASSING]


PASSING = ("forward", "wrapper", "wrapped", "inner")
"""Functions that say nothing of what is done in them: decorators' and the module's own."""


def _connect(step: Step, by_op: dict[int, Step], skipped: set[int], flow: Flow) -> None:
    for op in step.ops:
        for index in op.depends:
            other = by_op.get(index)
            if other is None:
                step.from_layer_before |= index in skipped
            elif other is not step:
                made = flow.ops[index]
                other.taken += [] if made in other.taken else [made]
                step.depends += [] if other in step.depends else [other]
        for position in op.inputs:
            tensor = flow.tensors[position]
            if tensor.maker is None and tensor.bytes and tensor.kind in ("input", "cache"):
                name = "KV cache" if tensor.kind == "cache" else "input"
                if name not in step.before:
                    step.before.append(name)
        for position in op.outputs:
            whole = flow.tensors[position].whole
            if whole is not None:
                step.wholes[op.index] = shape_of(whole)
            step.keeps |= flow.tensors[position].kind == "cache"
    step.depends.sort(key=lambda s: s.number)
