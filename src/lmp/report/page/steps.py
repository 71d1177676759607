"""Formulas as a list of small steps that a page can work out: data, so that nothing has to be compiled there.

Each distinct part of the formulas is one step, as in `lmp.formula.Program`; a step names the earlier ones that it
works on by their index. Indices begin with the variables, then the constants, then the steps. `static/exact.js` is
the other half.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any

from lmp.formula import (
    Add,
    And,
    Call,
    Compare,
    Condition,
    Div,
    Expr,
    FloorDiv,
    Mod,
    Mul,
    Node,
    Not,
    Num,
    Or,
    Pow,
    Var,
    Where,
    free_variables,
    walk,
)

QUOTIENTS = {Div: "/", FloorDiv: "//", Mod: "%"}


class Steps:
    """Formulas and conditions, compiled. ``slot`` says at which index the value of one stands."""

    def __init__(self, formulas: Iterable[Expr | Condition]) -> None:
        formulas = list(dict.fromkeys(formulas))
        self.names = sorted(frozenset().union(*map(free_variables, formulas)))
        self.constants = list(_numbers(formulas))
        self.steps: list[list[Any]] = []
        self._slots: dict[object, int] = {}
        for leaf in (*map(Var, self.names), *map(Num, self.constants)):
            self._slots[leaf] = len(self._slots)
        self._leaves = len(self._slots)
        for formula in formulas:
            self.slot(formula)

    def record(self) -> dict[str, Any]:
        """As JSON: whole numbers as text, because they may be larger than JSON's are everywhere."""
        constants = [
            [str(value.numerator), str(value.denominator)] if isinstance(value, Fraction) else [str(value)]
            for value in self.constants
        ]
        return {"names": self.names, "constants": constants, "steps": self.steps}

    def slot(self, node: Node) -> int:
        found = self._slots.get(node)
        if found is None:
            found = self._slots[node] = self._made(node)
        return found

    def _made(self, node: Node) -> int:
        match node:
            case Add(terms):
                return self._step("+", terms)
            case Mul(factors):
                return self._product([self.slot(factor) for factor in factors])
            case Div() | FloorDiv() | Mod():
                return self._step(QUOTIENTS[type(node)], (node.left, node.right))
            case Pow(left, right):
                return self._step("**", (left, right))
            case Call(function, arguments):
                return self._step(function, arguments)
            case Where(condition, then, otherwise):
                return self._step("where", (condition, then, otherwise))
            case Compare(relation, left, right):
                return self._step(relation, (left, right))
            case And(parts):
                return self._step("and", parts)
            case Or(parts):
                return self._step("or", parts)
            case Not(part):
                return self._step("not", (part,))
        raise TypeError(f"not a formula without references: {node!r}")

    def _product(self, factors: Sequence[int]) -> int:
        """Factor by factor, in the order of the indices, so that products share what they begin with."""
        first, *rest = sorted(factors)
        for factor in rest:
            key = ("*", first, factor)
            if key not in self._slots:
                self._slots[key] = self._add(["*", first, factor])
            first = self._slots[key]
        return first

    def _step(self, operation: str, operands: Sequence[Node]) -> int:
        return self._add([operation, *(self.slot(operand) for operand in operands)])

    def _add(self, step: list[Any]) -> int:
        self.steps.append(step)
        return self._leaves + len(self.steps) - 1


def _numbers(formulas: Iterable[Node]) -> Iterator[int | Fraction]:
    """Every number that stands in the formulas, once."""
    found: dict[int | Fraction, None] = {}
    for formula in formulas:
        for node in walk(formula):
            if isinstance(node, Num):
                found[node.value] = None
    yield from found
