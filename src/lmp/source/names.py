"""Name resolution by reading source: follows imports, re-exports, star imports and aliases.

The rules are Python's as far as possible. The last binding of a name in a module wins. An import of a name prefers the
module's attribute to its submodule. All branches of a module's ``if`` and ``try`` are read: the imports under
``TYPE_CHECKING`` show the content of transformers' lazy modules.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lmp.errors import NotFound, Search, UsageError
from lmp.source.parsed import FunctionNode, ParsedFile, parse
from lmp.source.trees import Tree, Trees

_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


@dataclass(frozen=True)
class Module:
    """A module of a tree. ``path`` is its file; None for a folder without ``__init__.py``."""

    name: str
    tree: Tree
    path: Path | None
    folder: Path | None
    """The folder, if the module is a package."""

    @property
    def package(self) -> str:
        """The package that relative imports start from."""
        return self.name if self.folder is not None else self.name.rpartition(".")[0]


@dataclass(frozen=True, eq=False)
class Definition:
    """A class or function at its definition."""

    module: Module
    node: ast.ClassDef | FunctionNode

    @property
    def qualified(self) -> str:
        return f"{self.module.name}.{self.node.name}"

    @property
    def path(self) -> Path:
        assert self.module.path is not None
        return self.module.path

    @property
    def parsed(self) -> ParsedFile:
        return parse(self.path)


@dataclass(frozen=True)
class External:
    """A name outside of the trees, resolved as far as possible."""

    name: str


Found = Definition | Module | External


def is_class_path(text: str) -> bool:
    """True for dotted names."""
    return _DOTTED.fullmatch(text) is not None


def check_class_path(class_path: str) -> None:
    """Raise UsageError for a path that is no dotted name: it names a results folder and must not lead out of it."""
    if not is_class_path(class_path):
        raise UsageError(
            f"{class_path!r} is not a class path\n"
            "give dotted names only, as in transformers.models.llama.modeling_llama.LlamaMLP"
        )


# --- bindings of a module --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Import:
    """``from module import name``; with an empty ``name``, ``import module``."""

    module: str
    name: str = ""


@dataclass(frozen=True)
class _Alias:
    """An assignment ``X = a.b.C``."""

    dotted: str


_Binding = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | _Import | _Alias


@dataclass(frozen=True, eq=False)
class _Bindings:
    names: dict[str, list[_Binding]]
    stars: list[str]
    exported: frozenset[str] | None
    """``__all__`` if it is a literal; None if there is none or it is computed."""


@functools.lru_cache(maxsize=2048)
def _bindings(parsed: ParsedFile, package: str) -> _Bindings:
    names: dict[str, list[_Binding]] = {}
    stars: list[str] = []
    exported: frozenset[str] | None = None
    for statement in _module_level(parsed.tree.body):
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.setdefault(statement.name, []).append(statement)
        elif isinstance(statement, ast.Import):
            for alias in statement.names:
                # `import a.b` binds a; `import a.b as c` binds c to a.b.
                bound = alias.asname or alias.name.partition(".")[0]
                names.setdefault(bound, []).append(_Import(alias.name if alias.asname else bound))
        elif isinstance(statement, ast.ImportFrom):
            source = _absolute(statement, package)
            for alias in statement.names:
                if alias.name == "*":
                    stars.append(source)
                else:
                    names.setdefault(alias.asname or alias.name, []).append(_Import(source, alias.name))
        elif isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            target_dotted = dotted_name(statement.value)
            for target in targets:
                if not isinstance(target, ast.Name):
                    continue
                if target.id == "__all__":
                    exported = _literal_names(statement.value)
                elif target_dotted:
                    names.setdefault(target.id, []).append(_Alias(target_dotted))
    return _Bindings(names, stars, exported)


def _module_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run when the module is imported, in all branches."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If | ast.Try | ast.With | ast.For | ast.While):
            for part in ("body", "handlers", "orelse", "finalbody"):
                for inner in getattr(statement, part, []):
                    yield from _module_level(inner.body if isinstance(inner, ast.ExceptHandler) else [inner])


def _absolute(statement: ast.ImportFrom, package: str) -> str:
    if not statement.level:
        return statement.module or ""
    parts = package.split(".")
    base = ".".join(parts[: len(parts) - statement.level + 1])
    return ".".join(part for part in (base, statement.module) if part)


def _literal_names(value: ast.expr) -> frozenset[str] | None:
    if not isinstance(value, ast.List | ast.Tuple):
        return None
    names = [e.value for e in value.elts if isinstance(e, ast.Constant) and isinstance(e.value, str)]
    return frozenset(names) if len(names) == len(value.elts) else None


def dotted_name(node: ast.expr) -> str | None:
    """``a.b.C`` of a name or a chain of attributes; for ``Generic[T]``, of the subscripted name. Else None."""
    if isinstance(node, ast.Subscript):
        return dotted_name(node.value)
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        head = dotted_name(node.value)
        return f"{head}.{node.attr}" if head else None
    return None


# --- looking up ------------------------------------------------------------------------------------------------------


class Names:
    """Resolver of names in the given trees. ``searched`` lists the places, for an error or SCRATCHPAD.md."""

    def __init__(self, trees: Trees) -> None:
        self.trees = trees
        self.searched: list[Search] = []
        self._found: dict[tuple[str, str], Found | None] = {}
        self._modules: dict[str, Module | None] = {}

    def module(self, name: str) -> Module | None:
        """The module ``name``, or None."""
        if name not in self._modules:
            self._modules[name] = self._find_module(name)
        return self._modules[name]

    def _find_module(self, name: str) -> Module | None:
        head, *rest = name.split(".")
        tree = self.trees.of_package(head)
        if tree is None:
            return None
        single = tree.module is not None
        folder: Path | None = None if single else tree.package_dir
        path: Path | None = tree.package_dir if single else _first_file(tree.package_dir, "__init__")
        for part in rest:
            if folder is None:
                return None
            inner = folder / part
            path = _first_file(inner, "__init__")
            if path is not None or (inner.is_dir() and _first_file(folder, part) is None):
                folder = inner
            else:
                path, folder = _first_file(folder, part), None
                if path is None:
                    return None
        if path is not None and not path.resolve().is_relative_to(tree.root.resolve()):
            self.searched.append(Search(f"module {name}", str(path), "a symbolic link out of the tree: not followed"))
            return None
        return Module(name, tree, path, folder)

    def attribute(self, module: Module, name: str) -> Found | None:
        """The binding of ``name`` in ``module``, or its submodule of that name; None if there is none."""
        found = self._lookup(module, name, frozenset())
        return found or self.module(f"{module.name}.{name}")

    def dotted(self, module: Module, dotted: str) -> Found | None:
        """The binding of ``a.b.C`` as written in ``module``."""
        return self._dotted(module, dotted, frozenset())

    def classes(self, module: Module) -> list[str]:
        """The class names that ``module`` defines, imports or exports through star imports, for suggestions."""
        offered: set[str] = set()
        waiting, seen = [module], {module.name}
        while waiting:
            here = waiting.pop()
            if here.path is None:
                continue
            # A text search, because parsing transformers' star-imported files would take half a minute.
            text = file_bytes(here.path)
            offered.update(match.decode() for match in re.findall(rb"^class (\w+)", text, re.MULTILINE))
            if here is module or here.folder is not None or b"import *" in text:
                with contextlib.suppress(NotFound):
                    bindings = _bindings(parse(here.path), here.package)
                    offered.update(name for name in bindings.names if name[0].isupper())
                    stars = [self.module(star) for star in bindings.stars]
                    waiting += [star for star in stars if star is not None and star.name not in seen]
                    seen.update(bindings.stars)
        return sorted(offered)

    def _dotted(self, module: Module, dotted: str, seen: frozenset[tuple[str, str]]) -> Found | None:
        head, *rest = dotted.split(".")
        found = self._lookup(module, head, seen)
        for i, part in enumerate(rest):
            if isinstance(found, External):
                return External(".".join([found.name, *rest[i:]]))
            if not isinstance(found, Module):
                return None
            found = self._lookup(found, part, seen) or self.module(f"{found.name}.{part}")
        return found

    def _lookup(self, module: Module, name: str, seen: frozenset[tuple[str, str]]) -> Found | None:
        """``seen`` are the pending look-ups. A look-up that recurs inside itself finds nothing there."""
        key = (module.name, name)
        if key in self._found:
            return self._found[key]
        if key in seen or module.path is None:
            return None
        bindings = _bindings(parse(module.path), module.package)
        inside = seen | {key}
        external: Found | None = None
        found: Found | None = None
        for binding in reversed(bindings.names.get(name, [])):
            found = self._follow(module, binding, inside)
            if isinstance(found, External):
                # `try: from fast import X; except ImportError: class X` binds twice: the readable binding is preferred.
                external, found = found, None
            if found is not None:
                break
        if found is None:
            found = self._through_stars(bindings, name, inside) or external
        if found is not None or not seen:  # inside a cycle None may only mean: not on this way
            self._found[key] = found
        return found

    def _follow(self, module: Module, binding: _Binding, seen: frozenset[tuple[str, str]]) -> Found | None:
        if isinstance(binding, _Alias):
            return self._dotted(module, binding.dotted, seen)
        if not isinstance(binding, _Import):
            return Definition(module, binding)
        source = self.module(binding.module)
        if source is None:
            return External(f"{binding.module}.{binding.name}".rstrip("."))
        if not binding.name:
            return source
        found = self._quietly(source, binding.name, seen) or self.module(f"{source.name}.{binding.name}")
        return found or External(f"{binding.module}.{binding.name}")

    def _through_stars(self, bindings: _Bindings, name: str, seen: frozenset[tuple[str, str]]) -> Found | None:
        for star in reversed(bindings.stars):
            source = self.module(star)
            if source is None or source.path is None or not _may_export(source.path, name):
                continue
            try:
                exported = _bindings(parse(source.path), source.package).exported
            except NotFound as error:
                self.searched += error.searched
                continue
            if name in exported if exported is not None else not name.startswith("_"):
                found = self._quietly(source, name, seen)
                if found is not None and not isinstance(found, External):
                    return found
        return None

    def _quietly(self, module: Module, name: str, seen: frozenset[tuple[str, str]]) -> Found | None:
        """Like ``_lookup``, but a file that cannot be parsed is recorded and counts as empty."""
        try:
            return self._lookup(module, name, seen)
        except NotFound as error:
            self.searched += error.searched
            return None


def _first_file(folder: Path, stem: str) -> Path | None:
    for suffix in (".py", ".pyi"):
        path = folder / f"{stem}{suffix}"
        if path.is_file():
            return path
    return None


def _may_export(path: Path, name: str) -> bool:
    """False if the file's text rules the name out, as for nearly all of transformers' 1500 star-imported files."""
    text = file_bytes(path)
    if b"import *" in text:
        return True
    wanted = name.encode()
    if wanted not in text:
        return False
    return b"__all__" not in text or b'"%s"' % wanted in text or b"'%s'" % wanted in text


def file_bytes(path: Path) -> bytes:
    """The file's content; empty if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
