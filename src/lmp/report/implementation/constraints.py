"""Section 3.3: what must hold, from assertions, exceptions and dtype conversions of the code and from the analysis."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from lmp.formula import Where, num, parse_condition, settled, simplify_condition, to_text, where
from lmp.report.document.amounts import Term
from lmp.report.document.parts import Bold, Bullets, Code, Inline, Line, Paragraph, Pointer, Section
from lmp.report.facts import ModelFacts, short
from lmp.report.implementation.naming import plain_formula
from lmp.report.implementation.reads import methods
from lmp.report.implementation.sources import Piece, Sources

ENTRIES = frozenset({"__init__", "__post_init__", "forward"})
MOST_PLACES = 4
LONGEST = 140


def section(facts: ModelFacts, sources: Sources) -> Section:
    return Section(
        "3.3 Constraints & Requirements",
        [
            Bullets([*_alignment(facts, sources), *_hardware(facts, sources), *_precision(facts, sources)]),
            Paragraph([Bold("Raised by the code:")]),
            Bullets(list(raised(sources)), f"assert and raise in {sources.searched}"),
            Paragraph([Bold("Conditions under which the formulas hold:")]),
            Bullets(list(_assumed(facts)), "the assumptions of the analysis"),
        ],
    )


# --- the template's three --------------------------------------------------------------------------------------------


def _alignment(facts: ModelFacts, sources: Sources) -> Iterator[Line]:
    divided = [
        text for text in facts.model.assumptions if "%" in text and not text.startswith("{num_hidden_layers} ==")
    ]
    words: list[Inline] = []
    for text in dict.fromkeys(_with_pinned(facts, text) for text in divided):
        words += ["; " if words else "", Code(text)] if text is not None else []
    found = [entry for entry in _raises(sources) if "%" in entry[0]]
    line: list[Inline] = ["Alignment: "]
    line += words or [f"none found (searched: the assumptions of the analysis and {sources.searched})"]
    for condition, _, pointer in found:
        line += ["; the code refuses ", Code(condition), " at ", pointer]
    yield line


def _hardware(facts: ModelFacts, sources: Sources) -> Iterator[Line]:
    line: list[Inline] = ["Hardware: "]
    asked = list(_capabilities(sources))
    for text, pointer in asked:
        line += [Code(text), " at ", pointer, "; "]
    if not asked:
        line.append(f"none found (searched: device capabilities in {sources.searched}); ")
    named = facts.named
    if "weight_bytes" in named:
        memory = facts.number("{a}", "B", a=Term(constant=facts.device.memory, source=facts.device.source))
        fits = named["weight_bytes"] <= facts.device.memory
        line += [
            "the weights take ",
            facts.number("{a}", "B", a=Term(name="weight_bytes")),
            f" in {facts.model.dtype}, ",
            "less than" if fits else "more than",
            " the ",
            memory,
            f" of one {facts.device.name}",
        ]
    yield line


def _capabilities(sources: Sources) -> Iterator[tuple[str, Pointer]]:
    for piece in sources.own:
        for node in ast.walk(piece.node):
            if isinstance(node, ast.Compare) and "get_device_capability" in ast.unparse(node.left):
                yield ast.unparse(node), piece.pointer(node.lineno, "get_device_capability")


def _precision(facts: ModelFacts, sources: Sources) -> Iterator[Line]:
    line: list[Inline] = [f"Precision: {facts.model.dtype} in this analysis"]
    found = facts.inspection
    if found is not None:
        own = facts.settings.get("dtype")
        line.append(" (as the config says)" if own == facts.model.dtype else f" (the config says {own or 'none'})")
        if found.quantised:
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
                            f": loading may keep these in float32; the analysis runs them in {facts.model.dtype}",
                        ]


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
        for index, pointer in enumerate(list(found.values())[:MOST_PLACES]):
            yield ", " if index else ""
            yield pointer
        if len(found) > MOST_PLACES:
            yield f" and {len(found) - MOST_PLACES} more lines"


# --- what is raised --------------------------------------------------------------------------------------------------


def raised(sources: Sources) -> Iterator[Line]:
    for condition, what, pointer in _raises(sources):
        yield [Code(condition), f" {what} at ", pointer]
    for piece in sources.config:
        for statement in piece.node.body:
            match statement:
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.Call(func=ast.Call() as checked)):
                    yield [
                        Code(name),
                        " must be in ",
                        Code(ast.unparse(checked)),
                        " at ",
                        piece.pointer(statement.lineno, name),
                    ]


def _raises(sources: Sources) -> list[tuple[str, str, Pointer]]:
    """Condition, what happens, and where: of the model's own code and of its config."""
    return [entry for piece in (*sources.config, *sources.own) for entry in _of_piece(piece)]


def _of_piece(piece: Piece) -> Iterator[tuple[str, str, Pointer]]:
    for node in (node for function in _reached(piece) for node in ast.walk(function)):
        match node:
            case ast.Assert(test=test):
                yield _short(f"not ({ast.unparse(test)})"), "fails an assertion", piece.pointer(node.lineno, "assert")
            case ast.If(test=test, body=body):
                for statement in body:
                    if isinstance(statement, ast.Raise) and statement.exc is not None:
                        kind = statement.exc.func if isinstance(statement.exc, ast.Call) else statement.exc
                        name = ast.unparse(kind)
                        yield _short(ast.unparse(test)), f"raises {name}", piece.pointer(statement.lineno, name)


def _reached(piece: Piece) -> Iterator[ast.AST]:
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


def _assumed(facts: ModelFacts) -> Iterator[Line]:
    pinned = {f"{{{name}}} == {value}" for name, value in facts.model.pinned.items()}
    told: dict[str, str] = {}
    for text in facts.model.assumptions:
        shown = _with_pinned(facts, text)
        if text not in pinned and shown is not None:
            told.setdefault(shown, text)
    for shown, text in told.items():
        yield [Code(shown), *_in_words(text)]
    for name, value in facts.model.pinned.items():
        yield [Code(f"{name} == {value}"), ": it stands as a number in the formulas"]
    for decision in facts.model.decisions:
        answers: Any = ", ".join(decision.taken)
        pointer = facts.place(decision.file, decision.line)
        yield [Code(decision.code), f" is answered {answers} at ", pointer]


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
    return plain_formula(to_text(simplify_condition(held.condition)) if isinstance(held, Where) else text)


def _in_words(text: str) -> list[Inline]:
    if text == "{a_bytes} != 4":
        return [": in float32 the conversions to float32 cost nothing, and the formulas count them"]
    if "%" in text and text.endswith("== 0"):
        return [": the code divides the two and means a whole number"]
    if text.endswith("> 1"):
        return [": at 1 the dimension broadcasts, and other operators run"]
    return []
