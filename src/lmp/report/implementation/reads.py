"""Where the sources read each value of the config, and what the config's documentation says of it."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from lmp.report.document.parts import Inline, Pointer
from lmp.report.document.quoting import quoted, quoted_code
from lmp.report.facts import ModelFacts
from lmp.report.implementation.sources import Piece, Sources, module_name
from lmp.source.names import Definition, Names, dotted_name
from lmp.source.parsed import FunctionNode, parse

ANY = "*"
"""Ends the name of a read whose last part is made when it runs."""

CONFIGS = frozenset({"config", "text_config"})


def reads_of(facts: ModelFacts, sources: Sources) -> Mapping[str, list[Pointer]]:
    """Setting -> the places of the model's own code and of its config's that read it, in their order.

    A nested setting has its dotted name.
    """
    return _places(facts, sources, (*sources.own, *sources.config, *_decorating(facts, sources)))


def reads_of_bases(facts: ModelFacts, sources: Sources) -> Mapping[str, list[Pointer]]:
    """The same of the library's base classes."""
    return _places(facts, sources, tuple(piece for piece in sources.classes if not piece.own))


def _decorating(facts: ModelFacts, sources: Sources) -> Iterator[Piece]:
    """The functions that wrap a forward() of the model: they run around it at every call."""
    seen: set[tuple[Path, int]] = set()
    for piece in (p for p in sources.own if isinstance(p.node, ast.ClassDef)):
        for decorator in (d for m in methods(piece) if m.name == "forward" for d in m.decorator_list):
            names = Names(facts.trees)
            module = names.module(module_name(piece))
            dotted = dotted_name(decorator.func if isinstance(decorator, ast.Call) else decorator)
            found = names.dotted(module, dotted) if module is not None and dotted is not None else None
            is_new = isinstance(found, Definition) and (found.path, found.node.lineno) not in seen
            if is_new and isinstance(found, Definition) and isinstance(found.node, ast.FunctionDef):
                seen.add((found.path, found.node.lineno))
                yield Piece(found.module.tree, found.path, found.node, False)


def _places(facts: ModelFacts, sources: Sources, pieces: tuple[Piece, ...]) -> Mapping[str, list[Pointer]]:
    own_names = _own_names(sources)
    found: dict[str, dict[tuple[str, int], Pointer]] = {}
    for piece in pieces:
        for name, line in sorted(_reads(piece, piece in sources.config), key=lambda read: read[1]):
            if name.endswith(ANY):
                for full in (full for full in facts.settings if full.startswith(name.removesuffix(ANY))):
                    pointer = piece.pointer(line)
                    found.setdefault(full, {}).setdefault((pointer.file, line), pointer)
                continue
            setting = own_names.get(name, name)
            if setting not in facts.settings and name in facts.settings:
                setting = name
            pointer = piece.pointer(line, name.rpartition(".")[2])
            found.setdefault(setting, {}).setdefault((pointer.file, line), pointer)
    return {name: list(places.values()) for name, places in found.items()}


def _own_names(sources: Sources) -> dict[str, str]:
    """Standard name -> the config's own, as its ``attribute_map`` says."""
    found: dict[str, str] = {}
    for piece in sources.config:
        for statement in piece.node.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id="attribute_map")], value=ast.Dict(keys=keys, values=values)):
                    for key, value in zip(keys, values, strict=True):
                        if isinstance(key, ast.Constant) and isinstance(value, ast.Constant):
                            found.setdefault(str(key.value), str(value.value))
    return found


def own_name(sources: Sources, standard: str) -> str:
    return _own_names(sources).get(standard, standard)


def aliases_of(sources: Sources, name: str) -> list[str]:
    """Other names under which the config hands out a value of its own."""
    return [standard for standard, own in _own_names(sources).items() if own == name]


def _reads(piece: Piece, is_config: bool) -> Iterator[tuple[str, int]]:
    aliases: dict[str, str] = {}
    for node in ast.walk(piece.node):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            inside = next((n for n in ast.walk(node.value) if _read_name(n, is_config) is not None), None)
            if inside is not None and isinstance(node.value, ast.Attribute | ast.IfExp | ast.Subscript):
                aliases[node.targets[0].id] = _read_name(inside, is_config) or ""
    for node in ast.walk(piece.node):
        name = _read_name(node, is_config)
        if name is not None:
            yield name, node.lineno  # type: ignore[attr-defined]
        yield from _read_names(node, piece.node, is_config)
        beginning = _read_beginning(node, is_config)
        if beginning:
            yield f"{beginning}{ANY}", node.lineno  # type: ignore[attr-defined]
        part = _read_part(node, is_config, aliases)
        if part is not None:
            yield part, node.lineno  # type: ignore[attr-defined]


def _read_name(node: ast.AST, is_config: bool) -> str | None:
    match node:
        case ast.Attribute(value=value, attr=name, ctx=ast.Load()) if _is_config(value, is_config):
            return name
        case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[value, ast.Constant(value=str(name)), *_]):
            return name if _is_config(value, is_config) else None
    return None


def _read_names(node: ast.AST, around: ast.AST, is_config: bool) -> Iterator[tuple[str, int]]:
    """``getattr(config, name)`` in a loop over a list of names that stands there: the names."""
    match node:
        case ast.Call(func=ast.Name(id="getattr"), args=[value, ast.Name(id=variable), *_]) if _is_config(
            value, is_config
        ):
            pass
        case _:
            return
    lists = [
        statement.iter
        for statement in ast.walk(around)
        if isinstance(statement, ast.For) and isinstance(statement.target, ast.Name) and statement.target.id == variable
    ]
    for given in lists:
        held = _assigned_list(around, given.id) if isinstance(given, ast.Name) else given
        for item in held.elts if isinstance(held, ast.List | ast.Tuple) else ():
            if isinstance(item, ast.Constant) and isinstance(item.value, str):
                yield item.value, item.lineno


def _read_beginning(node: ast.AST, is_config: bool) -> str:
    """``output_`` of ``getattr(config, f"output_{kind}")``."""
    match node:
        case ast.Call(
            func=ast.Name(id="getattr"),
            args=[value, ast.JoinedStr(values=[ast.Constant(value=str(beginning)), *_]), *_],
        ) if _is_config(value, is_config):
            return beginning
    return ""


def _assigned_list(around: ast.AST, name: str) -> ast.expr | None:
    for node in ast.walk(around):
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                return value
    return None


def _read_part(node: ast.AST, is_config: bool, aliases: Mapping[str, str]) -> str | None:
    """A value of a dictionary that is itself a value of the config."""
    match node:
        case ast.Subscript(value=held, slice=ast.Constant(value=str(key))):
            pass
        case ast.Call(func=ast.Attribute(value=held, attr="get"), args=[ast.Constant(value=str(key)), *_]):
            pass
        case _:
            return None
    name = aliases.get(held.id) if isinstance(held, ast.Name) else _read_name(held, is_config)
    return f"{name}.{key}" if name else None


def _is_config(node: ast.expr, of_itself: bool) -> bool:
    match node:
        case ast.Name(id=name):
            return name in CONFIGS or (of_itself and name == "self")
        case ast.Attribute(attr=name):
            return name in CONFIGS
    return False


# --- what is said of them --------------------------------------------------------------------------------------------

_ARGUMENT = re.compile(r"^ {0,8}(\w+) \([^\n]*\):\s*\n((?:[ \t]+[^\n]*\n|[ \t]*\n(?=[ \t]{4,}\S))+)", re.MULTILINE)
SHARED = ("transformers.utils.auto_docstring", "ConfigArgs")
"""Where transformers keeps what it says of values that many configs have: its decorator puts it into their docs."""


def descriptions(facts: ModelFacts, sources: Sources) -> Mapping[str, str]:
    """Value -> the first sentence that the config's class, or what its decorator refers to, says of it."""
    found: dict[str, str] = dict(_shared(facts)) if _is_decorated(sources) else {}
    for piece in reversed(sources.config):
        text = inspect.cleandoc(ast.get_docstring(piece.node, clean=False) or "") + "\n"
        for argument in _ARGUMENT.finditer(text):
            found[argument[1]] = first_sentence(argument[2])
    return found


def _is_decorated(sources: Sources) -> bool:
    named = (ast.unparse(d) for piece in sources.config for d in piece.node.decorator_list)
    return any(name.startswith("auto_docstring") for name in named)


def _shared(facts: ModelFacts) -> Iterator[tuple[str, str]]:
    module = Names(facts.trees).module(SHARED[0]) if facts.trees.transformers is not None else None
    if module is None or module.path is None:
        return
    for node in parse(module.path).tree.body:
        if isinstance(node, ast.ClassDef) and node.name == SHARED[1]:
            for statement in node.body:
                match statement:
                    case ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict(keys=keys, values=values)):
                        for key, value in zip(keys, values, strict=True):
                            match key, value:
                                case ast.Constant(value="description"), ast.Constant(value=str(text)):
                                    yield name, first_sentence(text)


def first_sentence(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines()]
    drawn = next((n for n, line in enumerate(lines) if line.startswith("\\")), len(lines))
    joined = " ".join(" ".join(lines[:drawn]).split())
    end = re.search(r"\.(?= [A-Z]|$)", joined)
    return joined[: end.end()] if end else joined


def marked(text: str) -> list[Inline]:
    """Text of a docstring, in which backquotes mark code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return [quoted(text)]
    return [quoted_code(part) if index % 2 else quoted(part) for index, part in enumerate(parts) if part]


def methods(piece: Piece) -> Iterator[FunctionNode]:
    """The functions of a class's body, or the function itself."""
    if not isinstance(piece.node, ast.ClassDef):
        yield piece.node
        return
    yield from (node for node in piece.node.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
