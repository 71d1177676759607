"""The pieces of source that a model is made of: its classes with their bases, and the functions that they run through.

Read, never imported. What stands in a base class of a whole library (`PreTrainedModel`) is told from the model's own.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lmp.errors import NotFound
from lmp.report.document.parts import Pointer
from lmp.report.facts import ModelFacts, tree_label
from lmp.source.lines import enclosing_function
from lmp.source.locate import MODULE_CLASS, find_class, lineage_of
from lmp.source.names import Definition, Names, dotted_name
from lmp.source.parsed import FunctionNode, parse
from lmp.source.trees import Tree

NEAR = 3
"""Lines between a pointer and its symbol."""

MOST_STEPS = 3
"""Calls that lead from a model's own code to a function that is read too."""


@dataclass(frozen=True, eq=False)
class Piece:
    """A class or a function. ``own`` is False of bases in other files than the class that has them."""

    tree: Tree
    path: Path
    node: ast.ClassDef | FunctionNode
    own: bool
    qualname: str = ""
    """Of a method, with its class."""

    @property
    def file(self) -> str:
        return self.tree.relative(self.path)

    def pointer(self, line: int, symbol: str | None = None, end: int | None = None) -> Pointer:
        return Pointer(f"{tree_label(self.tree)}/{self.file}", line, end, symbol)

    def near(self, line: int, *symbols: str | None) -> Pointer:
        """A line with the first of the symbols that stands beside it, where one does."""
        return self.pointer(line, standing(self.path, line, *symbols))

    @property
    def here(self) -> Pointer:
        return self.pointer(self.node.lineno, self.qualname or self.node.name)


@dataclass(frozen=True, eq=False)
class Sources:
    """Everything that was read, the model's own code first."""

    classes: tuple[Piece, ...]
    functions: tuple[Piece, ...]
    config: tuple[Piece, ...]
    """The config's class and its bases, the library's common one left out."""

    @property
    def own(self) -> tuple[Piece, ...]:
        """Classes and functions that belong to the model, without the library's bases."""
        return tuple(piece for piece in (*self.classes, *self.functions) if piece.own)

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(piece.file for piece in (*self.own, *self.config)))

    @property
    def searched(self) -> str:
        """The files' names, for "none found (searched: …)"."""
        return ", ".join(dict.fromkeys(file.rpartition("/")[2] for file in self.files)) or "no file"


def standing(path: Path, line: int, *symbols: str | None) -> str | None:
    """The first of the symbols whose last part is on the line, else the first within three lines of it."""
    lines = parse(path).lines
    for near in (0, NEAR):
        text = "\n".join(lines[max(0, line - 1 - near) : line + near])
        for symbol in symbols:
            if symbol and re.search(rf"(?<!\w){re.escape(symbol.rpartition('.')[2])}(?!\w)", text):
                return symbol
    return None


def place_near(facts: ModelFacts, class_name: str, line: int, file: str | None, *symbols: str | None) -> Pointer:
    """A kernel's line with the first of the symbols that stands there."""
    pointer = facts.pointer(class_name, line, None, file)
    path = facts.trees.path_of(file) if file is not None else facts.sources[class_name].forward_path
    found = None if path is None else standing(path, line, *symbols)
    return Pointer(pointer.file, line, None, found)


CONFIG_BASES = frozenset({"PreTrainedConfig", "PretrainedConfig"})


@functools.lru_cache(maxsize=2)
def sources_of(facts: ModelFacts) -> Sources:
    """The sources of a model's classes, of what they run through, and of its config."""
    names = Names(facts.trees)
    classes = list(_classes(facts, names))
    functions = list(_with_called(facts, names, classes))
    return Sources(tuple(classes), tuple(functions), tuple(_config(facts, names)))


def _classes(facts: ModelFacts, names: Names) -> Iterator[Piece]:
    seen: set[tuple[Path, int]] = set()
    bases: list[Piece] = []
    for name in facts.sources:
        try:
            definition = find_class(name, names)
        except NotFound:
            continue  # of a notebook: there is no file to point to
        for entry in lineage_of(definition, names).order:
            if entry.qualified == MODULE_CLASS or (entry.path, entry.node.lineno) in seen:
                continue
            seen.add((entry.path, entry.node.lineno))
            own = entry.path == definition.path
            piece = Piece(entry.module.tree, entry.path, entry.node, own)
            if own:
                yield piece
            else:
                bases.append(piece)
    yield from bases


def _config(facts: ModelFacts, names: Names) -> Iterator[Piece]:
    if facts.config_class is None:
        return
    try:
        definition = find_class(facts.config_class, names)
    except NotFound:
        return
    found = list(_lineage(definition, names))
    inner = [_part_of(piece, facts.part.removesuffix("."), names) for piece in found] if facts.part else []
    for part in inner:
        found += [] if part is None else list(_lineage(part, names))
    yield from found


def _lineage(definition: Definition, names: Names) -> Iterator[Piece]:
    for entry in lineage_of(definition, names).order:
        if entry.node.name in CONFIG_BASES:
            return
        yield Piece(entry.module.tree, entry.path, entry.node, True)


def _part_of(piece: Piece, part: str, names: Names) -> Definition | None:
    """The class that a config's class names for a part of it: ``sub_configs = {"text_config": TextConfig}``."""
    module = names.module(module_name(piece))
    for statement in piece.node.body if module is not None else ():
        match statement:
            case ast.Assign(value=ast.Dict(keys=keys, values=values)):
                for key, value in zip(keys, values, strict=True):
                    if isinstance(key, ast.Constant) and key.value == part and isinstance(value, ast.Name):
                        found = names.dotted(module, value.id)  # type: ignore[arg-type]
                        return found if isinstance(found, Definition) else None
    return None


# --- functions -------------------------------------------------------------------------------------------------------


def _with_called(facts: ModelFacts, names: Names, classes: list[Piece]) -> Iterator[Piece]:
    """Functions that have kernels, those of their files that they call, and those that are handed a config."""
    seen = {(piece.path, piece.node.lineno) for piece in classes}
    ran = list(_ran(facts, seen))
    yield from ran
    waiting = [(piece, 1) for piece in (*(c for c in classes if c.own), *ran)]
    ran_files = {(piece.path, piece.node.lineno) for piece in ran}
    while waiting:
        piece, depth = waiting.pop(0)
        for definition in _called_by(piece, facts, names):
            node = definition.node
            key = (definition.path, node.lineno)
            if key in seen or isinstance(node, ast.ClassDef):
                continue
            beside = (piece.path, piece.node.lineno) in ran_files and definition.path == piece.path
            if not beside and "config" not in {a.arg for a in (*node.args.args, *node.args.kwonlyargs)}:
                continue
            seen.add(key)
            found = Piece(definition.module.tree, definition.path, node, True)
            yield found
            if depth < MOST_STEPS:
                waiting.append((found, depth + 1))


def _ran(facts: ModelFacts, seen: set[tuple[Path, int]]) -> Iterator[Piece]:
    places = (
        (kernel.file or analysis.source.file, kernel.line)
        for analysis in facts.analyses.values()
        for kernel in analysis.kernels
        if kernel.function is not None
    )
    for file, line in dict.fromkeys(places):
        path = facts.trees.path_of(file)
        tree = next((t for t in facts.trees if path is not None and path.is_relative_to(t.package_dir)), None)
        node = None if path is None else _innermost(parse(path).tree, line)
        if path is None or tree is None or node is None or (path, node.lineno) in seen:
            continue
        seen.add((path, node.lineno))
        function = enclosing_function(path, line)
        yield Piece(tree, path, node, True, function.qualname.replace(".<locals>", "") if function is not None else "")


def _innermost(module: ast.Module, line: int) -> ast.ClassDef | FunctionNode | None:
    """The innermost function that a line stands in."""
    found = None
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.lineno <= line <= (node.end_lineno or 0):
            found = node if found is None or node.lineno > found.lineno else found
    return found


def _called_by(piece: Piece, facts: ModelFacts, names: Names) -> Iterator[Definition]:
    module = names.module(module_name(piece))
    if module is None:
        return
    for node in ast.walk(piece.node):
        if isinstance(node, ast.Call):
            dotted = dotted_name(node.func)
            found = names.dotted(module, dotted) if dotted is not None else None
            if isinstance(found, Definition):
                yield found
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            yield from _chosen(piece, node.value.id, facts, names)


def module_name(piece: Piece) -> str:
    if piece.path == piece.tree.package_dir:  # a tree of a single file
        return piece.tree.import_name
    relative = piece.path.relative_to(piece.tree.package_dir).with_suffix("")
    return ".".join([piece.tree.import_name, *(part for part in relative.parts if part != "__init__")])


def _chosen(piece: Piece, name: str, facts: ModelFacts, names: Names) -> Iterator[Definition]:
    """Functions in an imported dictionary under a key that some value of the config is: `FUNCTIONS[config.kind]`."""
    given = {value for value in facts.settings.values() if isinstance(value, str)}
    package = module_name(piece) if piece.path.name == "__init__.py" else module_name(piece).rpartition(".")[0]
    for statement in parse(piece.path).tree.body:
        if not isinstance(statement, ast.ImportFrom) or name not in {a.asname or a.name for a in statement.names}:
            continue
        dotted = "." * statement.level + (statement.module or "")
        origin = names.module(importlib.util.resolve_name(dotted, package) if statement.level else dotted)
        if origin is None or origin.path is None:
            continue
        for assigned in parse(origin.path).tree.body:
            match assigned:
                case (
                    ast.Assign(targets=[ast.Name(id=target)], value=ast.Dict() as table)
                    | ast.AnnAssign(target=ast.Name(id=target), value=ast.Dict() as table)
                ) if target == name:
                    pass
                case _:
                    continue
            for key, value in zip(table.keys, table.values, strict=True):
                if isinstance(key, ast.Constant) and key.value in given and isinstance(value, ast.Name):
                    found = names.dotted(origin, value.id)
                    if isinstance(found, Definition):
                        yield found
