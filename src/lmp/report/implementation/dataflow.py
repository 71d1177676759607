"""Section 6: the forward pass as it runs, and what depends on what."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from lmp.formula import evaluate, parse
from lmp.observe.flow import Flow
from lmp.records import short
from lmp.report.document.parts import Fence, Mermaid, Node
from lmp.report.facts import ModelFacts
from lmp.report.implementation.drawing import wrapped
from lmp.report.implementation.operators import Kind, is_run, shape_of
from lmp.report.implementation.stepping import Step, steps_of

WIDTH = 100


@dataclass(frozen=True)
class Pass:
    """One call as it runs, with one layer of each kind."""

    called: str
    brief: Fence
    """Steps in order."""
    drawn: Fence
    """Each step with what comes out of it."""
    groups: tuple[Group, ...]


@dataclass(frozen=True)
class Group:
    """The steps of one kind of layer; of a class without layers all of them."""

    name: str
    steps: int
    chain: int
    """Steps that depend on one another, the longest chain."""
    widest: str
    """The largest set of steps that do not depend on one another."""
    graph: Mermaid
    levels: Fence


def forward_pass(facts: ModelFacts) -> Pass | None:
    """Drawn from the first phase that was run; None where none was."""
    for phase, flow in facts.flows.phases.items():
        steps = steps_of(facts, flow)
        brief, drawn = "\n".join(_brief(facts, flow, steps)), "\n".join(_drawn(facts, flow, steps))
        groups: dict[Kind, list[Step]] = {}
        for step in steps:
            if step.kind is not None:
                groups.setdefault(step.kind, []).append(step)
        told = tuple(_group(group) for group in groups.values() or [steps])
        return Pass(facts.called(phase), Fence(brief, "text"), Fence(drawn, "text"), told)
    return None


def _group(steps: Sequence[Step]) -> Group:
    levels = levels_of(steps)
    kind = steps[0].kind
    name = f"{kind.name} ({short(kind.class_name) or kind.path})" if kind is not None else "all steps"
    widest = ", ".join(f"{s.number} {s.label}" for s in max(levels, key=len))
    return Group(name, len(steps), len(levels), widest, _mermaid(steps), Fence("\n".join(_levels(steps)), "text"))


def differences(facts: ModelFacts) -> dict[str, list[str]]:
    """Labels of the steps that a decode call does otherwise: reads the cache, grows with it, or runs alone."""
    if len(facts.flows.phases) < 2:
        return {}
    first, other = list(facts.flows.phases.values())[:2]
    before, after = steps_of(facts, first), steps_of(facts, other)
    labels = ([s.label for s in before], [s.label for s in after])
    found = {
        "reads the KV cache": [s.label for s in after if "KV cache" in s.before],
        "has products that grow with the cache": [s.label for s in after if "cache_len" in s.shape and s.products],
        "only in prefill": [label for label in labels[0] if label not in labels[1]],
        "only in decode": [label for label in labels[1] if label not in labels[0]],
    }
    return {what: list(dict.fromkeys(names)) for what, names in found.items() if names}


MOST_LINES, MOST_KINDS = 5, 2
"""Lines of one kind of layer, and kinds of layers, that are drawn."""


def _brief(facts: ModelFacts, flow: Flow, steps: Sequence[Step]) -> Iterator[str]:
    """Steps one after another; a frame's name before those of each kind of layer."""
    inputs = next(iter(facts.model.interface), "inputs")
    yield from wrapped(f"{inputs} {_short_shape(facts, inputs)}".rstrip(), WIDTH, "", "  ")
    drawn = 0
    for kind, group in groupby(steps, key=lambda step: step.kind):
        text = "→ " + " → ".join(f"{s.number} {s.label}" for s in group)
        if kind is None:
            yield from wrapped(text, WIDTH, "", "  ")
            continue
        drawn += 1
        if drawn > MOST_KINDS:
            title = f"{kind.name}: {short(kind.class_name)}{f' ×{kind.count}' if kind.count > 1 else ''}"
            yield from wrapped(f"{title}: see the appendix", WIDTH, "", "  ")
            continue
        lines = list(wrapped(text, WIDTH - 2, "│ ", "│   "))
        title = f"┌─ {kind.name}: {short(kind.class_name)}{f' ×{kind.count}' if kind.count > 1 else ''}"
        yield title if len(title) <= WIDTH else f"{title[: WIDTH - 1]}…"
        yield from lines[:MOST_LINES]
        if len(lines) > MOST_LINES:
            yield "│   …"
        yield "└─"
    yield from wrapped(f"▼ {_result(facts, flow, steps)}", WIDTH, "", "  ")


def _drawn(facts: ModelFacts, flow: Flow, steps: Sequence[Step]) -> Iterator[str]:
    inputs = next(iter(facts.model.interface), "inputs")
    yield from wrapped(f"{inputs} {_short_shape(facts, inputs)}".rstrip(), WIDTH, "", "  ")
    yield "│"
    for kind, group in groupby(steps, key=lambda step: step.kind):
        inside = list(group)
        if kind is not None:
            how = "one after another" if is_run(kind) else "in turn with the other kinds of the stack"
            times = f" ({kind.count} times, {how})" if kind.count > 1 else ""
            title = f"┌─ {kind.name}: {short(kind.class_name)}{times} "
            title = title if len(title) < WIDTH - 1 else f"{title[: WIDTH - 4]}… "
            yield title + "─" * (WIDTH - 1 - len(title)) + "┐"
        for step in inside:
            yield from _boxed(_step_lines(step), kind is not None)
        if kind is not None:
            yield "└" + "─" * (WIDTH - 2) + "┘"
    yield "▼"
    yield from wrapped(_result(facts, flow, steps), WIDTH, "", "  ")


def _short_shape(facts: ModelFacts, name: str) -> str:
    shape = facts.model.interface.get(name)
    return "" if shape is None else f"[{', '.join(size.replace('{', '').replace('}', '') for size in shape)}]"


def _boxed(lines: Iterator[str], inside: bool) -> Iterator[str]:
    for line in lines:
        yield f"│ {line:<{WIDTH - 4}} │" if inside else f"│ {line}".rstrip()


def _step_lines(step: Step) -> Iterator[str]:
    """Number, label and sources on one line where they fit, the shapes beside them or below."""
    sources = [str(other.number) for other in step.depends]
    if step.from_layer_before:
        sources.append("the layer before")
    sources += step.before
    head = f"{step.number:>3} {step.label}"
    tail = f"◄ {', '.join(sources)}" if sources else ""
    room = WIDTH - 4
    line = f"{head:<38} {step.shape}"
    if len(line) + len(tail) + 2 <= room:
        yield f"{line}{tail:>{room - len(line)}}" if tail else line
        return
    if len(head) + len(tail) + 2 <= room:
        yield f"{head}{tail:>{room - len(head)}}"
    else:
        yield from wrapped(f"{head} {tail}", room, "", "      ")
    shapes = [step.shape] if len(step.shape) + 6 <= room else step.shape.split(" and ")
    for number, shape in enumerate(shapes):
        yield from wrapped(f"{'and ' if number else ''}{shape}", room, "      ", "        ")


def _result(facts: ModelFacts, flow: Flow, steps: Sequence[Step]) -> str:
    """What the call returns: the shape of its own output, where that is what the last step made."""
    made, last = steps[-1].shape, steps[-1].ops[-1]
    shape = flow.outputs.get("", ())
    if shape and math.prod(int(evaluate(parse(size), flow.values)) for size in shape) == math.prod(last.sizes):
        made = shape_of(shape)
    return f"{made} and the KV cache" if "cache_len" in facts.model.parameters else made


def _mermaid(steps: Sequence[Step]) -> Mermaid:
    keys = {step.number for step in steps}
    outside = {other.number: other for step in steps for other in step.depends if other.number not in keys}
    nodes = [Node(f"o{n}", f"{n} {other.label}", None) for n, other in sorted(outside.items())]
    if any(step.from_layer_before for step in steps):
        nodes.append(Node("before", "the layer before", None))
    named = {name for step in steps for name in step.before}
    nodes += [Node(name.replace(" ", "_"), name, None) for name in sorted(named)]
    title = steps[0].kind.name if steps[0].kind is not None else None
    nodes += [Node(f"s{s.number}", f"{s.number} {s.label}\n{s.shape}", title) for s in steps]
    edges: list[tuple[str, str, str]] = []
    for step in steps:
        for other in step.depends:
            source = f"s{other.number}" if other.number in keys else f"o{other.number}"
            edges.append((source, f"s{step.number}", ""))
        edges += [("before", f"s{step.number}", "")] * step.from_layer_before
        edges += [(name.replace(" ", "_"), f"s{step.number}", "") for name in step.before]
    keeping = [step for step in steps if step.keeps]
    if keeping:
        nodes.append(Node("kept", "KV cache, from this call on", None))
        edges += [(f"s{step.number}", "kept", "") for step in keeping]
    return Mermaid(nodes, edges)


def levels_of(steps: Sequence[Step]) -> list[list[Step]]:
    """Steps by the longest way that leads to them: those of one level do not depend on one another."""
    level: dict[int, int] = {}
    for step in steps:
        level[step.number] = 1 + max((level.get(other.number, -1) for other in step.depends), default=-1)
    return [[s for s in steps if level[s.number] == n] for n in sorted(set(level.values()))]


def _levels(steps: Sequence[Step]) -> Iterator[str]:
    for number, level in enumerate(levels_of(steps), 1):
        line = f"level {number:>2}  "
        for index, step in enumerate(level):
            piece = ("  ·  " if index else "") + f"{step.number} {step.label}"
            if len(line) + len(piece) > WIDTH:
                yield line
                line = " " * 10 + piece.removeprefix("  ·  ")
            else:
                line += piece
        yield line
