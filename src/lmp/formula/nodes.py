"""The nodes of a formula: immutable values, equal when their contents are equal, built with Python's own operators.

    Expr                       a number
    ├── Num(value)                 int, or a Fraction that is not an integer
    ├── Var(name)                  {name}: an integer; bytes of an element may be a fraction
    ├── Add(terms) Mul(factors)    any number of operands; ``a - b`` is ``a + -1 * b``
    ├── Div FloorDiv Mod Pow       left and right operand; ``/`` is exact
    ├── Call(function, arguments)  min, max, ceil, floor
    ├── Where(condition, then, otherwise)
    └── Ref(target, arguments, bindings)   ${{target}}(argument, ..., name=binding, ...)
    Condition                  true or false
    ├── Compare(relation, left, right)
    ├── And(parts) Or(parts)
    └── Not(part)

Nothing is computed here: ``var("x") * 1`` keeps its 1 until `simplify`. What `to_text` prints reads back as the same
nodes (a fraction such as 1/3 as the division it is).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from lmp.errors import EvaluationError

Number = int | Fraction

MAX_BITS = 13_000
"""Largest integer, in bits, that a formula may hold or produce: Python itself prints no integer beyond 4300 digits."""

FUNCTIONS = {"min": None, "max": None, "ceil": 1, "floor": 1}
"""Name -> number of arguments; None means one or more."""

RELATIONS = ("<", "<=", ">", ">=", "==", "!=")


def number(value: Number) -> Number:
    """The value as an int where it is one. Integers too large to print are refused."""
    if isinstance(value, Fraction):
        if value.denominator.bit_length() > MAX_BITS:
            raise EvaluationError(f"a fraction's denominator has more than {MAX_BITS} bits")
        value = value.numerator if value.denominator == 1 else value
    if value.numerator.bit_length() > MAX_BITS:
        raise EvaluationError(f"an integer has more than {MAX_BITS} bits: the formula grows beyond what can be printed")
    return value


class Node:
    """What Expr and Condition share: equality, children in reading order, and a copy with other children."""

    __slots__ = ("_hash",)
    _hash: int
    __match_args__: tuple[str, ...] = ()

    def _contents(self) -> tuple[object, ...]:
        return tuple([getattr(self, name) for name in self.__match_args__])

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return type(self) is type(other) and hash(self) == hash(other) and self._contents() == other._contents()

    def __hash__(self) -> int:
        # Kept, because a formula is looked up in a dictionary for each formula that contains it.
        try:
            return self._hash
        except AttributeError:
            found = hash((type(self).__name__, self._contents()))
            object.__setattr__(self, "_hash", found)
            return found

    @property
    def children(self) -> tuple[Node, ...]:
        return ()

    def with_children(self, children: tuple[Node, ...]) -> Node:
        return self

    def __str__(self) -> str:
        return to_text(self)


class Condition(Node):
    __slots__ = ()


class Expr(Node):
    __slots__ = ()

    def __add__(self, other: Operand) -> Expr:
        return add(self, other)

    def __radd__(self, other: Operand) -> Expr:
        return add(other, self)

    def __sub__(self, other: Operand) -> Expr:
        return add(self, neg(other))

    def __rsub__(self, other: Operand) -> Expr:
        return add(other, neg(self))

    def __mul__(self, other: Operand) -> Expr:
        return mul(self, other)

    def __rmul__(self, other: Operand) -> Expr:
        return mul(other, self)

    def __truediv__(self, other: Operand) -> Expr:
        return Div(self, lift(other))

    def __rtruediv__(self, other: Operand) -> Expr:
        return Div(lift(other), self)

    def __floordiv__(self, other: Operand) -> Expr:
        return FloorDiv(self, lift(other))

    def __rfloordiv__(self, other: Operand) -> Expr:
        return FloorDiv(lift(other), self)

    def __mod__(self, other: Operand) -> Expr:
        return Mod(self, lift(other))

    def __rmod__(self, other: Operand) -> Expr:
        return Mod(lift(other), self)

    def __pow__(self, other: Operand) -> Expr:
        return Pow(self, lift(other))

    def __rpow__(self, other: Operand) -> Expr:
        return Pow(lift(other), self)

    def __neg__(self) -> Expr:
        return neg(self)

    def __pos__(self) -> Expr:
        return self


Operand = Expr | int | Fraction


@dataclass(frozen=True, slots=True, eq=False)
class Num(Expr):
    value: Number

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", number(self.value))


@dataclass(frozen=True, slots=True, eq=False)
class Var(Expr):
    """One object a name: looking variables up by identity halves the time of `simplify`."""

    name: str

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __new__(cls, name: str) -> Var:
        found = _variables.get(name)
        return found if found is not None else _variables.setdefault(name, object.__new__(cls))

    def __reduce__(self) -> tuple[type[Var], tuple[str]]:
        return Var, (self.name,)


_variables: dict[str, Var] = {}


@dataclass(frozen=True, slots=True, eq=False)
class Add(Expr):
    terms: tuple[Expr, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        return self.terms

    def with_children(self, children: tuple[Node, ...]) -> Node:
        return add(*children)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, eq=False)
class Mul(Expr):
    factors: tuple[Expr, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        return self.factors

    def with_children(self, children: tuple[Node, ...]) -> Node:
        return mul(*children)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, eq=False)
class _Binary(Expr):
    left: Expr
    right: Expr

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    def with_children(self, children: tuple[Node, ...]) -> Node:
        return type(self)(*children)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, eq=False)
class Div(_Binary):
    """Exact quotient."""


@dataclass(frozen=True, slots=True, eq=False)
class FloorDiv(_Binary):
    """Quotient rounded towards minus infinity, as in Python."""


@dataclass(frozen=True, slots=True, eq=False)
class Mod(_Binary):
    """``left - right * (left // right)``: has the sign of the divisor, as in Python."""


@dataclass(frozen=True, slots=True, eq=False)
class Pow(_Binary):
    """``left ** right``; the exponent is an integer."""


@dataclass(frozen=True, slots=True, eq=False)
class Call(Expr):
    function: str
    arguments: tuple[Expr, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        return self.arguments

    def with_children(self, children: tuple[Node, ...]) -> Node:
        return Call(self.function, children)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, eq=False)
class Where(Expr):
    """``then`` where the condition holds, else ``otherwise``; only the taken side needs to have a value."""

    condition: Condition
    then: Expr
    otherwise: Expr

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.condition, self.then, self.otherwise)

    def with_children(self, children: tuple[Node, ...]) -> Node:
        return Where(*children)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, eq=False)
class Ref(Expr):
    """What another class costs. ``arguments`` are positional (an older spelling, for a linker to bind by name)."""

    target: str
    arguments: tuple[Expr, ...] = ()
    bindings: tuple[tuple[str, Expr], ...] = ()

    @property
    def children(self) -> tuple[Node, ...]:
        return self.arguments + tuple(value for _, value in self.bindings)

    def with_children(self, children: tuple[Node, ...]) -> Node:
        count = len(self.arguments)
        names = (name for name, _ in self.bindings)
        return Ref(self.target, children[:count], tuple(zip(names, children[count:], strict=True)))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, eq=False)
class Compare(Condition):
    relation: str
    left: Expr
    right: Expr

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    def with_children(self, children: tuple[Node, ...]) -> Node:
        return Compare(self.relation, *children)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, eq=False)
class _Junction(Condition):
    parts: tuple[Condition, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        return self.parts

    def with_children(self, children: tuple[Node, ...]) -> Node:
        return type(self)(children)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, eq=False)
class And(_Junction):
    pass


@dataclass(frozen=True, slots=True, eq=False)
class Or(_Junction):
    pass


@dataclass(frozen=True, slots=True, eq=False)
class Not(Condition):
    part: Condition

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.part,)

    def with_children(self, children: tuple[Node, ...]) -> Node:
        return Not(*children)  # type: ignore[arg-type]


ZERO, ONE = Num(0), Num(1)


def var(name: str) -> Var:
    return Var(name)


def num(value: Number) -> Num:
    return Num(value)


def lift(value: Operand) -> Expr:
    if isinstance(value, Expr):
        return value
    if isinstance(value, int | Fraction) and not isinstance(value, bool):
        return Num(value)
    raise TypeError(f"a formula is built from formulas, ints and Fractions, not from {type(value).__name__}")


def _flat(kind: type[Add] | type[Mul], operands: tuple[Operand, ...]) -> Iterator[Expr]:
    for operand in map(lift, operands):
        if type(operand) is kind:
            yield from operand.terms if isinstance(operand, Add) else operand.factors
        else:
            yield operand


def add(*terms: Operand) -> Expr:
    flat = tuple(_flat(Add, terms))
    return Add(flat) if len(flat) > 1 else flat[0] if flat else ZERO


def mul(*factors: Operand) -> Expr:
    flat = tuple(_flat(Mul, factors))
    return Mul(flat) if len(flat) > 1 else flat[0] if flat else ONE


def neg(operand: Operand) -> Expr:
    """The negative, with the sign taken into the leading number where there is one."""
    operand = lift(operand)
    if isinstance(operand, Num):
        return Num(-operand.value)
    if isinstance(operand, Mul) and isinstance(operand.factors[0], Num):
        lead, rest = -operand.factors[0].value, operand.factors[1:]
        return mul(*rest) if lead == 1 else Mul((Num(lead), *rest))
    return mul(Num(-1), operand)


def call(function: str, *arguments: Operand) -> Expr:
    return Call(function, tuple(map(lift, arguments)))


def minimum(*arguments: Operand) -> Expr:
    return call("min", *arguments)


def maximum(*arguments: Operand) -> Expr:
    return call("max", *arguments)


def ceil(operand: Operand) -> Expr:
    return call("ceil", operand)


def floor(operand: Operand) -> Expr:
    return call("floor", operand)


def where(condition: Condition, then: Operand, otherwise: Operand) -> Expr:
    return Where(condition, lift(then), lift(otherwise))


def ref(target: str, *arguments: Operand, **bindings: Operand) -> Ref:
    return Ref(target, tuple(map(lift, arguments)), tuple((name, lift(value)) for name, value in bindings.items()))


def compare(relation: str, left: Operand, right: Operand) -> Condition:
    return Compare(relation, lift(left), lift(right))


def lt(left: Operand, right: Operand) -> Condition:
    return compare("<", left, right)


def le(left: Operand, right: Operand) -> Condition:
    return compare("<=", left, right)


def gt(left: Operand, right: Operand) -> Condition:
    return compare(">", left, right)


def ge(left: Operand, right: Operand) -> Condition:
    return compare(">=", left, right)


def eq(left: Operand, right: Operand) -> Condition:
    return compare("==", left, right)


def ne(left: Operand, right: Operand) -> Condition:
    return compare("!=", left, right)


def all_of(*parts: Condition) -> Condition:
    return And(parts) if len(parts) != 1 else parts[0]


def any_of(*parts: Condition) -> Condition:
    return Or(parts) if len(parts) != 1 else parts[0]


# --- formula to text -------------------------------------------------------------------------------------------------

# How tightly a text binds, loosest first; an operand that binds looser than its place asks for gets parentheses.
OR, AND, NOT, COMPARE, SUM, PRODUCT, NEGATIVE, POWER, ATOM = range(9)

_QUOTIENTS = {Div: "/", FloorDiv: "//", Mod: "%"}


def to_text(node: Node) -> str:
    """The formula as one line of the grammar in docs/formulas.md."""
    return _text_and_binding(node)[0]


def to_size(formula: Expr) -> int | str:
    """The formula as records store a size: an int where it is one, else its text."""
    return formula.value if isinstance(formula, Num) and isinstance(formula.value, int) else to_text(formula)


def _text_and_binding(node: Node) -> tuple[str, int]:
    match node:
        case Var(name):
            return f"{{{name}}}", ATOM
        case Num(value):
            return _number_text(value)
        case Add(terms):
            return _sum_text(terms)
        case Mul(factors):
            return _product_text(factors)
        case Div(left, right) | FloorDiv(left, right) | Mod(left, right):
            return f"{_operand(left, PRODUCT)} {_QUOTIENTS[type(node)]} {_operand(right, NEGATIVE)}", PRODUCT
        case Pow(left, right):
            return f"{_operand(left, ATOM)} ** {_operand(right, NEGATIVE)}", POWER
        case Call(function, arguments):
            return f"{function}({_list(arguments)})", ATOM
        case Where(condition, then, otherwise):
            return f"where({_list((condition, then, otherwise))})", ATOM
        case Ref(target, arguments, bindings):
            bound = [_operand(a, OR) for a in arguments] + [f"{name}={_operand(value, OR)}" for name, value in bindings]
            return f"${{{{{target}}}}}({', '.join(bound)})", ATOM
        case Compare(relation, left, right):
            return f"{_operand(left, SUM)} {relation} {_operand(right, SUM)}", COMPARE
        case Not(part):
            return f"not {_operand(part, NOT)}", NOT
        case And(parts):
            return " and ".join(_operand(part, NOT) for part in parts), AND
        case Or(parts):
            return " or ".join(_operand(part, AND) for part in parts), OR
    raise TypeError(f"not a formula: {node!r}")


def _operand(node: Node, place: int) -> str:
    text, binding = _text_and_binding(node)
    return text if binding >= place else f"({text})"


def _list(nodes: tuple[Node, ...]) -> str:
    return ", ".join(_operand(node, OR) for node in nodes)


def _number_text(value: int | Fraction) -> tuple[str, int]:
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


def _sum_text(terms: tuple[Expr, ...]) -> tuple[str, int]:
    text = _operand(terms[0], PRODUCT)
    for term in terms[1:]:
        positive = without_sign(term)
        # A sum inside a sum was put there by hand: its parentheses keep it.
        text += f" + {_operand(term, PRODUCT)}" if positive is None else f" - {_operand(positive, PRODUCT)}"
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


def _product_text(factors: tuple[Expr, ...]) -> tuple[str, int]:
    first, *rest = factors
    if first == Num(-1) and not isinstance(rest[0], Num | Mul):
        # The minus binds tighter than a product, looser than a power; a lone quotient needs parentheses against it.
        text = "-" + _operand(rest[0], POWER)
        rest = rest[1:]
        if not rest:
            return text, NEGATIVE
    else:
        text = _operand(first, PRODUCT) if not isinstance(first, Mul) else f"({to_text(first)})"
    return " * ".join([text, *(_operand(factor, NEGATIVE) for factor in rest)]), PRODUCT
