"""Executes points that take the arms of an analysis's formulas that no judged point took."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

from lmp.errors import FormulaError
from lmp.formula import Expr, any_of, eq, evaluate, free_variables, parse_condition, substitute, to_text, var
from lmp.records import UNIVERSAL, ArmTaken, Finding, ModuleAnalysis
from lmp.verify.arms import POINT, Arm, Pair, Way, opposite
from lmp.verify.claims import ARM
from lmp.verify.counted import SIZES
from lmp.verify.deciding import nearest, why_impossible
from lmp.verify.judge import JudgedCall, Judging, Point
from lmp.verify.points import SEARCHED, HeldOut, PointKind, phase_of
from lmp.verify.solving import Budget, Domain, contradiction, solution
from lmp.workload.base import RUNTIME, Workload

MOST_POINTS = 24
"""Most points that are executed to cover the arms of one class."""

MOST_BASES = 8
"""Most judged calls from which a search for a point starts."""

MOST_ASKED = 2
"""Judged calls from which the solver's points differ little."""

MOST_TRIES = 4
"""Most points that are executed for one arm; the module may refuse some."""

MOST_OPPOSITES = 3
"""Most conditions that a finding on an arm gives."""

OWN = "its "
"""Prefix of the analysis's variables beside those of a point."""

MOST_EVALUATIONS = 800
"""Most evaluations of conditions in the search of a point for one arm; a pair of arms has half of it."""

MOST_IN_ALL = 8000
"""Most such evaluations for all arms of one class."""

MOST_QUESTIONS = 400
"""Most questions to the solver for points of one class. What it was not asked about becomes an assumption."""

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
    _ways: dict[Arm | Pair, list[Way]] = field(default_factory=dict)
    _tried: dict[Arm | Pair, int] = field(default_factory=dict)
    _budget: Budget = field(default_factory=lambda: Budget(MOST_IN_ALL))
    _questions: Budget = field(default_factory=lambda: Budget(MOST_QUESTIONS))
    _found: dict[Arm | Pair, HeldOut | None] = field(default_factory=dict)
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

    def uncombined(self) -> list[Way]:
        """Ways to take two arms at once that no executed point takes, although nothing excludes them.

        Sides of conditions of the source are in variables of the point: they are left out where the analysis has none.
        """
        untaken = {*self.untaken(), *(self.judging.arms.auxiliary - self.judging.coverage.taken.keys())}
        own = {f"{POINT}{name}": var(name) for name, source in self._sources.items() if source == var(name)}
        found: dict[Way, None] = {}
        for pair in self.missing(self.judging.coverage.missing_pairs):
            if isinstance(pair, tuple) and not untaken & set(pair):
                for way in self.judging.arms.ways_of(pair):
                    renamed = tuple((substitute(condition, own), wanted) for condition, wanted in way)
                    names = {name for condition, _ in renamed for name in free_variables(condition)}
                    if names <= self._sources.keys():
                        found[renamed] = None
        return list(found)

    def findings(self) -> list[Finding]:
        """A finding for each untaken arm, for the author of a submitted analysis."""
        return [
            Finding(
                kind=ARM.kind,
                line=None,
                quantity=ARM.name,
                point="all sizes that were tried",
                claimed=str(arm),
                counted=f"no executed point takes it: leave this arm out, and assume {self._opposite(arm)}",
            )
            for arm in self.untaken()
            if not self._may_be_assumed(arm)
        ]

    def _opposite(self, arm: Arm) -> str:
        """The conditions that exclude an arm and nothing else, with those around it, as an assumption is written."""
        texts = dict.fromkeys(to_text(opposite(way)) for way in self.judging.arms.ways_of(arm))
        return " and ".join(texts) if len(texts) <= MOST_OPPOSITES else "the opposite of its whole condition"

    def _may_be_assumed(self, arm: Arm) -> bool:
        """True for an arm that is the config's matter, or the model's: an assumption is enough for it.

        These are kinds of quotients of config sizes, which may run by chance where a config breaks them, as by
        broadcasting; and conditions on values that no point changes, such as whether a model gives an input.
        """
        last = self._in_point(self.judging.arms.ways_of(arm)[0][-1:])
        names = {name for condition, _ in last for name in free_variables(condition)}
        fixed = bool(names) and all(name.startswith(OWN) for name in names)
        return fixed or (arm.is_quotient and not names & self._of_call)

    @cached_property
    def _of_call(self) -> set[str]:
        """Variables of a point that a call can vary."""
        workload = self.workload
        return {*RUNTIME, *workload.input_sizes, *(workload.required if workload.has_encoder else ())}

    def taken(self) -> list[ArmTaken]:
        """The arms for the record."""
        coverage = self.judging.coverage
        assumed = dict.fromkeys(self.untaken(), "left to an assumption")
        return [
            ArmTaken(of=a.of, side=a.side, point=coverage.taken.get(a), excluded=self.excluded.get(a) or assumed.get(a))
            for a in coverage.arms.ways
            if a not in coverage.arms.auxiliary
        ]

    def checks(self) -> list[str]:
        """Sentences on the arms for the checks; none if the formulas have no arms."""
        coverage = self.judging.coverage
        if not coverage.arms:
            return []
        untaken = {arm for arm in self.untaken() if self._may_be_assumed(arm)}
        # A side of a condition of the source that never runs is the guards' matter: there is nothing to combine.
        untaken |= coverage.arms.auxiliary - coverage.taken.keys()
        left = {*self.excluded, *untaken}
        arms = [arm for arm in coverage.arms.ways if arm not in left and arm not in coverage.arms.auxiliary]
        pairs = [pair for pair in coverage.arms.pairs if pair not in left and not untaken & set(pair)]
        taken = coverage.taken.keys()
        found = [f"arms: {len(taken & set(arms))} of {len(arms)}"]
        if pairs:
            found.append(f"pairs of arms: {len(taken & set(pairs))} of {len(pairs)}")
        if coverage.arms.pairs_left_out:
            found.append(f"pairs of arms not followed: {coverage.arms.pairs_left_out}")
        return found

    # -- one step --------------------------------------------------------------------------------------------------

    def _step(self, targets: Sequence[Arm | Pair]) -> bool:
        """Execute the point that is predicted to take the most arms. False if there is none."""
        found: dict[tuple[tuple[str, int], ...], tuple[HeldOut, list[Arm | Pair]]] = {}
        for target in self.missing(targets):
            if self._tried.get(target, 0) < MOST_TRIES:
                if any(self._may_be_assumed(arm) for arm in (target if isinstance(target, tuple) else (target,))):
                    self._possible(target)  # no point is looked for, but there may be a contradiction
                    self._tried[target] = MOST_TRIES
                    continue
                point = self._found.get(target)
                if point is None or tuple(sorted(point.values.items())) in self._seen:
                    point = self._found[target] = self._point(target)
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
        """A point that is predicted to take an arm, and that was not tried yet: the nearest that is found."""
        return self._near(target) or self._decided(target)

    def _near(self, target: Arm | Pair) -> HeldOut | None:
        budget = Budget(MOST_EVALUATIONS if isinstance(target, Arm) else MOST_EVALUATIONS // 2)
        for way in self._open(target):
            for base, usual in itertools.product(self._bases, (self._usual, ())):
                if self._budget.left <= 0 or budget.left <= 0:
                    return None
                before = budget.left
                values = solution((*way, *usual), self._values(base), self._domain, budget)
                self._budget.left -= before - budget.left
                point = self._new(base, values)
                if point is not None:
                    return point
        return None

    def _decided(self, target: Arm | Pair) -> HeldOut | None:
        """A point that the solver finds. If it finds a contradiction, the target is excluded."""
        for way, usual in itertools.product(self._possible(target), (self._usual, ())):
            for base in self._bases[:MOST_ASKED]:
                values = nearest((*way, *usual), self._values(base), self._domain, self._of_call, self._questions)
                point = self._new(base, values)
                if point is not None:
                    return point
        return None

    def _possible(self, target: Arm | Pair) -> list[Way]:
        """The ways to take it of which the solver finds no contradiction. The target is excluded if there are none."""
        ways = self._open(target)
        whys = [why_impossible(way, self._everything) for way in ways]
        if None not in whys:
            self.excluded[target] = whys[0] or ""
        return [way for way, why in zip(ways, whys, strict=True) if why is None]

    def _new(self, base: JudgedCall, values: Mapping[str, int] | None) -> HeldOut | None:
        point = None if values is None else self._as_point(base, values)
        return None if point is None or tuple(sorted(point.values.items())) in self._seen else point

    def _why_excluded(self, target: Arm | Pair) -> str | None:
        self._open(target)
        return self.excluded.get(target)

    def _open(self, target: Arm | Pair) -> list[Way]:
        """The ways to take it that no plain contradiction excludes."""
        if target not in self._ways:
            ways = [(*self._in_point(way), *self._assumed) for way in self.judging.arms.ways_of(target)]
            whys = [contradiction(way, self._everything) for way in ways]
            self._ways[target] = [way for way, why in zip(ways, whys, strict=True) if why is None]
            if not self._ways[target]:
                self.excluded[target] = whys[0] or ""
        return self._ways[target]

    # -- values of the analysis's variables, and of points ---------------------------------------------------------

    @cached_property
    def _assumed(self) -> Way:
        """What the analysis assumes, its pinned values, and the values of variables that some calls do not have."""
        names = self._calls[0].point if self._calls else ()
        stated = self._in_point(tuple((parse_condition(text), True) for text in self.analysis.assumptions))
        pinned = [eq(var(name), value) for name, value in self.analysis.pinned.items() if name in names]
        absent = [any_of(eq(var(name), 0), eq(var(name), source)) for name, source in self._absent.items()]
        return (*stated, *((condition, True) for condition in (*pinned, *absent)))

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
        varied = {*workload.full_layers, *self._of_call}
        own = {n: v for n, v in workload.hints.items() if n not in varied}
        return any(point[name] != value for name, value in own.items())

    @staticmethod
    def _values(call: JudgedCall) -> dict[str, int]:
        """Values of the point, and those of the analysis's variables under other names."""
        own = {f"{OWN}{name}": value for name, value in call.values.items()}
        return {**dict(zip(UNIVERSAL, SIZES[0], strict=True)), **own, **call.point}

    def _in_point(self, way: Way) -> Way:
        """The conditions in the variables of the point."""
        sources = (
            {**self._sources, **{f"{POINT}{name}": var(name) for name in self._calls[0].point}} if self._calls else {}
        )
        return tuple((substitute(condition, sources), wanted) for condition, wanted in way)

    @cached_property
    def _sources(self) -> dict[str, Expr]:
        """Variable of the analysis -> its formula in variables of the point, as it is at every judged call."""
        return {name: self._source(name) for name in self.analysis.parameters}

    def _source(self, name: str) -> Expr:
        return self._as_at(name, self._calls) or var(f"{OWN}{name}")  # it stays as it is

    @cached_property
    def _absent(self) -> Mapping[str, Expr]:
        """Variable that is 0 at some calls, as a window that only some layers have -> its formula at the others."""
        own = [name for name, source in self._sources.items() if source == var(f"{OWN}{name}")]
        given = {name: [call for call in self._calls if call.values[name]] for name in own}
        found = {
            f"{OWN}{name}": self._as_at(name, calls) for name, calls in given.items() if len(calls) < len(self._calls)
        }
        return {name: source for name, source in found.items() if source is not None}

    def _as_at(self, name: str, calls: Sequence[JudgedCall]) -> Expr | None:
        """The formula of a variable in those of the point that holds at these calls."""
        for source in self._possible_sources(name) if calls else ():
            with suppress(FormulaError):
                if all(evaluate(source, call.point) == call.values[name] for call in calls):
                    return source
        return None

    def _possible_sources(self, name: str) -> Iterator[Expr]:
        names = list(self._calls[0].point)
        if name in names:
            yield var(name)
        yield from (var(other) for other in names if other != name)
        yield var("batch_size") * var("seq_len")
        yield var("seq_len") + var("cache_len")
        own = [n for n in names if n not in RUNTIME]
        yield from (var(a) // var(b) for a in own for b in own if a != b)

    @cached_property
    def _domain(self) -> Domain:
        workload = self.workload
        fixed = {*self.analysis.pinned, *workload.full_layers, *(() if workload.has_cache else ("cache_len",))}
        free = {*RUNTIME, *workload.hints, *self._absent} - fixed
        return Domain(free, workload.flags, absent=self._absent.keys())

    @cached_property
    def _usual(self) -> Way:
        """What most configs keep: a size that another one divides stays a multiple of it."""
        own = {n: v for n, v in self.workload.hints.items() if v > 1 and n not in self.workload.full_layers}
        decided = {n for c, _ in self._in_point(self._deciding) for n in free_variables(c)}
        names = list(own)
        return tuple(
            (eq(var(a) % var(b), 0), True)
            for a, b in itertools.permutations(names, 2)
            if own[a] % own[b] == 0 and {a, b} & decided and (own[a] != own[b] or names.index(a) < names.index(b))
        )

    @cached_property
    def _deciding(self) -> Way:
        """All conditions of the arms."""
        return tuple(dict.fromkeys(one for ways in self.judging.arms.ways.values() for way in ways for one in way))

    @cached_property
    def _everything(self) -> Domain:
        """All variables: those that are 0 at some call are switches, or lengths that may be 0."""
        met = [self._values(call) for call in self._calls]
        zero = {name for values in met for name, value in values.items() if value == 0}
        return Domain({name for values in met for name in values}, absent=zero - set(RUNTIME))

    def _as_point(self, base: JudgedCall, values: Mapping[str, int]) -> HeldOut | None:
        point = {name: values[name] for name in base.point}
        if phase_of(point) in self.workload.refused:
            return None
        kind = PointKind.ARM_SYNTHETIC if self._is_synthetic(point) else PointKind.ARM
        return HeldOut(SEARCHED[kind], point, kind)
