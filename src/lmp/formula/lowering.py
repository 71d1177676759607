"""Formulas as one list of instructions: each distinct part of them stands in it once, after the parts it is made of.

This is the only walk that takes formulas apart to evaluate them. Four back ends read the list: `Program` makes exact
integer arithmetic of it, `ArrayProgram` numpy arithmetic; a report's page prints it as JSON, another format as Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from lmp.formula.evaluate import guarded
from lmp.formula.nodes import (
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
    Number,
    Or,
    Pow,
    Ref,
    Var,
    Where,
)
from lmp.formula.walk import free_variables

OPERATIONS: dict[type[Node], str] = {
    Add: "+",
    Mul: "*",
    Div: "/",
    FloorDiv: "//",
    Mod: "%",
    Pow: "**",
    Where: "where",
    And: "and",
    Or: "or",
    Not: "not",
    Ref: "ref",
}
"""Operation of each node; that of a Call is its function, that of a Compare its relation."""


class Instruction(NamedTuple):
    """One operation. ``operands`` are indices: variables come first, then constants, then instructions."""

    operation: str
    operands: tuple[int, ...]
    """In the order of the node's children; empty for a reference, which has no value."""
    node: Node
    """What it computes, for messages. The product of some factors has the node of the whole product."""


@dataclass(frozen=True)
class Lowered:
    """A list of instructions with what it reads."""

    names: tuple[str, ...]
    constants: tuple[Number, ...]
    instructions: list[Instruction]
    index: Mapping[Node, int]
    """Where the value of each formula is, and of each part of one."""
    inputs: int
    """Number of variables and constants: the index of the first instruction."""

    def instruction(self, index: int) -> Instruction | None:
        """The instruction that computes a value; None for a variable or a constant."""
        return self.instructions[index - self.inputs] if index >= self.inputs else None

    def leaf(self, index: int) -> str | Number:
        """The name of a variable, or the value of a constant."""
        return self.names[index] if index < len(self.names) else self.constants[index - len(self.names)]

    def variables(self, index: int) -> frozenset[str]:
        """The names that a value depends on."""
        instruction = self.instruction(index)
        if instruction is not None:
            return free_variables(instruction.node)
        leaf = self.leaf(index)
        return frozenset((leaf,)) if isinstance(leaf, str) else frozenset()


def lower(formulas: Iterable[Expr | Condition], *, pairs: bool = False) -> Lowered:
    """The instructions of all formulas, in the order in which `evaluate` reads them.

    With ``pairs`` each product has two factors, in the order of their indices: products that begin with the same
    factors then have those multiplied once. Raises EvaluationError for a formula with too many levels.
    """
    return guarded(lambda: _lowered(tuple(formulas), pairs))


def _lowered(formulas: tuple[Expr | Condition, ...], pairs: bool) -> Lowered:
    names, constants = _leaves(formulas)
    index: dict[Node, int] = {}
    for leaf in (*names, *constants):
        index[leaf] = len(index)
    inputs, instructions = len(index), list[Instruction]()
    products: dict[tuple[int, int], int] = {}

    def index_of(node: Node) -> int:
        found = index.get(node)
        if found is None:
            operands = () if isinstance(node, Ref) else tuple(map(index_of, node.children))
            if pairs and isinstance(node, Mul):
                found = product(operands, node)
            else:
                found = added(_operation(node), operands, node)
            index[node] = found
        return found

    def product(factors: tuple[int, ...], node: Node) -> int:
        found, *rest = sorted(factors)
        for factor in rest:
            pair = found, factor
            if pair not in products:
                products[pair] = added("*", pair, node)
            found = products[pair]
        return found

    def added(operation: str, operands: tuple[int, ...], node: Node) -> int:
        instructions.append(Instruction(operation, operands, node))
        return inputs + len(instructions) - 1

    for formula in formulas:
        index_of(formula)
    values = tuple([constant.value for constant in constants])
    return Lowered(tuple([variable.name for variable in names]), values, instructions, index, inputs)


def _operation(node: Node) -> str:
    found = OPERATIONS.get(type(node))
    if found is not None:
        return found
    if isinstance(node, Call):
        return node.function
    if isinstance(node, Compare):
        return node.relation
    raise TypeError(f"not a formula: {node!r}")


def _leaves(formulas: tuple[Expr | Condition, ...]) -> tuple[list[Var], list[Num]]:
    """The variables in the formulas, sorted by name, and the numbers, in reading order."""
    seen: set[int] = set()
    variables: set[Var] = set()
    numbers: dict[Num, None] = {}
    pending: list[Node] = list(reversed(formulas))
    while pending:
        node = pending.pop()
        if isinstance(node, Var):
            variables.add(node)
        elif isinstance(node, Num):
            numbers[node] = None
        elif id(node) not in seen:  # by identity: a hash takes longer than a second look
            seen.add(id(node))
            pending.extend(reversed(node.children))
    return sorted(variables, key=lambda variable: variable.name), list(numbers)
