"""A class's kernels by the source statement that they stand at, in the order in which they run: its pseudocode."""

from __future__ import annotations

import ast
import re
from collections import Counter as Tally
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lmp.formula import Where, num, parse, to_text
from lmp.records import Kernel
from lmp.report.document.markdown import plain
from lmp.report.document.parts import Fence
from lmp.report.facts import short
from lmp.report.implementation.classes import Component
from lmp.report.implementation.drawing import WIDTH, Row, fence, texts, wrapped
from lmp.report.implementation.naming import plain_formula
from lmp.report.implementation.sources import place_near
from lmp.source.parsed import parse as parse_file

INDENT = "    "
MOST_LINES = 6
"""Lines of one statement that are quoted."""


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


def pseudocode(component: Component, brief: str, tiling: str, memory: str) -> Fence:
    """Source statements in the order in which they run, each with its place and its kernels."""
    rows: list[Row] = [
        *texts(wrapped(f"def {component.name}({', '.join(_inputs(component))}):", WIDTH, "", INDENT * 2)),
        [f'{INDENT}"""'],
        *texts(wrapped(brief, WIDTH, INDENT)),
        [""],
        *texts(wrapped(f"Tiling: {tiling}", WIDTH, INDENT, INDENT * 2)),
        *texts(wrapped(f"Memory: {memory}", WIDTH, INDENT, INDENT * 2)),
        [f'{INDENT}"""'],
        [f"{INDENT}# ", component.forward],
    ]
    functions: list[str] = []
    for number, step in enumerate(steps_of(component.analysis.kernels), 1):
        if step.function is None:
            functions = []
        elif step.function not in functions:
            functions.append(step.function)
        else:
            functions = functions[: functions.index(step.function) + 1]
        lead = INDENT * (1 + min(len(functions), 3))
        rows += _step(component, step, number, lead)
    return fence(rows, "python")


def _inputs(component: Component) -> list[str]:
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
    formula = parse(kernel.memory_access.read)
    written = parse(kernel.memory_access.write)
    for found in (formula, written):
        if isinstance(found, Where) and found.otherwise == num(0):
            return f"; only if {plain_formula(to_text(found.condition))}"
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
