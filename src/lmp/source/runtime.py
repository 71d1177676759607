"""The source of an imported class: its file, its tree and its lines, in scripts and notebooks too."""

from __future__ import annotations

import ast
import inspect
import sys
from pathlib import Path
from typing import Any

from lmp.errors import NotFound, Search
from lmp.source.lines import enclosing_function
from lmp.source.locate import ClassSource
from lmp.source.parsed import ParsedFile, parse
from lmp.source.trees import UNKNOWN, Tree, Trees, source_version


def path_of(cls: type[Any]) -> str:
    """The class's path. Raises NotFound for a class that is defined inside a function, which has none."""
    if "<locals>" in cls.__qualname__:
        raise NotFound(
            f"{cls.__module__}.{cls.__qualname__} is defined inside a function\n"
            "define it at the top of its file: results are stored under its path"
        )
    return f"{cls.__module__}.{cls.__qualname__}"


def tree_of(cls: type[Any]) -> Tree:
    """The tree of a class: a package, a single file or a notebook's cell. Raises NotFound."""
    top = cls.__module__.partition(".")[0]
    package = sys.modules.get(top)
    file = getattr(package, "__file__", None)
    if file is not None:
        path = Path(file).absolute()
        if path.stem == "__init__":
            return Tree(top, path.parent.parent, path.parent, top, source_version(path.parent.parent, path.parent))
        return Tree(top, path.parent, path, top, UNKNOWN, module=top)
    own = Path(str(getattr(sys.modules.get(cls.__module__), "__file__", None) or _forward_file(cls)))
    for folder in map(Path, getattr(package, "__path__", ())):
        if own.is_relative_to(folder):
            return Tree(top, folder.parent, folder, top, UNKNOWN)
    return Tree(top, own.parent, own, top, UNKNOWN, module=top)


def locate_class(cls: type[Any], trees: Trees) -> ClassSource:
    """The source of a loaded class and of its ``forward()``. Raises NotFound if there is none to quote."""
    class_path = path_of(cls)
    path = Path(_forward_file(cls))
    try:
        parsed = parse(path)
    except NotFound as error:
        raise _no_source(class_path, str(path)) from error
    code = inspect.unwrap(cls.forward).__code__
    forward = enclosing_function(path, code.co_firstlineno)
    if forward is None:
        raise _no_source(class_path, str(path))
    holder = next(c for c in cls.__mro__ if "forward" in vars(c))
    home = next((tree for tree in trees if path.resolve().is_relative_to(tree.package_dir.resolve())), tree_of(holder))
    own = next((tree for tree in trees if tree.import_name == cls.__module__.partition(".")[0]), tree_of(cls))
    file = path if holder is cls else Path(inspect.getsourcefile(cls) or path)
    return ClassSource(
        class_path=class_path,
        requested=class_path,
        name=cls.__name__,
        module=cls.__module__,
        tree=own,
        file=_relative(own, file),
        path=file,
        class_lines=_class_lines(parse(file), cls.__qualname__) or forward.lines,
        lines=forward.lines,
        forward_qualname=forward.qualname,
        forward_class=f"{holder.__module__}.{holder.__qualname__}",
        forward_tree=home,
        forward_file=_relative(home, path),
        forward_path=path,
        sha256=parsed.sha256,
        bases=tuple(f"{b.__module__}.{b.__qualname__}" for b in cls.__bases__),
        mro=tuple(f"{b.__module__}.{b.__qualname__}" for b in cls.__mro__),
    )


def _relative(tree: Tree, path: Path) -> str:
    path, root, package_dir = path.resolve(), tree.root.resolve(), tree.package_dir.resolve()
    if path.is_relative_to(package_dir):
        return tree.relative(tree.package_dir / path.relative_to(package_dir))
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name


def _forward_file(cls: type[Any]) -> str:
    code = getattr(inspect.unwrap(cls.forward), "__code__", None)
    if code is None:
        raise _no_source(f"{cls.__module__}.{cls.__qualname__}", "no Python function")
    return str(code.co_filename)


def _class_lines(parsed: ParsedFile, qualname: str) -> tuple[int, int] | None:
    body: list[ast.stmt] = parsed.tree.body
    found: ast.ClassDef | None = None
    for part in qualname.split("."):
        found = next((n for n in reversed(body) if isinstance(n, ast.ClassDef) and n.name == part), None)
        if found is None:
            return None
        body = found.body
    if found is None:
        return None
    return min([found.lineno, *(d.lineno for d in found.decorator_list)]), found.end_lineno or found.lineno


def _no_source(class_path: str, where: str) -> NotFound:
    return NotFound(
        f"there is no source of {class_path}.forward() to quote lines from (looked at {where})\n"
        "define the class in a file, or in a cell of a notebook, not in a text that is executed",
        [Search(f"source of {class_path}", where, "nothing that can be read")],
    )
