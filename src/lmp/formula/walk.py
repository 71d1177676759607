"""Walks over a formula: its variables, its references, and the formula with these replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from lmp.formula.nodes import Expr, Node, Operand, Ref, Var, lift

N = TypeVar("N", bound=Node)


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it, in reading order."""
    pending = [node]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed(node.children))


def free_variables(node: Node) -> frozenset[str]:
    """The names of all variables, those in the arguments of references included."""
    return frozenset(found.name for found in walk(node) if isinstance(found, Var))


def references(node: Node) -> tuple[Ref, ...]:
    """Every reference, in reading order; one inside another's arguments follows it."""
    return tuple(found for found in walk(node) if isinstance(found, Ref))


def rewrite(node: N, rule: Callable[[Node], Node]) -> N:
    """The node with ``rule`` applied to everything in it, innermost first."""
    children = node.children
    if children:
        changed = tuple(rewrite(child, rule) for child in children)
        if any(new is not old for new, old in zip(changed, children, strict=True)):
            node = node.with_children(changed)  # type: ignore[assignment]
    return rule(node)  # type: ignore[return-value]


def substitute(node: N, values: Mapping[str, Operand]) -> N:
    """The node with all the named variables replaced at once.

    A reference's target has its own variables, so only the formulas bound to them change, never their names.
    """
    lifted = {name: lift(value) for name, value in values.items()}
    return rewrite(node, lambda found: lifted.get(found.name, found) if isinstance(found, Var) else found)


def map_references(node: N, replace: Callable[[Ref], Expr]) -> N:
    """The node with every reference replaced, innermost first."""
    return rewrite(node, lambda found: replace(found) if isinstance(found, Ref) else found)


def is_open(target: str) -> bool:
    """True if a reference names an attribute, as ``self.act_fn``, whose class is not known yet."""
    return target.startswith("self.") or "." not in target
