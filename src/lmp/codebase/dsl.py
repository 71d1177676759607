"""Kernels in the other languages that are written inside of Python, each known by how its library marks one."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from lmp.codebase import metal
from lmp.codebase.facts import Kernel, Place
from lmp.codebase.source import FUNCTIONS, Function, Scope, Source
from lmp.codebase.templates import parameters


def kernels(source: Source) -> list[Kernel]:
    """In the order of their lines."""
    found = [*_decorated(source), *_tilelang(source), *metal.kernels(source), *_pallas(source)]
    return sorted(found, key=lambda kernel: kernel.place.line)


def _decorated(source: Source) -> Iterator[Kernel]:
    for function, scope in source.every_function():
        for decorator in function.decorator_list:
            language = _language(source, decorator)
            if language is not None:
                yield _kernel(source, language, function, scope)
                break


def _language(source: Source, decorator: ast.expr) -> str | None:
    """``@cute.kernel``, ``@ct.kernel`` (cuda.tile), ``@flyc.kernel`` (flydsl), ``@cuda.jit`` (numba)."""
    parts = source.dotted(decorator.func if isinstance(decorator, ast.Call) else decorator).split(".")
    if parts[-1] == "kernel":
        if "cute" in parts:
            return "cute"
        if parts[:2] == ["cuda", "tile"]:
            return "cutile"
        if parts[0] == "flydsl":
            return "flydsl"
    return "numba" if parts[-2:] == ["cuda", "jit"] and parts[0] == "numba" else None


def _kernel(source: Source, language: str, function: Function, scope: Scope | None) -> Kernel:
    constants = (
        each.arg
        for each in (*function.args.args, *function.args.kwonlyargs)
        if each.annotation is not None
        and any(word in source.written(each.annotation) for word in ("onstexpr", "Constant"))
    )
    return Kernel(
        language,  # type: ignore[arg-type]
        f"{scope.qualname}.{function.name}" if scope else function.name,
        Place(source.file, function.lineno),
        function.end_lineno or function.lineno,
        parameters=tuple(name for name in parameters(function) if name != "self"),
        constexprs=tuple(constants),
    )


def _tilelang(source: Source) -> Iterator[Kernel]:
    """The function that opens ``with T.Kernel(…)``."""
    seen = set()
    for node, scope in source.all(ast.With):
        for item in node.items:
            call = item.context_expr
            if not isinstance(call, ast.Call):
                continue
            parts = source.dotted(call.func).split(".")
            function = scope.function() if scope else None
            if parts[-1] != "Kernel" or function is None or function in seen:
                continue
            if "tilelang" not in parts and not _is_tilelang(source, function):
                continue
            seen.add(function)
            assert isinstance(function.node, FUNCTIONS)
            yield _kernel(source, "tilelang", function.node, function.outer)


def _is_tilelang(source: Source, function: Scope) -> bool:
    """Compiled by it, or inside of what is: the name of its language may be bound when the program runs."""
    scope: Scope | None = function
    while scope is not None:
        for each in scope.node.decorator_list:
            if "tilelang" in source.dotted(each.func if isinstance(each, ast.Call) else each).split("."):
                return True
        scope = scope.outer
    return False


def _pallas(source: Source) -> Iterator[Kernel]:
    """The function that is handed to ``pallas_call``, bare or as a partial."""
    seen = set()
    for node, _ in source.all(ast.Call):
        if not source.dotted(node.func).endswith("pallas_call") or not node.args:
            continue
        given = node.args[0]
        if isinstance(given, ast.Call) and source.dotted(given.func).endswith("partial") and given.args:
            given = given.args[0]
        function = source.functions.get(given.id) if isinstance(given, ast.Name) else None
        if function is not None and function.name not in seen:
            seen.add(function.name)
            yield _kernel(source, "pallas", function, None)
