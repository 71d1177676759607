"""Asks the solver Z3 for sizes that take an arm, or for the contradiction, where `solving` finds neither."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
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
from lmp.verify.solving import LARGEST, Domain

if TYPE_CHECKING:
    import z3

EFFORT = 300_000
"""Steps of the solver for one question, in its own unit. They bound its time in a repeatable way: about 0.1 s."""

MOST_QUESTIONS = 60
"""Most questions for one point."""

MOST_CHANGED = 3
"""Most variables that a point changes beside those of the call."""

MOST_POWER = 8
"""Largest exponent that is written out as a product."""


def why_impossible(way: Way, domain: Domain) -> str | None:
    """Conditions of a way that no sizes meet together, as text; None if the solver knows of none."""
    import z3

    if _Asked({}).solver(way, domain).check() != z3.unsat:
        return None
    tracked = _Asked({}).solver(way, domain, track=True)
    in_core = sorted(int(str(one)) for one in tracked.unsat_core()) if tracked.check() == z3.unsat else range(len(way))
    found = [way[number] for number in in_core]
    return ", ".join(f"{to_text(condition)} is {'true' if wanted else 'false'}" for condition, wanted in found)


def follows(condition: Condition, known: Iterable[Condition], domain: Domain) -> bool:
    """True if no sizes break a condition that meet the known ones, as far as the solver knows."""
    return why_impossible(((condition, False), *((one, True) for one in known)), domain) is not None


def nearest(way: Way, base: Mapping[str, int], domain: Domain, first: Collection[str]) -> dict[str, int] | None:
    """Values that meet a way and differ from the base in few variables; None if the solver finds none.

    ``first``: variables that each point may change: those of a call.
    """
    import z3

    free = sorted({name for condition, _ in way for name in free_variables(condition)} & set(domain.free))
    questions = itertools.product(_changed(free, first), (4, None))
    for changed, near in itertools.islice(questions, MOST_QUESTIONS):
        asked = _Asked({name: value for name, value in base.items() if name not in changed})
        most = {name: min(near * max(base[name], 16), LARGEST) if near else LARGEST for name in changed}
        solver = asked.solver(way, domain, most)
        if solver.check() == z3.sat:
            model = solver.model()
            met = {name: model.eval(one, model_completion=True) for name, one in asked.variables.items()}
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


@dataclass
class _Asked:
    """Conditions as terms of the solver. A condition that it cannot write is left out: it excludes nothing then."""

    fixed: Mapping[str, int]
    variables: dict[str, z3.ArithRef] = field(default_factory=dict)

    def solver(self, way: Way, domain: Domain, most: Mapping[str, int] | None = None, track: bool = False) -> z3.Solver:
        """``most``: largest values; None: no limit. ``track``: name conditions by their numbers in the way."""
        import z3

        solver = z3.Solver()
        solver.set("rlimit", EFFORT)
        for number, (condition, wanted) in enumerate(way):
            try:
                term = self.condition(condition)
            except _Unwritten:
                continue
            term = term if wanted else z3.Not(term)
            if track:
                solver.assert_and_track(term, str(number))
            else:
                solver.add(term)
        for name, variable in self.variables.items():
            solver.add(variable >= domain.least(name))
            if name in domain.flags:
                solver.add(variable <= 1)
            elif most is not None:
                solver.add(variable <= most[name])
        return solver

    def condition(self, condition: Condition) -> z3.BoolRef:
        import z3

        match condition:
            case Compare(relation, left, right):
                return RELATION[relation](self.term(left), self.term(right))
            case And(parts):
                return z3.And([self.condition(part) for part in parts])
            case Or(parts):
                return z3.Or([self.condition(part) for part in parts])
            case Not(part):
                return z3.Not(self.condition(part))
        raise _Unwritten

    def term(self, expr: Expr) -> z3.ArithRef:
        import z3

        match expr:
            case Num(value):
                return z3.IntVal(value) if isinstance(value, int) else z3.Q(value.numerator, value.denominator)
            case Var(name) if name in self.fixed:
                return z3.IntVal(self.fixed[name])
            case Var(name):
                return self.variables.setdefault(name, z3.Int(name))
            case Add(terms):
                return z3.Sum([self.term(term) for term in terms])
            case Mul(factors):
                return z3.Product([self.term(factor) for factor in factors])
            case Div(left, right):
                return _real(self.term(left)) / _real(self.term(right))
            case FloorDiv(left, right):
                return self.quotient(self.term(left), self.term(right))
            case Mod(left, right):
                whole, part = self.term(left), self.term(right)
                return whole - part * self.quotient(whole, part)
            case Pow(left, Num(value)) if isinstance(value, int) and 0 < value <= MOST_POWER:
                return z3.Product([self.term(left)] * value)
            case Call("floor", (argument,)):
                return _floor(self.term(argument))
            case Call("ceil", (argument,)):
                return -_floor(-self.term(argument))
            case Call("min" | "max" as function, (one, *others)):
                found = self.term(one)
                for other in map(self.term, others):
                    found = z3.If(found <= other if function == "min" else found >= other, found, other)
                return found
            case Where(condition, then, otherwise):
                return z3.If(self.condition(condition), self.term(then), self.term(otherwise))
        raise _Unwritten

    def quotient(self, whole: z3.ArithRef, part: z3.ArithRef) -> z3.ArithRef:
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
