"""Flags that are made of the fields of a class.

A function of the repository goes through annotated fields and calls ``add_argument`` for each. Or a library does (tyro,
transformers' HfArgumentParser, simple_parsing).

    host: Annotated[str, "The host."] = "127.0.0.1"                  --host
    model_path: A[str, Arg(help="Weights.", aliases=["--model"])]    --model-path, --model
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from lmp.codebase.facts import Flag, Place
from lmp.codebase.flags import constant, help_text, is_true, keyword_of, shortened
from lmp.codebase.library import Library
from lmp.codebase.source import Source
from lmp.codebase.templates import no_elsewhere, template, text_of

DRIVER = re.compile(rb"\.add_argument\(\s*\*")
LIBRARIES = {
    "tyro.cli": "-",
    "simple_parsing.parse": "_",
    "transformers.HfArgumentParser": "_",
    "transformers.hf_argparser.HfArgumentParser": "_",
    "trl.TrlParser": "_",
    "jsonargparse.CLI": "_",
    "draccus.parse": "_",
}
"""What each puts for the underscores of a field's name."""


def drivers(library: Library, files: Iterable[str]) -> set[str]:
    """The files with a function that makes flags of the fields of any class: what marks such a field is theirs."""
    found = set()
    for file in files:
        if DRIVER.search(library.raw(file)):
            source = library.source(file)
            if source is not None and _goes_through_fields(source):
                found.add(file)
    return found


def _goes_through_fields(source: Source) -> bool:
    for node, scope in source.all(ast.Call):
        func = node.func
        if not (isinstance(func, ast.Attribute) and func.attr == "add_argument" and scope is not None):
            continue
        if node.args and isinstance(node.args[0], ast.Starred):
            names = {each.id for each in ast.walk(scope.node) if isinstance(each, ast.Name)}
            names |= {each.attr for each in ast.walk(scope.node) if isinstance(each, ast.Attribute)}
            if names & {"fields", "get_type_hints", "__dataclass_fields__", "model_fields"}:
                return True
    return False


def flags(source: Source, found: set[str], library: Library) -> list[Flag]:
    """In the order of their lines."""
    marked = _marked(source, found, library) if found else iter(())
    return sorted([*marked, *_of_libraries(source, library)], key=lambda each: each.place.line)


def _marked(source: Source, found: set[str], library: Library) -> Iterator[Flag]:
    """Fields whose annotation has a string or an object of the driver's own beside the type."""
    for node, scope in source.all(ast.AnnAssign):
        annotation = node.annotation
        if scope is None or not scope.is_class or not isinstance(node.target, ast.Name):
            continue
        if not (isinstance(annotation, ast.Subscript) and isinstance(annotation.slice, ast.Tuple)):
            continue
        own = _is_of(source, annotation.value, found, library)
        for mark in annotation.slice.elts[1:]:
            told = text_of(template(source, mark, scope, no_elsewhere)) if own else None
            if told is not None:
                yield _flag(source, node, (_dashed(node.target.id),), shortened(told))
                break
            if isinstance(mark, ast.Call) and _is_of(source, mark.func, found, library):
                if not is_true(keyword_of(mark, "no_cli")):
                    yield _flag(source, node, _names(node.target.id, mark), help_text(source, mark, scope))
                break


def _is_of(source: Source, node: ast.expr, found: set[str], library: Library) -> bool:
    dotted = source.dotted(node)
    if not dotted:
        return False
    if "." not in dotted:
        return source.file in found
    where = library.modules.of_import(dotted, source.file)
    return where is not None and where[0] in found


def _names(field: str, mark: ast.Call) -> tuple[str, ...]:
    name = constant(keyword_of(mark, "cli_name")) or _dashed(field)
    aliases = keyword_of(mark, "aliases")
    more = aliases.elts if isinstance(aliases, ast.List | ast.Tuple) else []
    return (name, *(each for each in map(constant, more) if each is not None))


def _dashed(field: str) -> str:
    return "--" + field.replace("_", "-")


def _flag(source: Source, node: ast.AnnAssign, names: tuple[str, ...], told: str) -> Flag:
    value = node.value
    if isinstance(value, ast.Call) and source.dotted(value.func) in ("dataclasses.field", "field"):
        value = keyword_of(value, "default") or keyword_of(value, "default_factory")
    default = source.written(value) if value is not None else None
    return Flag(names, Place(source.file, node.lineno), "dataclass", default, told)


def _of_libraries(source: Source, library: Library) -> Iterator[Flag]:
    for call, _ in source.all(ast.Call):
        joint = LIBRARIES.get(source.dotted(call.func))
        if joint is None or not call.args:
            continue
        given = call.args[0]
        for each in given.elts if isinstance(given, ast.Tuple | ast.List) else [given]:
            for found, node in _classes(source, each, library):
                yield from _fields(found, node, joint)


def _classes(source: Source, name: ast.expr, library: Library) -> Iterator[tuple[Source, ast.ClassDef]]:
    """The class of a name, in the file itself or in the one that it is imported from."""
    dotted = source.dotted(name)
    last = dotted.rpartition(".")[2]
    where = library.modules.of_import(dotted, source.file) if "." in dotted else None
    found = library.source(where[0]) if where is not None and where[1] else source
    if found is not None:
        yield from ((found, node) for node, _ in found.all(ast.ClassDef) if node.name == last)


def _fields(source: Source, node: ast.ClassDef, joint: str) -> Iterator[Flag]:
    for each in node.body:
        if not (isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)):
            continue
        metadata = keyword_of(each.value, "metadata") if isinstance(each.value, ast.Call) else None
        pairs = zip(metadata.keys, metadata.values, strict=True) if isinstance(metadata, ast.Dict) else ()
        helped = next((value for key, value in pairs if constant(key) == "help"), None)
        told = text_of(template(source, helped, None, no_elsewhere)) if helped is not None else None
        names = ("--" + each.target.id.replace("_", joint),)
        yield _flag(source, each, names, shortened(told or ""))
