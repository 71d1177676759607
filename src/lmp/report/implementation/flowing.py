"""The data flow inside of one component: its steps level by level, by what each takes from which, as a run shows it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lmp.observe.flow import Flow, Op
from lmp.observe.flow import Line as Place
from lmp.report.implementation.classes import Component
from lmp.report.implementation.drawing import WIDTH
from lmp.report.implementation.naming import inspected, kind_of_layer

MOST_WORDS = 2


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
    level: int = 0


def flow_rows(component: Component) -> tuple[str, list[str]] | None:
    """What is shown, and a line a level: its steps with the numbers of those they take from. None: no run shows it."""
    for phase, flow in component.facts.flows.phases.items():
        for path in component.paths:
            steps = _steps(flow, path)
            if steps:
                where = f" in {path}" if any(part.isdigit() for part in path.split(".")) else ""
                run = f"a run of {phase}" if component.facts.called(phase) == phase else component.facts.called(phase)
                return f"as {run} shows it{where}; after ◄ the steps that one takes from", list(_rows(component, steps))
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
    for step in steps:
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


# --- lines -----------------------------------------------------------------------------------------------------------


def _rows(component: Component, steps: list[Step]) -> Iterator[str]:
    levels: dict[int, list[Step]] = {}
    for step in steps:
        levels.setdefault(step.level, []).append(step)
    for index, level in enumerate(sorted(levels)):
        line = "  ·  ".join(_label(component, step) for step in levels[level])
        text = f"{'→ ' if index else '  '}{line}"
        yield text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"


def _label(component: Component, step: Step) -> str:
    takes = ", ".join(f"{t}" if isinstance(t, int) else t for t in step.takes)
    after = f" ◄ {takes}" if takes else ""
    if step.child is not None:
        return f"({step.number}) {_called(component, step.child)}{_times(component, step.child)}{after}"
    words = list(dict.fromkeys(op.words for op in step.ops))
    more = f" and {len(step.ops) - MOST_WORDS} more" if len(step.ops) > MOST_WORDS else ""
    return f"({step.number}) line {step.line}: {', '.join(words[:MOST_WORDS])}{more}{after}"


def _called(component: Component, path: str) -> str:
    """The last part of a module's path; of a layer that stands for several the name of all of them."""
    last = path.rpartition(".")[2]
    if not last.isdigit():
        return last
    found = inspected(component.facts).get(path)
    return found.name if found is not None else path


def _times(component: Component, path: str) -> str:
    """How many layers a step stands for, and of what kind they are."""
    found = inspected(component.facts).get(path)
    if found is None or found.repeat < 2:
        return ""
    kind = kind_of_layer(component.facts, path)
    return f" ×{found.repeat}{f' ({kind})' if kind else ''}"
