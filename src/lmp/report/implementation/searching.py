"""Looking through the functions that run: what was searched is always said."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from lmp.errors import LmpError
from lmp.report.document.parts import Pointer
from lmp.report.facts import ModelFacts
from lmp.source.lines import enclosing_function
from lmp.source.names import Definition, Names, dotted_name
from lmp.source.parsed import parse


@dataclass(frozen=True)
class Function:
    """A function that ran: its file relative to its tree, and its lines."""

    file: str
    path: Path
    name: str
    lines: tuple[int, int]
    called: bool = False
    """It is called by one that ran, in the sources; whether it ran is not known."""


def ran_functions(facts: ModelFacts) -> list[Function]:
    """The functions that led to an operator, in every phase, and each forward() of the classes."""
    places: dict[tuple[str, int], None] = {}
    for flow in facts.flows.phases.values():
        for op in flow.ops:
            for frame in op.frames:
                places.update(dict.fromkeys((line.file, line.line) for line in frame.lines))
    for source in facts.sources.values():
        places.setdefault((source.forward_file, source.lines[0]))
    # Of PyTorch only the file of the class that the report is on: else every model's would be searched.
    own = {facts.sources[facts.model.class_name].forward_file} if facts.model.class_name in facts.sources else set()
    found: dict[tuple[str, tuple[int, int]], Function] = {}
    for file, line in places:
        path = facts.trees.path_of(file)
        if path is None or not path.is_file() or (file.startswith("torch/") and file not in own):
            continue
        try:
            function = enclosing_function(path, line)
        except LmpError:
            continue
        if function is not None:
            found.setdefault((file, function.lines), Function(file, path, function.qualname, function.lines))
    return sorted(found.values(), key=lambda f: (f.file, f.lines))


STEPS = 4
"""Calls that lead from a function that ran to one that is searched, too."""


@lru_cache(maxsize=2)
def reached_functions(facts: ModelFacts) -> tuple[Function, ...]:
    """The functions that ran, and those of the same library that they call, as far as names in the sources tell."""
    names = Names(facts.trees)
    found = {(f.file, f.lines): f for f in ran_functions(facts)}
    waiting = [(f, 0) for f in found.values()]
    while waiting:
        function, depth = waiting.pop(0)
        for other in _called_by(function, facts, names) if depth < STEPS else ():
            if (other.file, other.lines) not in found:
                found[other.file, other.lines] = other
                waiting.append((other, depth + 1))
    return tuple(sorted(found.values(), key=lambda f: (f.file, f.lines)))


def _called_by(function: Function, facts: ModelFacts, names: Names) -> Iterator[Function]:
    tree = next((t for t in facts.trees if function.path.is_relative_to(t.package_dir)), None)
    if tree is None or function.file.startswith("torch/"):
        return
    inside_package = function.path.relative_to(tree.package_dir)  # "." where the package is one file
    parts = inside_package.with_suffix("").parts if inside_package.name else ()
    module = names.module(".".join([tree.import_name, *(part for part in parts if part != "__init__")]))
    for node in _nodes(function) if module is not None else ():
        # Also a function that is named without being called: it may be called by another name.
        called = node.func if isinstance(node, ast.Call) else node if isinstance(node, ast.Name) else None
        dotted = dotted_name(called) if called is not None else None
        definition = names.dotted(module, dotted) if module is not None and dotted is not None else None
        if isinstance(definition, Definition) and isinstance(definition.node, ast.FunctionDef):
            here, inside = definition.node, definition.module.tree
            if inside.name == tree.name and not here.name.startswith("__"):
                lines = (here.lineno, here.end_lineno or here.lineno)
                yield Function(inside.relative(definition.path), definition.path, here.name, lines, called=True)


def _nodes(function: Function) -> Iterator[ast.AST]:
    """Everything in the function."""
    first, last = function.lines
    for node in ast.walk(parse(function.path).tree):
        line = getattr(node, "lineno", None)
        if line is not None and first <= line <= last:
            yield node


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
        called = " and those that they call" if any(f.called for f in self.functions) else ""
        return f"{shown} in the functions that run{called}, of {files} file{'s' if files != 1 else ''}"


def _pattern(text: str) -> str:
    before = ""
    if re.match(r"\w", text):
        before = r"(?<![\w.])" if text.endswith("(") else r"(?<!\w)"
    after = r"(?!\w)" if re.search(r"\w$", text) else ""
    return before + re.escape(text).replace(r"\*", r"\w*") + after


def code_lines(function: Function) -> Iterator[tuple[int, str]]:
    """Lines of a function without comments, its docstring left out."""
    parsed = parse(function.path)
    docs: set[int] = set()
    for node in ast.walk(parsed.tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docs.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    for number in range(function.lines[0], function.lines[1] + 1):
        code = parsed.code(number)
        if number not in docs and not code.startswith("#"):
            yield number, code.partition(" #")[0]
