"""Works out what a list of kernel configurations comes to: constants, comprehensions, small functions that build it.

A closed set of Python's expressions and statements on plain values, with a limit on the steps. Nothing of the code that
is read is run. What is not of the set, or hangs on the machine (``[2, 4] if IS_HOPPER else [8]``), raises Unresolved,
which says where it stopped.
"""

from __future__ import annotations

import ast
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lmp.codebase.facts import KernelConfig
from lmp.codebase.source import Function, Source
from lmp.codebase.templates import defaults

STEPS = 100_000
LARGEST = 2**64
DEEPEST = 20
"""How many constants and functions deep: one may be defined by itself."""
LONGEST = 10_000

BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
}
COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
CALLS: dict[str, Callable[..., Any]] = {
    "list": list,
    "tuple": tuple,
    "sorted": sorted,
    # In the order of the code, not of hashes.
    "set": lambda values=(): list(dict.fromkeys(values)),
    "len": len,
    "min": min,
    "max": max,
    "sum": sum,
    "int": int,
    "bool": bool,
    "abs": abs,
    "range": lambda *sizes: list(_bounded_range(*sizes)),
    "zip": lambda *lists: list(zip(*lists, strict=False)),
    "enumerate": lambda values: list(enumerate(values)),
    "itertools.product": lambda *lists: list(_bounded_product(*lists)),
}


class Unresolved(Exception):
    """What cannot be worked out by reading: ``node`` of ``source`` is where it stopped."""

    def __init__(self, source: Source, node: ast.AST, name: str = "") -> None:
        super().__init__(name)
        self.source, self.node, self.name = source, node, name


@dataclass(frozen=True, eq=False)
class Configured:
    """One ``Config(…)`` of the kernel language, as a value."""

    config: KernelConfig


Imported = Callable[[Source, str], "tuple[Source, str] | None"]
"""The file that an imported dotted name stands in, parsed, and the name there."""


@dataclass
class Evaluation:
    """``imported`` follows an import; it is used for one step from the file at hand."""

    imported: Imported
    is_config: Callable[[Source, ast.Call], bool]
    make: Callable[[Source, ast.Call, Callable[[ast.AST], Any]], KernelConfig]
    steps: int = STEPS
    depth: int = 0

    def value(self, source: Source, node: ast.AST, local: Mapping[str, Any], follow: bool = True) -> Any:
        """Raises Unresolved."""
        self.steps -= 1
        if self.steps < 0:
            raise Unresolved(source, node, "more steps than are taken")

        def inner(node: ast.AST) -> Any:
            return self.value(source, node, local, follow)

        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return local[name] if name in local else self._name(source, node, name, follow)
            case ast.Attribute() if source.dotted(node):
                return self._name(source, node, source.dotted(node), follow)
            case ast.List() | ast.Tuple() | ast.Set():
                return self._sequence(source, node, local, follow)
            case ast.Dict(keys=keys, values=values):
                return self._dict(source, node, keys, values, inner)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY:
                return self._plain(source, node, BINARY[type(op)], inner(left), inner(right))
            case ast.BinOp(left=left, op=ast.Pow() | ast.LShift() as op, right=right):
                return self._power(source, node, op, inner(left), inner(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._plain(source, node, operator.neg, inner(operand))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not inner(operand)
            case ast.BoolOp(op=op, values=values):
                return self._boolean(op, values, inner)
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                return self._compare(source, node, [inner(left), *map(inner, comparators)], ops)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return inner(body if inner(test) else orelse)
            case (
                ast.ListComp(elt=element, generators=generators) | ast.GeneratorExp(elt=element, generators=generators)
            ):
                return [
                    self.value(source, element, scope, follow)
                    for scope in self._loops(source, generators, dict(local), follow)
                ]
            case ast.Subscript(value=value, slice=index) if not isinstance(index, ast.Slice):
                return self._plain(source, node, operator.getitem, inner(value), inner(index))
            case ast.Call():
                return self._call(source, node, local, follow)
        raise Unresolved(source, node)

    def _sequence(
        self, source: Source, node: ast.List | ast.Tuple | ast.Set, local: Mapping[str, Any], follow: bool
    ) -> Any:
        values: list[Any] = []
        for each in node.elts:
            if isinstance(each, ast.Starred):
                values.extend(self.iterable(source, each.value, local, follow))
            else:
                values.append(self.value(source, each, local, follow))
        return tuple(values) if isinstance(node, ast.Tuple) else values

    def _dict(
        self,
        source: Source,
        node: ast.AST,
        keys: list[ast.expr | None],
        values: list[ast.expr],
        inner: Callable[[ast.AST], Any],
    ) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for key, value in zip(keys, values, strict=True):
            if key is None:
                more = inner(value)
                if not isinstance(more, dict):
                    raise Unresolved(source, node)
                found.update(more)
            else:
                name = inner(key)
                if not isinstance(name, str | int | tuple):
                    raise Unresolved(source, node)
                found[name] = inner(value)
        return found

    def _name(self, source: Source, node: ast.AST, name: str, follow: bool) -> Any:
        if name in source.constants:
            return self._constant(source, name, follow)
        dotted = source.aliases.get(name, name)
        if follow and "." in dotted:
            found = self.imported(source, dotted)
            if found is not None and found[1] in found[0].constants:
                return self._constant(*found, follow=False)
        raise Unresolved(source, node, name)

    def _constant(self, source: Source, name: str, follow: bool) -> Any:
        """Where it cannot be worked out, the constant as a whole is what says most."""
        node = source.constants[name]
        if self.depth >= DEEPEST:
            raise Unresolved(source, node, name)
        self.depth += 1
        try:
            return self.value(source, node, {}, follow)
        except Unresolved:
            raise Unresolved(source, node, name) from None
        finally:
            self.depth -= 1

    def _boolean(self, op: ast.boolop, values: list[ast.expr], inner: Callable[[ast.AST], Any]) -> Any:
        result: Any = None
        for value in values:
            result = inner(value)
            if bool(result) is isinstance(op, ast.Or):
                break
        return result

    def _compare(self, source: Source, node: ast.AST, values: list[Any], ops: list[ast.cmpop]) -> bool:
        return all(
            self._plain(source, node, COMPARISONS[type(op)], left, right)
            for op, (left, right) in zip(ops, itertools.pairwise(values), strict=True)
        )

    def _plain(self, source: Source, node: ast.AST, function: Callable[..., Any], *values: Any) -> Any:
        if len(values) == 2 and any(isinstance(each, str | list | tuple) for each in values):
            # What would only be too long once it is made.
            count = next((each for each in values if isinstance(each, int)), 0)
            if function is operator.mod or (function is operator.mul and count > LONGEST):
                raise Unresolved(source, node)
        try:
            result = function(*values)
        except (TypeError, ValueError, ArithmeticError, LookupError):
            raise Unresolved(source, node) from None
        if (isinstance(result, int) and abs(result) > LARGEST) or (
            hasattr(result, "__len__") and len(result) > LONGEST
        ):
            raise Unresolved(source, node, "larger than what is worked out")
        return result

    def _power(self, source: Source, node: ast.AST, op: ast.operator, left: Any, right: Any) -> Any:
        if not (isinstance(left, int) and isinstance(right, int) and abs(left) <= 1024 and 0 <= right <= 64):
            raise Unresolved(source, node)
        return self._plain(source, node, operator.pow if isinstance(op, ast.Pow) else operator.lshift, left, right)

    def _call(self, source: Source, node: ast.Call, local: Mapping[str, Any], follow: bool) -> Any:
        if self.is_config(source, node):
            return Configured(self.make(source, node, lambda each: self.value(source, each, local, follow)))
        if any(isinstance(each, ast.Starred) for each in node.args) or any(each.arg is None for each in node.keywords):
            raise Unresolved(source, node)
        dotted = source.dotted(node.func)
        own = source.functions.get(dotted)
        if own is not None:
            return self._run(source, own, node, source, local, follow)
        if dotted == "dict" and not node.args:
            return {each.arg: self.value(source, each.value, local, follow) for each in node.keywords}
        if dotted in CALLS and not node.keywords:
            return self._plain(
                source, node, CALLS[dotted], *(self.value(source, each, local, follow) for each in node.args)
            )
        if follow and "." in dotted:
            found = self.imported(source, dotted)
            if found is not None and found[1] in found[0].functions:
                return self._run(found[0], found[0].functions[found[1]], node, source, local, False)
        raise Unresolved(source, node, dotted)

    def iterable(self, source: Source, node: ast.AST, local: Mapping[str, Any], follow: bool) -> list[Any]:
        value = self.value(source, node, local, follow)
        if not isinstance(value, list | tuple | set | dict | str):
            raise Unresolved(source, node)
        return list(value)

    def _loops(
        self, source: Source, generators: list[ast.comprehension], local: dict[str, Any], follow: bool
    ) -> Iterator[dict[str, Any]]:
        """The names of a comprehension, once for each of its elements."""
        if not generators:
            yield local
            return
        first, *rest = generators
        for value in self.iterable(source, first.iter, local, follow):
            inside = {**local, **self._bound(source, first.target, value)}
            if all(self.value(source, test, inside, follow) for test in first.ifs):
                yield from self._loops(source, rest, inside, follow)

    def _bound(self, source: Source, target: ast.expr, value: Any) -> dict[str, Any]:
        if isinstance(target, ast.Name):
            return {target.id: value}
        if (
            isinstance(target, ast.Tuple | ast.List)
            and isinstance(value, list | tuple)
            and len(value) == len(target.elts)
        ):
            found: dict[str, Any] = {}
            for each, part in zip(target.elts, value, strict=True):
                found.update(self._bound(source, each, part))
            return found
        raise Unresolved(source, target)

    # Functions that build a list: assignments, loops, ifs, append, return.

    def _run(
        self, there: Source, function: Function, node: ast.Call, source: Source, local: Mapping[str, Any], follow: bool
    ) -> Any:
        arguments = function.args
        if arguments.vararg or arguments.kwarg:
            raise Unresolved(there, function, function.name)
        inside = {name: self.value(there, value, {}, follow) for name, value in defaults(function).items()}
        names = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
        if len(node.args) > len(names):
            raise Unresolved(source, node)
        inside.update(
            {name: self.value(source, each, local, follow) for name, each in zip(names, node.args, strict=False)}
        )
        inside.update({str(each.arg): self.value(source, each.value, local, follow) for each in node.keywords})
        if self.depth >= DEEPEST:
            raise Unresolved(there, function, function.name)
        self.depth += 1
        try:
            outcome = self._body(there, function.body, inside, follow)
        finally:
            self.depth -= 1
        if not isinstance(outcome, _Returned):
            raise Unresolved(there, function, function.name)
        return outcome.value

    def _body(self, source: Source, body: list[ast.stmt], local: dict[str, Any], follow: bool) -> object:
        """A _Returned, CONTINUE, BREAK, or None where the end is reached."""
        for statement in body:
            outcome = self._statement(source, statement, local, follow)
            if outcome is not None:
                return outcome
        return None

    def _statement(self, source: Source, node: ast.stmt, local: dict[str, Any], follow: bool) -> object:
        self.steps -= 1
        match node:
            case ast.Return(value=value):
                return _Returned(None if value is None else self.value(source, value, local, follow))
            case ast.Assign(targets=[target], value=value):
                local.update(self._bound(source, target, self.value(source, value, local, follow)))
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                local[name] = self.value(source, value, local, follow)
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value) if name in local and type(op) in BINARY:
                local[name] = self._plain(
                    source, node, BINARY[type(op)], local[name], self.value(source, value, local, follow)
                )
            case ast.Expr(value=ast.Call() as call):
                self._append(source, call, local, follow)
            case ast.Expr(value=ast.Constant()) | ast.Pass() | ast.Import() | ast.ImportFrom():
                pass
            case ast.For(target=target, iter=values, body=body, orelse=[]):
                return self._for(source, target, self.iterable(source, values, local, follow), body, local, follow)
            case ast.If(test=test, body=body, orelse=orelse):
                return self._body(source, body if self.value(source, test, local, follow) else orelse, local, follow)
            case ast.Continue():
                return CONTINUE
            case ast.Break():
                return BREAK
            case _:
                raise Unresolved(source, node)
        return None

    def _for(
        self,
        source: Source,
        target: ast.expr,
        values: list[Any],
        body: list[ast.stmt],
        local: dict[str, Any],
        follow: bool,
    ) -> object:
        for value in values:
            local.update(self._bound(source, target, value))
            outcome = self._body(source, body, local, follow)
            if isinstance(outcome, _Returned):
                return outcome
            if outcome is BREAK:
                break
        return None

    def _append(self, source: Source, call: ast.Call, local: dict[str, Any], follow: bool) -> None:
        match call:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=name), attr="append" | "extend" as how), args=[given], keywords=[]
            ) if isinstance(local.get(name), list):
                if how == "append":
                    local[name].append(self.value(source, given, local, follow))
                else:
                    local[name].extend(self.iterable(source, given, local, follow))
                if len(local[name]) > LONGEST:
                    raise Unresolved(source, call, "larger than what is worked out")
            case _:
                raise Unresolved(source, call)


@dataclass(frozen=True)
class _Returned:
    value: Any


CONTINUE, BREAK = object(), object()


def _bounded_range(*sizes: int) -> range:
    found = range(*sizes)
    if len(found) > LONGEST:
        raise ValueError
    return found


def _bounded_product(*lists: Any) -> Iterator[tuple[Any, ...]]:
    total = 1
    for each in lists:
        total *= len(each)
    if total > LONGEST:
        raise ValueError
    return itertools.product(*lists)
