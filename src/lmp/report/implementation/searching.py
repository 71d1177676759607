"""Looking through the functions that run: what was searched is always said."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from lmp.errors import LmpError
from lmp.report.document.parts import Pointer
from lmp.report.facts import ModelFacts
from lmp.source.lines import enclosing_function
from lmp.source.parsed import parse


@dataclass(frozen=True)
class Function:
    """A function that ran: its file relative to its tree, and its lines."""

    file: str
    path: Path
    name: str
    lines: tuple[int, int]


def ran_functions(facts: ModelFacts) -> list[Function]:
    """The functions that led to an operator, in every phase, and each forward() of the classes."""
    places: dict[tuple[str, int], None] = {}
    for flow in facts.flows.phases.values():
        for op in flow.ops:
            for frame in op.frames:
                places.update(dict.fromkeys((line.file, line.line) for line in frame.lines))
    for source in facts.sources.values():
        places.setdefault((source.forward_file, source.lines[0]))
    found: dict[tuple[str, tuple[int, int]], Function] = {}
    for file, line in places:
        path = facts.trees.path_of(file)
        if path is None or not path.is_file() or file.startswith("torch/"):
            continue
        try:
            function = enclosing_function(path, line)
        except LmpError:
            continue
        if function is not None:
            found.setdefault((file, function.lines), Function(file, path, function.qualname, function.lines))
    return sorted(found.values(), key=lambda f: (f.file, f.lines))


@dataclass(frozen=True)
class Searched:
    """Lines of functions that have one of several texts; comments and docstrings do not count.

    A text that calls (``bool(``) is a plain function's, not a method's; ``*`` stands for the rest of a name.
    """

    facts: ModelFacts
    functions: Sequence[Function]
    patterns: Sequence[str]

    @cached_property
    def places(self) -> list[tuple[str, int, str]]:
        """File, line and what matched, each line once."""
        sought = re.compile("|".join(map(_pattern, self.patterns)))
        found: dict[tuple[str, int], str] = {}
        for function in self.functions:
            for number, code in code_lines(function):
                match = sought.search(code)
                if match is not None:
                    found.setdefault((function.file, number), match[0])
        return [(file, line, what) for (file, line), what in found.items()]

    def pointers(self) -> Iterator[Pointer]:
        for file, line, what in self.places:
            names = re.findall(r"[A-Za-z_]\w*", what)
            yield self.facts.place(file, line, names[-1] if names else None)

    @property
    def text(self) -> str:
        """What was looked for, and where."""
        shown = ", ".join(self.patterns)
        files = len({f.file for f in self.functions})
        return f"{shown} in the functions that run, of {files} files"


def _pattern(text: str) -> str:
    before = ""
    if re.match(r"\w", text):
        before = r"(?<![\w.])" if text.endswith("(") else r"(?<!\w)"
    return before + re.escape(text).replace(r"\*", r"\w*")


def code_lines(function: Function) -> Iterator[tuple[int, str]]:
    """Lines of a function without comments, its docstring left out."""
    import ast

    parsed = parse(function.path)
    docs: set[int] = set()
    for node in ast.walk(parsed.tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docs.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    for number in range(function.lines[0], function.lines[1] + 1):
        if number not in docs:
            yield number, parsed.code(number).partition(" #")[0]
