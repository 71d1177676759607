"""Numbered lines of source for a prompt, without what costs tokens and decides nothing: it says what it leaves out."""

from __future__ import annotations

import ast
import functools
import io
import tokenize
from collections.abc import Collection
from pathlib import Path

from lmp.source.parsed import parse
from lmp.source.quoting import escaped

LEFT_OUT = "Blank lines, docstrings and lines that are comments are left out: their numbers are missing."


def excerpt(path: Path, first: int, last: int, without: Collection[int] = ()) -> str:
    """Lines with their numbers, less their common indentation. ``without``: lines that are left out too."""
    lines = parse(path).lines
    kept = [n for n in range(first, min(last, len(lines)) + 1) if n not in without and n not in _idle(path)]
    indent = min((len(lines[n - 1]) - len(lines[n - 1].lstrip()) for n in kept), default=0)
    width = len(str(last))
    return "\n".join(f"{n:>{width}} {escaped(lines[n - 1][indent:])}".rstrip() for n in kept)


@functools.lru_cache(maxsize=64)
def _idle(path: Path) -> frozenset[int]:
    """Lines that are blank, a comment, or of a docstring."""
    parsed = parse(path)
    text = "\n".join(parsed.lines) + "\n"
    busy: set[int] = set()
    quiet = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in quiet:
            busy.update(range(token.start[0], token.end[0] + 1))
    described = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(parsed.tree):
        if isinstance(node, described) and ast.get_docstring(node, clean=False) is not None and len(node.body) > 1:
            said = node.body[0]
            busy.difference_update(range(said.lineno, (said.end_lineno or said.lineno) + 1))
    return frozenset(range(1, len(parsed.lines) + 1)) - busy
