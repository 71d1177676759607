"""Compares an analysis with a derivation of the trace engine at thousands of points; executes where they differ.

Execution decides which of the two is wrong. Points that a handed-in analysis leaves out, and the engine's covers, are
executed too. The engine's own analysis is compared with a derivation from other values.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lmp.analyze.derivations import Derivation, View, derivation_or_reason, derive_from, other_base, views
from lmp.errors import FormulaError, LmpError, first_line
from lmp.formula import Program, evaluate_condition, num
from lmp.records import HANDED_IN, UNIVERSAL, Finding, FindingKind, ModuleAnalysis, Verification
from lmp.verify.array_claims import ArrayClaims, Costs, Line, differing, each_line
from lmp.verify.claims import LEFT_OUT, QUANTITIES
from lmp.verify.judge import Point as Executed
from lmp.verify.judge import named
from lmp.verify.probes import Point, Space, draw, edges, formula_literals, seed_of
from lmp.verify.resolve import resolve_all
from lmp.workload.base import RUNTIME
from lmp.workload.calls import Call

if TYPE_CHECKING:
    from lmp.analyze.execution import Execution

Array = Any

Lines = tuple[Line, ...]
"""Lines whose costs are summed."""

TRIES = 6
"""Differing points that are executed per line and quantity, until the module runs at one."""

MOST_TRIES = 40
"""The same over all lines."""

MOST_SPECIAL = 24
"""Largest number of literals of one analysis alone at whose edges pairs of sizes are drawn."""

MOST_NEARBY = 24
"""Points that are executed beside one at which the module does not run."""

MOST_FAILURES = 200
"""Evaluations after which points without a value are left out."""

SMALL = (
    *range(1, 10), 11, 12, 16, 17, 24, 32, 33, 48, 64, 65, 100, 128, 129, 150, 256, 257, 512, 513, 1024, 1025,
    2048, 2049, 4096, 4097, *(1 << power for power in range(13, 20)),
)  # fmt: skip
"""Sizes that a differing point is reduced to if it still differs there."""

MOST_OPERATORS = 30_000
"""Largest number of operators in one executed run, where a loop runs over tokens."""


OWN_FORMULAS = "lmp's own formulas"


@dataclass
class Agreement:
    """Result of the comparison: findings against the handed-in analysis, and sentences for its checks."""

    findings: list[Finding] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    refuted: Point | None = None
    """A point at which the engine's own formulas differ from execution."""
    unresolved: str | None = None
    """Why a difference was not decided by execution."""


def judged_with_derivation(
    execution: Execution, analysis: ModuleAnalysis, derivation: Callable[[], Derivation | str] | None = None
) -> Verification:
    """The verdict of execution on a handed-in analysis; if it is verified, compared with the engine's derivation too.

    ``derivation`` returns it, or why there is none.
    """
    found = execution.judged(analysis)
    if found.status != "verified":
        return found
    derived = derivation_or_reason(execution, analysis) if derivation is None else derivation()
    if isinstance(derived, str):
        return found.model_copy(update={"checks": [*found.checks, f"not compared with lmp's own formulas: {derived}"]})
    agreement = agree(execution, analysis, derived)
    update: dict[str, Any] = {"checks": [*found.checks, *agreement.checks]}
    if agreement.findings:
        update |= {"status": "failed", "findings": agreement.findings}
    elif agreement.unresolved is not None:
        update |= {"status": "unverified", "reason": agreement.unresolved}
    if agreement.refuted is not None:
        _refute(execution, analysis.class_name, agreement.refuted)
    return found.model_copy(update=update)


def _refute(execution: Execution, class_path: str, point: Point) -> None:
    """Store the findings against lmp's own stored analysis of a class, if it differs from execution at a point."""
    session = execution.session
    stored = session.load(class_path)
    if stored is None or stored.engine in HANDED_IN:
        return
    judged = execution.judged_at(stored, _without_sizes(point))
    if judged is not None and judged.status == "failed":
        session.store.save(stored.model_copy(update={"verification": judged}))


def agree(
    execution: Execution, analysis: ModuleAnalysis, derivation: Derivation, called: str = OWN_FORMULAS
) -> Agreement:
    """Compare an analysis, which holds at the held-out points, with a derivation of the engine, named as ``called``."""
    found = Agreement()
    seen = views(derivation, analysis)
    if not seen:
        found.checks.append(f"not compared with {called}: no symbolic run has their variables")
        return found
    try:
        _Comparison(execution, analysis, derivation, seen, found).run(called)
    except FormulaError as error:
        found.checks.append(f"not compared with {called}: {first_line(error)}")
    return found


def agree_from_another_base(execution: Execution, analysis: ModuleAnalysis) -> Agreement:
    """Compare an analysis with a derivation whose runs start at other values of the config or arguments."""
    base = other_base(execution)
    if not base:
        return Agreement(checks=["not derived a second time: the class runs at its own values only"])
    called = "a derivation from " + ", ".join(f"{name}={value}" for name, value in base.items())
    try:
        derivation = derive_from(base, execution, analysis)
    except LmpError as error:
        return Agreement(checks=[f"not compared with {called}: {first_line(error)}"])
    return agree(execution, analysis, derivation, called)


@dataclass(frozen=True)
class _Block:
    """Points with the same view, and the costs of both analyses there."""

    points: Sequence[Point]
    own: Mapping[Line, Costs]
    its: Mapping[Line, Costs]
    own_holds: Array
    its_holds: Array

    @property
    def both(self) -> Array:
        """Mask of the points that both analyses are for."""
        return self.own_holds & self.its_holds

    @property
    def left_out(self) -> Array:
        """Mask of the points that only the engine's own analysis is for."""
        return self.own_holds & ~self.its_holds

    def differ(self, lines: Lines, quantity: str) -> Array:
        """Mask of the points at which the sums over some lines differ."""
        return differing(self.own, self.its, lines, quantity) & self.both

    def at(self, mask: Array) -> list[Point]:
        return [point for point, held in zip(self.points, mask, strict=True) if held]


class _Comparison:
    def __init__(
        self,
        execution: Execution,
        analysis: ModuleAnalysis,
        derivation: Derivation,
        seen: Sequence[View],
        found: Agreement,
    ) -> None:
        self.execution, self.analysis, self.derivation = execution, analysis, derivation
        self.own, self.views, self.found = derivation.analysis, seen, found
        self.claims = ArrayClaims(execution.session.lookup)
        self.judged_at = [dict(point.values) for point in execution.points_for(analysis)]
        """The held-out points, where both hold."""
        self.tries = MOST_TRIES
        self._undecided: list[Point] = []
        """Points at which both differ, and at which nothing was executed."""
        self._programs: dict[int, Program] = {}
        self._literals = formula_literals([self.own, analysis])
        self._sizes = sorted({0, *SMALL, *(edge for number in self._literals for edge in edges(number))})
        """Values that sizes are reduced to."""
        self._line_of = {id(a): each_line(a, execution.statement_of) for a in (self.own, analysis)}
        self.lines = self._lines()

    def run(self, called: str) -> None:
        compared = 0
        self._decide_at_arms()
        if self.found.findings:
            return
        differing_at: dict[tuple[Lines, str], list[Point]] = {}
        left_out: list[Point] = []
        for block in self._blocks(self._points()):
            compared += int(block.both.sum())
            left_out += block.at(block.left_out)
            for lines in self.lines:
                for quantity in QUANTITIES:
                    where = block.at(block.differ(lines, quantity))
                    if where:
                        differing_at.setdefault((lines, quantity), []).extend(where)
        for (lines, quantity), where in differing_at.items():
            self._decide(lines, quantity, where)
            if self.found.findings:
                return
        if left_out:
            self._decide_left_out(left_out)
        if not self.found.findings:
            which = self._equal() if self.found.refuted is None else "execution confirms these, and not those"
            own = called if self.derivation.proven else f"{called}, which is not proven,"
            if compared:
                self.found.checks.append(f"compared with {own} at {compared:,} points: {which}")
            else:
                self.found.checks.append(f"not compared with {own}: no drawn point is one of both")

    def _equal(self) -> str:
        if not self._undecided:
            return "equal"
        at = _shown(min(self._undecided, key=self._effort), self.judged_at[0])
        return (
            f"equal at all but {len(self._undecided):,}, and the module runs at none of these that was tried, as {at}"
        )

    # -- points ------------------------------------------------------------------------------------------------------

    def _points(self) -> list[Point]:
        workload, own = self.execution.workload, self.judged_at[0]
        layers = frozenset(workload.full_layers)
        known = {_setting(values): values for values in self.judged_at if all(values[n] == own[n] for n in layers)}
        base = {**own, **{n: v for n, v in workload.hints.items() if n not in layers}}
        space = Space(
            base,
            list(known.values()),
            frozenset(workload.flags),
            layers,
            workload.input_sizes,
            workload.has_cache,
            workload.fewest_tokens,
        )
        special = set(formula_literals([self.own])) ^ set(formula_literals([self.analysis]))
        return draw(space, self._literals, seed_of([self.own, self.analysis]), sorted(special)[:MOST_SPECIAL])

    def _lines(self) -> list[Lines]:
        """Lines that are compared: each alone, but those together that differ where the sums of both are right.

        The cost of a helper may stand at its lines or at its call.
        """
        sized = [{**values, **dict.fromkeys(UNIVERSAL, 2)} for values in self.judged_at]
        together: dict[Line, bool] = {}
        for block in self._blocks(sized):
            for line in (*block.own, *block.its):
                differs = any(block.differ((line,), quantity).any() for quantity in QUANTITIES)
                together[line] = together.get(line, False) or differs
        alone: list[Lines] = [(line,) for line, differs in together.items() if not differs]
        rest = tuple(line for line, differs in together.items() if differs)
        return [*alone, rest] if rest else alone

    def _blocks(self, points: Sequence[Point]) -> Iterator[_Block]:
        """The points by view, with the costs of both analyses. Points at which a formula has no value are left out."""
        for group, seen in self._by_run(points):
            for view in seen:
                yield from self._evaluated(group, view)

    def _by_run(self, points: Sequence[Point]) -> Iterator[tuple[list[Point], list[View]]]:
        """Points with the views of the run whose path they take, as far as its comparisons tell."""
        runs: dict[int, list[View]] = {}
        for view in self.views:
            runs.setdefault(view.run, []).append(view)
        names = set(self.execution.workload.flags)
        held = {run: _path_taken(seen[0], points) for run, seen in runs.items()}
        chosen: dict[int, list[Point]] = {}
        for index, point in enumerate(points):

            def fits(run: int, index: int = index, point: Point = point) -> tuple[int, ...]:
                plain = runs[run][0].plain
                flags = sum(point.get(n, v) != v for n, v in plain.items() if n in names)
                sizes = sum(point.get(n, v) != v for n, v in plain.items() if n in RUNTIME)
                others = sum(point.get(n, v) != v for n, v in plain.items()) - flags - sizes
                return flags + others + sizes + int(not held[run][index]), -len(plain)

            chosen.setdefault(min(runs, key=fits), []).append(point)
        for run, group in chosen.items():
            yield group, runs[run]

    def _evaluated(self, points: Sequence[Point], view: View) -> Iterator[_Block]:
        pending, left = [self._with_variables(points, view)], MOST_FAILURES
        while pending and left:
            some = pending.pop()
            if not some:
                continue
            try:
                yield self._block(some)
            except FormulaError:
                left -= 1
                if len(some) > 1:
                    pending += [some[: len(some) // 2], some[len(some) // 2 :]]

    def _with_variables(self, points: Sequence[Point], view: View) -> list[tuple[Point, Point, Point]]:
        """Each point with the values of both analyses' variables. Points at which one is a fraction are left out."""
        if id(view) not in self._programs:
            formulas = [*view.own.values(), *view.other.values()]
            self._programs[id(view)] = Program([num(f) if isinstance(f, int) else f for f in formulas])
        program, found = self._programs[id(view)], []
        for point in points:
            with suppress(FormulaError):
                numbers = program(point)
                own = dict(zip(view.own, numbers, strict=False))
                other = dict(zip(view.other, numbers[len(own) :], strict=True))
                found.append((point, own, other))
        return found

    def _block(self, some: Sequence[tuple[Point, Point, Point]]) -> _Block:
        points, own, other = zip(*some, strict=True)
        costs, holds = self._at(self.own, own, points)
        its_costs, its_holds = self._at(self.analysis, other, points)
        return _Block(points, costs, its_costs, holds, its_holds)

    def _at(
        self, analysis: ModuleAnalysis, variables: Sequence[Point], points: Sequence[Point]
    ) -> tuple[Mapping[Line, Costs], Array]:
        import numpy as np

        values = _arrays(points, UNIVERSAL) | _arrays(variables, analysis.parameters)
        pins = np.array([all(p.get(n, v) == v for n, v in analysis.pinned.items()) for p in points])
        lines, below = self.claims.lines(analysis, values, self._line_of[id(analysis)])
        return lines, self.claims.holds(analysis, values) & below & pins

    # -- execution decides -------------------------------------------------------------------------------------------

    def _decide_at_arms(self) -> None:
        """Judge the analysis where the engine's formulas take an arm of theirs: the module runs there."""
        for values in self.derivation.arms_at:
            its = self._judged(self.analysis, {**values, **dict.fromkeys(UNIVERSAL, 2)})
            if isinstance(its, Verification) and its.status == "failed":
                self.found.findings += its.findings
                return

    def _decide(self, lines: Lines, quantity: str, where: Sequence[Point]) -> None:
        """Execute some of the points at which the analyses differ, the simplest first."""
        undecided, executed = "", False
        for point in self._candidates(where, lambda block: block.differ(lines, quantity)):
            its = self._judged(self.analysis, point)
            if isinstance(its, str):
                undecided = its
                continue
            executed = True
            if its.status == "failed":
                self.found.findings += its.findings
                return
            mine = self._judged(self.own, point)
            if isinstance(mine, Verification) and mine.status == "failed":
                self.found.refuted = self.found.refuted or point
                return
        if undecided == TOO_LONG:
            at = _shown(where[0], self.judged_at[0])
            self.found.unresolved = f"it differs from lmp's own formulas at {at}, and {TOO_LONG}"
        if not executed:
            known = {id(point) for point in self._undecided}
            self._undecided += [point for point in where if id(point) not in known]

    def _decide_left_out(self, where: Sequence[Point]) -> None:
        """A point that the analysis leaves out, at which the module runs and the engine's formulas hold."""
        for point in self._candidates(where, lambda block: block.left_out):
            mine = self._judged(self.own, point)
            why = self._why_left_out(point)
            if why is None or isinstance(mine, str) or mine.status != "verified":
                continue
            self.found.findings.append(
                Finding(
                    kind=FindingKind.left_out,
                    line=None,
                    quantity=LEFT_OUT.name,
                    point=_shown(point, self.judged_at[0]),
                    claimed=why,
                    counted="the module runs there, and lmp's own formulas hold",
                )
            )
            return

    def _why_left_out(self, point: Point) -> str | None:
        """Why the analysis leaves out an executed call that the engine's own covers; None if there is no such call."""
        executed = self.execution.executed_at(_without_sizes(point))
        if executed is None:
            return None
        config = executed.config
        for call in executed.calls:
            if call.class_path == self.own.class_name and self._unmet(self.own, point, call, config) is None:
                why = self._unmet(self.analysis, point, call, config)
                if why is not None:
                    return why
        return None

    def _unmet(self, analysis: ModuleAnalysis, point: Point, call: Call, config: Any) -> str | None:
        """The first pin or assumption that does not hold at an executed call."""
        for name, value in analysis.pinned.items():
            if point.get(name, value) != value:
                return f"{name} is {point[name]}, and the formulas are for {value}"
        values, _ = resolve_all(analysis.parameters, call, _without_sizes(point), config)
        for condition in analysis.assumptions:
            if not evaluate_condition(condition, {**point, **values}):
                return f"the assumption {condition} does not hold"
        return None

    def _candidates(self, where: Sequence[Point], still: Callable[[_Block], Array]) -> Iterator[Point]:
        """Some of the points, each reduced to the simplest one of its kind, those at the config's own values first."""
        tried: set[tuple[tuple[str, int], ...]] = set()
        known = [p for p in where if _setting(p) in {_setting(values) for values in self.judged_at}]
        for point in [*sorted(known, key=self._effort)[:TRIES], *sorted(where, key=self._effort)[: 4 * TRIES]]:
            if self.tries <= 0 or len(tried) >= TRIES:
                return
            found = self._reduced(point, still)
            key = tuple(sorted(found.items()))
            if key not in tried:
                tried.add(key)
                self.tries -= 1
                yield found if self._runs(found) else next(self._nearby(found, still), found)

    def _effort(self, point: Point) -> tuple[int, int]:
        """Number of config values that are not the config's own, and number of tokens."""
        base = self.judged_at[0]
        changed = sum(point[n] != base[n] for n in base if n not in RUNTIME)
        return changed, point["batch_size"] * (point["seq_len"] + point["cache_len"])

    def _reduced(self, point: Point, still: Callable[[_Block], Array]) -> Point:
        """The point with as many values as possible from the config, and the smallest sizes of the call."""
        base = {**self.judged_at[0], **dict.fromkeys(UNIVERSAL, 2)}
        for name in [*(n for n in point if n not in RUNTIME), *RUNTIME]:
            tries = [v for v in self._sizes if v < point[name] and (v or name == "cache_len")]
            if name not in RUNTIME:
                tries = [base[name], *tries] if base[name] != point[name] else []
            options = [{**point, name: value} for value in tries]
            point = next(iter(self._among(options, still)), point)
        return point

    def _nearby(self, point: Point, still: Callable[[_Block], Array]) -> Iterator[Point]:
        """Points at which the module runs, with one config value changed: sizes may have to fit one another."""
        base = self.judged_at[0]
        kept = {*RUNTIME, *UNIVERSAL, *self.execution.workload.flags, *self.execution.workload.full_layers}
        names = [n for n in base if n not in kept]
        changed = {n: point[n] for n in names if point[n] != base[n]}
        options: dict[tuple[str, int], Point] = {}
        for name, value in changed.items():
            # Powers of two keep what divides: operators may need sizes of 8 or 16.
            for tried in (base[name] * 2, base[name] * 4, base[name] // 2, base[name] // 4, value * 8, value * 16):
                if tried not in (0, base[name], value):
                    options[name, tried] = {**point, name: tried}
        pairs = [(n, other) for n in names if n not in changed for other in changed]
        # Sizes of one magnitude are likely to be compared with one another: experts with those that are chosen.
        for name, other in sorted(pairs, key=lambda pair: abs(math.log(max(base[pair[0]], 1) / changed[pair[1]]))):
            value = changed[other]
            if base[other]:
                scaled = base[name] * value // base[other]
                for tried in (value, 2 * value, base[name] * value, scaled):
                    if tried not in (0, base[name]):
                        options.setdefault((name, tried), {**point, name: tried})
        for found in self._among(list(options.values()), still)[:MOST_NEARBY]:
            if self._runs(found):
                yield found

    def _among(self, points: Sequence[Point], still: Callable[[_Block], Array]) -> list[Point]:
        """The points at which a mask holds, in their order."""
        held = {id(point) for block in self._blocks(points) for point in block.at(still(block))}
        return [point for point in points if id(point) in held]

    def _runs(self, point: Point) -> bool:
        return not isinstance(self._judged(self.own, point), str)

    def _judged(self, analysis: ModuleAnalysis, point: Point) -> Verification | str:
        """The verdict on an analysis at one point, or why there is none."""
        if self._operators_per_token * point["seq_len"] > MOST_OPERATORS:
            return TOO_LONG
        sizes = (point["w_bytes"], point["a_bytes"], point["kv_bytes"])
        found = self.execution.judged_at(analysis, _without_sizes(point), sizes)
        return "the module does not run there" if found is None else found

    @functools.cached_property
    def _operators_per_token(self) -> float:
        return operators_per_token(self.execution.points_for(self.analysis))


def operators_per_token(points: Iterable[Executed]) -> float:
    """How many operators more run for one more token, because of a loop; from the longest executed prefill."""
    counts: dict[Any, dict[int, int]] = {}
    for point in points:
        if point.values["cache_len"] == 0 and point.values["seq_len"] > 1:
            counts.setdefault(_setting(point.values), {})[point.values["seq_len"]] = len(point.counts)
    spans = [(max(found) - min(found), found[max(found)] - found[min(found)]) for found in counts.values()]
    span, more = max(spans, default=(0, 0))
    return max(more, 0) / span if span else 0.0


TOO_LONG = "it takes too long to execute there"


def _path_taken(view: View, points: Sequence[Point]) -> list[bool]:
    """For each point, whether all comparisons on the path of the view's run have the same results there."""
    path = Program([condition for condition, _ in view.conditions])
    expected = [int(held) for _, held in view.conditions]

    def same(point: Point) -> bool:
        try:
            return path(point) == expected
        except FormulaError:
            return False

    return [same(point) for point in points]


def _arrays(points: Sequence[Point], names: Iterable[str]) -> dict[str, Array]:
    import numpy as np

    return {name: np.array([point[name] for point in points]) for name in names}


def _without_sizes(point: Mapping[str, int]) -> Point:
    """The point without element sizes: an execution has none."""
    return {name: value for name, value in point.items() if name not in UNIVERSAL}


def _setting(point: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """The config values of a point."""
    return tuple(sorted((n, v) for n, v in point.items() if n not in RUNTIME and n not in UNIVERSAL))


def _shown(point: Point, base: Mapping[str, int]) -> str:
    """The sizes of the call, and the config values that differ from the config's own."""
    changed = ", ".join(f"{n}={v}" for n, v in point.items() if n in base and n not in RUNTIME and v != base[n])
    at = named("", point)
    return f"{at} ({changed})" if changed else at
