"""Formulas compiled for exact arithmetic, to be evaluated many times.

A `Program` gives what `evaluate` and `evaluate_condition` give, and raises what they raise; `Program.exactly` takes
and gives fractions too, as `evaluate_exact` does. It computes both sides of a ``where``. An operation without a value
(a division by zero) gives `_NO_VALUE`; where a formula needs that value, `evaluate` raises the error. Products and sums
that provably stay below MAX_BITS are not measured at each step.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from lmp.errors import EvaluationError
from lmp.formula.evaluate import (
    FUNCTION,
    QUOTIENT,
    RELATION,
    evaluate,
    evaluate_condition,
    evaluate_exact,
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
from lmp.formula.lowering import Instruction, Lowered, lower
from lmp.formula.nodes import Condition, Div, Expr, FloorDiv, Mod, Node, Num, Number, Ref, Var, Where
from lmp.formula.parse import parse
from lmp.formula.walk import free_variables
from lmp.formula.written import plain

_INPUT_BITS = 64
_LEAST, _MOST = -(2**_INPUT_BITS) + 1, 2**_INPUT_BITS - 1
"""Values between these take the fast way; others go through `evaluate`."""

_PROVEN_BITS = 4096
"""A result is left unmeasured only where it needs fewer bits than this: well below MAX_BITS, and no power is that large
by accident."""

Registers = list[Any]
Compute = Callable[[Registers], Any]


class _NoValue:
    """The result of an operation that has no value, and of every operation that uses such a result."""

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


class Program:
    """Formulas and conditions, compiled to functions of integers. Call it with values for all of `names`."""

    def __init__(self, formulas: Iterable[Expr | Condition | str]) -> None:
        self.formulas: tuple[Expr | Condition, ...] = tuple(parse(f) if isinstance(f, str) else f for f in formulas)
        self._lowered = lower(self.formulas, pairs=True)
        self._constants = self._lowered.constants
        self.names = self._lowered.names
        self._compiled: dict[frozenset[str], _Compiled] = {}
        self._steps, self._results, self._plain = self._for(frozenset())

    def _for(self, fractions: frozenset[str]) -> _Compiled:
        """The steps for values of which those of the names in ``fractions`` are no integers."""
        found = self._compiled.get(fractions)
        if found is None:
            compiler = _Compiler(self._lowered, fractions)
            index = self._lowered.index
            results = guarded(lambda: compiler.compiled(index[formula] for formula in self.formulas))
            whole = all(register.whole and register.total for register in results)
            found = _Compiled(compiler.steps, [register.index for register in results], whole)
            self._compiled[fractions] = found
        return found

    def __len__(self) -> int:
        """Number of steps that one call computes."""
        return len(self._steps)

    def __call__(self, values: Mapping[str, int]) -> list[int]:
        """The value of each formula, and 1 or 0 for each condition, in the order in which they were given.

        Raises UnknownVariable for a name that ``values`` lacks, EvaluationError if a formula has no integer value.
        """
        try:
            registers: Registers = [values[name] for name in self.names]
        except KeyError as missing:
            unknown(missing.args[0], values)
        if not all(type(value) is int for value in registers):
            registers = list(integers(dict(zip(self.names, registers, strict=True))).values())
        if registers and not (min(registers) >= _LEAST and max(registers) <= _MOST):
            given = dict(zip(self.names, registers, strict=True))
            return [_evaluate(formula, given) for formula in self.formulas]
        found = self._run(registers, self._steps, self._results)
        if self._plain:
            return found
        given = dict(zip(self.names, registers, strict=False))
        return [
            value
            if type(value) is int
            else int(value)
            if value is True or value is False
            else _evaluate(formula, given)
            for value, formula in zip(found, self.formulas, strict=True)
        ]

    def exactly(self, values: Mapping[str, Number]) -> list[Number]:
        """As a call, but values and results may be fractions.

        Raises UnknownVariable for a name that ``values`` lacks, EvaluationError if a formula has no value.
        """
        given: dict[str, Number] = {}
        for name in self.names:
            value = values[name] if name in values else unknown(name, values)
            given[name] = plain(value) if isinstance(value, Fraction) else integers({name: value})[name]
        parts = [part for value in given.values() for part in (value.numerator, value.denominator)]
        if not all(_LEAST <= part <= _MOST for part in parts):
            return [_evaluate_exactly(formula, given) for formula in self.formulas]
        steps, results, _ = self._for(frozenset(name for name, value in given.items() if isinstance(value, Fraction)))
        found = self._run(list(given.values()), steps, results)
        return [
            int(value)
            if value is True or value is False
            else _evaluate_exactly(formula, given)
            if value is _NO_VALUE
            else value
            for value, formula in zip(found, self.formulas, strict=True)
        ]

    def _run(self, registers: Registers, steps: Sequence[Compute], results: Sequence[int]) -> list[Any]:
        registers += self._constants
        push = registers.append
        for step in steps:
            push(step(registers))
        return [registers[index] for index in results]


class _Compiled(NamedTuple):
    """Steps for one kind of values, and where each formula's result stands."""

    steps: list[Compute]
    results: list[int]
    plain: bool
    """True if every result is an int."""


def _evaluate_exactly(formula: Expr | Condition, values: Mapping[str, Number]) -> Number:
    if isinstance(formula, Condition):
        return int(guarded(lambda: holds(formula, values)))
    return evaluate_exact(formula, values)


def _evaluate(formula: Expr | Condition, values: Mapping[str, int]) -> int:
    if isinstance(formula, Condition):
        return int(evaluate_condition(formula, values))
    return evaluate(formula, values)


def settled(formulas: Sequence[Expr], values: Mapping[str, Number]) -> list[Expr]:
    """Partial evaluation: the formulas with numbers for these variables, and with every constant part computed.

    A part that has no value stays as it is: it is an error only if it is needed.
    """
    known: dict[Node, Node] = {}

    def settle(node: Node) -> Node:
        found = known.get(node)
        if found is None:
            found = known[node] = _partly_evaluated(node, tuple(map(settle, node.children)), values)
        return found

    return guarded(lambda: [settle(formula) for formula in formulas])  # type: ignore[misc]


def _partly_evaluated(node: Node, children: tuple[Node, ...], values: Mapping[str, Number]) -> Node:
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
    """True or False for a condition without variables; None if it has variables, or no value."""
    if not isinstance(condition, Condition) or free_variables(condition):
        return None
    try:
        return holds(condition, {})
    except EvaluationError:
        return None


@dataclass(frozen=True)
class _Register:
    """What is known about a value when the program is compiled."""

    index: int
    bits: int | None
    """Bound of the value's bits, for inputs of _INPUT_BITS; None if it is not known."""
    whole: bool = True
    """True if the value, if there is one, is always an int."""
    total: bool = True
    """True if there always is a value."""
    constant: Number | None = None
    """The value, for a constant."""


class _Compiler:
    """Compiles each instruction to a function of the registers: variables first, then constants, then steps."""

    def __init__(self, lowered: Lowered, fractions: Container[str]) -> None:
        """``fractions``: the names whose values are no integers."""
        self.steps: list[Compute] = []
        self._lowered = lowered
        self._registers: dict[int, _Register] = {}
        for index, name in enumerate(lowered.names):
            whole = name not in fractions
            self._registers[index] = _Register(index, _INPUT_BITS if whole else None, whole)
        for index, value in enumerate(lowered.constants, len(lowered.names)):
            whole = isinstance(value, int)
            bits = value.bit_length() if isinstance(value, int) else None
            self._registers[index] = _Register(index, bits, whole, constant=value)

    def compiled(self, results: Iterable[int]) -> list[_Register]:
        """Compile the instructions; returns the registers of these values."""
        for index, instruction in enumerate(self._lowered.instructions, self._lowered.inputs):
            if instruction.operation != "/":  # compiled if it is needed: floor and ceil do without the fraction
                self._register(index)
        return [self._register(index) for index in results]

    def _register(self, index: int) -> _Register:
        found = self._registers.get(index)
        if found is None:
            found = self._registers[index] = self._made(self._lowered.instructions[index - self._lowered.inputs])
        return found

    def _made(self, instruction: Instruction) -> _Register:
        operation, node = instruction.operation, instruction.node
        if isinstance(node, Ref):
            raise not_expanded(node)
        if operation in ("ceil", "floor"):
            return self._rounded(operation, instruction.operands[0])
        operands = [self._register(index) for index in instruction.operands]
        match operation:
            case "+":
                return self._sum(operands)
            case "*":
                return self._product(*operands)
            case "/" | "//" | "%":
                return self._quotient(operation, *operands)
            case "**":
                return self._power(*operands)
            case "min" | "max":
                return self._extreme(operation, operands)
            case "where":
                return self._where(*operands)
            case "and" | "or":
                return self._junction(operands, operation == "or")
            case "not":
                return self._negation(*operands)
        return self._comparison(RELATION[operation], *operands)

    def _add(self, step: Compute, bits: int | None, whole: bool, total: bool) -> _Register:
        self.steps.append(step)
        return _Register(self._lowered.inputs + len(self.steps) - 1, bits, whole, total)

    def _measured(
        self, compute: Callable[..., Any], operands: Sequence[_Register], whole: bool, total: bool
    ) -> _Register:
        """The general step: operands may have no value or be fractions, the result may be too large."""
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

    def _sum(self, terms: list[_Register]) -> _Register:
        bits = _most([term.bits for term in terms], more=len(terms).bit_length())
        if bits is None or not all(term.whole for term in terms):
            return self._measured(lambda *values: plus(values), terms, all(term.whole for term in terms), False)
        total = all(term.total for term in terms)
        if len(terms) == 2:
            a, b = terms[0].index, terms[1].index
            return self._add(lambda registers: registers[a] + registers[b], bits, True, total)
        pick = operator.itemgetter(*(term.index for term in terms))
        return self._add(lambda registers: sum(pick(registers)), bits, True, total)

    def _product(self, left: _Register, right: _Register) -> _Register:
        whole = left.whole and right.whole
        bits = None if left.bits is None or right.bits is None else left.bits + right.bits
        if not whole or bits is None or bits > _PROVEN_BITS:
            return self._measured(lambda *values: times(values), (left, right), whole, False)
        a, b = left.index, right.index
        return self._add(lambda registers: registers[a] * registers[b], bits, True, left.total and right.total)

    def _quotient(self, operation: str, left: _Register, right: _Register) -> _Register:
        a, b, compute = left.index, right.index, _QUOTIENT[operation]
        if not (left.whole and right.whole) or left.bits is None or right.bits is None:
            whole = operation == "//"
            return self._measured(lambda a, b: compute(a, b) if b else _NO_VALUE, (left, right), whole, False)
        if operation == "/":

            def exactly(registers: Registers) -> Any:
                """An int, or no value: then `evaluate` decides what the fraction leads to."""
                divisor = registers[b]
                if not divisor:
                    return _NO_VALUE
                found, rest = divmod(registers[a], divisor)
                return _NO_VALUE if rest else found

            return self._add(exactly, left.bits + 1, True, False)
        return self._division(operator.mod if operation == "%" else operator.floordiv, left, right)

    def _division(self, divide: Callable[[Any, Any], Any], left: _Register, right: _Register) -> _Register:
        """``divide`` gives an int that is no larger than an operand."""
        a, b = left.index, right.index
        bits = _most([left.bits, right.bits], more=1)
        if left.total and right.constant:  # a constant that is not 0
            return self._add(lambda registers: divide(registers[a], registers[b]), bits, True, True)

        def step(registers: Registers) -> Any:
            divisor = registers[b]
            return divide(registers[a], divisor) if divisor else _NO_VALUE

        return self._add(step, bits, True, False)

    def _rounded(self, function: str, index: int) -> _Register:
        """``floor(a / b)`` is a // b and ``ceil(a / b)`` is -(-a // b): no fraction is needed for them."""
        quotient = self._lowered.instruction(index)
        if quotient is not None and quotient.operation == "/":
            left, right = map(self._register, quotient.operands)
            if left.whole and right.whole and left.bits is not None and right.bits is not None:
                return self._division(operator.floordiv if function == "floor" else _ceiling, left, right)
        argument = self._register(index)
        if argument.whole:
            return argument
        return self._measured(lambda *values: FUNCTION[function](list(values)), [argument], True, argument.total)

    def _power(self, base: _Register, exponent: _Register) -> _Register:
        count = exponent.constant
        if isinstance(count, int) and count >= 0 and base.whole and base.total and base.bits is not None:
            a, bits = base.index, base.bits * max(count, 1)
            if bits <= _PROVEN_BITS:
                return self._add(lambda registers: registers[a] ** count, bits, True, True)
        return self._measured(power, (base, exponent), False, False)

    def _extreme(self, function: str, arguments: list[_Register]) -> _Register:
        whole, total = all(a.whole for a in arguments), all(a.total for a in arguments)
        choose: Any = FUNCTION[function]
        bits = _most([argument.bits for argument in arguments])
        if not total or bits is None:
            return self._measured(lambda *values: choose(list(values)), arguments, whole, total)
        indices = [argument.index for argument in arguments]
        return self._add(lambda registers: choose([registers[i] for i in indices]), bits, whole, True)

    def _where(self, condition: _Register, then: _Register, otherwise: _Register) -> _Register:
        c, a, b = condition.index, then.index, otherwise.index

        def step(registers: Registers) -> Any:
            decided = registers[c]
            if decided is _NO_VALUE:
                return _NO_VALUE
            return registers[a] if decided else registers[b]

        total = condition.total and then.total and otherwise.total
        return self._add(step, _most([then.bits, otherwise.bits]), then.whole and otherwise.whole, total)

    def _comparison(self, relation: Callable[..., Any], left: _Register, right: _Register) -> _Register:
        a, b = left.index, right.index
        return self._add(lambda registers: relation(registers[a], registers[b]), 1, False, left.total and right.total)

    def _junction(self, parts: list[_Register], one_is_enough: bool) -> _Register:
        """In order, as `evaluate_condition` does: a part without a value matters only if it is reached."""
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

    def _negation(self, part: _Register) -> _Register:
        a = part.index

        def step(registers: Registers) -> Any:
            held = registers[a]
            return held if held is _NO_VALUE else not held

        return self._add(step, 1, False, part.total)


_QUOTIENT = {"/": QUOTIENT[Div], "//": QUOTIENT[FloorDiv], "%": QUOTIENT[Mod]}


def _ceiling(left: int, right: int) -> int:
    return -(-left // right)


def _most(bits: Sequence[int | None], more: int = 0) -> int | None:
    known = [b for b in bits if b is not None]
    most = max(known, default=0) + more
    return most if len(known) == len(bits) and most <= _PROVEN_BITS else None
