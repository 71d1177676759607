"""Classes, functions and methods of a Python file."""

from __future__ import annotations

import ast
import re
from typing import Literal

from lmp.codebase.facts import Definition, Place
from lmp.codebase.source import FUNCTIONS, Function, Scope, Source

RUNS_ON = re.compile(r"[\w,)]$")
HEADER = re.compile(r"([ \t]*)(?:(class)|(?:async[ \t]+)?def)[ \t]+([^\W\d]\w*)")


def definitions(source: Source) -> list[Definition]:
    """In the order of their lines; local functions with the names of those around them."""
    found = [_definition(source, node, scope) for node, scope in source.all(ast.ClassDef)]
    found += [_definition(source, node, scope) for node, scope in source.every_function()]
    return sorted(found, key=lambda each: each.place.line)


def _definition(source: Source, node: ast.ClassDef | Function, scope: Scope | None) -> Definition:
    qualname = f"{scope.qualname}.{node.name}" if scope else node.name
    decorators = tuple(decorator_name(source, each) for each in node.decorator_list)
    place = Place(source.file, node.lineno)
    end = node.end_lineno or node.lineno
    if isinstance(node, ast.ClassDef):
        return Definition(
            "class",
            node.name,
            qualname,
            place,
            end,
            bases=tuple(source.written(base) for base in node.bases),
            decorators=decorators,
            doc=first_line(node),
            methods=tuple(dict.fromkeys(each.name for each in node.body if isinstance(each, FUNCTIONS))),
        )
    kind: Literal["method", "function"] = "method" if scope is not None and scope.is_class else "function"
    return Definition(kind, node.name, qualname, place, end, decorators=decorators, doc=first_line(node))


def decorator_name(source: Source, node: ast.expr) -> str:
    """As written, without the arguments."""
    return source.written(node.func if isinstance(node, ast.Call) else node)


def first_line(node: ast.Module | ast.ClassDef | Function) -> str:
    """Of the docstring, with what it runs on to on the next two; empty where there is none."""
    first = node.body[0] if node.body else None
    if not (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    ):
        return ""
    lines = first.value.value.strip().split("\n")[:3]
    told = lines[0].strip()
    for line in lines[1:]:
        # What ends like a sentence or a heading, or is followed by a list, is told in full.
        if not line.strip() or not RUNS_ON.search(told) or not line.strip()[0].isalnum():
            break
        told = f"{told} {line.strip()}"
    return told


def by_lines(file: str, text: str) -> list[Definition]:
    """Of a file that does not parse: what its lines begin with, nested by how far they are indented."""
    found: list[Definition] = []
    around: list[tuple[int, str, bool]] = []
    for at, line in enumerate(text.split("\n"), 1):
        match = HEADER.match(line)
        if match is None:
            continue
        indent = len(match[1].expandtabs())
        around = [each for each in around if each[0] < indent]
        qualname = ".".join((*(name for _, name, _ in around), match[3]))
        kind: Literal["class", "method", "function"] = "function"
        if match[2]:
            kind = "class"
        elif around and around[-1][2]:
            kind = "method"
        found.append(Definition(kind, match[3], qualname, Place(file, at), at))
        around.append((indent, match[3], bool(match[2])))
    return found
