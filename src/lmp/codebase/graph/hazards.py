"""Places of Python code that may cost a user time: each by its form, none by what a comment says."""

from __future__ import annotations

import ast
import re

from lmp.codebase.graph.records import Function, Hazard, HazardKind
from lmp.codebase.source import Source

WARNS = frozenset(["warning", "warn", "warning_once", "warn_once"])
FALLS_BACK = re.compile(
    r"(?i)fall(?:s|ing)? ?back|ignor|instead|not supported|unsupported|disabl|assum|"
    r"default(?:s|ing)? to|overrid|unknown"
)
IN_PLACE = ("append", "extend")
"""Methods of lists that change their object and return nothing."""
LONGEST = 160


def _add(inside: Function, kind: HazardKind, node: ast.AST, text: str) -> None:
    inside.hazards.append(Hazard(kind, getattr(node, "lineno", inside.line), " ".join(text.split())[:LONGEST]))


def of_assert(source: Source, node: ast.Assert, inside: Function) -> None:
    if inside.qualname and not (isinstance(node.test, ast.Call) and "isinstance" in source.written(node.test)):
        _add(inside, "assert", node, source.written(node.test))


def of_if(source: Source, node: ast.If, inside: Function) -> None:
    """A refusal of a value, and a variable of the environment of which any value counts."""
    raises = next((each for each in node.body if isinstance(each, ast.Raise) and each.exc is not None), None)
    if raises is not None and inside.qualname and isinstance(raises.exc, ast.Call):
        name = source.written(raises.exc.func)
        if name.endswith(("ValueError", "RuntimeError", "AssertionError", "TypeError")):
            _add(inside, "raise", raises, source.written(node.test))
    test = node.test.operand if isinstance(node.test, ast.UnaryOp) else node.test
    if isinstance(test, ast.Call) and source.dotted(test.func) in ("os.environ.get", "os.getenv"):
        _add(inside, "any value", node, source.written(test))


def of_handler(source: Source, node: ast.ExceptHandler, inside: Function) -> None:
    """An error that is dropped without a word."""
    kind = source.written(node.type) if node.type is not None else ""
    silent = all(isinstance(each, ast.Pass | ast.Continue) for each in node.body)
    broad = kind in ("", "Exception", "BaseException", "ImportError", "ModuleNotFoundError")
    if silent and broad and inside.qualname:
        _add(inside, "swallowed", node, f"except {kind}".strip())


def of_function(node: ast.FunctionDef | ast.AsyncFunctionDef, made: Function) -> None:
    """Arguments by any name that are never looked at."""
    kwarg = node.args.kwarg
    if kwarg is None or made.abstract or kwarg.arg.startswith("_"):
        return
    used = any(isinstance(each, ast.Name) and each.id == kwarg.arg for one in node.body for each in ast.walk(one))
    if not used and node.name in ("__init__", "generate", "from_pretrained", "create", "load"):
        made.hazards.append(Hazard("ignored", node.lineno, f"**{kwarg.arg}"))


def of_value(source: Source, value: ast.expr, inside: Function) -> None:
    """A value that is put in the place of a user's, and what returns nothing."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in IN_PLACE:
        receiver = value.func.value
        if value.func.attr in ("append", "extend") and isinstance(receiver, ast.Name | ast.Attribute):
            _add(inside, "none used", value, source.written(value))
    if isinstance(value, ast.IfExp) and isinstance(value.test, ast.Compare) and isinstance(value.orelse, ast.Constant):
        left = source.written(value.test.left)
        zero = any(isinstance(each, ast.Constant) and each.value in (0, 0.0) for each in value.test.comparators)
        if zero and source.written(value.body) == left and value.orelse.value is not None:
            _add(inside, "replaced", value, source.written(value))


def of_call(source: Source, node: ast.Call, inside: Function) -> None:
    if not (isinstance(node.func, ast.Attribute) and node.func.attr in WARNS and node.args) or not inside.qualname:
        return
    message = source.written(node.args[0])
    if FALLS_BACK.search(message):
        _add(inside, "falls back", node, message)
