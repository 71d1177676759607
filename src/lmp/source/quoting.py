"""Quotations of source for a reader: numbered lines, only from files of the trees."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lmp.errors import NotFound, Search, UsageError
from lmp.source.constructed import constructors_of
from lmp.source.locate import find_class
from lmp.source.names import Names, file_bytes
from lmp.source.parsed import ParsedFile, parse
from lmp.source.trees import SOURCE_SUFFIXES, Tree, Trees, check_file, walk_sources


@dataclass(frozen=True)
class SourceRange:
    """A named range of source lines: a class, a function, a constructor. ``lines`` are inclusive."""

    name: str
    tree: Tree
    path: Path
    lines: tuple[int, int]

    @property
    def file(self) -> str:
        """Path relative to the tree's root, as in analyses."""
        return self.tree.relative(self.path)

    def __str__(self) -> str:
        return f"{self.name}: {self.file}, lines {self.lines[0]}-{self.lines[1]}"


def escaped(text: str, kept: str = "\n\t") -> str:
    """Text that is safe to print: control characters and those that change the order are escaped (``\\x1b``).

    Markup of the printer is escaped by the caller: `rich.markup.escape`.
    """
    return "".join(c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text)


def numbered(path: Path, first: int, last: int) -> str:
    """Lines of a file with their numbers, up to the end of the file."""
    lines = parse(path).lines
    width = len(str(last))
    return "\n".join(f"{n:>{width}}  {escaped(lines[n - 1])}".rstrip() for n in range(first, min(last, len(lines)) + 1))


def source_file(name: str, trees: Trees) -> tuple[Tree, Path]:
    """The tree and the path of a file, whose name is absolute or relative to the tree's root.

    Raises NotFound if, with links resolved, there is no such Python source inside a tree.
    """
    given = Path(name)
    outside = False
    for tree in trees:
        path = given if given.is_absolute() else tree.path(name) or tree.root / given
        if not path.is_file() or path.suffix not in SOURCE_SUFFIXES:
            continue
        if not path.resolve().is_relative_to(tree.package_dir.resolve()):
            outside = True
            continue
        inside = tree.package_dir / path.resolve().relative_to(tree.package_dir.resolve())
        check_file(tree, inside)
        return tree, inside
    why = "it is outside of the source trees" if outside else "no such Python source in the trees"
    shown = ", ".join(f"{tree.name} ({tree.relative(tree.package_dir)}/)" for tree in trees) or "none"
    raise NotFound(
        f"{name}: {why}\nname a file from a tree's root, as in src/transformers/cache_utils.py; trees: {shown}",
        [Search(f"file {name}", str(tree.root), why) for tree in trees],
    )


def definitions_named(name: str, trees: Trees) -> list[SourceRange]:
    """Top-level classes and functions of a name in all trees, found by their text. Raises UsageError for a bad name."""
    if not name.isidentifier():
        raise UsageError(f"{name!r} is not a name\ngive a class path, or a bare name such as LlamaMLP")
    pattern = re.compile(rb"^(?:class|(?:async )?def) %s\b" % name.encode(), re.MULTILINE)
    return [
        SourceRange(f"{_module_name(tree, path)}.{name}", tree, path, (node.lineno, node.end_lineno or node.lineno))
        for tree in trees
        for path in _source_files(tree.package_dir, tree.root)
        if path.suffix == ".py" and pattern.search(file_bytes(path))
        for node in parse(path).tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name
    ]


def names_like(name: str, trees: Trees) -> list[str]:
    """Names of classes that are similar to ``name``, for suggestions."""
    import difflib

    there: set[str] = set()
    for tree in trees:
        there |= _class_names(tree.package_dir, tree.root)
    return difflib.get_close_matches(name, sorted(there), n=5, cutoff=0.75)


@functools.lru_cache(maxsize=8)
def _source_files(package_dir: Path, root: Path) -> tuple[Path, ...]:
    if package_dir.is_file():
        return (package_dir,)
    return tuple(path for path in walk_sources(package_dir, root) if not path.is_symlink())


@functools.lru_cache(maxsize=8)
def _class_names(package_dir: Path, root: Path) -> frozenset[str]:
    return frozenset(
        match.decode()
        for path in _source_files(package_dir, root)
        for match in re.findall(rb"^class (\w+)", file_bytes(path), re.MULTILINE)
    )


def _module_name(tree: Tree, path: Path) -> str:
    if tree.package_dir.is_file():
        return tree.import_name
    parts = path.relative_to(tree.package_dir).with_suffix("").parts
    return ".".join([tree.import_name, *(part for part in parts if part != "__init__")])


# --- how a class is constructed --------------------------------------------------------------------------------------


def constructors(class_path: str, trees: Trees) -> list[SourceRange]:
    """The ``__init__`` that runs and those that it calls through ``super()``, the outermost first."""
    names = Names(trees)
    places = []
    for entry, init in constructors_of(find_class(class_path, names), names):
        lines = (init.lineno, init.end_lineno or init.lineno)
        places.append(SourceRange(f"{entry.qualified}.__init__", entry.module.tree, entry.path, lines))
    return places


def config_names(places: list[SourceRange]) -> list[str]:
    """Attributes of a config that the given ranges read: ``config.X``, ``self.config.X``."""
    return list(dict.fromkeys(name for place in places for name in _read_from_config(place)))


def _read_from_config(place: SourceRange) -> Iterator[str]:
    first, last = place.lines
    return (name for line, name in _config_reads(parse(place.path)) if first <= line <= last)


@functools.lru_cache(maxsize=64)
def _config_reads(module: ParsedFile) -> tuple[tuple[int, str], ...]:
    """Line and attribute of each read of a config in a file: ``config.X`` first, then ``getattr(config, "X")``."""
    nodes = list(ast.walk(module.tree))
    reads = [node for node in nodes if isinstance(node, ast.Attribute) and _is_config(node.value)]
    reads.sort(key=lambda node: (node.lineno, node.col_offset))
    by_name = [
        (node.lineno, str(node.args[1].value))
        for node in nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("getattr", "hasattr")
        and len(node.args) > 1
        and _is_config(node.args[0])
        and isinstance(node.args[1], ast.Constant)
    ]
    return (*((node.lineno, node.attr) for node in reads), *by_name)


def _is_config(node: ast.expr) -> bool:
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name == "config" or name.endswith("_config")
