"""How many experts a call reads the weights of: formulas count the most there can be, real routing reads fewer.

A product over experts reads ``min(experts, rows)`` of their weights, which supposes that no two tokens share one. Here
the same formulas get the number that is expected where every token chooses its experts evenly and by itself, and the
least there can be, where all tokens choose the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from lmp.formula import Call, Expr, Node, Num, evaluate, evaluate_exact, free_variables, parse, rewrite, walk
from lmp.link.numbers import KernelNumbers, ModuleNumbers

Way = Literal["most", "uniform", "least"]
MILLION = 10**6


@dataclass(frozen=True)
class Choice:
    """Experts of one product, and the rows that reach them: a row for each token and each expert that it chooses."""

    experts: Expr
    rows: Expr


@dataclass(frozen=True)
class Routing:
    """The choices of a model at one point."""

    choices: tuple[Choice, ...]
    values: Mapping[str, int]

    def number(self, choice: Choice, way: Way) -> Fraction:
        """Experts whose weights are read; the expected number in millionths."""
        return distinct(
            evaluate(choice.experts, self.values),
            evaluate(choice.rows, self.values),
            self.values["batch_size"] * self.values["seq_len"],
            way,
        )

    def worth(self, text: str, way: Way) -> Fraction:
        """A formula's value with another number of experts in it."""
        return Fraction(evaluate_exact(rewrite(parse(text), lambda node: self._with(node, way)), self.values))

    def touches(self, text: str) -> bool:
        return any(self._times(node) is not None for node in walk(parse(text)))

    def _with(self, node: Node, way: Way) -> Node:
        found = self._times(node)
        return node if found is None else Num(found[1] * self.number(found[0], way))

    def _times(self, node: Node) -> tuple[Choice, Fraction] | None:
        """The choice that a minimum is of, and how many of its experts' numbers it counts an expert."""
        if not isinstance(node, Call) or node.function != "min" or len(node.arguments) != 2:
            return None
        for choice in self.choices:
            for table, rows in (node.arguments, reversed(node.arguments)):
                if not free_variables(choice.experts) <= free_variables(table):
                    continue
                if not free_variables(choice.rows) <= free_variables(rows):
                    continue
                each = Fraction(evaluate(table, self.values), evaluate(choice.experts, self.values))
                if each * evaluate(choice.rows, self.values) == evaluate(rows, self.values):
                    return choice, each
        return None


@lru_cache(maxsize=64)
def distinct(experts: int, rows: int, tokens: int, way: Way) -> Fraction:
    """Different experts among those that ``tokens`` tokens choose, ``rows / tokens`` different ones each.

    ``uniform`` is the expected number where tokens choose evenly and independently, rounded down to millionths: an
    expert is chosen by no token with the chance ``(1 - chosen / experts) ** tokens``.
    """
    most = min(experts, rows)
    chosen, rest = divmod(rows, tokens)
    if way == "most" or rest or chosen > experts:
        return Fraction(most)
    if way == "least":
        return Fraction(min(experts, chosen))
    unread = -(-MILLION * experts * (experts - chosen) ** tokens // experts**tokens)
    return Fraction(MILLION * experts - unread, MILLION)


def routing_of(tree: ModuleNumbers, values: Mapping[str, int]) -> Routing:
    """From the products over experts in a tree; a model without any has no choices."""
    found = dict.fromkeys(choice for kernel in tree.kernels() for choice in _choices(kernel))
    return Routing(tuple(found), values)


def _choices(kernel: KernelNumbers) -> Iterator[Choice]:
    access = kernel.kernel.memory_access
    if kernel.kernel.category != "grouped_matmul" or access is None:
        return
    for node in walk(parse(access.read)):
        if isinstance(node, Call) and node.function == "min" and len(node.arguments) == 2:
            for experts, rows in (node.arguments, node.arguments[::-1]):
                if "batch_size" in free_variables(rows) and "batch_size" not in free_variables(experts):
                    yield Choice(experts, rows)
