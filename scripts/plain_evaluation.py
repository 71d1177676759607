"""Values of an analysis at a point, computed with Python's own expression trees and fractions.

This is a second implementation, independent of lmp's formulas and of its judge. It separates statements in the same way
as the gate, by a table that it receives.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

MATMUL = ("matmul", "attention", "convolution", "grouped_matmul")
SIZES = ("w_bytes", "a_bytes", "kv_bytes")
"""Names that every formula may use."""

QUANTITIES = ("flops", "matmul_flops", "read", "write")
Draft = Mapping[str, Any]
Values = Mapping[str, Any]

_REFERENCE = re.compile(r"\$\{\{\s*([\w.]+)\s*\}\}")
_NAME = re.compile(r"\{\s*([A-Za-z_]\w*)\s*\}")


class NoValue(Exception):
    """A formula that cannot be worked out: a name is not known, a class has no such parameter, it is not whole."""


class Evaluation:
    """``lookup`` gives the draft of a class that is referred to."""

    def __init__(self, lookup: Callable[[str], Draft]) -> None:
        self.lookup = lookup
        self._trees: dict[str, tuple[ast.expr, dict[str, str]]] = {}
        self._drafts: dict[str, Draft] = {}
        self._sums: dict[tuple[Any, ...], Fraction] = {}

    def statements(self, draft: Draft, values: Values, start: Callable[[Draft], Any]) -> dict[Any, tuple[int, ...]]:
        """Statement -> FLOPs, matmul FLOPs, bytes read, bytes written; those with no cost at all are left out."""
        found: dict[Any, tuple[int, ...]] = {}
        for kernel in draft["kernels"]:
            costs = tuple(self.kernel(kernel, quantity, values) for quantity in QUANTITIES)
            before = found.get(start(kernel), (0, 0, 0, 0))
            found[start(kernel)] = tuple(a + b for a, b in zip(before, costs, strict=True))
        return {place: costs for place, costs in found.items() if any(costs)}

    def kernel(self, kernel: Draft, quantity: str, values: Values) -> int:
        repeat = kernel.get("repeat", 1)
        times = repeat if isinstance(repeat, int) else self.number(repeat, values)
        if quantity in ("read", "write"):
            return times * self.number(kernel["memory_access"][quantity], values, quantity)
        if quantity == "matmul_flops" and not _REFERENCE.search(kernel["flops"]):
            return times * self.number(kernel["flops"], values) if kernel["category"] in MATMUL else 0
        if quantity == "matmul_flops":
            with_references = self.number(kernel["flops"], values, quantity)
            return times * (with_references - self.number(kernel["flops"], values, "nothing"))
        return times * self.number(kernel["flops"], values, quantity)

    def number(self, formula: str, values: Values, quantity: str = "flops") -> int:
        value = Fraction(self._value(*self._tree(formula), values, quantity))
        if value.denominator != 1:
            raise NoValue(f"{formula} is {value}")
        return int(value)

    def holds(self, condition: str, values: Values) -> bool:
        return bool(self._value(*self._tree(condition), values, "flops"))

    def _tree(self, formula: str) -> tuple[ast.expr, dict[str, str]]:
        if formula not in self._trees:
            targets: dict[str, str] = {}

            def named(match: re.Match[str]) -> str:
                name = f"reference_{len(targets)}"
                targets[name] = match[1]
                return name

            text = _NAME.sub(r"\1", _REFERENCE.sub(named, formula))
            self._trees[formula] = ast.parse(text, mode="eval").body, targets
        return self._trees[formula]

    def _value(self, node: ast.expr, targets: dict[str, str], values: Values, quantity: str) -> Any:
        def value(inner: ast.expr) -> Any:
            return self._value(inner, targets, values, quantity)

        match node:
            case ast.Constant(value=int() | float() as number):
                return Fraction(str(number))
            case ast.Name(id=name):
                if name not in values:
                    raise NoValue(f"{name} is not known")
                return Fraction(values[name])
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return -value(inner)
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return not value(inner)
            case ast.BinOp(left=left, op=operator, right=right):
                return _combined(operator, value(left), value(right))
            case ast.Compare(left=left, ops=operators, comparators=others):
                numbers = [value(left), *map(value, others)]
                return all(_compared(o, a, b) for o, a, b in zip(operators, numbers, numbers[1:], strict=False))
            case ast.BoolOp(op=ast.And(), values=parts):
                return all(map(value, parts))
            case ast.BoolOp(op=ast.Or(), values=parts):
                return any(map(value, parts))
            case ast.Call(func=ast.Name(id="where"), args=[condition, then, otherwise]):
                return value(then) if value(condition) else value(otherwise)
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=keywords) if name in targets:
                given = [value(argument) for argument in arguments]
                bound = {str(keyword.arg): value(keyword.value) for keyword in keywords}
                return self._reference(targets[name], given, bound, values, quantity)
            case ast.Call(func=ast.Name(id=("min" | "max" | "ceil" | "floor") as name), args=arguments):
                known = {"min": min, "max": max, "ceil": math.ceil, "floor": math.floor}
                return Fraction(known[name](*map(value, arguments)))  # type: ignore[operator]
        raise NoValue(ast.dump(node))

    def _reference(self, name: str, given: list[Any], bound: dict[str, Any], values: Values, quantity: str) -> Any:
        if quantity == "nothing":
            return Fraction(0)
        if name not in self._drafts:
            self._drafts[name] = self.lookup(name)
        draft = self._drafts[name]
        names = list(draft["parameters"])
        inner = dict(zip(names, given, strict=False)) | bound
        if len(given) > len(names) or inner.keys() - {*names, *SIZES} or set(names) - inner.keys():
            raise NoValue(f"{name} takes {names}")
        inner = {size: values[size] for size in SIZES if size in values} | inner
        key = (name, quantity, *sorted(inner.items()))
        if key not in self._sums:
            self._sums[key] = Fraction(sum(self.kernel(kernel, quantity, inner) for kernel in draft["kernels"]))
        return self._sums[key]


def _combined(operator: ast.operator, left: Any, right: Any) -> Any:
    try:
        match operator:
            case ast.Add():
                return left + right
            case ast.Sub():
                return left - right
            case ast.Mult():
                return left * right
            case ast.Div():
                return left / right
            case ast.FloorDiv():
                return Fraction(left // right)
            case ast.Mod():
                return left % right
            case ast.Pow() if abs(right) < 64:
                return left**right
    except ZeroDivisionError as error:
        raise NoValue("division by zero") from error
    raise NoValue(ast.dump(operator))


def _compared(operator: ast.cmpop, left: Any, right: Any) -> bool:
    match operator:
        case ast.Lt():
            return bool(left < right)
        case ast.LtE():
            return bool(left <= right)
        case ast.Gt():
            return bool(left > right)
        case ast.GtE():
            return bool(left >= right)
        case ast.Eq():
            return bool(left == right)
        case ast.NotEq():
            return bool(left != right)
    raise NoValue(ast.dump(operator))
