"""Section 3.3: what must hold, from assertions, exceptions and dtype conversions of the code and from the analysis."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeGuard

from lmp.formula import Where, evaluate, num, parse_condition, settled, simplify_condition, to_text, where
from lmp.formula.nodes import Compare, Condition, Or
from lmp.observe.flow import Flow
from lmp.observe.flow import Line as Place
from lmp.records import short
from lmp.report.document.amounts import Term
from lmp.report.document.parts import Code, Inline, Line, Pointer
from lmp.report.facts import ModelFacts
from lmp.report.implementation.naming import plain_formula
from lmp.report.implementation.operators import joined, lists
from lmp.report.implementation.reads import methods
from lmp.report.implementation.sources import Piece, Sources
from lmp.source.parsed import FunctionNode

ENTRIES = frozenset({"__init__", "__post_init__", "forward"})
MOST_PLACES = 4
LONGEST = 140


def requirements(facts: ModelFacts, sources: Sources) -> list[Line]:
    """Alignment, hardware and precision."""
    return [*_alignment(facts, sources), *_hardware(facts, sources), *_precision(facts, sources)]


# --- the template's three --------------------------------------------------------------------------------------------


def _alignment(facts: ModelFacts, sources: Sources) -> Iterator[Line]:
    divided = [
        text for text in facts.model.assumptions if "%" in text and not text.startswith("{num_hidden_layers} ==")
    ]
    held = dict.fromkeys(_with_pinned(facts, text) for text in divided)
    words = joined([Code(text) for text in held if text is not None], "; ")
    found = [entry for entry in _raises(sources) if "%" in entry.condition]
    line: list[Inline] = ["Alignment: "]
    line += words or [f"none found (searched: the assumptions of the analysis and {sources.searched})"]
    for entry in found:
        line += ["; the code refuses ", Code(entry.condition), " at ", entry.pointer]
    yield line


def _hardware(facts: ModelFacts, sources: Sources) -> Iterator[Line]:
    line: list[Inline] = ["Hardware: "]
    asked: dict[str, list[tuple[str, Pointer]]] = {}
    for function, text, pointer in _capabilities(sources):
        asked.setdefault(function, []).append((text, pointer))
    for number, (function, found) in enumerate(asked.items()):
        how = " asks for one of these in a call: " if len(found) > 1 else " asks for "
        places = lists([[Code(text), " at ", pointer] for text, pointer in found])
        line += ["; " if number else "", Code(f"{function}()"), how, *places]
    if not asked:
        line.append(f"none found (searched: device capabilities in {sources.searched})")
    named = facts.named
    if "weight_bytes" in named:
        memory = facts.number("{a}", "B", a=Term(constant=facts.device.memory, source=facts.device.source))
        fits = named["weight_bytes"] <= facts.device.memory
        line += [
            "; the weights take ",
            facts.number("{a}", "B", a=Term(name="weight_bytes")),
            f" {facts.stored_in}, ",
            "less than" if fits else "more than",
            " the ",
            memory,
            f" of one {facts.device.name}",
        ]
    yield line


def _capabilities(sources: Sources) -> Iterator[tuple[str, str, Pointer]]:
    """The function or class that asks, what it asks for, and where."""
    for piece in sources.own:
        for node in ast.walk(piece.node):
            if isinstance(node, ast.Compare) and "get_device_capability" in ast.unparse(node.left):
                yield piece.node.name, ast.unparse(node), piece.pointer(node.lineno, "get_device_capability")


def _precision(facts: ModelFacts, sources: Sources) -> Iterator[Line]:
    line: list[Inline] = [f"Precision: {facts.model.dtype} in this analysis"]
    found = facts.inspection
    if found is not None:
        own = facts.settings.get("dtype")
        line.append(" (as the config says)" if own == facts.model.dtype else f" (the config says {own or 'none'})")
        if facts.quantised is not None:
            line.append(f"; weights as the quantised checkpoint stores them ({facts.quantised})")
        elif found.quantised:
            line.append(f"; the checkpoint is quantised ({found.quantised}), which no figure here has")
    yield [*line, *_converted(facts)]
    for piece in sources.classes:
        for statement in piece.node.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if name.startswith("_keep_in_fp32"):
                    if piece.own:
                        yield [
                            "Precision: ",
                            Code(f"{name} = {ast.unparse(value)}"),
                            " at ",
                            piece.pointer(statement.lineno, name),
                            *_kept_wide(facts, sources, name),
                        ]


def _kept_wide(facts: ModelFacts, sources: Sources, name: str) -> Iterator[Inline]:
    """Whether loading keeps modules that a class names in float32: the condition on the dtype under which it does."""
    dtype = facts.model.dtype
    asked = [(p, node) for p in sources.classes for node in ast.walk(p.node) if _asks_for(node, name)]
    if not asked:
        yield f": loading may keep these in float32; the analysis runs them in {dtype}"
        return
    piece, test = asked[0]
    wide = [n.attr for n in ast.walk(test) if isinstance(n, ast.Attribute) and n.attr in HALVES]
    yield f": loading keeps these in float32 where the dtype is {' or '.join(wide)} ("
    yield piece.pointer(test.lineno, name)
    yield f"); the analysis runs them in {dtype}" if dtype in wide else f"), not in {dtype}"


HALVES = ("float16", "bfloat16")


def _asks_for(node: ast.AST, name: str) -> TypeGuard[ast.expr]:
    """Whether a condition is on an attribute and on a dtype."""
    if not isinstance(node, ast.BoolOp):
        return False
    names = {inner.attr for inner in ast.walk(node) if isinstance(inner, ast.Attribute)}
    return name in names and not names.isdisjoint(HALVES)


def _converted(facts: ModelFacts) -> Iterator[Inline]:
    """Where the analysed path goes over to another dtype."""
    places: dict[str, dict[str, Pointer]] = {}
    for name, analysis in facts.analyses.items():
        for kernel in analysis.kernels:
            if kernel.operation.startswith("conversion to ") and kernel.kernel_type == "basic":
                dtype = kernel.operation.removeprefix("conversion to ").partition(",")[0]
                symbol = kernel.function or short(name)
                pointer = facts.pointer(name, kernel.line, None, kernel.file)
                if dtype != facts.model.dtype:
                    places.setdefault(dtype, {}).setdefault(f"{pointer.place} {symbol}", pointer)
    for dtype, found in places.items():
        yield f"; converts to {dtype} at "
        yield from joined(list(found.values())[:MOST_PLACES])
        if len(found) > MOST_PLACES:
            yield f" and {len(found) - MOST_PLACES} more lines"


# --- what is raised --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Raise:
    """A check in the code. ``entry`` is the function, or the constructor or method of a class, that it stands in."""

    condition: str
    what: str
    entry: str
    pointer: Pointer
    function: str | None
    """Of a function outside of classes: its name."""


def raised(facts: ModelFacts, sources: Sources) -> list[Line]:
    """Checks of the model's library, then those of PyTorch; those of functions that did not run say so."""
    ran = {line.function for flow in facts.flows.phases.values() for line in _lines(flow)}
    lines: list[Line] = []
    for entry in sorted(_raises(sources), key=lambda entry: entry.pointer.file.startswith("pytorch/")):
        line: list[Inline] = [Code(entry.condition), f" {entry.what} in ", Code(entry.entry), ", ", entry.pointer]
        if ran and entry.function is not None and entry.function not in ran:
            line.append("; no operator of the runs shown comes from there")
        lines.append(line)
    for piece in sources.config:
        for statement in piece.node.body:
            match statement:
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.Call(func=ast.Call() as checked)):
                    where = piece.pointer(statement.lineno, name)
                    lines.append([Code(name), " must be in ", Code(ast.unparse(checked)), " at ", where])
    return lines


def _lines(flow: Flow) -> Iterator[Place]:
    return (line for op in flow.ops for frame in op.frames for line in frame.lines)


def _raises(sources: Sources) -> list[Raise]:
    """Of the model's own code and of its config."""
    return [entry for piece in (*sources.config, *sources.own) for entry in _of_piece(piece)]


def _of_piece(piece: Piece) -> Iterator[Raise]:
    is_class = isinstance(piece.node, ast.ClassDef)
    for function in _reached(piece):
        entry = f"{piece.node.name}.{function.name}" if is_class else piece.qualname or piece.node.name
        name = None if is_class else piece.node.name
        for test, what, line, symbol in _checks(function):
            yield Raise(_short(test), what, entry, piece.pointer(line, symbol), name)


def _checks(function: FunctionNode) -> Iterator[tuple[str, str, int, str]]:
    """Condition, what happens, line and the symbol that stands there."""
    for node in ast.walk(function):
        match node:
            case ast.Assert(test=test):
                yield f"not ({ast.unparse(test)})", "fails an assertion", node.lineno, "assert"
            case ast.If(test=test, body=body):
                for statement in body:
                    if isinstance(statement, ast.Raise) and statement.exc is not None:
                        kind = statement.exc.func if isinstance(statement.exc, ast.Call) else statement.exc
                        name = ast.unparse(kind)
                        yield ast.unparse(test), f"raises {name}", statement.lineno, name


def _reached(piece: Piece) -> Iterator[FunctionNode]:
    """A function; of a class its constructor, its forward(), what checks it, and the methods that these call."""
    if not isinstance(piece.node, ast.ClassDef):
        yield piece.node
        return
    known = {function.name: function for function in methods(piece)}
    waiting = [name for name in known if name in ENTRIES or name.startswith("validate")]
    seen = set(waiting)
    while waiting:
        function = known[waiting.pop(0)]
        yield function
        for node in ast.walk(function):
            match node:
                case ast.Attribute(value=ast.Name(id="self"), attr=name) if name in known and name not in seen:
                    seen.add(name)
                    waiting.append(name)


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


# --- assumptions -----------------------------------------------------------------------------------------------------


def assumed(facts: ModelFacts) -> Iterator[Line]:
    pinned = {f"{{{name}}} == {value}" for name, value in facts.model.pinned.items()}
    told: dict[str, str] = {}
    for text in facts.model.assumptions:
        shown = _with_pinned(facts, text)
        if text not in pinned and shown is not None:
            told.setdefault(shown, text)
    for shown, text in ((shown, text) for shown, text in told.items() if re.search(r"[A-Za-z]", shown)):
        yield [Code(shown), *_in_words(text)]
    for name, value in pinned_of(facts).items():
        yield [Code(f"{name} == {value}"), ": it stands as a number in the formulas"]
    for decision in facts.model.decisions:
        answers: Any = ", ".join(decision.taken)
        pointer = facts.place(decision.file, decision.line)
        yield [Code(decision.code), f" is answered {answers} at ", pointer]


def pinned_of(facts: ModelFacts) -> dict[str, Any]:
    """Values that the formulas hold for alone; those of a class left out that are the model's, too."""
    pinned = facts.model.pinned
    found = {name: value for name, value in pinned.items() if "." not in name}
    own = {name: value for name, value in pinned.items() if "." in name}
    return found | {name: value for name, value in own.items() if found.get(name.rpartition(".")[2]) != value}


def _with_pinned(facts: ModelFacts, text: str) -> str | None:
    """A condition with the values put in for which alone the formulas hold, and with the number of layers; None of one
    that then holds whatever else is."""
    fixed = {name: value for name, value in facts.model.pinned.items() if isinstance(value, int)}
    layers = facts.points[0].values.get("num_hidden_layers")
    fixed |= {} if layers is None else {"num_hidden_layers": layers}
    condition = parse_condition(text)
    # A where() carries the condition to what puts values in.
    held = settled([where(condition, num(1), num(0))], fixed)[0]
    if held == num(1):
        return None
    left = _without_layers(facts, held.condition) if isinstance(held, Where) else condition
    return None if left is None else plain_formula(to_text(simplify_condition(left)))


def _without_layers(facts: ModelFacts, condition: Condition) -> Condition | None:
    """Of "there is no layer of a kind, or …" the rest, where the config has such layers; None where it has none."""
    if not isinstance(condition, Or):
        return condition
    left: list[Condition] = []
    for part in condition.parts:
        match part:
            # A remainder of 0 is a condition, and no number of layers.
            case Compare(relation="==", left=count, right=zero) if zero == num(0) and "%" not in to_text(count):
                if evaluate(count, facts.points[0].values) == 0:
                    return None
            case _:
                left.append(part)
    return condition if not left else left[0] if len(left) == 1 else Or(tuple(left))


def _in_words(text: str) -> list[Inline]:
    if text == "{a_bytes} != 4":
        return [": in float32 the conversions to float32 cost nothing, and the formulas count them"]
    if "%" in text and text.endswith("== 0"):
        return [": the code divides the two and means a whole number"]
    if text.endswith("> 1"):
        return [": at 1 the dimension broadcasts, and other operators run"]
    return []
