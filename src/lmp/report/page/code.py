"""The source text that costs stand beside: forward() of every class, and the functions in which its kernels are."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from lmp.errors import LmpError
from lmp.report.facts import ModelFacts
from lmp.source.lines import enclosing_function
from lmp.source.locate import ClassSource
from lmp.source.parsed import parse

Place = tuple[str, int]
"""File, relative to its tree, and line."""


def blocks(facts: ModelFacts, class_name: str, places: Iterable[Place]) -> list[dict[str, Any]]:
    """Pieces of source text that hold ``places``: forward() first, then other functions as they are met.

    A place that cannot be read makes a block without text, so that its costs have somewhere to stand.
    """
    source = facts.sources[class_name]
    found = [_block(facts, source.forward_file, source.forward_path, source.forward_qualname, source.lines)]
    for file, line in dict.fromkeys(places):
        if not any(_holds(block, file, line) for block in found):
            found.append(_around(facts, source, file, line))
    return found


def _around(facts: ModelFacts, source: ClassSource, file: str, line: int) -> dict[str, Any]:
    path = source.forward_path if file == source.forward_file else facts.trees.path_of(file)
    if path is None:
        return _without_text(facts, file, line)
    try:
        function = enclosing_function(path, line)
    except LmpError:
        return _without_text(facts, file, line)
    if function is None:
        return _block(facts, file, path, "", (line, line))
    return _block(facts, file, path, function.qualname, function.lines)


def _block(facts: ModelFacts, file: str, path: Path, title: str, span: tuple[int, int]) -> dict[str, Any]:
    first, last = span
    try:
        lines: Sequence[str] = parse(path).lines[first - 1 : last]
    except LmpError:
        return _without_text(facts, file, first)
    left_out = [(start, end) for start, end in _docstrings(path) if first <= start and end <= last]
    return {"file": file, "title": title, "first": first, "lines": list(_dedented(lines)), "left_out": left_out}


def _docstrings(path: Path) -> Iterator[tuple[int, int]]:
    """Lines of the long ones, which would stand between the reader and the code."""
    for node in ast.walk(parse(path).tree):
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            if (text.end_lineno or text.lineno) - text.lineno > 2:
                yield text.lineno, text.end_lineno or text.lineno


def _without_text(facts: ModelFacts, file: str, line: int) -> dict[str, Any]:
    return {"file": file, "title": "the source text cannot be read", "first": line, "lines": [""]}


def _dedented(lines: Sequence[str]) -> Iterator[str]:
    expanded = [line.expandtabs(4) for line in lines]
    margin = min((len(line) - len(line.lstrip()) for line in expanded if line.strip()), default=0)
    for line in expanded:
        yield line[margin:].rstrip()


def _holds(block: dict[str, Any], file: str, line: int) -> bool:
    first = block["first"]
    return bool(block["file"] == file and first <= line < first + len(block["lines"]))
