"""Asks the solver Z3 for sizes that take an arm, or for the contradiction, where `solving` finds neither."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

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
    Not,
    Num,
    Or,
    Pow,
    Var,
    Where,
    free_variables,
    to_text,
)
from lmp.formula.evaluate import RELATION
from lmp.verify.arms import Way
from lmp.verify.solving import LARGEST, Budget, Domain

if TYPE_CHECKING:
    import z3

EFFORT = 300_000
"""Steps of the solver for one question, in its own unit. They bound its time in a repeatable way: about 0.1 s."""

MOST_QUESTIONS = 30
"""Most sets of changed variables that are asked about for one point."""

MOST_CHANGED = 3
"""Most variables that a point changes beside those of the call."""

NEAR = 4
"""Times as large as in the base that a changed variable is at first."""

MOST_WRITTEN = 1 << 14
"""Most conditions whose terms are kept."""

MOST_POWER = 8
"""Largest exponent that is written out as a product."""


def why_impossible(way: Way, domain: Domain) -> str | None:
    """Conditions of a way that no sizes meet together, as text; None if the solver knows of none."""
    import z3

    terms = _terms(way)
    names = {name for number in terms for name in free_variables(way[number][0])}
    solver = _solver(names, domain)
    solver.add(*terms.values())
    if solver.check() != z3.unsat:
        return None
    tracked = _solver(names, domain)
    for number, term in terms.items():
        tracked.assert_and_track(term, str(number))
    in_core = sorted(int(str(one)) for one in tracked.unsat_core()) if tracked.check() == z3.unsat else range(len(way))
    found = [way[number] for number in in_core]
    return ", ".join(f"{to_text(condition)} is {'true' if wanted else 'false'}" for condition, wanted in found)


def follows(condition: Condition, known: Iterable[Condition], domain: Domain) -> bool:
    """True if no sizes break a condition that meet the known ones, as far as the solver knows."""
    return why_impossible(((condition, False), *((one, True) for one in known)), domain) is not None


def nearest(
    way: Way, base: Mapping[str, int], domain: Domain, first: Collection[str], budget: Budget
) -> dict[str, int] | None:
    """Values that meet a way and differ from the base in few variables; None if the solver finds none.

    ``first``: variables that each point may change: those of a call. ``budget``: questions to the solver that are left.
    """
    import z3

    free = sorted({name for condition, _ in way for name in free_variables(condition)} & set(domain.free))
    terms = _terms(way)
    names = {name for number in terms for name in free_variables(way[number][0])}
    whole = z3.And(list(terms.values()))
    for changed in itertools.islice(_changed(free, first), MOST_QUESTIONS):
        own = [(z3.Int(name), z3.IntVal(base[name])) for name in sorted(names & base.keys() - changed)]
        term = z3.simplify(z3.substitute(whole, *own))
        if z3.is_false(term):
            continue
        for times in (NEAR, None):
            most = {name: min(times * max(base[name], 16), LARGEST) if times else LARGEST for name in changed}
            if budget.left <= 0:
                return None
            budget.left -= 1
            solver = _solver((names - base.keys()) | (names & changed), domain, most)
            solver.add(term)
            if solver.check() == z3.sat:
                model = solver.model()
                met = {name: model.eval(z3.Int(name), model_completion=True) for name in names & changed}
                return {**base, **{name: value.as_long() for name, value in met.items()}}
    return None


def _changed(free: list[str], first: Collection[str]) -> Iterator[set[str]]:
    of_call = {name for name in free if name in first}
    others = [name for name in free if name not in of_call]
    for count in range(min(len(others), MOST_CHANGED) + 1):
        for some in itertools.combinations(others, count):
            yield of_call | set(some)


class _Unwritten(Exception):
    """A formula has no term in the solver."""


def _solver(names: Iterable[str], domain: Domain, most: Mapping[str, int] | None = None) -> z3.Solver:
    """A solver that knows the bounds of these variables. ``most``: their largest values; None: no limit."""
    import z3

    solver = z3.Solver()
    solver.set("rlimit", EFFORT)
    for name in sorted(names):
        variable = z3.Int(name)
        solver.add(variable >= domain.least(name))
        if name in domain.flags:
            solver.add(variable <= 1)
        elif most is not None:
            solver.add(variable <= most.get(name, LARGEST))
    return solver


def _terms(way: Way) -> dict[int, z3.BoolRef]:
    """Number of a condition in the way -> its term. One that cannot be written is left out: it excludes nothing."""
    import z3

    written = {number: (_written(condition), wanted) for number, (condition, wanted) in enumerate(way)}
    return {number: term if wanted else z3.Not(term) for number, (term, wanted) in written.items() if term is not None}


@functools.lru_cache(maxsize=MOST_WRITTEN)
def _written(condition: Condition) -> z3.BoolRef | None:
    """The term of a condition; None if the solver cannot write it. Writing one takes longer than most questions."""
    try:
        return _condition(condition)
    except _Unwritten:
        return None


def _condition(condition: Condition) -> z3.BoolRef:
    import z3

    match condition:
        case Compare(relation, left, right):
            return RELATION[relation](_term(left), _term(right))
        case And(parts):
            return z3.And([_condition(part) for part in parts])
        case Or(parts):
            return z3.Or([_condition(part) for part in parts])
        case Not(part):
            return z3.Not(_condition(part))
    raise _Unwritten


def _term(expr: Expr) -> z3.ArithRef:
    import z3

    match expr:
        case Num(value):
            return z3.IntVal(value) if isinstance(value, int) else z3.Q(value.numerator, value.denominator)
        case Var(name):
            return z3.Int(name)
        case Add(terms):
            return z3.Sum([_term(term) for term in terms])
        case Mul(factors):
            return z3.Product([_term(factor) for factor in factors])
        case Div(left, right):
            return _real(_term(left)) / _real(_term(right))
        case FloorDiv(left, right):
            return _quotient(_term(left), _term(right))
        case Mod(left, right):
            whole, part = _term(left), _term(right)
            return whole - part * _quotient(whole, part)
        case Pow(left, Num(value)) if isinstance(value, int) and 0 < value <= MOST_POWER:
            return z3.Product([_term(left)] * value)
        case Call("floor", (argument,)):
            return _floor(_term(argument))
        case Call("ceil", (argument,)):
            return -_floor(-_term(argument))
        case Call("min" | "max" as function, (one, *others)):
            found = _term(one)
            for other in map(_term, others):
                found = z3.If(found <= other if function == "min" else found >= other, found, other)
            return found
        case Where(condition, then, otherwise):
            return z3.If(_condition(condition), _term(then), _term(otherwise))
    raise _Unwritten


def _quotient(whole: z3.ArithRef, part: z3.ArithRef) -> z3.ArithRef:
    """Rounded down, as in Python. The solver's own rounds so for a positive divisor only."""
    import z3

    if not (whole.is_int() and part.is_int()):
        return _floor(_real(whole) / _real(part))
    known = z3.simplify(part)
    if z3.is_int_value(known):
        return whole / known if known.as_long() > 0 else -whole / -known
    return z3.If(part > 0, whole / part, -whole / -part)


def _floor(term: z3.ArithRef) -> z3.ArithRef:
    import z3

    return term if term.is_int() else z3.ToInt(term)


def _real(term: z3.ArithRef) -> z3.ArithRef:
    import z3

    return z3.ToReal(term) if term.is_int() else term
