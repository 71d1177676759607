"""Formulas that are evaluated again and again: each distinct part of them is computed once, in a fixed order.

A `Program` gives what `evaluate` and `evaluate_condition` give, and raises what they raise. It computes both sides of
a ``where``; what has no value (a division by zero) is `_NO_VALUE` until a side that is taken needs it, and then
`evaluate` itself says what is wrong. Products and sums that provably stay below MAX_BITS are not measured at each step.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from lmp.errors import EvaluationError
from lmp.formula.evaluate import (
    FUNCTION,
    QUOTIENT,
    RELATION,
    evaluate,
    evaluate_condition,
    exact,
    guarded,
    holds,
    integers,
    not_expanded,
    plus,
    power,
    times,
    unknown,
)
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
from lmp.formula.parse import parse
from lmp.formula.walk import free_variables

_INPUT_BITS = 64
_LEAST, _MOST = -(2**_INPUT_BITS) + 1, 2**_INPUT_BITS - 1
"""Values between these take the fast way; others go through `evaluate`."""

_PROVEN_BITS = 4096
"""A step is left unmeasured only where it needs fewer bits than this: well below MAX_BITS, and no power is that large
by accident."""

Registers = list[Any]
Step = Callable[[Registers], Any]


class _NoValue:
    """What an operation gives where it has no value, and everything that is computed from that."""

    def _same(self, *_: object) -> _NoValue:
        return self

    __add__ = __radd__ = __mul__ = __rmul__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _same
    __neg__ = _same
    __lt__ = __le__ = __gt__ = __ge__ = _same
    __eq__ = __ne__ = _same  # type: ignore[assignment]

    def __divmod__(self, _: object) -> tuple[_NoValue, _NoValue]:
        return self, self

    __rdivmod__ = __divmod__
    __hash__ = object.__hash__


_NO_VALUE = _NoValue()


@dataclass(frozen=True)
class _Slot:
    """What is known of a step before any number is."""

    index: int
    bits: int | None
    """More than the value ever has, for inputs of _INPUT_BITS; None where that is not known."""
    whole: bool = True
    """Always an int, where it has a value."""
    total: bool = True
    """Always has a value."""


class Program:
    """Formulas and conditions, compiled. Call it with values for all of `names`."""

    def __init__(self, formulas: Iterable[Expr | Condition | str]) -> None:
        self.formulas: tuple[Expr | Condition, ...] = tuple(parse(f) if isinstance(f, str) else f for f in formulas)
        self.names: tuple[str, ...] = tuple(sorted(frozenset().union(*map(free_variables, self.formulas))))
        build = _Builder(self.names, self.formulas)
        slots = guarded(lambda: [build.slot(formula) for formula in self.formulas])
        self._steps, self._constants = build.steps, build.constants
        self._results = [slot.index for slot in slots]
        self._plain = all(slot.whole and slot.total for slot in slots)

    def __len__(self) -> int:
        """Steps that are computed for one point."""
        return len(self._steps)

    def __call__(self, values: Mapping[str, int]) -> list[int]:
        """The value of each formula, and 1 or 0 for each condition, in the order in which they were given.

        Raises UnknownVariable for a name that ``values`` lacks, EvaluationError where a formula has no integer value.
        """
        try:
            registers: Registers = [values[name] for name in self.names]
        except KeyError as missing:
            unknown(missing.args[0], values)
        if not all(type(value) is int for value in registers):
            registers = list(integers(dict(zip(self.names, registers, strict=True))).values())
        if registers and not (min(registers) >= _LEAST and max(registers) <= _MOST):
            given = dict(zip(self.names, registers, strict=True))
            return [_alone(formula, given) for formula in self.formulas]
        registers += self._constants
        push = registers.append
        for step in self._steps:
            push(step(registers))
        found = [registers[index] for index in self._results]
        if self._plain:
            return found
        given = dict(zip(self.names, registers, strict=False))
        return [
            value if type(value) is int else int(value) if value is True or value is False else _alone(formula, given)
            for value, formula in zip(found, self.formulas, strict=True)
        ]


def _alone(formula: Expr | Condition, values: Mapping[str, int]) -> int:
    if isinstance(formula, Condition):
        return int(evaluate_condition(formula, values))
    return evaluate(formula, values)


def settled(formulas: Sequence[Expr], values: Mapping[str, int]) -> list[Expr]:
    """The formulas with numbers put in for these variables, and everything that is then a number computed.

    A part that has no value stays as it is: it is an error only where it is needed.
    """
    known: dict[Node, Node] = {}

    def settle(node: Node) -> Node:
        found = known.get(node)
        if found is None:
            found = known[node] = _settled(node, tuple(map(settle, node.children)), values)
        return found

    return guarded(lambda: [settle(formula) for formula in formulas])  # type: ignore[misc]


def _settled(node: Node, children: tuple[Node, ...], values: Mapping[str, int]) -> Node:
    if isinstance(node, Var):
        return Num(values[node.name]) if node.name in values else node
    if isinstance(node, Where):
        decided = _decided(children[0])
        if decided is not None:
            return children[1] if decided else children[2]
    if not children:
        return node
    built = node.with_children(children)
    if isinstance(built, Expr) and not isinstance(built, Ref) and all(isinstance(c, Num) for c in built.children):
        try:
            return Num(exact(built, {}))
        except EvaluationError:
            return built
    return built


def _decided(condition: Node) -> bool | None:
    """Whether a condition without variables holds; None where it has variables, or no value."""
    if not isinstance(condition, Condition) or free_variables(condition):
        return None
    try:
        return holds(condition, {})
    except EvaluationError:
        return None


class _Builder:
    """Gives every distinct node one register: first the variables, then the constants, then the steps."""

    def __init__(self, names: Sequence[str], formulas: Iterable[Node]) -> None:
        self.constants: list[Any] = []
        self.steps: list[Step] = []
        self._slots: dict[object, _Slot] = {}
        for name in names:
            self._slots[Var(name)] = _Slot(len(self._slots), _INPUT_BITS)
        for value in dict.fromkeys(_numbers(formulas)):
            bits = value.bit_length() if isinstance(value, int) else None
            self._slots[Num(value)] = _Slot(len(self._slots), bits, isinstance(value, int))
            self.constants.append(value)
        self._inputs = len(self._slots)

    def slot(self, node: Node) -> _Slot:
        found = self._slots.get(node)
        if found is None:
            found = self._slots[node] = self._made(node)
        return found

    def _made(self, node: Node) -> _Slot:
        match node:
            case Add(terms):
                return self._sum([self.slot(term) for term in terms])
            case Mul(factors):
                return self._product([self.slot(factor) for factor in factors])
            case Div() | FloorDiv() | Mod():
                return self._quotient(node, self.slot(node.left), self.slot(node.right))
            case Pow(left, right):
                return self._power(self.slot(left), self.slot(right), right)
            case Call("ceil" | "floor" as function, (Div(left, right),)):
                return self._rounded(node, function, self.slot(left), self.slot(right))
            case Call(function, arguments):
                return self._call(function, [self.slot(argument) for argument in arguments])
            case Where(condition, then, otherwise):
                return self._where(self.slot(condition), self.slot(then), self.slot(otherwise))
            case Compare(relation, left, right):
                return self._comparison(RELATION[relation], self.slot(left), self.slot(right))
            case And(parts) | Or(parts):
                return self._junction([self.slot(part) for part in parts], isinstance(node, Or))
            case Not(part):
                return self._negation(self.slot(part))
            case Ref():
                raise not_expanded(node)
        raise TypeError(f"not a formula: {node!r}")

    def _add(self, step: Step, bits: int | None, whole: bool, total: bool) -> _Slot:
        self.steps.append(step)
        return _Slot(self._inputs + len(self.steps) - 1, bits, whole, total)

    def _measured(self, compute: Callable[..., Any], operands: Sequence[_Slot], whole: bool, total: bool) -> _Slot:
        """A step of any kind: operands may lack a value or be fractions, the result may be too large."""
        indices = [operand.index for operand in operands]

        def step(registers: Registers) -> Any:
            values = [registers[index] for index in indices]
            if any(value is _NO_VALUE for value in values):
                return _NO_VALUE
            try:
                return compute(*values)
            except EvaluationError:
                return _NO_VALUE

        return self._add(step, None, whole, total)

    def _sum(self, terms: list[_Slot]) -> _Slot:
        bits = _most([term.bits for term in terms], more=len(terms).bit_length())
        if bits is None or not all(term.whole for term in terms):
            return self._measured(lambda *values: plus(values), terms, all(term.whole for term in terms), False)
        total = all(term.total for term in terms)
        if len(terms) == 2:
            a, b = terms[0].index, terms[1].index
            return self._add(lambda registers: registers[a] + registers[b], bits, True, total)
        pick = operator.itemgetter(*(term.index for term in terms))
        return self._add(lambda registers: sum(pick(registers)), bits, True, total)

    def _product(self, factors: list[_Slot]) -> _Slot:
        """Factor by factor, in the order of the registers, so that products share what they begin with."""
        if not all(factor.whole for factor in factors):
            return self._measured(lambda *values: times(values), factors, False, False)
        return reduce(self._times, sorted(factors, key=lambda factor: factor.index))

    def _times(self, left: _Slot, right: _Slot) -> _Slot:
        key = ("*", left.index, right.index)
        if key not in self._slots:
            bits = None if left.bits is None or right.bits is None else left.bits + right.bits
            if bits is None or bits > _PROVEN_BITS:
                self._slots[key] = self._measured(lambda *values: times(values), (left, right), True, False)
            else:
                a, b = left.index, right.index
                total = left.total and right.total
                self._slots[key] = self._add(lambda registers: registers[a] * registers[b], bits, True, total)
        return self._slots[key]

    def _quotient(self, node: Div | FloorDiv | Mod, left: _Slot, right: _Slot) -> _Slot:
        a, b, compute = left.index, right.index, QUOTIENT[type(node)]
        if not (left.whole and right.whole) or left.bits is None or right.bits is None:
            whole = isinstance(node, FloorDiv)
            return self._measured(lambda a, b: compute(a, b) if b else _NO_VALUE, (left, right), whole, False)
        if isinstance(node, Div):

            def exactly(registers: Registers) -> Any:
                """An int, or nothing: what then becomes of the fraction is for `evaluate` to say."""
                divisor = registers[b]
                if not divisor:
                    return _NO_VALUE
                found, rest = divmod(registers[a], divisor)
                return _NO_VALUE if rest else found

            return self._add(exactly, left.bits + 1, True, False)
        return self._division(operator.mod if isinstance(node, Mod) else operator.floordiv, node.right, left, right)

    def _division(self, divide: Callable[[Any, Any], Any], written: Expr, left: _Slot, right: _Slot) -> _Slot:
        """``divide`` gives an int that is no larger than an operand."""
        a, b = left.index, right.index
        bits = _most([left.bits, right.bits], more=1)
        if left.total and isinstance(written, Num) and written.value != 0:
            return self._add(lambda registers: divide(registers[a], registers[b]), bits, True, True)

        def step(registers: Registers) -> Any:
            divisor = registers[b]
            return divide(registers[a], divisor) if divisor else _NO_VALUE

        return self._add(step, bits, True, False)

    def _rounded(self, node: Call, function: str, left: _Slot, right: _Slot) -> _Slot:
        """``floor(a / b)`` is a // b and ``ceil(a / b)`` is -(-a // b): no fraction is needed for them."""
        if not (left.whole and right.whole) or left.bits is None or right.bits is None:
            return self._call(function, [self.slot(node.arguments[0])])
        divide: Callable[[Any, Any], Any] = operator.floordiv if function == "floor" else lambda a, b: -(-a // b)
        (quotient,) = node.arguments
        assert isinstance(quotient, Div)
        return self._division(divide, quotient.right, left, right)

    def _power(self, base: _Slot, exponent: _Slot, written: Expr) -> _Slot:
        if isinstance(written, Num) and isinstance(written.value, int) and base.whole and base.bits is not None:
            times_over, bits = written.value, base.bits * max(written.value, 1)
            if times_over >= 0 and bits <= _PROVEN_BITS and base.total:
                a = base.index
                return self._add(lambda registers: registers[a] ** times_over, bits, True, True)
        return self._measured(power, (base, exponent), False, False)

    def _call(self, function: str, arguments: list[_Slot]) -> _Slot:
        whole, total = all(a.whole for a in arguments), all(a.total for a in arguments)
        if function in ("ceil", "floor"):
            if whole:
                return arguments[0]
            return self._measured(lambda *values: FUNCTION[function](list(values)), arguments, True, total)
        bits = _most([argument.bits for argument in arguments])
        if not total or bits is None:
            return self._measured(lambda *values: FUNCTION[function](list(values)), arguments, whole, total)
        choose: Any = FUNCTION[function]
        indices = [argument.index for argument in arguments]
        return self._add(lambda registers: choose([registers[i] for i in indices]), bits, whole, True)

    def _where(self, condition: _Slot, then: _Slot, otherwise: _Slot) -> _Slot:
        c, a, b = condition.index, then.index, otherwise.index

        def step(registers: Registers) -> Any:
            decided = registers[c]
            if decided is _NO_VALUE:
                return _NO_VALUE
            return registers[a] if decided else registers[b]

        total = condition.total and then.total and otherwise.total
        return self._add(step, _most([then.bits, otherwise.bits]), then.whole and otherwise.whole, total)

    def _comparison(self, relation: Callable[..., Any], left: _Slot, right: _Slot) -> _Slot:
        a, b = left.index, right.index
        return self._add(lambda registers: relation(registers[a], registers[b]), 1, False, left.total and right.total)

    def _junction(self, parts: list[_Slot], one_is_enough: bool) -> _Slot:
        """In order, as `evaluate_condition` does: a part without a value matters only where it is reached."""
        indices = [part.index for part in parts]

        def step(registers: Registers) -> Any:
            for index in indices:
                held = registers[index]
                if held is _NO_VALUE:
                    return _NO_VALUE
                if held is one_is_enough:
                    return one_is_enough
            return not one_is_enough

        return self._add(step, 1, False, all(part.total for part in parts))

    def _negation(self, part: _Slot) -> _Slot:
        a = part.index

        def step(registers: Registers) -> Any:
            held = registers[a]
            return held if held is _NO_VALUE else not held

        return self._add(step, 1, False, part.total)


def _most(bits: Sequence[int | None], more: int = 0) -> int | None:
    known = [b for b in bits if b is not None]
    most = max(known, default=0) + more
    return most if len(known) == len(bits) and most <= _PROVEN_BITS else None


def _numbers(formulas: Iterable[Node]) -> Iterator[Number]:
    seen: set[Node] = set()
    pending = list(formulas)
    while pending:
        node = pending.pop()
        if node not in seen:
            seen.add(node)
            if isinstance(node, Num):
                yield node.value
            pending.extend(node.children)
