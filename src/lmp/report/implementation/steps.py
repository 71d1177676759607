"""A class's kernels by the source statement that they stand at, in the order in which they run: its pseudocode."""

from __future__ import annotations

import ast
import itertools
import re
from collections import Counter as Tally
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lmp.formula import parse, simplify, substitute, to_text
from lmp.observe.flow import Line as Place
from lmp.records import Kernel, short
from lmp.report.document.markdown import plain
from lmp.report.document.parts import Fence
from lmp.report.facts import ModelFacts
from lmp.report.implementation.classes import ATTENTION, LAYER, Component
from lmp.report.implementation.compulsory import at_config, placed, scope_at
from lmp.report.implementation.drawing import WIDTH, Row, fence, texts, wrapped
from lmp.report.implementation.naming import kind_of_layer, plain_formula
from lmp.report.implementation.ran import (
    Item,
    condition_of,
    gate_of,
    instance_of,
    items_of,
    kernel_of,
    left_of,
    only_elsewhere,
    shapes_told,
)
from lmp.report.implementation.sources import place_near
from lmp.source.parsed import parse as parse_file

INDENT = "    "
MOST_PLACES = 6
MOST_LINES = 6
"""Lines of one statement that are quoted."""

DEEPEST = 6
"""Calls inside of one another that are indented."""


@dataclass
class Step:
    """A statement with what runs there."""

    file: str | None
    line: int
    function: str | None
    kernels: list[Kernel] = field(default_factory=list)


def steps_of(kernels: Sequence[Kernel]) -> list[Step]:
    """Kernels of one line together, as long as no other line comes between."""
    found: list[Step] = []
    for kernel in kernels:
        key = (kernel.file, kernel.line, kernel.function)
        if not found or (found[-1].file, found[-1].line, found[-1].function) != key:
            found.append(Step(*key))
        found[-1].kernels.append(kernel)
    return found


def pseudocode(component: Component, brief: str, tiling: str, memory: Sequence[Row]) -> Fence:
    """Source statements in the order in which they run, each with its place and what runs there."""
    rows: list[Row] = [
        *texts(wrapped(f"def {component.name}({', '.join(arguments_of(component))}):", WIDTH, "", INDENT * 2)),
        [f'{INDENT}"""'],
        *texts(wrapped(brief, WIDTH, INDENT)),
        [""],
        *texts(wrapped(f"Tiling: {tiling}", WIDTH, INDENT, INDENT * 2)),
        *memory,
        [f'{INDENT}"""'],
        [f"{INDENT}# ", component.forward],
    ]
    path = instance_of(component)
    items = items_of(component, path)
    rows += executed(component, path, items) if items else _analysed(component)
    return fence(rows, "python")


def _analysed(component: Component) -> Iterator[Row]:
    """Of a class that no run shows: the lines of its analysis, whether they run or not."""
    functions: list[str] = []
    for number, step in enumerate(steps_of(component.analysis.kernels), 1):
        if step.function is None:
            functions = []
        elif step.function not in functions:
            functions.append(step.function)
        else:
            functions = functions[: functions.index(step.function) + 1]
        lead = INDENT * (1 + min(len(functions), 3))
        yield from _step(component, step, number, lead)


# --- what runs -------------------------------------------------------------------------------------------------------


def executed(component: Component, path: str, items: Sequence[Item]) -> Iterator[Row]:
    """The operators of a run under the lines that lead to them, and what of the class did not run."""
    where = f" in {_with_kind(component, path)}" if len(component.paths) > 1 else ""
    yield from texts(wrapped(f"# As it runs{where}: {_runs(component)}", WIDTH, INDENT, f"{INDENT}#   "))
    numbers: list[int] = []
    count = 0
    before: tuple[Place, ...] = ()
    shown = [item for item in items if item.child is None or _child_told(component, item.child)]
    for chain, group in itertools.groupby(shown, lambda item: item.chain):
        here = list(group)
        shared = _shared(before, chain)
        for depth in range(shared, len(chain)):
            count += 1
            numbers = [*numbers[:depth], count]
            yield from _heading(component, chain, depth, here, count)
        lead = _lead(len(chain) - 1)
        if shared == len(chain):
            numbers = numbers[:shared]
            yield [f"{lead}# in step {numbers[-1]}, after that:"] if before != chain else [f"{lead}#"]
        for line in _items_told(component, here):
            yield from texts(wrapped(line, WIDTH, f"{lead}#    ", f"{lead}#        "))
        before = chain
    yield from _not_here(component, path)


def _with_kind(component: Component, path: str) -> str:
    """A path; of a layer and of its attention with the kind of the layer, where the config names kinds."""
    facts = component.facts
    if component.role not in (ATTENTION, LAYER):
        return path
    parts = path.split(".")
    above = (".".join(parts[: n + 1]) for n, part in enumerate(parts) if part.isdigit())
    kind = next((kind for kind in (kind_of_layer(facts, layer) for layer in above) if kind), "")
    return f"{path} ({kind})" if kind else path


def _runs(component: Component) -> str:
    """The sizes of the runs that are shown."""
    told = []
    if "seq_len" not in component.facts.model.parameters:
        return "one call"
    for phase, flow in component.facts.flows.phases.items():
        cached = flow.values.get("cache_len", 0)
        sizes = f"{cached:,} cached tokens" if phase == "decode" else f"{flow.values.get('seq_len', 1):,} tokens"
        told.append(f"{phase} of {sizes}" if phase == "prefill" else f"{phase} after {sizes}")
    return ", ".join(told)


def _lead(depth: int) -> str:
    return INDENT * (1 + min(depth, DEEPEST))


def _shared(one: Sequence[Place], other: Sequence[Place]) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


def _heading(
    component: Component, chain: Sequence[Place], depth: int, here: Sequence[Item], number: int
) -> Iterator[Row]:
    place = chain[depth]
    if depth + 1 < len(chain):
        symbols = [chain[depth + 1].function]
    else:
        symbols = [i.child.rpartition(".")[2] if i.child is not None else i.op.name.strip("_") for i in here]
    statement = statement_at(component, place)
    rows = [*symbols, *_targets(statement), place.function]
    lead = _lead(depth)
    head = f"{lead}# {number}. "
    pointer = place_near(component.facts, component.class_name, place.line, place.file, *rows)
    if len(head) + len(plain(pointer)) > WIDTH:
        pointer = place_near(component.facts, component.class_name, place.line, place.file)
    yield [head, pointer]
    if statement is not None:
        yield from texts(_quoted(statement, lead))


def statement_at(component: Component, place: Place) -> ast.stmt | None:
    path = component.facts.trees.path_of(place.file)
    return None if path is None else _statement(path, place.line)


def _items_told(component: Component, items: Sequence[Item]) -> Iterator[str]:
    told = Tally(_item_told(component, item) for item in items)
    for text, count in told.items():
        yield text if count == 1 else f"{count} × {text}"


def _item_told(component: Component, item: Item) -> str:
    when = _when(component, item)
    if item.child is not None:
        return f"{_child_told(component, item.child)}{when}"
    op = item.op
    name = op.name if op.category == "attention" else f"aten.{op.name}"
    causal = [phase for phase, one in item.ops.items() if one.causal]
    how = ""
    if causal:
        how = ", causal" if len(causal) == len(item.ops) else f", causal in {' and '.join(causal)}"
    shapes = shapes_told(component, item)
    return f"{name}: {shapes}{how}{when}" if shapes else f"{name}{how}{when}"


def _child_told(component: Component, child: str) -> str:
    """``layers.0: LlamaDecoderLayer, × num_hidden_layers``; empty of a layer that is told with one alike before it."""
    facts = component.facts
    owner = instance_of(component)
    local = child.removeprefix(f"{owner}.") if owner else child
    found = next((call for call in placed(facts) if call.path == child), None)
    if found is None:
        return ""
    repeats = {k.repeat for k in component.analysis.kernels if k.path == local and k.repeat != 1}
    repeat = ""
    if len(repeats) == 1:
        times = repeat_of(facts, component.class_name, owner, str(next(iter(repeats))))
        repeat = f", × {times}" if times != "1" else ""
    return f"{local}: {short(found.class_name)}{repeat}"


def repeat_of(facts: ModelFacts, class_name: str, path: str, text: str) -> str:
    """How often a call runs: in the model's variables where that is short, else the number at this config."""
    scope = scope_at(facts, class_name, path)
    formula = parse(text) if scope is None else simplify(substitute(parse(text), dict(scope)))
    told = plain_formula(to_text(formula))
    return told if told.isidentifier() else plain_formula(to_text(at_config(facts, formula)))


def _when(component: Component, item: Item) -> str:
    """Of what does not run in every phase: when it does."""
    phases = component.facts.flows.phases
    if len(item.ops) == len(phases):
        return ""
    kernel = kernel_of(component, item) if item.child is None else None
    condition = condition_of(component, kernel, instance_of(component)) if kernel is not None else ""
    return f"; only where {condition}" if condition else f"; only in {' and '.join(item.ops)}"


def _other_children(component: Component, path: str) -> Iterator[tuple[str, str]]:
    """Other instances, each with a submodule that is of another class there."""
    called = {c.path: short(c.class_name) for c in placed(component.facts)}
    told = {(name, called.get(f"{path}.{name}")) for name in _names(component, path)}
    for other in component.paths:
        for name in _names(component, other):
            entry = (name, called.get(f"{other}.{name}"))
            if entry[1] is not None and entry not in told:
                told.add(entry)
                yield other, f"{name}: {entry[1]}"


def _names(component: Component, path: str) -> list[str]:
    children = [item.child for item in items_of(component, path) if item.child is not None]
    return [child.removeprefix(f"{path}.") for child in children]


def _not_here(component: Component, path: str) -> Iterator[Row]:
    """What runs in other instances alone, and what does not run."""
    facts, name = component.facts, component.class_name
    for other, items in only_elsewhere(component, path).items():
        places = list(dict.fromkeys(item.chain[-1] for item in items))
        words = ", ".join(dict.fromkeys(item.op.words for item in items))
        yield [""]
        where = _with_kind(component, other)
        yield from texts(wrapped(f"# Only in {where}: {words}", WIDTH, INDENT, f"{INDENT}#   "))
        for place in places[:MOST_PLACES]:
            yield [f"{INDENT}#   ", place_near(facts, name, place.line, place.file, place.function)]
        if len(places) > MOST_PLACES:
            yield [f"{INDENT}#   and {len(places) - MOST_PLACES} more lines"]
    for other, child in _other_children(component, path):
        yield [""]
        yield from texts(wrapped(f"# In {other}: {child}", WIDTH, INDENT, f"{INDENT}#   "))
    for left in left_of(component, path):
        words = ", ".join(dict.fromkeys(kernel.operation for kernel in left.kernels))
        if left.condition is None:
            why = "never at this config"
        elif not left.condition:
            why = "in none of the runs shown"
        elif left.is_stated:
            why = f"only where {left.condition}"
        else:
            why = f"only where {left.condition}, at none of the stated points"
        count = len(left.kernels)
        counted = "one operator" if count == 1 else f"{count} operators"
        yield [""]
        yield from texts(wrapped(f"# Left out, {why}: {counted} ({words})", WIDTH, INDENT, f"{INDENT}#   "))
        first = left.kernels[0]
        more = " and after it" if len({(k.file, k.line) for k in left.kernels}) > 1 else ""
        yield [f"{INDENT}#   ", place_near(facts, name, first.line, first.file, first.function), more]


def arguments_of(component: Component) -> list[str]:
    """Arguments of forward(), as a run was given them; without a run those of its interface."""
    calls = component.facts.observed.of(component.class_name)
    if calls:
        return list(dict.fromkeys(value.name.partition("[")[0] for value in calls[0].inputs))
    return list(component.analysis.interface)


def _step(component: Component, step: Step, number: int, lead: str) -> Iterator[Row]:
    facts, name = component.facts, component.class_name
    path = _path(component, step)
    symbols = [k.path.rpartition(".")[2] for k in step.kernels if k.path] + [
        found for k in step.kernels if (found := _called(k)) is not None
    ]
    statement = None if path is None else _statement(path, step.line)
    targets = _targets(statement)
    head = f"{lead}# {number}. "
    pointer = place_near(facts, name, step.line, step.file, *symbols[:1], *targets, *symbols, step.function)
    if len(head) + len(plain(pointer)) > WIDTH:
        pointer = place_near(facts, name, step.line, step.file, *targets)
    if len(head) + len(plain(pointer)) > WIDTH:
        pointer = place_near(facts, name, step.line, step.file)
    yield [head, pointer]
    if statement is not None:
        yield from texts(_quoted(statement, lead))
    for line in kernels_told(step.kernels):
        yield from texts(wrapped(line, WIDTH, f"{lead}#    ", f"{lead}#        "))


def _path(component: Component, step: Step) -> Path | None:
    source = component.facts.sources[component.class_name]
    return component.facts.trees.path_of(step.file) if step.file is not None else source.forward_path


def _called(kernel: Kernel) -> str | None:
    found = re.fullmatch(r"call of (\w+)\(\)", kernel.operation)
    return found[1] if found else None


def kernels_told(kernels: Sequence[Kernel]) -> Iterator[str]:
    """What runs at a statement; operators that are told alike once, with how many there are."""
    told = Tally(_told(kernels))
    for text, count in told.items():
        yield text if count == 1 else f"{count} × {text}"


def _told(kernels: Sequence[Kernel]) -> Iterator[str]:
    for kernel in kernels:
        if kernel.category == "call":
            continue
        repeat = "" if kernel.repeat == 1 else f", × {plain_formula(str(kernel.repeat))}"
        if kernel.kernel_type == "composite":
            yield f"{kernel.path or short(kernel.operation)}: {kernel.operation.rpartition(': ')[2]}{repeat}"
            continue
        what = kernel.analysis.partition(". FLOPs an element")[0]
        if not re.match(r"(aten\.)?\w+: ", what):
            what = f"{kernel.operation}: {what}"
        causal = ", causal" if kernel.causal else ""
        yield f"{what}{causal}{repeat}{_condition(kernel)}"


def _condition(kernel: Kernel) -> str:
    """When a kernel runs at all, where its formulas say so."""
    for text in (kernel.memory_access.read, kernel.memory_access.write):
        gate = gate_of(parse(text))
        if gate is not None:
            return f"; only where {plain_formula(to_text(gate))}"
    return ""


# --- source ----------------------------------------------------------------------------------------------------------


def _statement(path: Path, line: int) -> ast.stmt | None:
    """The innermost statement that a line belongs to."""
    found: ast.stmt | None = None
    for node in ast.walk(parse_file(path).tree):
        holds = isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)
        if holds and isinstance(node, ast.stmt) and (found is None or node.lineno >= found.lineno):
            found = node
    return None if isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else found


def _targets(statement: ast.stmt | None) -> list[str]:
    match statement:
        case ast.Assign(targets=[ast.Name(id=name), *_]) | ast.AugAssign(target=ast.Name(id=name)):
            return [name]
        case ast.Assign(targets=[ast.Tuple(elts=[ast.Name(id=name), *_]), *_]):
            return [name]
    return []


def _quoted(statement: ast.stmt, lead: str) -> Iterator[str]:
    """The statement's code; of a compound one its header."""
    text = ast.unparse(statement)
    if isinstance(statement, ast.If | ast.For | ast.While | ast.With):
        text = text.splitlines()[0]
    lines = list(wrapped(text, WIDTH, lead, lead + INDENT))
    yield from lines[:MOST_LINES]
    if len(lines) > MOST_LINES:
        yield f"{lead}{INDENT}…"
