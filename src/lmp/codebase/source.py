"""One Python file, parsed: its nodes by kind with the scope that each stands in, and what its names mean.

A ``Source`` lives while its file is read and is let go then. Walking is iterative, so that deeply nested code is no
error of ours; what Python's own parser cannot take is Unreadable.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from lmp.codebase.modules import absolute
from lmp.codebase.texts import Unreadable

Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
KEPT = (
    ast.Import,
    ast.ImportFrom,
    ast.ClassDef,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.Call,
    ast.Subscript,
    ast.Compare,
    ast.Assign,
    ast.AnnAssign,
    ast.NamedExpr,
    ast.If,
    ast.With,
    ast.Expr,
)
N = TypeVar("N", bound=ast.AST)


class DoesNotParse(Unreadable):
    """Text that is no Python; it can still be read by its lines."""


@dataclass(frozen=True, eq=False)
class Scope:
    """A class or function around a node; the module has none."""

    node: ast.ClassDef | Function
    qualname: str
    outer: Scope | None

    @property
    def is_class(self) -> bool:
        return isinstance(self.node, ast.ClassDef)

    def function(self) -> Scope | None:
        """The innermost function, this one included."""
        scope: Scope | None = self
        while scope is not None and scope.is_class:
            scope = scope.outer
        return scope

    def class_(self) -> Scope | None:
        """The class that this is, or that it is a method of or inside of."""
        scope: Scope | None = self
        while scope is not None and not scope.is_class:
            scope = scope.outer
        return scope


@dataclass
class Source:
    file: str
    text: str
    tree: ast.Module
    _nodes: dict[type, list[tuple[ast.AST, Scope | None]]] = field(default_factory=dict)
    _dotted: dict[int, str] = field(default_factory=dict)
    """By the node's identity, which holds while the tree does; asked for many times."""

    def all(self, kind: type[N]) -> list[tuple[N, Scope | None]]:
        """The nodes of a kind, each with its scope, in the order of the file."""
        return self._nodes.get(kind, [])  # type: ignore[return-value]

    def every_function(self) -> Iterator[tuple[Function, Scope | None]]:
        yield from self.all(ast.FunctionDef)
        yield from self.all(ast.AsyncFunctionDef)

    def written(self, node: ast.AST) -> str:
        """The node as it stands in the file, on one line."""
        first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
        if first is None or last is None:
            return ""
        start, end = node.col_offset, node.end_col_offset  # type: ignore[attr-defined]
        if first == last:
            return self._lines[first - 1][start:end].decode("utf-8", "replace")
        parts = [
            self._lines[first - 1][start:],
            *self._lines[first : last - 1],
            self._lines[last - 1][:end],
        ]
        kept = (part.decode("utf-8", "replace").strip() for part in parts)
        return " ".join(part for part in kept if part and not part.startswith("#"))

    @cached_property
    def _lines(self) -> list[bytes]:
        """Columns of ``ast`` count bytes of UTF-8."""
        return self.text.encode("utf-8", "surrogatepass").split(b"\n")

    @cached_property
    def aliases(self) -> dict[str, str]:
        """What each imported name means, wherever in the file it is imported."""
        found: dict[str, str] = {}
        for imported, _ in self.all(ast.Import):
            for alias in imported.names:
                if alias.asname:
                    found[alias.asname] = alias.name
                else:
                    top = alias.name.split(".")[0]
                    found[top] = top
        for taken, _ in self.all(ast.ImportFrom):
            base = absolute(taken.module or "", taken.level, self.file)
            for alias in taken.names:
                if alias.name != "*":
                    found[alias.asname or alias.name] = f"{base}.{alias.name}" if base else alias.name
        return found

    @cached_property
    def imports(self) -> tuple[str, ...]:
        """Modules and names as written; a relative one with its dots."""
        found: dict[str, None] = {}
        for imported, _ in self.all(ast.Import):
            found.update(dict.fromkeys(alias.name for alias in imported.names))
        for taken, _ in self.all(ast.ImportFrom):
            base = "." * taken.level + (taken.module or "")
            joint = "" if base.endswith(".") or not base else "."
            found.update(dict.fromkeys(base if a.name == "*" else f"{base}{joint}{a.name}" for a in taken.names))
        return tuple(sorted(found))

    def dotted(self, node: ast.AST) -> str:
        """``np.foo.bar`` as ``numpy.foo.bar``; empty where this is no name."""
        found = self._dotted.get(id(node))
        if found is None:
            found = self._dotted[id(node)] = self._dotted_anew(node)
        return found

    def _dotted_anew(self, node: ast.AST) -> str:
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        parts.append(self.aliases.get(node.id, node.id))
        return ".".join(reversed(parts))

    @cached_property
    def constants(self) -> dict[str, ast.expr]:
        """What the module assigns to a name, where it does so exactly once, at its top level or under an if or try."""
        seen: dict[str, list[ast.expr]] = {}
        for node, scope in self.all(ast.Assign):
            for target in node.targets if scope is None else ():
                if isinstance(target, ast.Name):
                    seen.setdefault(target.id, []).append(node.value)
        for marked, scope in self.all(ast.AnnAssign):
            if scope is None and marked.value is not None and isinstance(marked.target, ast.Name):
                seen.setdefault(marked.target.id, []).append(marked.value)
        return {name: values[0] for name, values in seen.items() if len(values) == 1}

    @cached_property
    def functions(self) -> dict[str, Function]:
        """The module's own functions; where a name is defined more than once, none of them."""
        seen: dict[str, list[Function]] = {}
        for node, scope in self.every_function():
            if scope is None:
                seen.setdefault(node.name, []).append(node)
        return {name: nodes[0] for name, nodes in seen.items() if len(nodes) == 1}


NEWER = re.compile(
    r"^(?P<head>[ \t]*(?:(?:async[ \t]+)?def|class)[ \t]+\w+)\[[^\n]*?\](?=[ \t]*[(:])"
    r"|^(?P<indent>[ \t]*)type[ \t]+(?P<name>\w+)(?:\[[^\n]*?\])?(?=[ \t]*=)",
    re.MULTILINE,
)
"""Parameters of types and ``type X = …``, which Python parses from 3.12 on."""
MOST_STRINGS = 100


def tree_of(text: str) -> ast.Module:
    """The syntax tree of a file, also where its syntax is newer than the Python that runs this.

    What is newer is written as before, on the same line and in the same length. Raises what ``ast.parse`` raises.
    """
    for _ in range(MOST_STRINGS):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return ast.parse(text)
        except SyntaxError as error:
            before = NEWER.sub(_as_before, text)
            if before == text and error.msg.startswith("f-string"):
                # From 3.12 on a string in the braces may have the quotes of the string around it.
                lines = text.split("\n")
                at = (error.lineno or 1) - 1
                lines[at] = re.sub(r"\{[^{}']*\}", lambda found: found[0].replace('"', "'"), lines[at])
                before = "\n".join(lines)
            if before == text:
                raise
            text = before
    return ast.parse(text)


def _as_before(found: re.Match[str]) -> str:
    kept = found["head"] or f"{found['indent']}{found['name']}"
    return kept.ljust(len(found[0]))


def parse(file: str, text: str) -> Source:
    """Raises DoesNotParse, and Unreadable where the code nests deeper than Python itself takes."""
    try:
        tree = tree_of(text)
    except SyntaxError as error:
        raise DoesNotParse(f"does not parse: {_one_line(error.msg)}, line {error.lineno}") from None
    except ValueError as error:
        raise DoesNotParse(f"does not parse: {_one_line(str(error))}") from None
    except (RecursionError, MemoryError):
        raise DoesNotParse("does not parse: nested too deeply") from None
    source = Source(file, text, tree)
    _collect(source)
    return source


def _one_line(message: str) -> str:
    return re.sub(r"\s+", " ", message)


PLAIN_FIELDS = frozenset(
    [
        "id",
        "name",
        "attr",
        "arg",
        "asname",
        "kind",
        "type_comment",
        "level",
        "module",
        "is_async",
        "simple",
        "ctx",
        "op",
        "ops",
        "conversion",
        "names",
        "kwd_attrs",
        "rest",
    ]
)
"""Fields of nodes in which nothing that is looked for can stand."""
LEAVES = frozenset([ast.Name, ast.Constant, ast.Pass, ast.Break, ast.Continue])
"""What holds nothing."""
DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_FIELDS: dict[type, tuple[str, ...]] = {ast.Constant: (), ast.MatchSingleton: ()}
"""Of each kind of node the fields that hold nodes, lists of nodes, or nothing."""


def children(node: ast.AST) -> list[ast.AST]:
    """The nodes right below, in the order of the file, without contexts, operators and what an import names."""
    kind = type(node)
    fields = _FIELDS.get(kind)
    if fields is None:
        fields = _FIELDS[kind] = tuple(name for name in kind._fields if name not in PLAIN_FIELDS)
    found: list[ast.AST] = []
    for name in fields:
        value = getattr(node, name, None)
        if type(value) is list:
            # A dictionary has no key for what ``**`` gives it.
            found += filter(None, value)
        elif value is not None:
            found.append(value)
    return found


def walk(node: ast.AST) -> list[ast.AST]:
    """A node and every one below it, in the order of ``ast.walk``, which takes several times as long."""
    found = [node]
    for each in found:
        if type(each) not in LEAVES:
            found += children(each)
    return found


def _collect(source: Source) -> None:
    """Every node once, in the order of the file, each under the innermost class or function around it."""
    waiting: list[tuple[ast.AST, Scope | None]] = [(source.tree, None)]
    nodes = source._nodes
    nodes.update({kind: [] for kind in KEPT})
    while waiting:
        node, scope = waiting.pop()
        kind = type(node)
        kept = nodes.get(kind)
        if kept is not None:
            kept.append((node, scope))
            if isinstance(node, DEFINITIONS):
                qualname = f"{scope.qualname}.{node.name}" if scope else node.name
                waiting.extend(_children(node, scope, Scope(node, qualname, scope)))
                continue
        _wait(waiting, node, scope)


def _children(node: ast.ClassDef | Function, around: Scope | None, inside: Scope) -> list[tuple[ast.AST, Scope | None]]:
    """Decorators, defaults and bases stand outside of what they belong to."""
    body = {id(child) for child in node.body}
    found: list[tuple[ast.AST, Scope | None]] = []
    _wait(found, node, around)
    return [(child, inside if id(child) in body else around) for child, _ in found]


def _wait(waiting: list[tuple[ast.AST, Scope | None]], node: ast.AST, scope: Scope | None) -> None:
    """Adds the children, the last first, without what can hold nothing that is looked for."""
    waiting += [(each, scope) for each in reversed(children(node)) if type(each) not in LEAVES]
