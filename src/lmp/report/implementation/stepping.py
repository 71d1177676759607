"""The steps of one call that a diagram shows: operators of a leaf module, or of one statement, together."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from lmp.pipeline.flow import Flow, Op
from lmp.report.facts import ModelFacts, short
from lmp.report.implementation.operators import PRODUCTS, Kind, kinds_of, layer_of, shape_text


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

    @property
    def shape(self) -> str:
        """Of the largest result that other steps take; of its last one where they take none."""
        largest = max(self.taken or self.ops[-1:], key=lambda op: (math.prod(op.sizes), op.index))
        return shape_text(largest)

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
        if step.label.endswith(f": {step.ops[0].words}") and len(step.ops) > 1:
            step.label += f" and {len(step.ops) - 1} more"
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
    helper = next((line.function for line in reversed(frame.lines) if line.function not in PASSING), None)
    if helper is not None:
        return (frame.path, helper), f"{local}: {helper}()".lstrip(": "), what
    if frame.path in leaves:
        return (frame.path, "between"), f"{local}: {op.words}".lstrip(": "), what
    return (frame.path, frame.lines[-1].line), f"{local}: {op.words}".lstrip(": "), what


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
    step.depends.sort(key=lambda s: s.number)
