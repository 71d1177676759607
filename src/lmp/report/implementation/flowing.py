"""The data flow inside of one component: its steps as boxes, by what each takes from which, as a run shows it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lmp.observe.flow import Flow, Op
from lmp.observe.flow import Line as Place
from lmp.records import short
from lmp.report.implementation.classes import Component
from lmp.report.implementation.drawing import WIDTH, Row, boxed, length, wrapped
from lmp.report.implementation.naming import inspected, kind_of_layer, plain_formula

MOST_BESIDE = 3
"""Boxes in one row."""

MOST_WORDS = 4


@dataclass
class Step:
    """Operators of one submodule, or of one line of the component itself, that run one after another."""

    number: int
    child: str | None
    line: int
    function: str
    """That the line stands in; "forward" of the component's own."""
    ops: list[Op] = field(default_factory=list)
    takes: list[int | str] = field(default_factory=list)
    """Numbers of steps, and names of what comes from outside."""
    gives: list[tuple[str, ...]] = field(default_factory=list)
    """Shapes of what others take of it; of the last step, and of one that none takes from, of what it ends in."""
    level: int = 0


def drawn(component: Component) -> tuple[str, list[Row]] | None:
    """What is shown, and the diagram; None where no run of the class was looked at."""
    for phase, flow in component.facts.flows.phases.items():
        for path in component.paths:
            steps = _steps(flow, path)
            if steps:
                functions = dict.fromkeys(step.function for step in steps if step.child is None)
                names = " and ".join(f"{name}()" for name in functions) or "forward()"
                run = f"a run of {phase}" if component.facts.called(phase) == phase else component.facts.called(phase)
                where = f" in {path}" if any(part.isdigit() for part in path.split(".")) else ""
                return f"as {run} shows it{where}, by lines of {names}", list(_rows(component, steps))
    return None


def _steps(flow: Flow, path: str) -> list[Step]:
    steps: list[Step] = []
    belongs: dict[int, int] = {}
    ops = {op.index: op for op in flow.ops}
    inside = {op.index: depth for op in flow.ops if (depth := _depth(op, path)) is not None}
    outer = _shared_lines([ops[index].frames[depth].lines for index, depth in inside.items()])
    for index, depth in inside.items():
        op = ops[index]
        child = op.frames[depth - 1].path if depth else None
        lines = op.frames[depth].lines
        place = lines[-1 - min(outer, len(lines) - 1)] if lines else Place("", 0, "")
        same = steps and (steps[-1].child, steps[-1].line) == (child, place.line)
        if not same:
            steps.append(Step(len(steps) + 1, child, place.line, place.function))
        step = steps[-1]
        step.ops.append(op)
        belongs[op.index] = step.number
    taken = {index for op in flow.ops for index in op.depends if belongs.get(index) != belongs.get(op.index)}
    for step in steps:
        given = [op for op in step.ops if op.index in taken] or step.ops[-1:]
        step.gives = list(dict.fromkeys(op.shape for op in given if op.shape is not None))
        step.takes = list(dict.fromkeys(_sources(step, belongs, ops, path, flow)))
        inner = [steps[n - 1].level for n in step.takes if isinstance(n, int)]
        step.level = 1 + max(inner) if inner else 0
    return steps


def _depth(op: Op, path: str) -> int | None:
    """Which of an operator's frames is the component's."""
    return next((i for i, frame in enumerate(op.frames) if frame.path == path), None)


def _shared_lines(chains: Sequence[Sequence[Place]]) -> int:
    """How many lines, from forward() on, lead to everything: a forward() that only calls a function says little."""
    shortest = min((len(chain) for chain in chains), default=0)
    count = 0
    while len(chains) > 1 and count < shortest - 1 and len({chain[-1 - count] for chain in chains}) == 1:
        count += 1
    return count


def _sources(step: Step, belongs: dict[int, int], ops: dict[int, Op], path: str, flow: Flow) -> Iterator[int | str]:
    for op in step.ops:
        for index in op.depends:
            number = belongs.get(index)
            if number is None:
                yield _outside(ops[index], path, flow)
            elif number != step.number:
                yield number
        for index in op.inputs:
            tensor = flow.tensors[index]
            if tensor.maker is None and tensor.bytes and tensor.kind in ("input", "cache"):
                yield "KV cache" if tensor.kind == "cache" else "input"


def _outside(op: Op, path: str, flow: Flow) -> str:
    """What a result from outside is called: the module beside the component, or around it, that made it."""
    parts = path.split(".")
    for frame in reversed(op.frames):
        own = frame.path.split(".") if frame.path else []
        if own and own != parts[: len(own)]:
            return ".".join(own[len(_common(own, parts)) :])
    inner = op.frames[0]
    if not inner.lines:
        return "input"
    # The line by which the caller's own diagram calls it: past a forward() that only calls a function.
    chains = [frame.lines for other in flow.ops for frame in other.frames if frame.path == inner.path]
    place = inner.lines[-1 - min(_shared_lines(chains), len(inner.lines) - 1)]
    said = f"the caller's line {place.line}"
    return said if place.function == "forward" else f"{said} of {place.function}()"


def _common(one: Sequence[str], other: Sequence[str]) -> list[str]:
    found = []
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        found.append(a)
    return found


# --- drawing ---------------------------------------------------------------------------------------------------------


def _rows(component: Component, steps: list[Step]) -> Iterator[Row]:
    levels: dict[int, list[Step]] = {}
    for step in steps:
        levels.setdefault(step.level, []).append(step)
    widest = max(len(found) for found in levels.values())
    for index, level in enumerate(sorted(levels)):
        found = levels[level]
        for start in range(0, len(found), MOST_BESIDE):
            beside = found[start : start + MOST_BESIDE]
            if index and not start:
                yield _arrows(len(beside), widest)
            yield from _beside([_box(component, step, steps, _width(len(beside), widest)) for step in beside])


def _width(count: int, widest: int) -> int:
    if count == 1:
        return 72 if widest == 1 else WIDTH
    return (WIDTH - (count - 1) * 2) // count


def _arrows(count: int, widest: int) -> Row:
    width = _width(count, widest)
    row = ""
    for index in range(count):
        middle = index * (width + 2) + width // 2
        row = row.ljust(middle) + "▼"
    return [row]


def _box(component: Component, step: Step, others: Sequence[Step], width: int) -> list[Row]:
    inner = width - 4
    rows: list[Row] = []
    takes = ", ".join(f"({t})" if isinstance(t, int) else t for t in step.takes)
    last = step.ops[-1]
    shapes = step.gives
    if step.child is not None:
        text = f"({step.number}) {_called(component, step.child)}: {_class_name(component, step.child, last)}"
        text += _times(component, step.child)
        # Of a module that is called several times only the first call's result is known.
        is_first = not any(other.child == step.child and other.number < step.number for other in others)
        returned = _flow_shape(component, step.child) if is_first else None
        shapes = [returned] if returned is not None else shapes
    else:
        words = list(dict.fromkeys(op.words for op in step.ops))
        more = f" … ({len(step.ops)} operators)" if len(words) > MOST_WORDS else ""
        text = f"({step.number}) line {step.line}: {', '.join(words[:MOST_WORDS])}{more}"
    for line in wrapped(text, inner, "", "    "):
        rows.append([line])
    if takes:
        rows += [[line] for line in wrapped(f"takes {takes}", inner, "    ", "      ")]
    if step.child is not None and component.facts.flows.phases:
        rows += [[line] for line in wrapped(_later(component, step, others), inner, "    ", "      ")]
    for shape in shapes:
        rows += [[line] for line in wrapped(f"→ [{', '.join(map(plain_formula, shape))}]", inner, "    ", "      ")]
    return boxed(rows, width)


def _called(component: Component, path: str) -> str:
    """The last part of a module's path; of a layer that stands for several the name of all of them."""
    last = path.rpartition(".")[2]
    if not last.isdigit():
        return last
    found = inspected(component.facts).get(path)
    return found.name if found is not None else path


def _class_name(component: Component, path: str, last: Op) -> str:
    call = next((c for c in component.facts.observed.calls if c.path == path), None)
    return short(call.class_name if call is not None else last.frames[0].class_name)


def _times(component: Component, path: str) -> str:
    """How many layers a box stands for, and of what kind they are."""
    found = inspected(component.facts).get(path)
    if found is None or found.repeat < 2:
        return ""
    kind = kind_of_layer(component.facts, path)
    return f" ×{found.repeat}{f' ({kind})' if kind else ''}"


def _later(component: Component, step: Step, others: Sequence[Step]) -> str:
    """What layers after the first of a kind take; and which other boxes they take turns with."""
    known = inspected(component.facts)
    found = known.get(step.child or "")
    if found is None or found.repeat < 2:
        return ""
    mine = range(found.indices[0], found.indices[-1]) if found.indices else range(0)
    turns = [
        f"({other.number})"
        for other in others
        if other is not step and (one := known.get(other.child or "")) is not None and set(one.indices) & set(mine)
    ]
    in_turn = f"; in turn with {', '.join(turns)}" if turns else ""
    return f"after the first: the layer before{in_turn}"


def _flow_shape(component: Component, path: str) -> tuple[str, ...] | None:
    for flow in component.facts.flows.phases.values():
        if path in flow.outputs:
            return flow.outputs[path]
    return None


def _beside(boxes: list[list[Row]]) -> Iterator[Row]:
    height = max(len(box) for box in boxes)
    widths = [length(box[0]) for box in boxes]
    padded = []
    for box, width in zip(boxes, widths, strict=True):
        empty: Row = ["│" + " " * (width - 2) + "│"]
        padded.append([*box[:-1], *[empty] * (height - len(box)), box[-1]])
    for line in range(height):
        row: Row = []
        for index, box in enumerate(padded):
            row += [*(["  "] if index else []), *box[line]]
        yield row
