"""Reads of the environment as a report lists them: a file's own, through wrappers, of classes' attributes."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from lmp.codebase.environment import Access, accesses
from lmp.codebase.facts import EnvRead, Place
from lmp.codebase.library import Library
from lmp.codebase.source import Scope, Source
from lmp.codebase.templates import Template, filled, template, text_of
from lmp.codebase.wrappers import Called, Wrappers, calls, handed_in, meant, wrapper_of


def reads(source: Source, wrappers: Wrappers, library: Library) -> list[EnvRead]:
    """Every read of a file, its own and those through wrappers, in the order of their lines."""
    found = [_direct(source, access, library) for access in accesses(source)]
    for node, scope in source.all(ast.Call):
        for called in calls(source, node, scope, wrappers, library):
            name = text_of(called.template)
            if name is None and called.template is not None and _is_wrapped(source, called.template, scope, wrappers):
                continue
            found.append(_through(source, called, name))
    for target, value, scope in _attributes(source):
        found.extend(_named(source, target, value, scope, wrappers, library))
    return sorted(found, key=lambda each: each.place.line)


def _is_wrapped(source: Source, made: Template, scope: Scope | None, wrappers: Wrappers) -> bool:
    """A wrapper's own call of another: its callers are what is read."""
    return any(each in wrappers.found for each in wrapper_of(source, made, scope, None, ""))


def _direct(source: Source, access: Access, library: Library) -> EnvRead:
    name = text_of(template(source, access.name, access.scope, library.string))
    return _read(source, access.name, name, access.default, access.via)


def _through(source: Source, called: Called, name: str | None) -> EnvRead:
    return _read(source, called.name_node, name, called.default_node, source.written(called.node.func))


def _read(source: Source, node: ast.expr, name: str | None, default: ast.expr | None, via: str) -> EnvRead:
    """A read of the variable ``name``, None where it could not be told, which is written as ``node``."""
    written = source.written(node)
    return EnvRead(
        written if name is None else name,
        Place(source.file, node.lineno),
        source.written(default) if default is not None else None,
        derived=name is not None and name not in written,
        resolved=name is not None,
        via=via,
    )


def _attributes(source: Source) -> Iterator[tuple[ast.Name, ast.expr, Scope]]:
    """What the bodies of classes assign."""
    for node, scope in source.all(ast.Assign):
        if scope is not None and scope.is_class:
            yield from ((each, node.value, scope) for each in node.targets if isinstance(each, ast.Name))
    for marked, scope in source.all(ast.AnnAssign):
        if scope is not None and scope.is_class and marked.value is not None and isinstance(marked.target, ast.Name):
            yield marked.target, marked.value, scope


def _named(
    source: Source, target: ast.Name, call: ast.expr, scope: Scope, wrappers: Wrappers, library: Library
) -> Iterator[EnvRead]:
    """``class Settings: PORT = EnvInt(8000)``, where the object learns its name from the class."""
    if not isinstance(call, ast.Call):
        return
    for wrapper in meant(source, call.func, scope, wrappers, library):
        if wrapper.kind != "named attribute":
            continue
        default = handed_in(call, wrapper, wrapper.fallback) if wrapper.fallback else None
        name = text_of(filled(wrapper.template, {("attribute", wrapper.holes()[0].name): (target.id,)}))
        yield EnvRead(
            name if name is not None else target.id,
            Place(source.file, target.lineno),
            source.written(default) if default is not None else None,
            derived=name is not None and name != target.id,
            resolved=name is not None,
            via=source.written(call.func),
        )


@dataclass(frozen=True)
class Attribute:
    """``kind = "triton"`` in a class: part of a variable's name, if a wrapper of the class asks for it."""

    owner: str
    name: str
    value: str
    place: Place


def class_attributes(source: Source, wanted: set[str], library: Library) -> list[Attribute]:
    found = []
    for target, value, scope in _attributes(source):
        told = text_of(template(source, value, None, library.string)) if target.id in wanted else None
        if told is not None:
            found.append(Attribute(scope.node.name, target.id, told, Place(source.file, value.lineno)))
    return found


def of_attributes(wrappers: Wrappers, found: Iterable[Attribute], bases: Mapping[str, Iterable[str]]) -> list[EnvRead]:
    """One read for each class that sets the attribute, below the class that reads. Its place is the attribute's."""
    reads = []
    found = list(found)
    for wrapper in wrappers.found:
        if wrapper.kind != "class attribute":
            continue
        hole = wrapper.holes()[0]
        for each in found:
            if each.name == hole.name and _descends(each.owner, wrapper.name, bases):
                name = text_of(filled(wrapper.template, {("attribute", hole.name): (each.value,)}))
                if name is not None:
                    via = f"{wrapper.via} of {wrapper.name}"
                    reads.append(EnvRead(name, each.place, derived=name != each.value, via=via))
    return reads


def _descends(name: str, base: str, bases: Mapping[str, Iterable[str]]) -> bool:
    waiting, seen = [name], set()
    while waiting:
        each = waiting.pop()
        if each == base:
            return True
        if each not in seen:
            seen.add(each)
            waiting.extend(bases.get(each, ()))
    return False
