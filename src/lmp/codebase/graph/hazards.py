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


EXITS = ("sys.exit", "exit", "quit", "os._exit")


def of_if(source: Source, node: ast.If, inside: Function) -> None:
    """A refusal of a value, a value that is changed, and a variable of the environment of which any value counts."""
    if inside.qualname:
        _of_branch(source, node, node.body, inside)
        if node.orelse and not isinstance(node.orelse[0], ast.If):
            _of_branch(source, node, node.orelse, inside)
    test = node.test.operand if isinstance(node.test, ast.UnaryOp) else node.test
    if isinstance(test, ast.Call) and source.dotted(test.func) in ("os.environ.get", "os.getenv"):
        _add(inside, "any value", node, source.written(test))


def _of_branch(source: Source, node: ast.If, body: list[ast.stmt], inside: Function) -> None:
    test = source.written(node.test)
    called = [each.value for each in body if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call)]
    for each in body:
        if isinstance(each, ast.Raise) and isinstance(each.exc, ast.Call):
            if source.written(each.exc.func).endswith("Error"):
                _add(inside, "raise", each, test)
            return
    if any(source.dotted(call.func) in EXITS for call in called):
        _add(inside, "raise", body[-1], test)
        return
    assigned = [each for each in body if isinstance(each, ast.Assign)]
    warned = next((call for call in called if isinstance(call.func, ast.Attribute) and call.func.attr in WARNS), None)
    if warned is not None and warned.args and (assigned or isinstance(body[-1], ast.Return)):
        _add(inside, "falls back", warned, source.written(warned.args[0]))
    elif assigned and len(assigned) == len(body) and not test.endswith(" is None") and body is node.body:
        # A default for what was not given replaces nothing.
        kept = all(isinstance(each.value, ast.Constant) and each.value.value is not None for each in assigned)
        given = [
            target
            for each in assigned
            for target in each.targets
            if isinstance(target, ast.Attribute) or (isinstance(target, ast.Name) and target.id in inside.params)
        ]
        if kept and given:
            _add(inside, "replaced", assigned[0], f"{source.written(given[0])} if {test}")


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
        # A function of a module is no method of a list.
        if isinstance(receiver, ast.Attribute) or (
            isinstance(receiver, ast.Name) and receiver.id not in source.aliases
        ):
            _add(inside, "none used", value, source.written(value))
    for each in ast.walk(value):
        if isinstance(each, ast.IfExp) and isinstance(each.test, ast.Compare) and isinstance(each.orelse, ast.Constant):
            left = source.written(each.test.left)
            zero = any(isinstance(one, ast.Constant) and one.value in (0, 0.0) for one in each.test.comparators)
            if zero and source.written(each.body) == left and each.orelse.value is not None:
                _add(inside, "replaced", each, source.written(each))


def of_call(source: Source, node: ast.Call, inside: Function) -> None:
    if not (isinstance(node.func, ast.Attribute) and node.func.attr in WARNS and node.args) or not inside.qualname:
        return
    message = source.written(node.args[0])
    if FALLS_BACK.search(message):
        _add(inside, "falls back", node, message)
