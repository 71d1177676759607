"""A cache of a fixed length beside the one that grows: where it is, who asks for it, and what is compiled then."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from lmp.report.document.parts import Code, Inline, Pointer
from lmp.report.facts import ModelFacts
from lmp.report.implementation.declared import flag
from lmp.report.implementation.kept import GENERATION
from lmp.source.parsed import parse

CACHES = "src/transformers/cache_utils.py"
CACHE, LAYER, WRITE = "StaticCache", "StaticLayer", "index_copy_"
ASKED = "ALL_STATIC_CACHE_IMPLEMENTATIONS"
COMPILES = "_valid_auto_compile_criteria"
SAYS = "_can_compile_fullgraph"


def fixed_line(facts: ModelFacts) -> list[Inline] | None:
    """Of a model whose classes say that a decode step can be compiled as one graph; None of any other."""
    says = flag(facts, SAYS)
    whole, write = _class(facts, CACHES, CACHE), _line(facts, CACHES, WRITE, LAYER)
    asked, compiles = _line(facts, GENERATION, f" in {ASKED}"), _line(facts, GENERATION, f"def {COMPILES}(")
    if says is None or whole is None or write is None or asked is None or compiles is None:
        return None
    return [
        "a cache of a fixed length is there as well, and in no figure of this report: ",
        Code(CACHE),
        " (",
        whole,
        ") writes a new token in place (",
        write,
        ") and copies nothing else; attention then has keys of that length, masked. generate() makes it for ",
        Code('cache_implementation="static"'),
        " (",
        asked,
        ") and compiles its decode steps with it where it can (",
        compiles,
        "): the classes say that they can be compiled as one graph (",
        says,
        ")",
    ]


def _class(facts: ModelFacts, file: str, name: str) -> Pointer | None:
    node = _named(_path(facts, file), name)
    return facts.place(file, node.lineno, name) if node is not None else None


def _named(path: Path | None, name: str) -> ast.ClassDef | None:
    if path is None:
        return None
    found = (n for n in ast.walk(parse(path).tree) if isinstance(n, ast.ClassDef) and n.name == name)
    return next(found, None)


def _line(facts: ModelFacts, file: str, text: str, inside: str = "") -> Pointer | None:
    """The first line of a file, or of a class of it, that has a text."""
    path = _path(facts, file)
    node = _named(path, inside) if inside else None
    if path is None or (inside and node is None):
        return None
    lines = parse(path).lines
    first, last = (node.lineno, node.end_lineno or node.lineno) if node is not None else (1, len(lines))
    number = next((n for n in range(first, last + 1) if text in lines[n - 1]), None)
    return facts.place(file, number, re.findall(r"\w+", text)[-1]) if number is not None else None


def _path(facts: ModelFacts, file: str) -> Path | None:
    path = facts.trees.path_of(file)
    return path if path is not None and path.is_file() else None
