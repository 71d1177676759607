"""Metal kernels inside of Python, ``mx.fast.metal_kernel(name=…, source=…)`` whose code is a string; their launches.

What it returns is called with a grid, a threadgroup and the values of its template. It may be kept by the module, or
made by a function: ``_kernel = make_kernel()``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from lmp.codebase.facts import Kernel, Launch, Place
from lmp.codebase.source import FUNCTIONS, Scope, Source
from lmp.codebase.templates import assigned, no_elsewhere, template, text_of

LONGEST = 120
DEPTH = 6
"""How many names are followed from a call to the kernel that it starts."""


def kernels(source: Source) -> list[Kernel]:
    """In the order of their lines, each with the names that its launches fill in of its template."""
    found = [kernel for _, kernel in _made(source)]
    names: dict[Place, dict[str, None]] = {}
    for launch, given in _launched(source):
        if launch.of is not None:
            names.setdefault(launch.of, {}).update(dict.fromkeys(given))
    return [replace(each, constexprs=tuple(names.get(each.place, ()))) for each in found]


def launches(source: Source) -> list[Launch]:
    """Calls with a grid and a threadgroup, one for each kernel of the file that may be meant."""
    return [launch for launch, _ in _launched(source)]


def _made(source: Source) -> Iterator[tuple[ast.Call, Kernel]]:
    if "metal_kernel" not in source.text:
        return
    for node, scope in source.all(ast.Call):
        if not (isinstance(node.func, ast.Attribute | ast.Name) and source.dotted(node.func).endswith("metal_kernel")):
            continue
        name = next((each.value for each in node.keywords if each.arg == "name"), node.args[0] if node.args else None)
        if name is None:
            continue
        told = text_of(template(source, name, scope, no_elsewhere))
        inputs = next((each.value for each in node.keywords if each.arg == "input_names"), None)
        yield (
            node,
            Kernel(
                "metal",
                told if told is not None else _piece(name, source.written(name)),
                Place(source.file, name.lineno),
                node.end_lineno or node.lineno,
                parameters=_strings(inputs),
            ),
        )


def _piece(name: ast.expr, written: str) -> str:
    """Of a name that is put together the first piece that stands in the code; where none does, the code."""
    pieces = [
        (each.lineno, each.col_offset, each.value)
        for each in ast.walk(name)
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    ]
    # Pieces of one string stand at its own beginning, and one may go on in the next string.
    first = min(pieces, key=lambda each: each[:2])[2].strip() if pieces else ""
    return next((first[:end] for end in range(len(first), 0, -1) if first[:end] in written), written)


def _launched(source: Source) -> Iterator[tuple[Launch, list[str]]]:
    """Each launch with the names of the template that it fills in."""
    made = {id(node): kernel for node, kernel in _made(source)}
    if not made:
        return
    for node, scope in source.all(ast.Call):
        given = {each.arg: each.value for each in node.keywords if each.arg}
        if "grid" not in given or "threadgroup" not in given:
            continue
        filled = dict(_filled(source, scope, given.get("template")))
        values = {name: _written(source, scope, value) for name, value in filled.items()}
        values = {name: value for name, value in values.items() if value.lstrip("-").isdigit()}
        values["threadgroup"] = _written(source, scope, given["threadgroup"])
        function = scope.function() if scope else None
        started: dict[Place, Kernel] = {}
        for call in _meant(source, node.func, scope, DEPTH):
            if id(call) in made:
                started[made[id(call)].place] = made[id(call)]
        for kernel in started.values():
            launch = Launch(
                kernel.name,
                Place(source.file, node.func.lineno),
                function.qualname if function else "",
                source.written(given["grid"])[:LONGEST],
                values,
                of=kernel.place,
            )
            yield launch, list(filled)


def _filled(source: Source, scope: Scope | None, node: ast.expr | None) -> Iterator[tuple[str, ast.expr]]:
    """``[("T", dtype), ("Dh", d)]``, as it stands or under a local name."""
    function = scope.function() if scope else None
    if isinstance(node, ast.Name) and function is not None and isinstance(function.node, FUNCTIONS):
        values = assigned(function.node, node.id)
        node = values[0] if len(values) == 1 else None
    for each in node.elts if isinstance(node, ast.List | ast.Tuple) else ():
        if isinstance(each, ast.Tuple) and len(each.elts) == 2 and isinstance(each.elts[0], ast.Constant):
            yield str(each.elts[0].value), each.elts[1]


def _written(source: Source, scope: Scope | None, node: ast.expr) -> str:
    """As it stands there; a local or constant name with what it is set to, if that is one thing."""
    function = scope.function() if scope else None
    if isinstance(node, ast.Name):
        values = assigned(function.node, node.id) if function and isinstance(function.node, FUNCTIONS) else []
        values = values or ([source.constants[node.id]] if node.id in source.constants else [])
        if values and all(isinstance(each, ast.Constant | ast.Tuple) for each in values):
            return " or ".join(dict.fromkeys(source.written(each) for each in values))[:LONGEST]
    return source.written(node)[:LONGEST]


def _meant(source: Source, node: ast.AST, scope: Scope | None, depth: int) -> Iterator[ast.Call]:
    """The calls whose value an expression may have: through names, sides of a choice, and functions of the file."""
    if depth <= 0:
        return
    match node:
        case ast.Name(id=name):
            function = scope.function() if scope else None
            values = assigned(function.node, name) if function and isinstance(function.node, FUNCTIONS) else []
            if not values and name in source.constants:
                values, scope = [source.constants[name]], None
            for value in values:
                yield from _meant(source, value, scope, depth - 1)
        case ast.IfExp(body=body, orelse=orelse):
            yield from _meant(source, body, scope, depth - 1)
            yield from _meant(source, orelse, scope, depth - 1)
        case ast.Call(func=func):
            yield node
            made = source.functions.get(func.id) if isinstance(func, ast.Name) else None
            for each in ast.walk(made) if made is not None else ():
                if isinstance(each, ast.Return) and each.value is not None and made is not None:
                    yield from _meant(source, each.value, Scope(made, made.name, None), depth - 1)


def _strings(node: ast.expr | None) -> tuple[str, ...]:
    if not isinstance(node, ast.List | ast.Tuple):
        return ()
    return tuple(each.value for each in node.elts if isinstance(each, ast.Constant) and isinstance(each.value, str))
