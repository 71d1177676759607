"""Source as it is quoted to a reader: numbered lines, from files of the trees alone."""

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
from lmp.source.parsed import parse
from lmp.source.trees import SOURCE_SUFFIXES, Tree, Trees, check_file, walk_sources


@dataclass(frozen=True)
class Place:
    """A named piece of source: a class, a function, a constructor. ``lines`` are inclusive."""

    name: str
    tree: Tree
    path: Path
    lines: tuple[int, int]

    @property
    def file(self) -> str:
        """As analyses name it: relative to the tree's root."""
        return self.tree.relative(self.path)

    def __str__(self) -> str:
        return f"{self.name}: {self.file}, lines {self.lines[0]}-{self.lines[1]}"


def escaped(text: str, kept: str = "\n\t") -> str:
    """Text that can be shown: what a terminal would obey, or show in another order, is written out (``\\x1b``).

    Markup of the printer is the caller's: `rich.markup.escape`.
    """
    return "".join(c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text)


def numbered(path: Path, first: int, last: int) -> str:
    """Lines of a file with their numbers, as far as the file goes."""
    lines = parse(path).lines
    width = len(str(last))
    return "\n".join(f"{n:>{width}}  {escaped(lines[n - 1])}".rstrip() for n in range(first, min(last, len(lines)) + 1))


def source_file(name: str, trees: Trees) -> tuple[Tree, Path]:
    """The file of a tree that ``name`` means: relative to the tree's root, or absolute.

    Raises NotFound for what is not there, and for what is no Python source inside a tree, links resolved.
    """
    given = Path(name)
    outside = False
    for tree in trees:
        path = given if given.is_absolute() else tree.root / given
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


def definitions_named(name: str, trees: Trees) -> list[Place]:
    """Top-level classes and functions of that name in all trees, found by their text."""
    if not name.isidentifier():
        raise UsageError(f"{name!r} is no name\ngive a class path, or a bare name such as LlamaMLP")
    pattern = re.compile(rb"^(?:class|(?:async )?def) %s\b" % name.encode(), re.MULTILINE)
    return [
        Place(f"{_module_name(tree, path)}.{name}", tree, path, (node.lineno, node.end_lineno or node.lineno))
        for tree in trees
        for path in _sources(tree.package_dir, tree.root)
        if path.suffix == ".py" and pattern.search(file_bytes(path))
        for node in parse(path).tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name
    ]


def names_like(name: str, trees: Trees) -> list[str]:
    """Names of classes that are close to ``name``: for suggestions."""
    import difflib

    there: set[str] = set()
    for tree in trees:
        there |= _class_names(tree.package_dir, tree.root)
    return difflib.get_close_matches(name, sorted(there), n=5, cutoff=0.75)


@functools.lru_cache(maxsize=8)
def _sources(package_dir: Path, root: Path) -> tuple[Path, ...]:
    if package_dir.is_file():
        return (package_dir,)
    return tuple(path for path in walk_sources(package_dir, root) if not path.is_symlink())


@functools.lru_cache(maxsize=8)
def _class_names(package_dir: Path, root: Path) -> frozenset[str]:
    return frozenset(
        match.decode()
        for path in _sources(package_dir, root)
        for match in re.findall(rb"^class (\w+)", file_bytes(path), re.MULTILINE)
    )


def _module_name(tree: Tree, path: Path) -> str:
    if tree.package_dir.is_file():
        return tree.import_name
    parts = path.relative_to(tree.package_dir).with_suffix("").parts
    return ".".join([tree.import_name, *(part for part in parts if part != "__init__")])


# --- how a class is constructed --------------------------------------------------------------------------------------


def constructors(class_path: str, trees: Trees) -> list[Place]:
    """The ``__init__`` that runs, and those that it reaches through ``super()``, the outermost first."""
    names = Names(trees)
    places = []
    for entry, init in constructors_of(find_class(class_path, names), names):
        lines = (init.lineno, init.end_lineno or init.lineno)
        places.append(Place(f"{entry.qualified}.__init__", entry.module.tree, entry.path, lines))
    return places


def config_names(places: list[Place]) -> list[str]:
    """Attributes of a config that the given pieces of source read: ``config.X``, ``self.config.X``."""
    return list(dict.fromkeys(name for place in places for name in _read_from_config(place)))


def _read_from_config(place: Place) -> Iterator[str]:
    first, last = place.lines
    reads = [
        node
        for node in ast.walk(parse(place.path).tree)
        if isinstance(node, ast.Attribute) and first <= node.lineno <= last and _is_config(node.value)
    ]
    yield from (node.attr for node in sorted(reads, key=lambda node: (node.lineno, node.col_offset)))
    for node in ast.walk(parse(place.path).tree):
        if (
            isinstance(node, ast.Call)
            and first <= node.lineno <= last
            and isinstance(node.func, ast.Name)
            and node.func.id in ("getattr", "hasattr")
            and len(node.args) > 1
            and _is_config(node.args[0])
            and isinstance(node.args[1], ast.Constant)
        ):
            yield str(node.args[1].value)


def _is_config(node: ast.expr) -> bool:
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name == "config" or name.endswith("_config")
