"""Section 6: the forward pass as it runs, what depends on what, and how long each tensor lives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from lmp.observe.flow import Flow
from lmp.records import short
from lmp.report.document.parts import (
    Block,
    Bullets,
    Code,
    Fence,
    Inline,
    Line,
    Mermaid,
    Node,
    Paragraph,
    Section,
)
from lmp.report.document.told import Told
from lmp.report.facts import ModelFacts
from lmp.report.implementation.drawing import wrapped
from lmp.report.implementation.lifecycle import lifecycle
from lmp.report.implementation.operators import further, is_run, searched, shape_of
from lmp.report.implementation.peaks import peak_blocks
from lmp.report.implementation.stepping import Step, steps_of

WIDTH = 100


def section(facts: ModelFacts, told: Told | None = None) -> Section:
    """Everything is drawn from one executed call, prefill where there is one."""
    return Section(
        "6. Data Flow & Dependencies",
        sections=[
            _titled("6.1 Full Forward Pass", _forward(facts), told),
            _titled("6.2 Dependency Graph", _graph(facts), told),
            _titled("6.3 Memory Lifecycle", [*peak_blocks(facts), *lifecycle(facts)], told),
        ],
    )


def _titled(title: str, blocks: list[Block], told: Told | None) -> Section:
    return Section(title, [*blocks, *further(told, title)])


def not_run(facts: ModelFacts) -> str:
    return f"none found (searched: {searched(facts)})"


# --- 6.1 -------------------------------------------------------------------------------------------------------------


def _forward(facts: ModelFacts) -> list[Block]:
    if not facts.flows.phases:
        return [Paragraph(not_run(facts))]
    phase, flow = next(iter(facts.flows.phases.items()))
    steps = steps_of(facts, flow)
    drawn = "\n".join(_drawn(facts, flow, steps))
    which = f"{phase} call" if facts.called(phase) == phase else "call"
    return [
        Paragraph(
            f"One {which} as it runs, with one layer of each kind: steps in order, the shape of what others take "
            "of each, and after ◄ the steps whose results it takes. Where the first layer of a kind takes what ran "
            "before all layers, the following ones take what the layer before them ended in. Layers run in the order "
            "of their numbers, of whichever kind they are."
        ),
        Fence(drawn, "text"),
        *_later(facts, steps),
    ]


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
    """What the call returns: the shape that its own output has."""
    made = shape_of(flow.outputs[""]) if "" in flow.outputs else steps[-1].shape
    return f"{made} and the KV cache" if "cache_len" in facts.model.parameters else made


def _later(facts: ModelFacts, steps: Sequence[Step]) -> list[Block]:
    """What a decode step does otherwise."""
    other = facts.flows.phases.get("decode")
    if other is None or len(facts.flows.phases) < 2:
        return []
    decode = steps_of(facts, other)
    before, after = [s.label for s in steps], [s.label for s in decode]
    gone = sorted({label for label in before if label not in after}, key=before.index)
    new = sorted({label for label in after if label not in before}, key=after.index)
    reads = [step for step in decode if "KV cache" in step.before]
    items: list[Line] = []
    if reads:
        labels = list(dict.fromkeys(step.label for step in reads))
        items.append(["In a decode step the KV cache is read by ", *_codes(labels), ", and written anew there"])
    grown = [s for s in decode if "cache_len" in s.shape and s.products]
    if grown:
        labels = list(dict.fromkeys(s.label for s in grown))
        items.append(["Products of a decode step that grow with the cache: ", *_codes(labels)])
    if gone:
        items.append(["Only in prefill: ", *_codes(gone)])
    if new:
        items.append(["Only in decode: ", *_codes(new)])
    return [Bullets(items, searched="the steps of a prefill and of a decode call")]


def _codes(labels: Sequence[str]) -> list[Inline]:
    found: list[Inline] = []
    for index, label in enumerate(labels):
        found += [", ", Code(label)] if index else [Code(label)]
    return found


# --- 6.2 -------------------------------------------------------------------------------------------------------------


def _graph(facts: ModelFacts) -> list[Block]:
    if not facts.flows.phases:
        return [Paragraph(not_run(facts))]
    flow = next(iter(facts.flows.phases.values()))
    steps = steps_of(facts, flow)
    blocks: list[Block] = []
    for kind, group in groupby(steps, key=lambda step: step.kind):
        inside = list(group)
        if kind is None:
            continue
        blocks.append(
            Paragraph([f"Layer {kind.name} (", Code(short(kind.class_name) or kind.path), "), step by step:"])
        )
        blocks += [_mermaid(inside), Paragraph(_width(inside)), Fence("\n".join(_levels(inside)), "text")]
    if not blocks:
        blocks = [_mermaid(steps), Paragraph(_width(steps)), Fence("\n".join(_levels(steps)), "text")]
    return blocks


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


def _width(steps: Sequence[Step]) -> Line:
    levels = levels_of(steps)
    widest = max(levels, key=len)
    labels = ", ".join(f"{s.number} {s.label}" for s in widest)
    return (
        f"The longest chain of this layer has {len(levels)} of its {len(steps)} steps; at most {len(widest)} do not "
        f"depend on one another ({labels}). Eager execution starts them one after another all the same."
    )


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
