"""What a string expression comes to, as far as reading tells: text, and holes for parameters and attributes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from lmp.codebase.source import Function, Scope, Source

DEPTH = 8
"""How many steps (names, calls) are followed from one expression."""
MOST_PARTS = 40
"""Of one f-string: what it is made of may itself be made of others."""


@dataclass(frozen=True)
class Hole:
    """What is filled in by a caller (``parameter``) or by the object (``attribute``)."""

    kind: Literal["parameter", "attribute"]
    name: str
    change: Literal["", "upper", "lower"] = ""


Part = str | Hole
Template = tuple[Part, ...]
Elsewhere = Callable[[Source, str], str | None]
"""The string that an imported dotted name stands for."""


def no_elsewhere(source: Source, dotted: str) -> str | None:
    return None


def filled(template: Template, values: Mapping[tuple[str, str], Template]) -> Template:
    """With the holes that ``values`` has by (kind, name) filled in."""
    parts: list[Part] = []
    for part in template:
        if isinstance(part, Hole) and (part.kind, part.name) in values:
            parts.extend(_with(values[part.kind, part.name], part.change) or ())
        else:
            parts.append(part)
    return joined(parts)


def joined(parts: list[Part]) -> Template:
    """Neighbouring texts as one."""
    found: list[Part] = []
    for part in parts:
        if isinstance(part, str) and found and isinstance(found[-1], str):
            found[-1] += part
        else:
            found.append(part)
    return tuple(found)


def text_of(template: Template | None) -> str | None:
    """The string, where there is no hole in it."""
    if template is None or any(isinstance(part, Hole) for part in template):
        return None
    return "".join(part for part in template if isinstance(part, str))


def template(
    source: Source, node: ast.AST, scope: Scope | None, elsewhere: Elsewhere, depth: int = DEPTH
) -> Template | None:
    """None where reading does not tell."""
    if depth <= 0:
        return None

    def inner(node: ast.AST) -> Template | None:
        return template(source, node, scope, elsewhere, depth - 1)

    match node:
        case ast.Constant(value=str(value)):
            return (value,)
        case ast.JoinedStr(values=values) if len(values) <= MOST_PARTS:
            return _concatenated([inner(value) for value in values])
        case ast.FormattedValue(value=value, format_spec=None):
            return inner(value)
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return _concatenated([inner(left), inner(right)])
        case ast.Call(func=ast.Attribute(value=value, attr="upper" | "lower" as change), args=[]):
            return _with(inner(value), change)
        case ast.Call(func=ast.Name(id="str"), args=[value], keywords=[]):
            return inner(value)
        case ast.Call():
            return _of_call(source, node, scope, elsewhere, depth)
        case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name):
            return (Hole("attribute", name),)
        case ast.Name(id=name):
            return _of_name(source, name, scope, elsewhere, depth)
        case ast.Attribute():
            found = elsewhere(source, source.dotted(node)) if source.dotted(node) else None
            return None if found is None else (found,)
    return None


def _of_name(source: Source, name: str, scope: Scope | None, elsewhere: Elsewhere, depth: int) -> Template | None:
    """A parameter, a local name that is assigned once, a constant of the module, or one that is imported."""
    around = scope.function() if scope else None
    while around is not None:
        function = around.node
        assert not isinstance(function, ast.ClassDef)
        values = assigned(function, name)
        if values:
            return template(source, values[0], around, elsewhere, depth - 1) if len(values) == 1 else None
        if name in parameters(function):
            return (Hole("parameter", name),)
        around = around.outer.function() if around.outer else None
    if name in source.constants:
        return template(source, source.constants[name], None, elsewhere, depth - 1)
    if name in source.aliases:
        found = elsewhere(source, source.aliases[name])
        return None if found is None else (found,)
    return None


def _of_call(source: Source, node: ast.Call, scope: Scope | None, elsewhere: Elsewhere, depth: int) -> Template | None:
    """A function of this file that only returns a string made of its parameters."""
    function = called(source, node.func, scope)
    if function is None or len(function.body) > 4:
        return None
    returns = [each for each in ast.walk(function) if isinstance(each, ast.Return)]
    if len(returns) != 1 or returns[0].value is None:
        return None
    found = template(source, returns[0].value, Scope(function, function.name, None), elsewhere, depth - 1)
    if found is None:
        return None
    values: dict[tuple[str, str], Template] = {}
    for part in found:
        if isinstance(part, Hole) and part.kind == "parameter":
            given = argument(node, function, part.name)
            made = template(source, given, scope, elsewhere, depth - 1) if given is not None else None
            if made is None:
                return None
            values["parameter", part.name] = made
    return filled(found, values)


def called(source: Source, func: ast.AST, scope: Scope | None) -> Function | None:
    """The function or method of this file that an expression calls, where that is plain."""
    if isinstance(func, ast.Name):
        return source.functions.get(func.id)
    if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id in ("self", "cls"):
        owner = scope.class_() if scope else None
        if owner is not None:
            found = [
                each
                for each in owner.node.body
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name == func.attr
            ]
            return found[0] if len(found) == 1 else None
    return None


def parameters(function: Function) -> tuple[str, ...]:
    """Positional ones in order, then those by keyword."""
    arguments = function.args
    return tuple(each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs))


def defaults(function: Function) -> dict[str, ast.expr]:
    arguments = function.args
    positional = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    found = dict(zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True))
    found.update(
        {each.arg: value for each, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value}
    )
    return found


def argument(node: ast.Call, function: Function, name: str) -> ast.expr | None:
    """What a call hands in for a parameter, its default where it hands in nothing."""
    for keyword in node.keywords:
        if keyword.arg == name:
            return keyword.value
    names = [each for each in parameters(function) if each not in ("self", "cls")]
    at = names.index(name) if name in names else len(node.args)
    if at < len(node.args) and not any(isinstance(each, ast.Starred) for each in node.args[: at + 1]):
        return node.args[at]
    return defaults(function).get(name)


def assigned(function: Function, name: str) -> list[ast.expr]:
    """What the function assigns to a local name; an augmented or looped one counts twice, as it has no one value."""
    found: list[ast.expr] = []
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    if isinstance(target, ast.Name) and target.id == name:
                        found.append(value)
            case ast.AnnAssign(target=ast.Name(id=target_name), value=ast.expr() as value) if target_name == name:
                found.append(value)
            case ast.NamedExpr(target=ast.Name(id=target_name), value=value) if target_name == name:
                found.append(value)
            case ast.AugAssign(target=ast.Name(id=target_name), value=value) if target_name == name:
                found += [value, value]
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                if any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(target)):
                    found += [value, value]
    return found


def _concatenated(parts: list[Template | None]) -> Template | None:
    found: list[Part] = []
    for part in parts:
        if part is None:
            return None
        found.extend(part)
    return joined(found)


def _with(found: Template | None, change: str) -> Template | None:
    if found is None or not change:
        return found
    assert change in ("upper", "lower")
    return tuple(
        _changed(part, change) if isinstance(part, str) else replace(part, change=change)  # type: ignore[arg-type]
        for part in found
    )


def _changed(text: str, change: str) -> str:
    return {"upper": text.upper, "lower": text.lower}.get(change, lambda: text)()
