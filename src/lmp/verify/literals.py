"""Numbers that source code compares, divides, splits, ranges or slices with: sizes beside which its path may change."""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import textwrap
import types
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import torch

from lmp.formula import Condition, Expr, Var, compare, num, var

LARGEST = 1 << 16
"""Numbers up to this are sizes; larger ones are constants such as a mask's minimum."""

SMALL = 8
"""Points of a few tokens show most sizes beside numbers up to this."""

SPLITTING = frozenset(
    ["range", "split", "chunk", "tensor_split", "split_with_sizes", "narrow", "unfold", "min", "max", "batched"]
)
"""Names of functions whose integers are sizes of pieces."""


def literals(modules: Iterable[torch.nn.Module], without: Collection[str] = ()) -> dict[int, str]:
    """Number -> where it was found first, in ``forward()`` of the modules and in the functions that it calls.

    An attribute counts with its value on the module, unless its name is in ``without``. PyTorch's own code is left out.
    """
    found: dict[int, str] = {}
    seen: set[type[Any]] = set()
    for module in modules:
        if type(module) in seen or type(module).__module__.startswith("torch."):
            continue
        seen.add(type(module))
        for function in _functions(module):
            for number, node in _numbers(function, module, without):
                if 1 < number <= LARGEST:
                    found.setdefault(number, f"{function.__qualname__}, line {node.lineno}")
    return found


def around(number: int, fewer: bool = False) -> tuple[int, ...]:
    """Sizes on both sides of a number, at it, and several multiples, whole and not. The nearest ones come first.

    ``fewer``: without some multiples, and without the sizes that points of a few tokens have anyway.
    """
    n = number
    if fewer:
        return (n, n + 1, 2 * n + 3) if n <= SMALL else (n + 1, n, n - 1, 2 * n + 3, 3 * n + 1)
    # Many pieces, with a rest of one and with none: a slice of one needs no copy, and its formula is its own.
    return (n + 1, n, n - 1, 2 * n + 3, 2 * n, 3 * n + 1, 2 * n - 1, 5 * n + 1, 4 * n)


_RELATIONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip


def compared(modules: Iterable[torch.nn.Module], names: Mapping[str, str]) -> dict[Condition, None]:
    """Comparisons of sizes in the constructors of the modules: they decide which parts exist.

    ``names``: name of a config value or argument -> its variable.
    """
    found: dict[Condition, None] = {}
    bases = dict.fromkeys(base for module in modules for base in type(module).__mro__)
    for base in bases:
        constructor = base.__dict__.get("__init__")
        constructor = constructor if isinstance(constructor, types.FunctionType) else None
        node = None if constructor is None else _definition(constructor.__code__)
        for one in ast.walk(node) if node is not None else ():
            match one:
                case ast.Compare(left=left, ops=[operator], comparators=[right]) if type(operator) in _RELATIONS:
                    sides = [_size(side, names) for side in (left, right)]
                    if sides[0] is not None and sides[1] is not None and any(isinstance(side, Var) for side in sides):
                        found[compare(_RELATIONS[type(operator)], sides[0], sides[1])] = None
    return found


def _size(node: ast.expr, names: Mapping[str, str]) -> Expr | None:
    """A variable or a number; None for anything else."""
    match node:
        case ast.Constant(value=value) if type(value) is int and value <= LARGEST:
            return num(value)
        case ast.Attribute(attr=name) | ast.Name(id=name) if name in names:
            return var(names[name])
    return None


# -- functions --------------------------------------------------------------------------------------------------------


def _functions(module: torch.nn.Module) -> Iterator[types.FunctionType]:
    """``forward()`` and the Python functions that it calls, at any depth. Modules are followed by their own class."""
    pending: list[Any] = [type(module).forward]
    seen: set[types.CodeType] = set()
    while pending:
        function = _plain(pending.pop())
        if function is None or function.__code__ in seen:
            continue
        seen.add(function.__code__)
        yield function
        node = _definition(function.__code__)
        if node is not None:
            calls = (n.func for n in ast.walk(node) if isinstance(n, ast.Call))
            pending += [called for name in calls if (called := _named(name, function, module)) is not None]


def _plain(found: Any) -> types.FunctionType | None:
    """The Python function behind decorators, unless it is PyTorch's."""
    try:
        function = inspect.unwrap(getattr(found, "__func__", found))
    except ValueError:
        return None
    if not isinstance(function, types.FunctionType) or (function.__module__ or "").split(".")[0] == "torch":
        return None
    return function


def _named(name: ast.expr, function: types.FunctionType, module: torch.nn.Module) -> Any:
    match name:
        case ast.Name(id=plain):
            return function.__globals__.get(plain)
        case ast.Attribute(value=ast.Name(id="self"), attr=method):
            return getattr(type(module), method, None)
        case ast.Attribute(value=ast.Name(id=base), attr=attribute):
            holder = function.__globals__.get(base)
            return getattr(holder, attribute, None) if isinstance(holder, types.ModuleType | type) else None
    return None


@functools.lru_cache(maxsize=1024)
def _definition(code: types.CodeType) -> ast.AST | None:
    """The syntax tree of a function alone; None if its source is not there. Its file may be large."""
    lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :]
    try:
        tree = ast.parse(textwrap.dedent("".join(inspect.getblock(lines))))
    except (SyntaxError, ValueError, IndexError):
        return None
    return ast.increment_lineno(tree, code.co_firstlineno - 1)


# -- numbers ----------------------------------------------------------------------------------------------------------


def _numbers(
    function: types.FunctionType, module: torch.nn.Module, without: Collection[str]
) -> Iterator[tuple[int, ast.expr]]:
    """The integers of a function that decide paths or sizes of pieces."""
    node = _definition(function.__code__)
    if node is None:
        return
    known = functools.partial(
        _values, assigned=_assigned(node, function), function=function, module=module, without=without
    )
    for found in ast.walk(node):
        for place in _deciding(found):
            for number in known(place):
                yield number, place


def _deciding(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions below a node whose integers decide."""
    match node:
        case ast.Compare(left=left, comparators=others):
            yield from (left, *others)
        case ast.BinOp(left=left, op=ast.FloorDiv() | ast.Mod(), right=right):
            yield from (left, right)
        case ast.Slice(lower=lower, upper=upper, step=step):
            yield from (part for part in (lower, upper, step) if part is not None)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=given, keywords=named):
            if name in SPLITTING:
                yield from given
                yield from (keyword.value for keyword in named if keyword.arg != "dim")


_SHORT = ast.Constant | ast.Attribute | ast.Name | ast.BinOp | ast.Tuple | ast.List


def _assigned(node: ast.AST, function: types.FunctionType) -> dict[str, list[ast.expr]]:
    """Local name -> the expressions that are assigned to it, defaults of arguments included."""
    found: dict[str, list[ast.expr]] = {}
    for one in ast.walk(node):
        match one:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found.setdefault(name, []).append(value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                found.setdefault(name, []).append(value)
            case ast.NamedExpr(target=ast.Name(id=name), value=value):
                found.setdefault(name, []).append(value)
            case (
                ast.For(target=ast.Name(id=name), iter=value) | ast.comprehension(target=ast.Name(id=name), iter=value)
            ):
                found.setdefault(name, []).append(value)
    for name, default in _defaults(function).items():
        if type(default) is int:
            found.setdefault(name, []).append(ast.Constant(default))
    return found


def _defaults(function: types.FunctionType) -> dict[str, Any]:
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    positional = function.__defaults__ or ()
    return {
        **dict(zip(names[len(names) - len(positional) :], positional, strict=True)),
        **(function.__kwdefaults__ or {}),
    }


def _values(
    place: ast.expr,
    assigned: dict[str, list[ast.expr]],
    function: types.FunctionType,
    module: torch.nn.Module,
    without: Collection[str],
) -> Iterator[int]:
    """Integers in an expression: constants, and names and attributes with one value."""
    pending: list[ast.AST] = [place]
    followed: set[str] = set()
    while pending:
        node = pending.pop()
        found: Any = None
        match node:
            case ast.Constant(value=value):
                found = value
            case ast.Attribute(attr=attribute) if attribute not in without:
                found = _attribute(node, module)
            case ast.Name(id=name) if name in assigned:
                if name not in followed:
                    followed.add(name)
                    # Only short assignments: what a tensor is computed from decides nothing.
                    pending += [v for v in assigned[name] if isinstance(v, _SHORT)]
            case ast.Name(id=name):
                found = function.__globals__.get(name)
            case ast.BinOp() | ast.UnaryOp() | ast.IfExp() | ast.List() | ast.Tuple():
                pending += ast.iter_child_nodes(node)
            case ast.Call(args=given):
                pending += given
        for number in found if isinstance(found, list | tuple) else (found,):
            if type(number) is int:
                yield number


def _attribute(node: ast.Attribute, module: torch.nn.Module) -> Any:
    """The value of ``self.a.b`` on the module."""
    names: list[str] = []
    current: ast.expr = node
    while isinstance(current, ast.Attribute):
        names.append(current.attr)
        current = current.value
    if not isinstance(current, ast.Name) or current.id != "self":
        return None
    found: Any = module
    for name in reversed(names):
        found = getattr(found, name, None)
    return found
