"""Formula to text. What is printed reads back as the same nodes (a fraction such as 1/3 as the division it is)."""

from __future__ import annotations

from fractions import Fraction

from lmp.formula.nodes import (
    Add,
    And,
    Call,
    Compare,
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
    Ref,
    Var,
    Where,
)

# How tightly a text binds, loosest first; an operand that binds looser than its place asks for gets parentheses.
OR, AND, NOT, COMPARE, SUM, PRODUCT, NEGATIVE, POWER, ATOM = range(9)

_QUOTIENTS = {Div: "/", FloorDiv: "//", Mod: "%"}


def to_text(node: Node) -> str:
    """The formula as one line of the grammar in docs/formulas.md."""
    return _write(node)[0]


def _write(node: Node) -> tuple[str, int]:
    match node:
        case Var(name):
            return f"{{{name}}}", ATOM
        case Num(value):
            return _number(value)
        case Add(terms):
            return _sum(terms)
        case Mul(factors):
            return _product(factors)
        case Div(left, right) | FloorDiv(left, right) | Mod(left, right):
            return f"{_at(left, PRODUCT)} {_QUOTIENTS[type(node)]} {_at(right, NEGATIVE)}", PRODUCT
        case Pow(left, right):
            return f"{_at(left, ATOM)} ** {_at(right, NEGATIVE)}", POWER
        case Call(function, arguments):
            return f"{function}({_list(arguments)})", ATOM
        case Where(condition, then, otherwise):
            return f"where({_list((condition, then, otherwise))})", ATOM
        case Ref(target, arguments, bindings):
            bound = [_at(a, OR) for a in arguments] + [f"{name}={_at(value, OR)}" for name, value in bindings]
            return f"${{{{{target}}}}}({', '.join(bound)})", ATOM
        case Compare(relation, left, right):
            return f"{_at(left, SUM)} {relation} {_at(right, SUM)}", COMPARE
        case Not(part):
            return f"not {_at(part, NOT)}", NOT
        case And(parts):
            return " and ".join(_at(part, NOT) for part in parts), AND
        case Or(parts):
            return " or ".join(_at(part, AND) for part in parts), OR
    raise TypeError(f"not a formula: {node!r}")


def _at(node: Node, place: int) -> str:
    text, binding = _write(node)
    return text if binding >= place else f"({text})"


def _list(nodes: tuple[Node, ...]) -> str:
    return ", ".join(_at(node, OR) for node in nodes)


def _number(value: int | Fraction) -> tuple[str, int]:
    sign, size = ("-", -value) if value < 0 else ("", value)
    text, binding = str(size), ATOM
    if isinstance(size, Fraction):
        decimal = _decimal(size)
        text, binding = (f"{size.numerator} / {size.denominator}", PRODUCT) if decimal is None else (decimal, ATOM)
    return sign + text, min(binding, NEGATIVE) if sign else binding


def _decimal(value: Fraction) -> str | None:
    """The exact decimal, where there is one of at most 12 places."""
    scaled = value * 10**12
    if scaled.denominator != 1:
        return None
    whole, part = divmod(scaled.numerator, 10**12)
    return f"{whole}.{part:012d}".rstrip("0")


def _sum(terms: tuple[Expr, ...]) -> tuple[str, int]:
    text = _at(terms[0], PRODUCT)
    for term in terms[1:]:
        positive = without_sign(term)
        # A sum inside a sum was put there by hand: its parentheses keep it.
        text += f" + {_at(term, PRODUCT)}" if positive is None else f" - {_at(positive, PRODUCT)}"
    return text, SUM


def without_sign(term: Expr) -> Expr | None:
    """The term without its leading minus, or None where it has none, or would not get it back when read."""
    match term:
        case Num(value) if value < 0:
            return Num(-value)
        case Mul((Num(-1), Num() | Mul(), *_)):
            return None
        case Mul((Num(-1), only)):
            return only
        case Mul((Num(-1), *rest)):
            return Mul(tuple(rest))
        case Mul((Num(value), *rest)) if value < 0:
            return Mul((Num(-value), *rest))
    return None


def _product(factors: tuple[Expr, ...]) -> tuple[str, int]:
    first, *rest = factors
    if first == Num(-1) and not isinstance(rest[0], Num | Mul):
        # The minus binds tighter than a product, looser than a power; a lone quotient needs parentheses against it.
        text = "-" + _at(rest[0], POWER)
        rest = rest[1:]
        if not rest:
            return text, NEGATIVE
    else:
        text = _at(first, PRODUCT) if not isinstance(first, Mul) else f"({to_text(first)})"
    return " * ".join([text, *(_at(factor, NEGATIVE) for factor in rest)]), PRODUCT
