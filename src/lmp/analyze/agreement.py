"""Compares a handed-in analysis with the trace engine's own derivation at thousands of points, and executes where they differ.

Execution decides which of the two is wrong. Points that the handed-in analysis leaves out, and the engine's covers, are
executed too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lmp.analyze.derivations import Derivation, View, views
from lmp.errors import FormulaError, LmpError, first_line
from lmp.formula import evaluate_condition
from lmp.records import UNIVERSAL, Finding, FindingKind, ModuleAnalysis, Verification
from lmp.verify.array_claims import ArrayClaims, Costs, Line, differing, each_line
from lmp.verify.claims import QUANTITIES
from lmp.verify.judge import named
from lmp.verify.probes import Point, Space, draw, literals, seed_of
from lmp.workload.base import RUNTIME

if TYPE_CHECKING:
    from lmp.analyze.execution import Execution

Array = Any

TRIES = 6
"""Differing points that are executed per line and quantity, until the module runs at one."""

MOST_TRIES = 40
"""The same over all lines."""

MOST_FAILURES = 200
"""Evaluations after which points without a value are left out."""

SMALL = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 16, 17, 24, 32, 33, 48, 64, 65, 100, 128, 129, 150, 256, 257, 512, 513, 1024,
         1025, 2048, 2049, 4096, 4097, 8192, 16384, 32768, 65536, 131072, 262144, 524288)  # fmt: skip
"""Sizes that a differing point is reduced to if it still differs there."""

SLOW_TOKENS = 1 << 12
"""Largest number of tokens that is executed if a loop runs over them."""


@dataclass
class Agreement:
    """Result of the comparison: findings against the handed-in analysis, and sentences for its checks."""

    findings: list[Finding] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    refuted: Verification | None = None
    """The engine's own analysis differs from execution: its findings."""
    unresolved: str | None = None
    """Why a difference was not decided by execution."""


def agree(execution: Execution, analysis: ModuleAnalysis, derivation: Derivation) -> Agreement:
    """Compare a handed-in analysis, which holds at the held-out points, with the engine's derivation."""
    found = Agreement()
    seen = views(derivation, analysis)
    if not seen:
        found.checks.append("not compared with lmp's own formulas: no symbolic run has their variables")
        return found
    try:
        _Comparison(execution, analysis, derivation, seen, found).run()
    except FormulaError as error:
        found.checks.append(f"not compared with lmp's own formulas: {first_line(error)}")
    return found


@dataclass(frozen=True)
class _Block:
    """Points with the same view, and the costs of both analyses there."""

    points: Sequence[Point]
    lines: Sequence[tuple[Line, ...]]
    """Lines that are compared together."""
    own: Mapping[Line, Costs]
    its: Mapping[Line, Costs]
    own_holds: Array
    its_holds: Array


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
        self._line_of = {id(a): each_line(a, execution.statement_of) for a in (self.own, analysis)}
        self.lines = self._lines()

    def run(self) -> None:
        points = self._points()
        compared = 0
        differing_at: dict[tuple[tuple[Line, ...], str], list[Point]] = {}
        left_out: list[Point] = []
        for block in self._blocks(points):
            import numpy as np

            both = block.own_holds & block.its_holds
            compared += int(np.count_nonzero(both))
            left_out += [block.points[i] for i in np.flatnonzero(block.own_holds & ~block.its_holds)]
            for lines in self.lines:
                for quantity in QUANTITIES:
                    at = np.flatnonzero(differing(block.own, block.its, lines, quantity) & both)
                    if len(at):
                        differing_at.setdefault((lines, quantity), []).extend(block.points[i] for i in at)
        for (lines, quantity), where in differing_at.items():
            self._decide(lines, quantity, where)
            if self.found.findings:
                return
        if left_out:
            self._decide_left_out(left_out)
        if not self.found.findings:
            which = "differs at points where it holds" if self.found.refuted else "equal"
            own = "lmp's own formulas" if self.derivation.proven else "lmp's own formulas, which are not proven,"
            self.found.checks.append(f"compared with {own} at {compared:,} points: {which}")

    # -- points ------------------------------------------------------------------------------------------------------

    def _points(self) -> list[Point]:
        workload, own = self.execution.workload, self.judged_at[0]
        layers = frozenset(workload.full_layers)
        known = {
            tuple(sorted((n, v) for n, v in values.items() if n not in RUNTIME)): values
            for values in self.judged_at
            if all(values[n] == own[n] for n in layers)
        }
        base = {**own, **{n: v for n, v in workload.hints.items() if n not in layers}}
        space = Space(
            base,
            list(known.values()),
            frozenset(workload.flags),
            layers,
            workload.has_cache,
            workload.fewest_tokens,
        )
        return draw(space, literals([self.own, self.analysis]), seed_of([self.own, self.analysis]))

    def _lines(self) -> list[tuple[Line, ...]]:
        """Lines that are compared: each alone, but those together that differ where the sums of both are right.

        The cost of a helper may stand at its lines or at its call.
        """
        import numpy as np

        sized = [{**values, **dict.fromkeys(UNIVERSAL, 2)} for values in self.judged_at]
        lines: dict[Line, None] = {}
        together: dict[Line, None] = {}
        for block in self._blocks(sized):
            lines |= dict.fromkeys([*block.own, *block.its])
            both = block.own_holds & block.its_holds
            for line in lines:
                if any(np.any(differing(block.own, block.its, [line], q) & both) for q in QUANTITIES):
                    together[line] = None
        alone = [(line,) for line in lines if line not in together]
        return [*alone, tuple(together)] if together else alone

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
        pending, left = [list(points)], MOST_FAILURES
        while pending and left:
            some = pending.pop()
            try:
                yield self._block(some, view)
            except FormulaError:
                left -= 1
                if len(some) > 1:
                    pending += [some[: len(some) // 2], some[len(some) // 2 :]]

    def _block(self, points: Sequence[Point], view: View) -> _Block:
        import numpy as np

        values = _arrays(points)
        own, own_holds = self._at(self.own, view.own, values, points)
        its, its_holds = self._at(self.analysis, view.other, values, points)
        return _Block(points, [], own, its, np.asarray(own_holds, bool), np.asarray(its_holds, bool))

    def _at(
        self, analysis: ModuleAnalysis, variables: Mapping[str, Any], values: Mapping[str, Array], points: Sequence[Point]
    ) -> tuple[Mapping[Line, Costs], Array]:
        import numpy as np

        sized = {name: values[name] for name in UNIVERSAL}
        for name, formula in variables.items():
            known = isinstance(formula, int)
            sized[name] = np.full(len(points), formula) if known else self.claims.value(formula, values)
        pins = np.array([all(p.get(n, v) == v for n, v in analysis.pinned.items()) for p in points])
        lines, below = self.claims.lines(analysis, sized, self._line_of[id(analysis)])
        return lines, self.claims.holds(analysis, sized) & below & pins

    # -- execution decides -------------------------------------------------------------------------------------------

    def _decide(self, lines: tuple[Line, ...], quantity: str, where: Sequence[Point]) -> None:
        """Execute some of the points at which the analyses differ, the simplest first."""

        def differs(points: Sequence[Point]) -> set[int]:
            import numpy as np

            found: set[int] = set()
            index = {id(point): i for i, point in enumerate(points)}
            for block in self._blocks(points):
                at = differing(block.own, block.its, lines, quantity) & block.own_holds & block.its_holds
                found |= {index[id(block.points[i])] for i in np.flatnonzero(at)}
            return found

        undecided = ""
        for point in self._candidates(where, differs):
            its = self._judged(self.analysis, point)
            if isinstance(its, str):
                undecided = its
                continue
            if its.status == "failed":
                self.found.findings += its.findings
                return
            mine = self._judged(self.own, point)
            if isinstance(mine, Verification) and mine.status == "failed":
                self.found.refuted = self.found.refuted or mine
                return
        if undecided == TOO_LONG:
            at = named("", where[0])
            self.found.unresolved = f"it differs from lmp's own formulas at {at}, and {TOO_LONG}"

    def _decide_left_out(self, where: Sequence[Point]) -> None:
        """A point that the analysis leaves out, at which the module runs and the engine's formulas hold."""

        def left_out(points: Sequence[Point]) -> set[int]:
            import numpy as np

            index = {id(point): i for i, point in enumerate(points)}
            return {
                index[id(block.points[i])]
                for block in self._blocks(points)
                for i in np.flatnonzero(block.own_holds & ~block.its_holds)
            }

        for point in self._candidates(where, left_out):
            mine = self._judged(self.own, point)
            its = self._judged(self.analysis, point)
            if isinstance(mine, str) or isinstance(its, str) or mine.status != "verified" or its.status == "verified":
                continue
            why = its.reason or "; ".join(finding.claimed for finding in its.findings)
            self.found.findings.append(
                Finding(
                    kind=FindingKind.left_out,
                    line=None,
                    quantity="phase left out",
                    point=_shown(point, self.judged_at[0]),
                    claimed=why,
                    counted="the module runs there, and lmp's own formulas hold",
                )
            )
            return

    def _candidates(self, where: Sequence[Point], still: Callable[[Sequence[Point]], set[int]]) -> Iterator[Point]:
        """Some of the points, each reduced to the simplest one of its kind, those at the config's own values first."""
        base = self.judged_at[0]

        def effort(point: Point) -> tuple[int, int]:
            changed = sum(point[n] != base[n] for n in base if n not in RUNTIME)
            return changed, point["batch_size"] * (point["seq_len"] + point["cache_len"])

        tried: set[tuple[tuple[str, int], ...]] = set()
        known = [p for p in where if _setting(p) in {_setting(values) for values in self.judged_at}]
        for point in [*sorted(known, key=effort)[:TRIES], *sorted(where, key=effort)[: 4 * TRIES]]:
            if self.tries <= 0 or len(tried) >= 2 * TRIES:
                return
            found = self._reduced(point, still)
            key = tuple(sorted(found.items()))
            if key not in tried:
                tried.add(key)
                self.tries -= 1
                yield found

    def _reduced(self, point: Point, still: Callable[[Sequence[Point]], set[int]]) -> Point:
        """The point with as many values as possible from the config, and the smallest sizes of the call."""
        base = {**self.judged_at[0], **dict.fromkeys(UNIVERSAL, 2)}
        for name in [*(n for n in point if n not in RUNTIME), *RUNTIME]:
            if name in RUNTIME:
                tries = [v for v in (0, *SMALL) if v < point[name] and (v or name == "cache_len")]
            else:
                tries = [base[name]] if name in base and base[name] != point[name] else []
            if not tries:
                continue
            options = [{**point, name: value} for value in tries]
            differs = still(options)
            if differs:
                point = options[min(differs)]
        return point

    def _judged(self, analysis: ModuleAnalysis, point: Point) -> Verification | str:
        """The verdict on an analysis at one point, or why there is none."""
        if self._has_loop and point["seq_len"] > SLOW_TOKENS:
            return TOO_LONG
        sizes = tuple(point[name] for name in UNIVERSAL)
        values = {name: value for name, value in point.items() if name not in UNIVERSAL}
        found = self.execution.judged_at(analysis, values, sizes)
        return "the module does not run there" if found is None else found

    @functools.cached_property
    def _has_loop(self) -> bool:
        """True if more tokens take more operators."""
        counts = {
            (p.values["seq_len"], len(p.counts))
            for p in self.execution.points_for(self.analysis)
            if not p.synthetic and p.values["cache_len"] == 0 and p.values["seq_len"] > 1
        }
        return len({number for _, number in counts}) > 1


TOO_LONG = "it takes too long to execute there"


def _path_taken(view: View, points: Sequence[Point]) -> list[bool]:
    """For each point, whether all comparisons on the path of the view's run have the same results there."""

    def same(point: Point) -> bool:
        try:
            return all(evaluate_condition(condition, point) == held for condition, held in view.conditions)
        except LmpError:
            return False

    return [same(point) for point in points]


def _arrays(points: Sequence[Point]) -> dict[str, Array]:
    import numpy as np

    return {name: np.array([point[name] for point in points]) for name in points[0]}


def _setting(point: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((n, v) for n, v in point.items() if n not in RUNTIME and n not in UNIVERSAL))


def _shown(point: Point, base: Mapping[str, int]) -> str:
    """The sizes of the call, and the config values that differ from the config's own."""
    changed = ", ".join(f"{n}={v}" for n, v in point.items() if n in base and n not in RUNTIME and v != base[n])
    at = named("", point)
    return f"{at} ({changed})" if changed else at
