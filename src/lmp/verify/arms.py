"""Arms of an analysis's formulas: sides of conditions, winning arguments of min and max, kinds of quotients.

A formula can be wrong in an arm that no executed point takes. The judge therefore records which arms its points take.
Each arm is a list of ways. A way is a conjunction of conditions with the results that they must have for the evaluation
to reach the arm.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from lmp.errors import FormulaError
from lmp.formula import (
    And,
    Call,
    Compare,
    Condition,
    Div,
    Expr,
    FloorDiv,
    Mod,
    Node,
    Not,
    Num,
    Or,
    Where,
    all_of,
    compare,
    eq,
    free_variables,
    is_integer,
    parse,
    rewrite,
    simplify,
    simplify_condition,
    substitute,
    to_text,
    var,
)
from lmp.formula.evaluate import guarded, holds
from lmp.records import ModuleAnalysis

MOST_PAIRS = 300
"""Largest number of pairs of arms that are followed per class; the rest is counted in the checks."""

TRUE, FALSE = "true", "false"
EXACT, REST, BELOW_ONE = "exact", "with a rest", "quotient 0"

_DECIDING = ("where(", "min(", "max(", "//", "%", "ceil(", "floor(")
"""Parts of the text of a formula that has arms."""

Way = tuple[tuple[Condition, bool], ...]
"""Conditions and their results under which the evaluation of a formula reaches an arm."""


@dataclass(frozen=True)
class Arm:
    """One arm: the condition, call or quotient, and its side."""

    of: str
    side: str

    @property
    def is_quotient(self) -> bool:
        """True for a kind of quotient: the formula is the same in all of them, only rounding differs."""
        return self.side in (EXACT, REST, BELOW_ONE)

    def __str__(self) -> str:
        return f"{self.of} is {self.side}"


Pair = tuple[Arm, Arm]


class Arms:
    """All arms of one analysis, and those that a call with given values takes."""

    def __init__(self, analysis: ModuleAnalysis, asked: Collection[Condition] = ()) -> None:
        """``asked``: conditions of the source, in variables of the point. Their sides are combined with the arms."""
        self.ways: dict[Arm, dict[Way, None]] = {}
        self.pairs: dict[Pair, None] = {}
        """Pairs of decisions that one kernel's formulas combine."""
        self.pairs_left_out = 0
        self.auxiliary: set[Arm] = set()
        """Arms that matter in pairs only: sides of conditions of the source, and parts of one condition."""
        self._parts: dict[Arm, dict[Way, None]] = {}
        seen: dict[str, list[Arm]] = {}
        for texts in _formulas(analysis):
            decided: dict[Arm, None] = {}
            for text in dict.fromkeys(texts):
                if text not in seen:
                    seen[text] = self._add(text) if any(part in text for part in _DECIDING) else []
                decided.update(dict.fromkeys(seen[text]))
            self._pair(itertools.combinations(decided, 2))
        compared = [arm for arm in self.ways if arm.side in (TRUE, FALSE)]
        sides: dict[Arm, None] = {}
        shared: dict[Arm, None] = {}
        for condition in asked if compared else ():
            if isinstance(condition, Compare):
                positive = _positive(condition)
                for side, wanted in ((TRUE, True), (FALSE, False)):
                    arm = Arm(to_text(positive), side)
                    if arm not in self.ways:
                        sides[arm] = None
                        self._parts[arm] = {((_at_point(positive), wanted),): None}
                    else:
                        shared[arm] = None  # formulas of other kernels may have it, and this one's may lack it
        if sides:
            parts = [arm for arm in self._parts if arm not in sides]
            whole = [arm for arm in compared if not any(arm.side == p.side and p.of.startswith(arm.of) for p in parts)]
            self.ways |= self._parts
            self.auxiliary = set(self._parts)
            self._pair(itertools.product([*parts, *whole], sides))
        self._pair(itertools.product(compared, shared))

    def __bool__(self) -> bool:
        return bool(self.ways)

    def taken(self, values: Mapping[str, int]) -> set[Arm]:
        """The arms that the evaluation of the formulas takes at these values."""
        truth = truths(values)
        return {arm for arm, ways in self.ways.items() if any(meets(way, truth) for way in ways)}

    @cached_property
    def variables(self) -> frozenset[str]:
        """Variables that decide which arms are taken."""
        return frozenset(n for ways in self.ways.values() for way in ways for c, _ in way for n in free_variables(c))

    # -- reading the formulas --------------------------------------------------------------------------------------

    def _add(self, text: str) -> list[Arm]:
        """Add the arms of a formula. Returns those of whole decisions, which are combined in pairs."""
        decided: dict[Arm, None] = {}
        for arm, way, within in _expression(parse(text), ()):
            self.ways.setdefault(arm, {})[way] = None
            if not within:
                decided[arm] = None
            else:
                self._parts.setdefault(Arm(f"{arm.of} in {within}", arm.side), {})[way] = None
        return list(decided)

    def _pair(self, pairs: Iterable[Pair]) -> None:
        for first, second in pairs:
            if first.of == second.of or (first, second) in self.pairs or (second, first) in self.pairs:
                continue
            if len(self.pairs) < MOST_PAIRS:
                self.pairs[first, second] = None
            else:
                self.pairs_left_out += 1

    def ways_of(self, target: Arm | Pair) -> list[Way]:
        """The ways to take an arm, or both arms of a pair at once."""
        if isinstance(target, Arm):
            return list(self.ways[target])
        first, second = (self.ways[arm] for arm in target)
        return [(*a, *b) for a in first for b in second]


POINT = "point's "
"""Prefix of variables of a point, beside those of the analysis."""


def _at_point(condition: Condition) -> Condition:
    return substitute(condition, {name: var(f"{POINT}{name}") for name in free_variables(condition)})


def meets(way: Way, truth: Callable[[Condition], bool | None]) -> bool:
    """True if all conditions of a way have their results."""
    return all(truth(condition) is wanted for condition, wanted in way)


def truths(values: Mapping[str, int]) -> Callable[[Condition], bool | None]:
    """Results of conditions at these values, each computed once; None if there is none, as after a division by 0."""
    known: dict[Condition, bool | None] = {}

    def truth(condition: Condition) -> bool | None:
        if condition not in known:
            known[condition] = None
            with suppress(FormulaError):
                known[condition] = guarded(lambda: holds(condition, values))
        return known[condition]

    return truth


def _formulas(analysis: ModuleAnalysis) -> Iterator[list[str]]:
    """The formulas of each kernel, and the number of parameters."""
    for kernel in analysis.kernels:
        yield [kernel.flops, kernel.memory_access.read, kernel.memory_access.write, str(kernel.repeat)]
    if analysis.parameters_count is not None:
        yield [str(analysis.parameters_count)]


_Found = Iterator[tuple[Arm, Way, str]]
"""An arm, a way to it, and the condition that it is a part of; "" for a whole decision."""


def _expression(node: Node, guards: Way) -> _Found:
    """The arms in an expression that is reached where ``guards`` hold."""
    match node:
        case Where(condition, then, otherwise):
            yield from _condition(condition, guards)
            yield from _expression(then, (*guards, (condition, True)))
            yield from _expression(otherwise, (*guards, (condition, False)))
            return
        case Call("min" | "max" as function, arguments):
            yield from _extreme(function, tuple(dict.fromkeys(arguments)), guards)
        case Call("ceil" | "floor", (Div(left, right),)) | FloorDiv(left, right) | Mod(left, right):
            yield from _quotient(left, right, guards)
    for child in node.children:
        yield from _expression(child, guards)


def _condition(condition: Condition, guards: Way) -> _Found:
    """Both sides of a condition, and of each comparison in it where that one decides the result."""
    if not isinstance(condition, Compare | Not):
        for side, wanted in ((TRUE, True), (FALSE, False)):
            yield Arm(to_text(condition), side), (*guards, (condition, wanted)), ""
    yield from _part(condition, guards, "" if isinstance(condition, Compare | Not) else to_text(condition))


def _part(condition: Condition, guards: Way, within: str) -> _Found:
    match condition:
        case Compare(_, left, right):
            if isinstance(left, Num) and isinstance(right, Num):
                return
            positive = _positive(condition)
            for side, wanted in ((TRUE, True), (FALSE, False)):
                yield Arm(to_text(positive), side), (*guards, (positive, wanted)), within
            for operand in (left, right):
                yield from _expression(operand, guards)
        case Not(part):
            yield from _part(part, guards, within)
        case And(parts) | Or(parts):
            # A part decides where all others leave the result open.
            neutral = isinstance(condition, And)
            for index, part in enumerate(parts):
                others = tuple((other, neutral) for i, other in enumerate(parts) if i != index)
                yield from _part(part, (*guards, *others), within or to_text(condition))


def _positive(condition: Compare) -> Compare:
    """The comparison or its opposite, so that both share their arms."""
    opposite = {"<=": ">", "<": ">=", "!=": "=="}.get(condition.relation)
    return condition if opposite is None else Compare(opposite, condition.left, condition.right)


def _extreme(function: str, arguments: tuple[Expr, ...], guards: Way) -> _Found:
    """Each argument that is smaller (or larger) than all others."""
    if len(arguments) < 2:
        return
    relation = "<" if function == "min" else ">"
    of = to_text(Call(function, arguments))
    for index, argument in enumerate(arguments):
        others = [other for i, other in enumerate(arguments) if i != index]
        way = tuple((compare(relation, argument, other), True) for other in others)
        yield Arm(of, to_text(argument)), (*guards, *way), ""


def _quotient(left: Expr, right: Expr, guards: Way) -> _Found:
    if (isinstance(left, Num) and isinstance(right, Num)) or is_integer(simplify(left / right)):
        return
    of = to_text(FloorDiv(left, right))
    divides = eq(left % right, 0)
    several = compare(">=", left, right)
    yield Arm(of, BELOW_ONE), (*guards, (several, False)), ""
    yield Arm(of, EXACT), (*guards, (several, True), (divides, True)), ""
    yield Arm(of, REST), (*guards, (several, True), (divides, False)), ""


# -- arms that no point takes -----------------------------------------------------------------------------------------


def without_arms(
    analysis: ModuleAnalysis, untaken: Collection[Arm], arms: Arms, uncombined: Collection[Way] = ()
) -> ModuleAnalysis:
    """The analysis without these arms and ways: the conditions that lead to them are excluded by assumptions."""
    left_out = [*(way for arm in untaken for way in arms.ways_of(arm)), *uncombined]
    excluded = dict.fromkeys(map(opposite, left_out))
    texts = [to_text(condition) for condition in excluded if condition != TRUTH]

    def shorter(text: str) -> str:
        if "where(" not in text:
            return text
        return to_text(simplify(rewrite(parse(text), lambda node: _taken_side(node, untaken))))

    kernels = [
        kernel.model_copy(
            update={
                "flops": shorter(kernel.flops),
                "memory_access": kernel.memory_access.model_copy(
                    update={"read": shorter(kernel.memory_access.read), "write": shorter(kernel.memory_access.write)}
                ),
                "repeat": kernel.repeat if isinstance(kernel.repeat, int) else shorter(kernel.repeat),
            }
        )
        for kernel in analysis.kernels
    ]
    assumptions = list(dict.fromkeys([*analysis.assumptions, *texts]))
    return analysis.model_copy(update={"kernels": kernels, "assumptions": assumptions})


TRUTH = eq(0, 0)


def opposite(way: Way) -> Condition:
    """The condition that a way's conditions do not all have their results."""
    parts = [condition if wanted else Not(condition) for condition, wanted in way]
    return simplify_condition(Not(all_of(*parts)))


def _taken_side(node: Node, untaken: Collection[Arm]) -> Node:
    if not isinstance(node, Where):
        return node
    condition = node.condition
    negative = isinstance(condition, Compare) and _positive(condition) != condition
    shown = to_text(_positive(condition) if isinstance(condition, Compare) else condition)
    if Arm(shown, TRUE) in untaken:
        return node.then if negative else node.otherwise
    if Arm(shown, FALSE) in untaken:
        return node.otherwise if negative else node.then
    return node
