"""What single statements of a Python file say: signatures, the message of an assert or raise, what a local name is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import UnionType

from lmp.codebase.cpp_text import Code
from lmp.codebase.facts import Place
from lmp.codebase.graph.native_file import check
from lmp.codebase.source import tree_of
from lmp.report.repository.code_base import CodeBase

Function = ast.FunctionDef | ast.AsyncFunctionDef


@lru_cache(maxsize=256)
def _statements(base: CodeBase, file: str) -> dict[int, list[ast.stmt]]:
    """Line -> the functions, asserts, raises and assignments that begin there."""
    found: dict[int, list[ast.stmt]] = {}
    try:
        tree = tree_of(base.text(file) or "") if file.endswith(".py") else ast.Module([], [])
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return found
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Assert, ast.Raise, ast.Assign)):
            found.setdefault(node.lineno, []).append(node)
    return found


def function_at(base: CodeBase, place: Place) -> Function | None:
    """The function of Python that is defined at a line."""
    found = _statements(base, place.file).get(place.line, ())
    return next((each for each in found if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))), None)


def parameters(node: Function) -> list[str]:
    """As written, with annotations and defaults, without ``self``."""
    given = node.args
    plain = [*given.posonlyargs, *given.args]
    defaults = [*[None] * (len(plain) - len(given.defaults)), *given.defaults]
    found = [_parameter(each, default) for each, default in zip(plain, defaults, strict=True)]
    found += [f"*{given.vararg.arg}"] if given.vararg else []
    found += [_parameter(each, default) for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    found += [f"**{given.kwarg.arg}"] if given.kwarg else []
    return found[1:] if plain and plain[0].arg in ("self", "cls") else found


def _parameter(of: ast.arg, default: ast.expr | None) -> str:
    typed = f": {ast.unparse(of.annotation)}" if of.annotation is not None else ""
    return of.arg + typed + (f" = {ast.unparse(default)}" if default is not None else "")


def returned(node: Function) -> list[str]:
    """The annotation of what it returns, else each expression that it returns or yields, as written."""
    if node.returns is not None:
        return [ast.unparse(node.returns)]
    inner = {each for one in ast.walk(node) if isinstance(one, Function) and one is not node for each in ast.walk(one)}
    leaving = ast.Return | ast.Yield | ast.YieldFrom
    found = [each for each in ast.walk(node) if isinstance(each, leaving) and each not in inner]
    found.sort(key=lambda each: each.lineno)
    given = [(each, ast.unparse(each.value)) for each in found if each.value is not None]
    return list(dict.fromkeys(text if isinstance(each, ast.Return) else f"yield {text}" for each, text in given))


@lru_cache(maxsize=64)
def _native(base: CodeBase, file: str) -> Code:
    return Code("" if file.endswith(".py") else base.text(file) or "")


@dataclass(frozen=True)
class Refusal:
    """What an assert or raise ends with: the name of its error, or of the macro that checks."""

    error: str = ""
    message: str = ""
    asserts: bool = False
    """Its condition must hold, where that of a raise must not."""

    @property
    def of(self) -> str:
        """What stands before the words: a macro has its own error, whose text stands elsewhere."""
        return "the error of " if self.asserts and self.error != "AssertionError" and not self.message else ""

    @property
    def words(self) -> str:
        """What a user reads: of a macro the message alone."""
        if self.message and self.asserts and self.error != "AssertionError":
            return self.message
        return f"{self.error}: {self.message}" if self.message else self.error


def refusal(base: CodeBase, place: Place) -> Refusal:
    """Of the assert, raise or checking macro at a line; empty where there is none."""
    if checked := check(_native(base, place.file), place.line):
        said = re.search(r'"((?:[^"\\]|\\.)*)"', checked)
        return Refusal(checked.partition("(")[0].strip(), said[1] if said else "", asserts=True)
    for node in _statements(base, place.file).get(place.line, ()):
        if isinstance(node, ast.Assert):
            return Refusal("AssertionError", _words(node.msg), asserts=True)
        if isinstance(node, ast.Raise) and node.exc is not None:
            made = node.exc
            name = ast.unparse(made.func if isinstance(made, ast.Call) else made)
            return Refusal(name, _words(made.args[0]) if isinstance(made, ast.Call) and made.args else "")
    return Refusal()


@dataclass(frozen=True)
class Condition:
    """What holds where a branch is taken: a test, none of the tests of the branches before an ``else``, or that an
    error was raised before: ``except KeyError``."""

    tests: tuple[str, ...]
    holds: bool = True

    @property
    def handles(self) -> bool:
        return self.tests[0].startswith("except ")


def conditions(base: CodeBase, place: Place) -> list[Condition]:
    """Of the statement at a line the conditions of the branches that it stands in, the outermost of its function first.

    What returns right before an ``else`` or a ``raise`` is one of the tests that failed there. Loops and other returns
    are not told.
    """
    found: list[Condition] = []
    inside = _functions(base, place)
    left = _left_before(inside)
    waiting: list[tuple[ast.AST, list[Condition]]] = [(each, []) for each in inside]
    while waiting:
        node, around = waiting.pop()
        if isinstance(node, ast.Assert | ast.Raise | ast.Expr) and node.lineno == place.line:
            before = tuple(ast.unparse(test) for test in left.get(node, ()))
            found = [*around, Condition(before, holds=False)] if before else around
        if isinstance(node, ast.If):
            waiting += [(each, [*around, Condition((ast.unparse(node.test),))]) for each in node.body]
            tests = [*left.get(node, ()), node.test]
            while len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
                node = node.orelse[0]
                waiting += [(each, [*around, Condition((ast.unparse(node.test),))]) for each in node.body]
                tests.append(node.test)
            otherwise = Condition(tuple(ast.unparse(test) for test in tests), holds=False)
            waiting += [(each, [*around, otherwise]) for each in node.orelse]
        elif isinstance(node, ast.ExceptHandler):
            handled = Condition((f"except {ast.unparse(node.type) if node.type is not None else 'any error'}",))
            waiting += [(each, [*around, handled]) for each in node.body]
        else:
            waiting += [(each, around) for each in ast.iter_child_nodes(node) if not isinstance(each, Function)]
    return found


def _left_before(bodies: Iterable[ast.AST]) -> dict[ast.stmt, list[ast.expr]]:
    """Of each ``if`` and ``raise`` the tests of those right before it with which the function returns."""
    found: dict[ast.stmt, list[ast.expr]] = {}
    for node in (each for body in bodies for each in ast.walk(body)):
        for block in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
            tests: list[ast.expr] = []
            for statement in block if isinstance(block, list) else ():
                found[statement] = list(tests)
                branch = statement if isinstance(statement, ast.If) and not statement.orelse else None
                if branch is None or not _leaves(branch.body, ast.Return | ast.Raise):
                    tests = []
                elif _leaves(branch.body, ast.Return):
                    tests = [*tests, branch.test]
    return found


def _leaves(body: Sequence[ast.stmt], by: type[ast.stmt] | UnionType) -> bool:
    last = body[-1]
    if isinstance(last, ast.If):
        return bool(last.orelse) and _leaves(last.body, by) and _leaves(last.orelse, by)
    return isinstance(last, by)


def _functions(base: CodeBase, place: Place) -> list[Function]:
    """The innermost function around a line."""
    every = [each for nodes in _statements(base, place.file).values() for each in nodes if isinstance(each, Function)]
    around = [each for each in every if each.lineno <= place.line <= (each.end_lineno or each.lineno)]
    return sorted(around, key=lambda each: each.lineno)[-1:]


def _words(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(each.value) if isinstance(each, ast.Constant) else "…" for each in node.values)
    return ast.unparse(node) if node is not None else ""


def local_values(base: CodeBase, place: Place, name: str) -> list[tuple[str, int]]:
    """What a name is set to before a line, in the function there, else at the top of the file, and where; an attribute
    of ``self`` anywhere in the file."""
    around = base.around(place.file, place.line)
    first = around.place.line if around else 1
    inside: list[tuple[str, int]] = []
    outside: list[tuple[str, int]] = []
    for line, nodes in sorted(_statements(base, place.file).items()):
        for node in nodes:
            if isinstance(node, ast.Assign) and any(ast.unparse(target) == name for target in node.targets):
                near = first <= line <= place.line
                kept = inside if near else outside if not node.col_offset or name.startswith("self.") else []
                kept.append((ast.unparse(node.value), line))
    return inside or outside
