"""What a function without a docstring comes to, in few words."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from functools import lru_cache

from lmp.codebase.facts import Definition
from lmp.report.repository.code_base import CodeBase

Function = ast.FunctionDef | ast.AsyncFunctionDef


def summed_up(node: Function) -> tuple[str, str] | None:
    """What the body of a function comes to in few words: what it returns, else what it sets, else what it calls."""
    own = list(_own(node))
    returned = [each.value for each in own if isinstance(each, ast.Return) and each.value is not None]
    # What is returned early, and a plain name, say nothing of what the function is for.
    made = [each for each in returned if not isinstance(each, ast.Name | ast.Constant)]
    if made:
        return "returns", _written(made[-1])
    kept = [ast.unparse(t) for each in own if isinstance(each, ast.Assign) for t in each.targets if _is_own(t)]
    if kept and not returned and 2 * len(kept) >= len(node.body):
        return "sets", ", ".join(dict.fromkeys(kept))
    called = [ast.unparse(each.func) for each in own if isinstance(each, ast.Call) and _is_plain(each.func)]
    named = [name for name in dict.fromkeys(called) if name not in _SMALL and not _ASIDE.match(name)]
    if named:
        return "calls", ", ".join(f"{name}()" for name in named[:4])
    return ("returns", _written(returned[0])) if returned else None


_SMALL = frozenset(dir(builtins))
_ASIDE = re.compile(
    r"(?:argparse|\w*parsers?|args|time|sys|os|logging|logger|log|warnings|json|re|copy|functools|gc)\.|parse_args$"
)
"""What a function does beside its work."""


def _own(node: Function) -> Iterator[ast.AST]:
    """Everything inside of a function but the functions in it, in the order of the code."""
    waiting: list[ast.AST] = list(reversed(node.body))
    while waiting:
        each = waiting.pop()
        yield each
        if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting += reversed(list(ast.iter_child_nodes(each)))


def _is_own(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _is_plain(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and _is_plain(node.value))


def _written(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())


def function_at(base: CodeBase, definition: Definition) -> Function | None:
    for node in _functions(base, definition.place.file):
        if node.name == definition.name and node.lineno == definition.place.line:
            return node
    return None


@lru_cache(maxsize=48)
def _functions(base: CodeBase, file: str) -> tuple[Function, ...]:
    try:
        tree = ast.parse(base.text(file) or "")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(each for each in ast.walk(tree) if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)))
