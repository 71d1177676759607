"""Reads of environment variables in Python: every place of the code that asks for one variable.

A read is ``os.environ[X]`` (not assigned to or deleted), ``.get``, ``.setdefault``, ``.pop`` whose value is used,
``os.getenv`` and ``X in os.environ``, under whatever names ``os`` and these are imported. The environment as a whole
(``os.environ.copy()``) is none, and neither is setting a variable.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from lmp.codebase.source import Scope, Source

READERS = ("get", "setdefault", "pop")


@dataclass(frozen=True)
class Access:
    """One read: ``name`` is the expression that says which variable."""

    node: ast.expr
    name: ast.expr
    scope: Scope | None
    via: str
    default: ast.expr | None = None


def accesses(source: Source) -> list[Access]:
    """In the order of their places."""
    if "environ" not in source.text and "getenv" not in source.text:
        return []
    found = [*_calls(source), *_subscripts(source), *_tests(source)]
    return sorted(found, key=lambda each: (each.node.lineno, each.node.col_offset))


def _is_environ(source: Source, node: ast.AST) -> bool:
    return source.dotted(node) in ("os.environ", "os.environb") or _kept(source, node) == "os.environ"


def _calls(source: Source) -> Iterator[Access]:
    unused = {id(node.value) for node, _ in source.all(ast.Expr)}
    for node, scope in source.all(ast.Call):
        func = node.func
        if not node.args or isinstance(node.args[0], ast.Starred):
            continue
        default = node.args[1] if len(node.args) > 1 else _keyword(node, "default")
        if _is_getenv(source, func):
            yield Access(node, node.args[0], scope, source.written(func), default)
        elif isinstance(func, ast.Attribute) and func.attr in READERS and _is_environ(source, func.value):
            if func.attr == "pop" and id(node) in unused:
                continue
            yield Access(node, node.args[0], scope, source.written(func), default)


def _is_getenv(source: Source, func: ast.AST) -> bool:
    return source.dotted(func) in ("os.getenv", "os.getenvb") or _kept(source, func) == "os.getenv"


def _kept(source: Source, node: ast.AST) -> str:
    """What the module keeps under a name of its own: ``env = os.environ``."""
    value = source.constants.get(node.id) if isinstance(node, ast.Name) else None
    return source.dotted(value) if value is not None else ""


def _subscripts(source: Source) -> Iterator[Access]:
    for node, scope in source.all(ast.Subscript):
        if isinstance(node.ctx, ast.Load) and _is_environ(source, node.value):
            yield Access(node, node.slice, scope, source.written(node.value) + "[]")


def _tests(source: Source) -> Iterator[Access]:
    for node, scope in source.all(ast.Compare):
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            if isinstance(operator, ast.In | ast.NotIn) and _is_environ(source, right):
                yield Access(node, left, scope, f"in {source.written(right)}")
            left = right


def _keyword(node: ast.Call, name: str) -> ast.expr | None:
    return next((each.value for each in node.keywords if each.arg == name), None)
