"""Executes points that take the arms of an analysis's formulas that no judged point took."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from lmp.formula import parse_condition
from lmp.records import UNIVERSAL, ArmTaken, Finding, ModuleAnalysis
from lmp.verify.arms import Arm, Pair, Way
from lmp.verify.claims import ARM
from lmp.verify.counted import SIZES
from lmp.verify.judge import JudgedCall, Judging, Point
from lmp.verify.points import SEARCHED, HeldOut, PointKind, phase_of
from lmp.verify.solving import Budget, Domain, contradiction, solution
from lmp.workload.base import RUNTIME, Workload

MOST_POINTS = 24
"""Most points that are executed to cover the arms of one class."""

MOST_BASES = 8
"""Most judged calls from which a search for a point starts."""

MOST_TRIES = 4
"""Most points that are executed for one arm; the module may refuse some."""

MOST_EVALUATIONS = 600
"""Most evaluations of conditions in the search of a point for one arm; a pair of arms has a quarter of it."""

MOST_IN_ALL = 4000
"""Most such evaluations for all arms of one class."""

Observe = Callable[[HeldOut], Point | None]
"""Returns the run at a point; None if the module does not run there."""


@dataclass
class Covering:
    """Search for points that take further arms of one analysis."""

    analysis: ModuleAnalysis
    judging: Judging
    workload: Workload
    observe: Observe
    executed: list[HeldOut] = field(default_factory=list)
    """Points that were executed to take an arm."""
    excluded: dict[Arm | Pair, str] = field(default_factory=dict)
    """Arm or pair that no sizes take -> the contradiction."""
    _tried: dict[Arm | Pair, int] = field(default_factory=dict)
    _budget: Budget = field(default_factory=lambda: Budget(MOST_IN_ALL))
    _seen: set[tuple[tuple[str, int], ...]] = field(default_factory=set)

    def run(self) -> None:
        """Execute and judge points until every arm is taken or no further point is found."""
        for targets in (lambda: self.judging.coverage.missing, lambda: self.judging.coverage.missing_pairs):
            while len(self.executed) < MOST_POINTS and not self.judging.differences and self._step(targets()):
                pass

    def missing(self, targets: Sequence[Arm | Pair]) -> list[Arm | Pair]:
        """The targets that are neither taken nor excluded by a contradiction."""
        return [target for target in targets if self._why_excluded(target) is None]

    def untaken(self) -> list[Arm]:
        """Arms that no executed point takes, although nothing excludes them."""
        return [arm for arm in self.missing(self.judging.coverage.missing) if isinstance(arm, Arm)]

    def findings(self) -> list[Finding]:
        """A finding for each untaken arm, for the author of a submitted analysis."""
        return [
            Finding(
                kind=ARM.kind,
                line=None,
                quantity=ARM.name,
                point="all sizes that were tried",
                claimed=str(arm),
                counted="no executed point takes it: leave this arm out, and state its opposite as an assumption",
            )
            for arm in self.untaken()
        ]

    def taken(self) -> list[ArmTaken]:
        """The arms for the record."""
        coverage = self.judging.coverage
        return [
            ArmTaken(of=arm.of, side=arm.side, point=coverage.taken.get(arm), excluded=self.excluded.get(arm))
            for arm in coverage.arms.ways
        ]

    def checks(self) -> list[str]:
        """Sentences on the arms for the checks; none if the formulas have no arms."""
        coverage = self.judging.coverage
        if not coverage.arms:
            return []
        untaken, pairs = self.untaken(), self.missing(coverage.missing_pairs)
        arms = [arm for arm in coverage.arms.ways if arm not in self.excluded]
        combined = [pair for pair in coverage.arms.pairs if pair not in self.excluded]
        found = [f"arms: {len(arms) - len(untaken)} of {len(arms)}"]
        if combined:
            found.append(f"pairs of arms: {len(combined) - len(pairs)} of {len(combined)}")
        if coverage.arms.pairs_left_out:
            found.append(f"pairs of arms not followed: {coverage.arms.pairs_left_out}")
        return found

    # -- one step --------------------------------------------------------------------------------------------------

    def _step(self, targets: Sequence[Arm | Pair]) -> bool:
        """Execute the point that is predicted to take the most arms. False if there is none."""
        found: dict[tuple[tuple[str, int], ...], tuple[HeldOut, list[Arm | Pair]]] = {}
        for target in self.missing(targets):
            if self._tried.get(target, 0) < MOST_TRIES:
                point = self._point(target)
                if point is None:
                    self._tried[target] = MOST_TRIES
                    continue
                found.setdefault(tuple(sorted(point.values.items())), (point, []))[1].append(target)
        if not found:
            return False
        key, (point, taken) = max(found.items(), key=lambda item: len(item[1][1]))
        self._seen.add(key)
        for target in taken:
            self._tried[target] = self._tried.get(target, 0) + 1
        run = self.observe(point)
        if run is not None:
            self.executed.append(point)
            self.judging.add([run])
        return True

    def _point(self, target: Arm | Pair) -> HeldOut | None:
        """The nearest point that is predicted to take an arm, and that was not tried yet."""
        budget = Budget(MOST_EVALUATIONS if isinstance(target, Arm) else MOST_EVALUATIONS // 4)
        for way in self.judging.arms.ways_of(target):
            full: Way = (*way, *self._assumed)
            for base in self._bases:
                if self._budget.left <= 0 or budget.left <= 0:
                    return None
                before = budget.left
                values = solution(full, self._values(base), self._domain, budget)
                self._budget.left -= before - budget.left
                point = None if values is None else self._as_point(base, values)
                if point is not None and tuple(sorted(point.values.items())) not in self._seen:
                    return point
        return None

    def _why_excluded(self, target: Arm | Pair) -> str | None:
        if target not in self.excluded:
            whys = [
                contradiction((*way, *self._assumed), self._everything) for way in self.judging.arms.ways_of(target)
            ]
            if any(why is None for why in whys):
                return None
            self.excluded[target] = whys[0] or ""
        return self.excluded[target]

    # -- values of the analysis's variables, and of points ---------------------------------------------------------

    @cached_property
    def _assumed(self) -> Way:
        return tuple((parse_condition(text), True) for text in self.analysis.assumptions)

    @cached_property
    def _calls(self) -> Sequence[JudgedCall]:
        return list(self.judging.judged_calls)

    @cached_property
    def _bases(self) -> list[JudgedCall]:
        """Judged calls of each phase at each config, the config's own first."""
        found: dict[tuple[str, bool], JudgedCall] = {}
        for call in self._calls:
            found.setdefault((phase_of(call.point), self._is_synthetic(call.point)), call)
        return sorted(found.values(), key=lambda call: self._is_synthetic(call.point))[:MOST_BASES]

    def _is_synthetic(self, point: Mapping[str, int]) -> bool:
        workload = self.workload
        own = {n: v for n, v in workload.hints.items() if n not in workload.full_layers}
        return any(point[name] != value for name, value in own.items())

    @staticmethod
    def _values(call: JudgedCall) -> dict[str, int]:
        return {**dict(zip(UNIVERSAL, SIZES[0], strict=True)), **call.values}

    @cached_property
    def _sources(self) -> dict[str, tuple[str, ...]]:
        """Variable of the analysis -> variable of the point, or two whose sum or product it is at every judged call."""
        found: dict[str, tuple[str, ...]] = {}
        for name in self.analysis.parameters:
            if name in self.analysis.pinned or not self._calls:
                continue
            source = next((s for s in self._possible_sources(name) if self._is_source(name, s)), None)
            if source is not None:
                found[name] = source
        return found

    def _possible_sources(self, name: str) -> Iterator[tuple[str, ...]]:
        known = self._calls[0].point
        if name in known:
            yield (name,)
        yield from ((other,) for other in known if other != name)
        yield ("*", "batch_size", "seq_len")
        yield ("+", "seq_len", "cache_len")

    def _is_source(self, name: str, source: tuple[str, ...]) -> bool:
        pinned = self.analysis.pinned
        if any(part in pinned for part in source):
            return False
        values = [(call.values[name], _combined(source, call.point)) for call in self._calls]
        return all(own == given for own, given in values)

    @cached_property
    def _domain(self) -> Domain:
        workload = self.workload
        fixed = set() if workload.has_cache else {"cache_len"}
        free = {n for n, s in self._sources.items() if not fixed & set(s) and s[-1] not in workload.full_layers}
        return Domain(free, self._flags)

    @cached_property
    def _everything(self) -> Domain:
        return Domain(set(self.analysis.parameters), self._flags)

    @cached_property
    def _flags(self) -> set[str]:
        """Variables that are 0 or 1 at every judged call, or may be 0."""
        workload = self.workload
        named = {n for n, source in self._sources.items() if source[0] in workload.flags}
        met = {n: {call.values[n] for call in self._calls} for n in self.analysis.parameters}
        return named | {n for n, values in met.items() if values <= {0, 1} and 0 in values and n not in RUNTIME}

    def _as_point(self, base: JudgedCall, values: Mapping[str, int]) -> HeldOut | None:
        """The point whose calls are predicted to have these values."""
        point = dict(base.point)
        for name in (n for n in self._domain.free if values[n] != base.values[n]):
            source, value = self._sources[name], values[name]
            match source:
                case ("*", batch, new):
                    point[batch], point[new] = (
                        (value // point[new], point[new]) if value % point[new] == 0 else (value, 1)
                    )
                case ("+", new, cached):
                    point[cached] = value - point[new]
                case (direct,):
                    point[direct] = value
        if point.get("seq_len", 1) < 1 or point.get("cache_len", 0) < 0:
            return None
        if phase_of(point) in self.workload.refused:
            return None
        kind = PointKind.ARM_SYNTHETIC if self._is_synthetic(point) else PointKind.ARM
        return HeldOut(SEARCHED[kind], point, kind)


def _combined(source: tuple[str, ...], point: Mapping[str, int]) -> int | None:
    match source:
        case ("*", left, right):
            return point[left] * point[right]
        case ("+", left, right):
            return point[left] + point[right]
    return point[source[0]]
