"""Section 2.3: where attention and experts are computed, what the classes declare, and what does not run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from lmp.records import short
from lmp.report.document.parts import Code, Inline, Line, Pointer
from lmp.report.facts import ModelFacts
from lmp.report.implementation.operators import joined, lists
from lmp.report.implementation.sources import Sources, place_near
from lmp.source.lines import enclosing_function
from lmp.source.parsed import parse


@dataclass(frozen=True)
class Attends:
    """How one class computes attention: whole in one operator, or in several in a function."""

    name: str
    places: tuple[Pointer, ...]
    function: str = ""
    refused: Pointer | None = None
    """Where the model says that it does not support what was asked for."""


def attention(facts: ModelFacts, sources: Sources) -> Iterator[Attends]:
    for name, analysis in facts.analyses.items():
        whole = [k for k in analysis.kernels if k.category == "attention"]
        if whole:
            symbol = "scaled_dot_product_attention"
            places = {k.line: place_near(facts, name, k.line, k.file, symbol) for k in whole}
            yield Attends(short(name), tuple(places.values()))
            continue
        soft = next((k for k in analysis.kernels if k.category == "softmax" and k.function is not None), None)
        if soft and any(k.category == "matmul" and k.function == soft.function for k in analysis.kernels):
            place = place_near(facts, name, soft.line, soft.file, "softmax", soft.function)
            yield Attends(short(name), (place,), soft.function or "", _refused(facts, sources))


def _refused(facts: ModelFacts, sources: Sources) -> Pointer | None:
    for piece in sources.classes:
        for statement in piece.node.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=False)):
                    if piece.own and name == f"_supports_{facts.model.attn_requested}":
                        return piece.pointer(statement.lineno, name)
    return None


@dataclass(frozen=True)
class Expert:
    """A class whose experts run as grouped products."""

    name: str
    count: int
    where: Pointer
    instead: Pointer | None
    """Its own forward(), which does not run."""


def experts(facts: ModelFacts) -> Iterator[Expert]:
    for name, analysis in facts.analyses.items():
        kernels = [k for k in analysis.kernels if k.category == "grouped_matmul"]
        if kernels:
            first, source = kernels[0], facts.sources[name]
            lines = analysis.not_taken_lines
            loop = bool(lines) and min(lines) >= source.lines[0]
            where = place_near(facts, name, first.line, first.file, "grouped_mm", first.function)
            instead = facts.pointer(name, source.lines[0], "forward") if loop else None
            yield Expert(short(name), len(kernels), where, instead)


def declared(sources: Sources) -> list[Inline]:
    """What the model's classes say that they can be run with, each with its line."""
    found: list[list[Inline]] = []
    for piece in (p for p in sources.classes if p.own and isinstance(p.node, ast.ClassDef)):
        for statement in piece.node.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=bool(value))):
                    if name.startswith(("_supports_", "_can_")):
                        found.append([Code(f"{name} = {value}"), " ", piece.pointer(statement.lineno)])
    return lists(found)


def not_taken(facts: ModelFacts) -> Iterator[dict[str, Line]]:
    """Statements of each class that did not run, neighbours together."""
    for name, analysis in facts.analyses.items():
        spans = list(_spans(facts, name, analysis.not_taken_lines))
        if spans:
            pieces = joined([piece for pointer, code in spans for piece in (Code(code), pointer)], " ")
            yield {"name": Code(short(name)), "spans": pieces}


def _spans(facts: ModelFacts, name: str, lines: list[int]) -> Iterator[tuple[Pointer, str]]:
    source = facts.sources[name]
    parsed = parse(source.forward_path)
    groups: list[list[int]] = []
    for line in lines:
        before = groups[-1][-1] if groups else None
        function = enclosing_function(source.forward_path, line)
        known = {s.first for s in function.statements} if function is not None else set()
        between = {n for n in known if before is not None and before < n < line}
        if before is not None and function is not None and function.lines[0] <= before and not between:
            groups[-1].append(line)
        else:
            groups.append([line])
    for group in groups:
        pointer, code = facts.pointer(name, group[0]), parsed.code(group[0])
        code += "…)" if code.endswith("(") else ""
        yield Pointer(pointer.file, group[0], group[-1], None), code if len(group) == 1 else f"{code} …"


# --- what classes say of themselves ----------------------------------------------------------------------------------


IGNORED = "_keys_to_ignore_on_load_unexpected"


def ignored_line(facts: ModelFacts) -> list[Inline] | None:
    """What of the checkpoint loading leaves out, which is then in no figure."""
    names, place = _texts(facts, IGNORED)
    if place is None or not names:
        return None
    line: list[Inline] = ["loading leaves out what a checkpoint has under ", *joined([Code(name) for name in names])]
    line += [" (", place, "): it is no part of this model and of no figure here"]
    if facts.named.get("config.num_nextn_predict_layers"):
        line += [", though the config has ", Code("num_nextn_predict_layers"), " = "]
        line.append(facts.setting("num_nextn_predict_layers"))
    return line


def left_out(facts: ModelFacts) -> Iterator[list[Inline]]:
    """What of the checkpoint is in no figure, for the list of limitations."""
    line = ignored_line(facts)
    if line is not None:
        yield line


def flag(facts: ModelFacts, name: str) -> Pointer | None:
    """Where a class of the file sets an attribute to True."""
    for value, place in _declared(facts, name):
        if isinstance(value, ast.Constant) and value.value is True:
            return place
    return None


def _texts(facts: ModelFacts, name: str) -> tuple[list[str], Pointer | None]:
    for value, place in _declared(facts, name):
        items = value.elts if isinstance(value, ast.List | ast.Tuple) else []
        return [i.value for i in items if isinstance(i, ast.Constant) and isinstance(i.value, str)], place
    return [], None


def _declared(facts: ModelFacts, name: str) -> Iterator[tuple[ast.expr, Pointer]]:
    source = facts.sources[facts.model.class_name]
    for node in ast.walk(parse(source.path).tree):
        for statement in node.body if isinstance(node, ast.ClassDef) else ():
            match statement:
                case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                    yield value, facts.place(source.file, statement.lineno, name)
