"""The canonical form: a polynomial in atoms, printed the way a person would write it.

An atom is a variable, or something that is no polynomial in its operands (``//``, ``%``, min, max, ceil, floor, where,
a reference, a power with a variable exponent, a sum that is divided by), with simplified operands. The rules for atoms:

    a quotient // of polynomials    common factors go; exact quotients of integers lose the //
    floor(a / b)                    a // b
    ceil, floor of an integer       the integer
    min, max                        nested ones are joined, equal operands and numbers are merged
    where                           a condition without variables picks its side; equal sides need no condition
    a condition                     compared numbers are compared; ``not`` is pushed into the comparison

A value that exists is never changed. Where a formula has none (a division by zero), its simplified form may have one:
``{x} / {x}`` is 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import lru_cache
from itertools import chain, islice

from lmp.errors import EvaluationError
from lmp.formula.evaluate import RELATION, power
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
    add,
    mul,
    neg,
    number,
    to_text,
    var,
    without_sign,
)
from lmp.formula.walk import walk

Monomial = tuple[tuple[Expr, int], ...]
"""Atoms with their exponents (negative where the atom divides), in the order in which they are printed."""
Polynomial = dict[Monomial, Number]

MAX_TERMS = 2000
"""A product of sums with more terms than this stays a product: equality is then that of the factors."""

MAX_EXPONENT = 8
"""A sum to a higher power stays one."""
MAX_SUM = 100_000
"""Terms of the largest sum that is simplified at all."""
MAX_SIZE = 5000
"""Operators and names in the largest atom."""

FIRST = ("batch_size", "seq_len", "cache_len")
LAST = ("w_bytes", "a_bytes", "kv_bytes")
TRUE, FALSE = Compare("==", Num(0), Num(0)), Compare("==", Num(0), Num(1))
"""What a condition that always, or never, holds is written as where a condition must stand."""

_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


@lru_cache(maxsize=16384)
def simplify(expr: Expr) -> Expr:
    """The canonical form: like terms collected, common factors in front, the order of factors fixed."""
    return from_polynomial(as_polynomial(expr))


def simplify_condition(condition: Condition) -> Condition:
    """The condition with simplified operands; one that always or never holds becomes ``0 == 0`` or ``0 == 1``."""
    result = _condition(condition)
    return result if isinstance(result, Condition) else TRUE if result else FALSE


def equal(left: Expr, right: Expr) -> bool:
    """Whether both have the same canonical form. True is proof; False is none where ``//``, ``%`` or where differ."""
    return left == right or as_polynomial(left) == as_polynomial(right)


def is_integer(expr: Expr) -> bool:
    """Whether the value is an integer wherever there is one. True is proof; False is none."""
    return _is_integer(as_polynomial(expr))


# Polynomials


def as_polynomial(expr: Expr) -> Polynomial:
    """Monomial -> coefficient, without zeros. Equal polynomials are equal dictionaries."""
    match expr:
        case Num(value):
            return {(): value} if value else {}
        case Var():
            return {((expr, 1),): 1}
        case Add(terms):
            return _cancelled(_total(map(as_polynomial, terms)))
        case Mul(factors):
            return _cancelled(_product(map(as_polynomial, factors)))
        case Div(left, right):
            return _cancelled(_quotient(as_polynomial(left), as_polynomial(right)))
        case Pow(left, right):
            return _power(as_polynomial(left), as_polynomial(right))
        case FloorDiv(left, right):
            return _floor(as_polynomial(left), as_polynomial(right))
        case Mod(left, right):
            return _remainder(as_polynomial(left), as_polynomial(right))
        case Call(function, arguments):
            return _CALLS[function]([as_polynomial(argument) for argument in arguments])
        case Where(condition, then, otherwise):
            return _where(condition, as_polynomial(then), as_polynomial(otherwise))
        case Ref():
            return _atom(expr.with_children(tuple(simplify(child) for child in expr.children)))  # type: ignore[arg-type]
    raise TypeError(f"not a formula: {expr!r}")


def _atom(expr: Expr) -> Polynomial:
    # Multiplying out copies atoms, in each level again: only this keeps a small nested formula from a huge result.
    if next(islice(walk(expr), MAX_SIZE, None), None) is not None:
        raise EvaluationError(f"the formula multiplies out to parts of more than {MAX_SIZE} operators and names")
    return {((expr, 1),): 1}


def _total(parts: Iterable[Polynomial]) -> Polynomial:
    total: Polynomial = {}
    for part in parts:
        for monomial, coefficient in part.items():
            total[monomial] = total.get(monomial, 0) + coefficient
        if len(total) > MAX_SUM:
            raise EvaluationError(f"the formula multiplies out to more than {MAX_SUM} terms")
    return {monomial: number(c) for monomial, c in total.items() if c}


def _product(parts: Iterable[Polynomial]) -> Polynomial:
    """Single terms are multiplied into one another first: they are most of what there is, and sorted once."""
    coefficient: Number = 1
    exponents: dict[Expr, int] = {}
    sums: list[Polynomial] = []
    for part in parts:
        if len(part) != 1:
            sums.append(part)
            continue
        ((monomial, factor),) = part.items()
        coefficient = number(coefficient * factor)
        for atom, exponent in monomial:
            exponents[atom] = exponents.get(atom, 0) + exponent
    product: Polynomial = {_monomial(exponents): coefficient}
    if math.prod(map(len, sums)) > MAX_TERMS:
        return _product([product, *map(_opaque, sums)])
    for part in sums:
        product = _times(product, part)
    return product


def _times(left: Polynomial, right: Polynomial) -> Polynomial:
    if len(left) * len(right) > MAX_TERMS:
        left, right = _opaque(left), _opaque(right)
    if left == {(): 1} or right == {(): 1}:
        return left if right == {(): 1} else right
    return _total({_join(m, n): a * b} for m, a in left.items() for n, b in right.items())


@lru_cache(maxsize=4096)
def _terms(atom: Expr) -> Polynomial:
    """The terms of a sum that is an atom. Kept, because sums are divided by sums that divide by sums."""
    return as_polynomial(atom)


def _opaque(polynomial: Polynomial) -> Polynomial:
    """A sum as one atom, times the factor that all its terms share."""
    if len(polynomial) <= 1:
        return polynomial
    coefficient, monomial, rest = _primitive(polynomial)
    return {_join(monomial, atom): coefficient for atom in _atom(from_polynomial(rest))}


def _power(base: Polynomial, exponent: Polynomial) -> Polynomial:
    count = _constant(exponent)
    if not isinstance(count, int) or (not base and count < 0):
        return _atom(Pow(from_polynomial(base), from_polynomial(exponent)))
    if count < 0:
        return _power(_inverse(base), {(): -count})
    if len(base) <= 1:
        return {tuple((a, e * count) for a, e in m if count): power(c, count) for m, c in base.items()} or (
            {} if count else {(): 1}
        )
    if count > MAX_EXPONENT or len(base) ** count > MAX_TERMS:
        return _power(_opaque(base), exponent)
    product: Polynomial = {(): 1}
    for _ in range(count):
        product = _times(product, base)
    return product


def _quotient(left: Polynomial, right: Polynomial) -> Polynomial:
    return _times(left, _inverse(right)) if right else _atom(Div(from_polynomial(left), Num(0)))


def _cancelled(polynomial: Polynomial) -> Polynomial:
    """Without the divisors that the terms over them add up to: ``x / (x + y) + y / (x + y)`` is 1."""
    divisors = {a for m in polynomial for a, e in m if e < 0 and type(a) is Add}
    for divisor in sorted(divisors, key=_atom_order):
        by_exponent: dict[int, Polynomial] = {}
        for monomial, coefficient in polynomial.items():
            exponent = dict(monomial).get(divisor, 0)
            by_exponent.setdefault(exponent, {})[_without(monomial, ((divisor, exponent),))] = coefficient
        for exponent, over in by_exponent.items():
            coefficient, monomial, rest = _primitive(over)
            if exponent < 0 and rest == _terms(divisor):
                gone = {_join(m, ((divisor, exponent),)): -c for m, c in over.items()}
                left = {_join(monomial, _monomial({divisor: exponent + 1})): coefficient}
                return _cancelled(_total([polynomial, gone, left]))
    return polynomial


def _inverse(polynomial: Polynomial) -> Polynomial:
    if len(polynomial) > 1:
        polynomial = _opaque(polynomial)
    ((monomial, coefficient),) = polynomial.items()
    # A sum that stood in a denominator comes back up as terms.
    raised = [_power(_terms(a), {(): -e}) for a, e in monomial if isinstance(a, Add) and e < 0]
    lowered = tuple((a, -e) for a, e in monomial if not (isinstance(a, Add) and e < 0))
    return _product([{lowered: number(Fraction(1) / coefficient)}, *raised])


def _constant(polynomial: Polynomial) -> Number | None:
    """The number that the polynomial is, if it is one."""
    if not polynomial:
        return 0
    return polynomial.get(()) if len(polynomial) == 1 else None


def _is_integer(polynomial: Polynomial) -> bool:
    """Whether the value is an integer wherever there is one."""
    coefficients = all(isinstance(c, int) for c in polynomial.values())
    return coefficients and all(e > 0 and _is_integral(a) for m in polynomial for a, e in m)


def _is_integral(expr: Node) -> bool:
    match expr:
        case Num(value):
            return isinstance(value, int)
        case Var(name):
            return name not in LAST  # bytes of an element may be a fraction
        case FloorDiv() | Call("ceil" | "floor", _):
            return True
        case Pow(base, Num(value)):
            return value >= 0 and _is_integral(base)
        case Add() | Mul() | Mod() | Call():
            return all(map(_is_integral, expr.children))
        case Where(_, then, otherwise):
            return _is_integral(then) and _is_integral(otherwise)
    return False


# Rules for atoms


def _floor(left: Polynomial, right: Polynomial) -> Polynomial:
    """``left // right``, brought to polynomials without a common factor or fractions."""
    if not right:
        return _atom(FloorDiv(from_polynomial(left), Num(0)))
    if not left:
        return {}
    left, right = _coprime(left, right)
    if right == {(): 1} and _is_integer(left):
        return left
    over, under = _constant(left), _constant(right)
    if over is not None and under is not None:
        return _number(over // under)
    name = from_polynomial(left)
    return _atom(Call("floor", (name,)) if under == 1 else FloorDiv(name, from_polynomial(right)))


def _coprime(left: Polynomial, right: Polynomial) -> tuple[Polynomial, Polynomial]:
    """Both over their common factor: integer coefficients, no exponent below 0, the divisor's first term positive."""
    (a, over, left), (b, under, right) = _primitive(left), _primitive(right)
    if left == right:
        left = right = {(): 1}
    ratio = number(Fraction(a) / b)
    exponents = dict(_join(over, tuple((atom, -e) for atom, e in under)))
    sinks: dict[Expr, int] = {}  # what still divides some terms only
    for atom, e in chain.from_iterable(m for polynomial in (left, right) for m in polynomial):
        if e < 0:
            sinks[atom] = max(sinks.get(atom, 0), -e)
    clear = _monomial(sinks)
    numerator: Polynomial = {_join(clear, _monomial({a: e for a, e in exponents.items() if e > 0})): ratio.numerator}
    divisor: Polynomial = {_join(clear, _monomial({a: -e for a, e in exponents.items() if e < 0})): ratio.denominator}
    return _raised(_product([numerator, left])), _raised(_product([divisor, right]))


def _raised(polynomial: Polynomial) -> Polynomial:
    """Sums that came up from a denominator, written out as terms."""
    if not any(isinstance(a, Add) for m in polynomial for a, _ in m):
        return polynomial

    def raised(atom: Expr, exponent: int) -> Polynomial:
        return _power(_terms(atom) if isinstance(atom, Add) else _atom(atom), {(): exponent})

    return _total(_product([_number(c), *(raised(a, e) for a, e in m)]) for m, c in polynomial.items())


def _remainder(left: Polynomial, right: Polynomial) -> Polynomial:
    over, under = _constant(left), _constant(right)
    if under and over is not None:
        return _number(over % under)
    if right and _is_integer(_times(left, _inverse(right))):
        return {}
    return _atom(Mod(from_polynomial(left), from_polynomial(right)))


def _number(value: Number) -> Polynomial:
    return {(): number(value)} if value else {}


def _ceil(arguments: list[Polynomial]) -> Polynomial:
    value = _constant(arguments[0])
    if value is not None:
        return _number(math.ceil(value))
    return arguments[0] if _is_integer(arguments[0]) else _atom(Call("ceil", (from_polynomial(arguments[0]),)))


def _extreme(function: str, choose: Callable[..., Number]) -> Callable[[list[Polynomial]], Polynomial]:
    def rule(arguments: list[Polynomial]) -> Polynomial:
        operands: dict[Expr, None] = {}
        numbers: list[Number] = []
        for argument in map(from_polynomial, arguments):
            for operand in (
                argument.arguments if isinstance(argument, Call) and argument.function == function else [argument]
            ):
                value = _constant(as_polynomial(operand)) if not operand.children or isinstance(operand, Div) else None
                if value is None:
                    operands[operand] = None
                else:
                    numbers.append(value)
        ordered = sorted(operands, key=_atom_order) + ([from_polynomial(_number(choose(numbers)))] if numbers else [])
        return as_polynomial(ordered[0]) if len(ordered) == 1 else _atom(Call(function, tuple(ordered)))

    return rule


_CALLS: dict[str, Callable[[list[Polynomial]], Polynomial]] = {
    "min": _extreme("min", min),
    "max": _extreme("max", max),
    "ceil": _ceil,
    "floor": lambda arguments: _floor(arguments[0], {(): 1}),
}


def _where(condition: Condition, then: Polynomial, otherwise: Polynomial) -> Polynomial:
    known = _condition(condition)
    if isinstance(known, bool):
        return then if known else otherwise
    return then if then == otherwise else _atom(Where(known, from_polynomial(then), from_polynomial(otherwise)))


def _condition(condition: Condition) -> Condition | bool:
    match condition:
        case Compare(relation, left, right):
            over, under = as_polynomial(left), as_polynomial(right)
            difference = _constant(_total([over, {m: -c for m, c in under.items()}]))
            if difference is not None:
                return RELATION[relation](difference, 0)
            match from_polynomial(over), from_polynomial(under):
                case Where(inner, Num(then), Num(otherwise)), Num(bound):
                    # Both values are known: the comparison is the inner condition, or its opposite, or settled.
                    yes, no = (RELATION[relation](value - bound, 0) for value in (then, otherwise))
                    return yes if yes == no else _condition(inner if yes else Not(inner))
            return Compare(relation, from_polynomial(over), from_polynomial(under))
        case Not(Not(part)):
            return _condition(part)
        case Not(Compare(relation, left, right)):
            return _condition(Compare(_OPPOSITE[relation], left, right))
        case Not(part):
            known = _condition(part)
            return not known if isinstance(known, bool) else Not(known)
        case And(parts) | Or(parts):
            kind, absorbing = type(condition), isinstance(condition, Or)
            kept: dict[Condition, None] = {}
            for known in map(_condition, parts):
                if known is absorbing:
                    return absorbing
                if isinstance(known, Condition):
                    kept |= dict.fromkeys(known.parts if isinstance(known, kind) else [known])
            return not absorbing if not kept else kind(tuple(kept)) if len(kept) > 1 else next(iter(kept))
    raise TypeError(f"not a condition: {condition!r}")


# Monomials


@lru_cache(maxsize=16384)
def _atom_order(atom: Expr) -> tuple[int, int, str]:
    """The place of an atom in a product."""
    match atom:
        case Var(name) if name in FIRST:
            return 0, FIRST.index(name), name
        case Var(name) if name in LAST:
            return 3, LAST.index(name), name
        case Var(name):
            return 1, 0, name
    return 2, 0, to_text(atom)


def _monomial(exponents: dict[Expr, int]) -> Monomial:
    return tuple(sorted(((a, e) for a, e in exponents.items() if e), key=lambda power: _atom_order(power[0])))


def _join(left: Monomial, right: Monomial) -> Monomial:
    """The product of two monomials."""
    if not left or not right:
        return left or right
    exponents = dict(left)
    for atom, exponent in right:
        exponents[atom] = exponents.get(atom, 0) + exponent
    return _monomial(exponents)


def _without(monomial: Monomial, factor: Monomial) -> Monomial:
    return _join(monomial, tuple((atom, -exponent) for atom, exponent in factor if exponent))


def _term_order(monomial: Monomial) -> tuple[int, tuple[tuple[tuple[int, int, str], int], ...]]:
    """The place of a term in a sum: highest degree first, then in the order of the factors."""
    return -sum(e for _, e in monomial), tuple((_atom_order(a), -e) for a, e in monomial)


def _primitive(polynomial: Polynomial) -> tuple[Number, Monomial, Polynomial]:
    """Coefficient, monomial and the rest, whose terms share no factor and whose first term is positive."""
    first, *others = polynomial
    common = dict(first)
    for monomial in others:
        if not common:
            break
        powers = dict(monomial)
        for atom, e in list(common.items()):
            f = powers.get(atom, 0)
            common[atom] = min(e, f) if e > 0 and f > 0 else max(e, f) if e < 0 and f < 0 else 0
            if not common[atom]:
                del common[atom]
    values = polynomial.values()
    content: Number = math.gcd(*(c.numerator for c in values))
    whole = all(isinstance(c, int) for c in values)
    if not whole:
        content = number(Fraction(content, math.lcm(*(c.denominator for c in values))))
    if any(c < 0 for c in values) and polynomial[min(polynomial, key=_term_order)] < 0:
        content = -content
    shared = _monomial(common)
    rest: Polynomial = {_without(m, shared) if shared else m: c for m, c in polynomial.items()}
    if content != 1:
        rest = {m: c // content if whole else number(Fraction(c) / content) for m, c in rest.items()}
    return content, shared, rest


# Printing order


def from_polynomial(polynomial: Polynomial) -> Expr:
    """The formula of a polynomial: the sum of what is weights' bytes, activations' bytes and neither, each factored."""
    if not polynomial:
        return Num(0)
    groups: dict[Monomial, Polynomial] = {}
    for monomial, coefficient in polynomial.items():
        size = tuple((a, e) for a, e in monomial if isinstance(a, Var) and a.name in LAST)
        groups.setdefault(size, {})[monomial] = coefficient
    ordered = sorted(groups, key=lambda size: (not size, tuple((_atom_order(a), e) for a, e in size)))
    return _sum([_factored(groups[size]) for size in ordered])


def _factored(polynomial: Polynomial) -> Expr:
    coefficient, monomial, rest = _primitive(polynomial)
    if len(rest) == 1:
        return _term(coefficient, monomial)
    if all(c < 0 for c in rest.values()) or (coefficient < 0 and any(c < 0 for c in rest.values())):
        # A minus in front of parentheses only where it clears all the signs in them.
        coefficient, rest = -coefficient, {m: -c for m, c in rest.items()}
    if not monomial and () in rest:
        # 4 * {x} + 2 rather than 2 * (2 * {x} + 1)
        rest = {m: number(c * coefficient.numerator) for m, c in rest.items()}
        coefficient = number(Fraction(1, coefficient.denominator))
    return _term(coefficient, monomial, *_factors(rest))


def _factors(rest: Polynomial) -> list[Expr]:
    """A sum whose terms share no factor, as the product of sums that it may be."""
    halves = _split(rest)
    if halves:
        return [_factored(half) for half in halves]
    merged = _with_key_length(rest)
    if len(merged) < len(rest):
        return [_factored(merged)]
    return [_sum([_term(rest[m], m) for m in sorted(rest, key=_term_order)])]


def _sum(terms: list[Expr]) -> Expr:
    """The sum, with a positive term in front where there is one."""
    lead = next((i for i, term in enumerate(terms) if without_sign(term) is None), 0)
    return add(terms[lead], *terms[:lead], *terms[lead + 1 :])


def _split(rest: Polynomial) -> tuple[Polynomial, Polynomial] | None:
    """``(a + b) * (c + d)`` from its four terms: the coefficients of some atom's powers are multiples of one sum."""
    count = len(rest)
    if count < 4 or all(count % factor for factor in range(2, math.isqrt(count) + 1)):
        return None
    # Every power of the atom must have as many terms as every other, and more than one.
    counts: dict[Expr, dict[int, int]] = {}
    for atom, e in chain.from_iterable(rest):
        powers = counts.setdefault(atom, {})
        powers[e] = powers.get(e, 0) + 1
    for atom in sorted(counts, key=_atom_order):
        powers = counts[atom]
        powers[0] = count - sum(powers.values())
        sizes = set(powers.values()) - {0}
        if len(sizes) > 1 or sizes in ({1}, {count}):
            continue
        parts: dict[int, Polynomial] = {}
        for m, c in rest.items():
            e = dict(m).get(atom, 0)
            parts.setdefault(e, {})[_without(m, ((atom, e),)) if e else m] = c
        primitives = {e: _primitive(part) for e, part in parts.items()}
        sums = [primitive for _, _, primitive in primitives.values()]
        if all(other == sums[0] for other in sums):
            return {_join(m, ((atom, e),)) if e else m: c for e, (c, m, _) in primitives.items()}, sums[0]
    return None


_NEW, _OLD = var("seq_len"), var("cache_len")
_KEY_LENGTH = _NEW + _OLD
"""Attention runs over new and cached tokens: terms that differ in these two only belong together."""


def _with_key_length(rest: Polynomial) -> Polynomial:
    merged = dict(rest)
    for monomial in sorted(rest, key=_term_order):
        exponents = dict(monomial)
        alone = len(exponents) == 1 and abs(rest[monomial]) == 1  # a plain `seq_len + cache_len + ...` reads well
        if exponents.get(_OLD) != 1 or alone or monomial not in merged:
            continue
        others = _without(monomial, ((_OLD, 1),))
        partner = _join(others, ((_NEW, 1),))
        if merged.get(partner) == merged[monomial]:
            del merged[partner]
            merged[_join(others, ((_KEY_LENGTH, 1),))] = merged.pop(monomial)
    return merged


def _term(coefficient: Number, monomial: Monomial, *sums: Expr) -> Expr:
    """Number, variables, sums, bytes; over whatever divides."""
    size: Number = -coefficient if coefficient < 0 else coefficient
    above: list[Expr] = [] if size.numerator == 1 else [Num(size.numerator)]
    above += [_raise(a, e) for a, e in monomial if e > 0 and _atom_order(a)[0] < 3]
    above += sums
    above += [_raise(a, e) for a, e in monomial if e > 0 and _atom_order(a)[0] == 3]
    below: list[Expr] = [] if size.denominator == 1 else [Num(size.denominator)]
    below += [_raise(a, -e) for a, e in monomial if e < 0]
    if not above and size.denominator != 1 and len(below) == 1:
        return Num(coefficient)
    term = mul(*above) if not below else Div(mul(*above), mul(*below))
    return term if coefficient > 0 else neg(term)


def _raise(atom: Expr, exponent: int) -> Expr:
    return atom if exponent == 1 else Pow(atom, Num(exponent))
