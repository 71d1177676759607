"""Compares an analysis with execution, line by line, at points of any sizes. Integers must be equal exactly."""

from __future__ import annotations

import hashlib
import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from lmp.errors import LmpError, NotFound, first_line
from lmp.formula import Condition, evaluate, evaluate_condition, is_open, parse
from lmp.records import UNIVERSAL, Finding, FindingKind, Kernel, Lookup, ModuleAnalysis, Verification
from lmp.verify.arms import POINT, Arm, Arms, Pair, Way
from lmp.verify.claims import (
    ASSUMPTION,
    LEFT_OUT,
    LISTED_FREE,
    LISTED_NOT_TAKEN,
    OPERANDS,
    OTHER_CLASS,
    OTHER_PATH,
    PARAMETERS_COUNT,
    QUANTITIES,
    UNCOUNTED,
    UNCOVERED,
    WHOLE_RUN,
    About,
    Amounts,
    Claims,
)
from lmp.verify.counted import SIZES, Costs, Counted, Line, Sizes, Triple, child_of, described
from lmp.verify.counter import Counter, OperatorCount, flop_counter, together
from lmp.verify.operands import Claim, OperandClaims, missing
from lmp.verify.operands import described as described_claim
from lmp.verify.points import PHASES, PointKind, phase_of
from lmp.verify.resolve import contradicted, resolve_all
from lmp.workload.base import RUNTIME, Workload
from lmp.workload.calls import Call, Place, by_caller
from lmp.workload.dispatch_hook import DispatchHook
from lmp.workload.results import Results

KEPT = 20
"""Largest number of findings that are kept: the first of each line and quantity."""

StatementOf = Callable[[str, int], int]
"""Path of a file in its tree, and a line -> first line of the statement with that line."""


@dataclass(frozen=True)
class Point:
    """One executed run: its values and all counts."""

    label: str
    values: Mapping[str, int]
    counts: Sequence[OperatorCount]
    calls: Sequence[Call]
    config: Any = None
    flop_counter: int | None = None
    """Total of torch's own counter in the same run; None if it did not count."""
    kind: PointKind = PointKind.OWN

    @cached_property
    def by_call(self) -> dict[int, list[tuple[tuple[Place, ...], OperatorCount]]]:
        """Index of a call -> operators below it, each with its chain of lines in that call."""
        found: dict[int, list[tuple[tuple[Place, ...], OperatorCount]]] = defaultdict(list)
        for count in self.counts:
            for segment in count.segments:
                found[segment.call.index].append((segment.chain, count))
        return found

    @cached_property
    def called_by(self) -> dict[int, list[Call]]:
        return by_caller(self.calls)

    @property
    def phase(self) -> str:
        return phase_of(self.values)

    @property
    def synthetic(self) -> bool:
        return self.kind.synthetic


def observe(
    workload: Workload,
    values: Mapping[str, int],
    label: str = "",
    cross_check: bool = True,
    results: Results | None = None,
    kind: PointKind = PointKind.OWN,
) -> Point:
    """Build the workload's module with these values; run it under lmp's counter and torch's.

    ``results``: cache of operator result shapes from other points.
    """
    module = workload.build(values)
    counter = Counter(module, workload.dtype)
    torchs = flop_counter()
    run = (results or Results()).run
    # Both counters observe one run, independently of each other.
    observers = (DispatchHook(run), *([torchs] if cross_check else []), counter)
    workload.run(module, values, together(*observers), before=DispatchHook(run))
    total = int(torchs.get_total_flops()) if cross_check else None
    config = getattr(module, "config", None)
    return Point(named(label, values), values, counter.counts, counter.calls, config, total, kind)


def named(label: str, values: Mapping[str, int]) -> str:
    """Name of a point in findings and checks."""
    runtime = ", ".join(f"{name}={values[name]}" for name in RUNTIME if name in values)
    return f"{label}: {runtime}" if label else runtime


@dataclass(frozen=True)
class JudgedCall:
    """One executed call at which the formulas were right: the point's values, and those of the analysis's variables."""

    point: Mapping[str, int]
    values: Mapping[str, int]


@dataclass(frozen=True)
class Coverage:
    """Arms of the formulas, and those that judged calls took."""

    arms: Arms
    taken: Mapping[Arm | Pair, str]
    """Arm or pair of arms -> the first point that took it."""
    calls: Sequence[JudgedCall]

    @property
    def missing(self) -> list[Arm]:
        return [arm for arm in self.arms.ways if arm not in self.taken and arm not in self.arms.auxiliary]

    @property
    def missing_pairs(self) -> list[Pair]:
        return [pair for pair in self.arms.pairs if pair not in self.taken]


@dataclass(frozen=True)
class Judgement:
    """Result of comparing an analysis with execution."""

    verification: Verification
    only_at_synthetic: bool = False
    """True if the formulas differ from execution at synthetic configs only: narrowing the claim may help."""
    coverage: Coverage | None = None
    differing: Sequence[Point] = ()
    """Points at which the formulas differ from execution."""
    untaken: Sequence[Arm] = ()
    """Arms that no executed point takes, although nothing excludes them."""
    uncombined: Sequence[Way] = ()
    """Ways to take two arms at once, in variables of the analysis, that no executed point took and nothing excludes."""


def judge(
    analysis: ModuleAnalysis,
    points: Sequence[Point],
    lookup: Lookup,
    file_of: Callable[[str], str],
    statement_of: StatementOf | None = None,
    strict: bool = False,
    sizes: Sizes = (),
) -> Judgement:
    """Compare every executed call of the analysis's class at every point.

    ``file_of``: path of an executed file -> path that analyses use. ``lookup``: returns the analysis that a reference
    names. ``statement_of``: treats a statement of several lines as one line, because only the interpreter knows an
    operator's line in it. ``strict``: a phase that runs but fails the assumptions is a difference; otherwise it is
    unverified. ``sizes``: element sizes beside those of every judgement.
    """
    judging = judging_of(analysis, lookup, file_of, statement_of, strict, sizes=sizes)
    judging.add(points)
    return judging.judgement()


def judging_of(
    analysis: ModuleAnalysis,
    lookup: Lookup,
    file_of: Callable[[str], str],
    statement_of: StatementOf | None = None,
    strict: bool = False,
    asked: Collection[Condition] = (),
    sizes: Sizes = (),
) -> Judging:
    """A comparison of an analysis with execution, without points so far. The arguments are those of `judge`.

    ``asked``: conditions of the source, in variables of points.
    """
    by_statement = statement_of or (lambda file, line: line)
    return Judging(analysis, Claims(lookup), file_of, by_statement, strict, asked, sizes)


def called_classes(
    analysis: ModuleAnalysis,
    kernel: Kernel,
    points: Sequence[Point],
    file_of: Callable[[str], str],
    statement_of: StatementOf,
) -> set[str]:
    """Paths of the classes called at a kernel's line, at any depth; empty if none is called."""
    judge_ = Judging(analysis, Claims(_no_lookup), file_of, statement_of)
    line = judge_._line(kernel.file or analysis.source.file, kernel.line)
    calls = ((p, call) for p in points for call in p.calls if call.class_path == analysis.class_name)
    return {
        one.class_path for p, call in calls for inner in judge_._called_at(p, call, line) for one in _below(p, inner)
    }


def _no_lookup(class_path: str) -> ModuleAnalysis:
    raise NotFound(f"{class_path} is not looked for here")


@dataclass
class Judging:
    """Compares one analysis with execution, point by point."""

    analysis: ModuleAnalysis
    claims: Claims
    file_of: Callable[[str], str]
    statement_of: StatementOf
    strict: bool = False
    asked: Collection[Condition] = ()
    more_sizes: Sizes = ()
    findings: dict[tuple[Any, ...], tuple[Finding, bool]] = field(default_factory=dict)
    """First finding of each line and quantity, and whether its point is synthetic."""
    checks: list[str] = field(default_factory=list)
    judged: set[str] = field(default_factory=set)
    never: dict[str, str] = field(default_factory=dict)
    """Path of a module whose calls were skipped -> reason."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Executed phase that was skipped -> reason."""
    excluded: dict[str, str] = field(default_factory=dict)
    """Drawn point that a condition of the analysis excludes -> the condition."""
    phases: set[str] = field(default_factory=set)
    """Phases that were judged."""
    found: set[tuple[Line, str]] = field(default_factory=set)
    """Lines and paths of kernels that a called module confirms."""
    elsewhere: dict[tuple[Line, str], tuple[Point, str]] = field(default_factory=dict)
    """Line and path of a kernel whose module was not called -> the point, and the modules called there."""
    held: int = 0
    differences: int = 0
    taken: dict[Arm | Pair, str] = field(default_factory=dict)
    """Arm or pair of arms -> the first point that took it."""
    judged_calls: list[JudgedCall] = field(default_factory=list)
    differing: list[Point] = field(default_factory=list)
    """Points at which the formulas differ from execution."""

    def __post_init__(self) -> None:
        self.kernels: dict[Line, list[Kernel]] = defaultdict(list)
        analysis, own = self.analysis, self.analysis.source.file
        for kernel in analysis.kernels:
            self.kernels[self._line(kernel.file or own, kernel.line)].append(kernel)
        free = {own: analysis.free_lines, **analysis.free_lines_elsewhere}
        self.free = {self._line(file, line) for file, lines in free.items() for line in lines}
        self.not_taken = {self._line(own, line) for line in analysis.not_taken_lines}
        self._files: dict[str, str] = {}
        self._known: dict[int, Amounts] = {}
        """Id of a kernel -> its amounts at the call that is judged, at the first element sizes."""
        self.operands = OperandClaims()
        self.unsettled = self.claims.unsettled(analysis)
        self.sizes = (*SIZES, *_drawn(analysis), *self.more_sizes)
        self.arms = Arms(analysis, self.asked)

    def _line(self, file: str, line: int) -> Line:
        return file, self.statement_of(file, line)

    def add(self, points: Iterable[Point]) -> None:
        for point in points:
            self.point(point)

    @property
    def coverage(self) -> Coverage:
        return Coverage(self.arms, self.taken, self.judged_calls)

    def judgement(self) -> Judgement:
        """The result at all points so far."""
        phases = [phase for phase in PHASES if phase in self.phases]
        found = self._outcome().model_copy(update={"phases": phases})
        kept = list(self.findings.values())[:KEPT]
        return Judgement(
            found, found.status == "failed" and all(synthetic for _, synthetic in kept), self.coverage, self.differing
        )

    def _outcome(self) -> Verification:
        for (line, path), (point, called) in self.elsewhere.items():
            if (line, path) not in self.found:
                self.find(*line, OTHER_PATH, point, {}, path, called)
        unjudged = {phase: why for phase, why in self.left_out.items() if phase not in self.phases}
        if self.strict:
            for place, why in (*unjudged.items(), *self.excluded.items()):
                left_out = Finding(
                    kind=LEFT_OUT.kind,
                    line=None,
                    quantity=LEFT_OUT.name,
                    point=place,
                    claimed=why,
                    counted=f"{place} runs",
                )
                self.findings[None, None, place] = left_out, False
        findings = [finding for finding, _ in self.findings.values()][:KEPT]
        if findings:
            return Verification(status="failed", points=self.held, checks=self.checks, findings=findings)
        if self.unsettled:
            return Verification(
                status="unverified",
                points=self.held,
                checks=self.checks,
                reason=self._why_unsettled(),
                open=list(self.unsettled),
            )
        if not self.held:
            reason = "; ".join(self.checks) or f"no call of {self.analysis.class_name} was executed"
            return Verification(status="unverified", checks=self.checks, reason=reason)
        unseen = {path: why for path, why in self.never.items() if path not in self.judged}
        if unseen:
            path, why = next(iter(unseen.items()))
            reason = f"{len(unseen)} module(s) of this class, as {path}, are never judged: {why}"
            return Verification(status="unverified", points=self.held, checks=self.checks, reason=reason)
        if unjudged:
            reason = "; ".join(f"{phase} runs, and is never judged: {why}" for phase, why in unjudged.items())
            return Verification(status="unverified", points=self.held, checks=self.checks, reason=reason)
        return Verification(status="verified", points=self.held, checks=self.checks)

    def _why_unsettled(self) -> str:
        """The reason: operators behind open references are left out, all others are judged."""
        attributes = [f"{name} (line {line})" for name, line in self.unsettled.items() if is_open(name)]
        below = [name for name in self.unsettled if not is_open(name)]
        said = [f"open references: {', '.join(attributes)}"] if attributes else []
        said += [f"open references below {', '.join(below)}"] if below else []
        return f"{'; '.join(said)}; `lmp expand MODEL --engine agent` says which classes they are"

    def _is_unsettled(self, called: Call, call: Call) -> bool:
        path = called.path.removeprefix(call.path).lstrip(".")
        attributes = [name.removeprefix("self.") for name in self.unsettled if is_open(name)]
        return called.class_path in self.unsettled or any(path == a or path.startswith(f"{a}.") for a in attributes)

    # --- one point

    def point(self, point: Point) -> None:
        """Judge every call of the class at this point, and add a sentence on the result to the checks."""
        before = self.differences
        calls = [call for call in point.calls if call.class_path == self.analysis.class_name]
        pinned = self._pinned_elsewhere(point)
        if pinned:
            self.checks.append(f"skipped {point.label}: {pinned}")
            if calls:
                self.left_out.setdefault(point.phase, pinned)
                self._exclude(point, pinned)
            return
        seen: dict[Any, str | None] = {}
        judged, skipped = 0, ""
        for call in calls:
            values, failed = resolve_all(self.analysis.parameters, call, point.values, point.config)
            failed |= contradicted(values, call, point.values)
            for name, why in failed.items():
                about = About(FindingKind.parameter, f"parameter {name}")
                self.find(None, None, about, point, {}, self.analysis.parameters[name], why)
            if failed:
                continue
            unmet = self._unmet_assumption(point, values)
            if unmet is not None:
                skipped = skipped or unmet
                self._not_judged(point, call, unmet)
                self._exclude(point, unmet)
                continue
            counted = self.counted(point, call)
            # Alike layers are judged once.
            parameters = sum(parameter.numel() for parameter in call.module.parameters())
            key = (tuple(values.items()), parameters, counted.summary())
            if key not in seen:
                known = dict(self.findings), self.differences
                self.call(point, values, call, counted)
                self._parameters_count(point, values, parameters)
                seen[key] = None
                if self.differences != known[1] and (unmet := self._unmet_below(values)) is not None:
                    # The difference is from a called class at sizes that its assumptions exclude.
                    (self.findings, self.differences), seen[key] = known, unmet
                elif self.differences == known[1]:
                    self._take_arms(point, values)
            if seen[key] is not None:
                skipped = skipped or seen[key] or ""
                self._not_judged(point, call, seen[key] or "")
                continue
            judged += 1
            self.judged.add(call.path)
        if skipped:
            self.checks.append(f"skipped {'some calls at ' if judged else ''}{point.label}: {skipped}")
            self.left_out.setdefault(point.phase, skipped)
        if judged:
            self.phases.add(point.phase)
            self._against_flop_counter(point)
        if self.differences != before:
            self.differing.append(point)
        if judged and self.differences == before:
            self.held += 1
            number = f"{judged} call{'s' if judged != 1 else ''}"
            self.checks.append(f"line by line: FLOPs, matmul FLOPs, read and write equal at {point.label} ({number})")
            if point.flop_counter is not None:
                self.checks.append(f"matmul_flops of the whole run equal torch.utils.flop_counter at {point.label}")

    def _exclude(self, point: Point, why: str) -> None:
        if point.kind is PointKind.DRAWN:
            self.excluded.setdefault(point.label, why)

    def _take_arms(self, point: Point, values: Mapping[str, int]) -> None:
        """Record the arms that the formulas take at a call where they are right."""
        self.judged_calls.append(JudgedCall(point.values, values))
        sizes = self.sizes if self.arms.variables & set(UNIVERSAL) else self.sizes[:1]
        for each in sizes:
            at_point = {f"{POINT}{name}": value for name, value in point.values.items()} if self.arms.auxiliary else {}
            taken = self.arms.taken({**at_point, **values, **_sized(each)})
            for arm in taken:
                self.taken.setdefault(arm, point.label)
            for pair in self.arms.pairs:
                if pair[0] in taken and pair[1] in taken:
                    self.taken.setdefault(pair, point.label)

    def _not_judged(self, point: Point, call: Call, why: str) -> None:
        if not point.synthetic:
            self.never.setdefault(call.path, why)

    def _pinned_elsewhere(self, point: Point) -> str:
        """Reason to skip a point whose values differ from the pinned ones; empty if they agree."""
        for name, value in self.analysis.pinned.items():
            if point.values.get(name, value) != value:
                return f"{name} is {point.values[name]}, and the formulas are for {value}"
        return ""

    def _unmet_assumption(self, point: Point, values: Mapping[str, int]) -> str | None:
        for condition in self.analysis.assumptions:
            try:
                if not evaluate_condition(condition, {**_sized(SIZES[0]), **values}):
                    return f"the assumption {condition} does not hold"
            except LmpError as error:
                self.find(None, None, ASSUMPTION, point, values, condition, first_line(error))
        return None

    def _unmet_below(self, values: Mapping[str, int]) -> str | None:
        return self.claims.unmet(self.analysis, {**_sized(SIZES[0]), **values})

    def _against_flop_counter(self, point: Point) -> None:
        own = sum(count.matmul_flops for count in point.counts)
        if point.flop_counter is not None and own != point.flop_counter:
            self.find(
                None, None, WHOLE_RUN, point, {}, f"{own} (lmp)", f"{point.flop_counter} (torch.utils.flop_counter)"
            )

    # --- one call

    def counted(self, point: Point, call: Call) -> Counted:
        """The operators of the call, nested calls included, each at its innermost place with a kernel."""
        counted = Counted(Costs.nothing(self.sizes))
        for chain, count in point.by_call.get(call.index, ()):
            if self.unsettled and (child := child_of(count, call)) is not None and self._is_unsettled(child, call):
                continue
            places = [self._place(place) for place in chain]
            at = next((index for index, place in enumerate(places) if place in self.kernels), len(places))
            home = places[at] if at < len(places) else None
            costs = Costs.of(count, self.sizes)
            place = home or (places[0] if places else None)
            counted.operators[place].append(count)
            if not count.known:
                counted.uncovered.append((place, replace(UNCOUNTED, operator=count.operator), described(count)))
            if home is not None:
                counted.lines[home] = counted.lines.get(home, counted.nothing) + costs
            if any(costs.at):
                # A kernel at the call of a helper may have the helper's cost; then the call's line is not free. Without
                # a kernel, the operator's own line is at fault, not the lines that lead to it.
                inside = places[:at] if home is not None else places[:1]
                free = next((place for place in inside if place in self.free), None)
                if free is not None:
                    counted.uncovered.append((free, LISTED_FREE, described(count)))
                elif home is None and place not in self.not_taken:
                    counted.uncovered.append((place, UNCOVERED, described(count)))
            for passed in self.not_taken.intersection(places):
                counted.uncovered.append((passed, LISTED_NOT_TAKEN, described(count)))
        for called in point.called_by.get(call.index, ()):
            site = [self._place(place) for place in called.site.chain] if called.site is not None else []
            for passed in self.not_taken.intersection(site):
                counted.uncovered.append((passed, LISTED_NOT_TAKEN, f"calls {type(called.module).__name__}"))
        return counted

    def _place(self, place: Place) -> Line:
        return self._line(self._relative(place.file), place.line)

    def _parameters_count(self, point: Point, values: Mapping[str, int], counted: int) -> None:
        formula = self.analysis.parameters_count
        if formula is None:
            return
        for sizes in self.sizes:
            try:
                claimed = str(evaluate(parse(formula), {**values, **dict(zip(UNIVERSAL, sizes, strict=True))}))
            except LmpError as error:
                claimed = first_line(error)
            if claimed != str(counted):
                self.find(None, None, PARAMETERS_COUNT, point, values, claimed, str(counted))

    def call(self, point: Point, values: Mapping[str, int], call: Call, counted: Counted) -> None:
        """Compare one call, line by line and then in sum."""
        before = self.differences
        for place, about, shown in counted.uncovered:
            file, number = place if place is not None else (None, None)
            self.find(file, number, about, point, values, "nothing", shown, counted.described(place, call))
        self._known.clear()
        for index, sizes in enumerate(self.sizes):
            sized = {**values, **_sized(sizes)}
            known = self._known if sizes == SIZES[0] else {}
            claimed_total = Amounts()
            for line, kernels in self.kernels.items():
                claimed = self._claimed(point, sized, line, kernels, known)
                if claimed is not None:
                    claimed_total += claimed
                    operators = counted.described(line, call)
                    self._compare(point, sized, line, claimed, counted.at(line, index), operators)
            if self.differences == before:
                whole = sum((counted.at(line, index) for line in counted.lines), Amounts())
                self._compare(point, sized, None, claimed_total, whole)
        if self.differences == before:
            self._operands(point, values, call, counted)
        self._classes(point, values, call)

    def _operands(self, point: Point, values: Mapping[str, int], call: Call, counted: Counted) -> None:
        """Compare the operands of each line with those of the operators that ran there."""
        sized = {**values, **_sized(SIZES[0])}
        for line, kernels in self.kernels.items():
            claims: list[tuple[Claim, int]] = []
            for kernel in kernels:
                # No formula fails here: the costs of all kernels were compared before.
                amounts = Amounts() if kernel.operands is None else self._amounts(kernel, sized)
                if kernel.operands is None or not amounts:
                    continue
                try:
                    claim = self.operands.at(kernel.operands, sized)
                except LmpError as error:
                    self.find(*line, OPERANDS, point, values, kernel.operands.operator, first_line(error))
                    continue
                repeat = self.claims.repeat(kernel, sized)
                claims.append((claim, repeat))
                product = (claim.product or 0) * repeat
                if product != amounts.matmul_flops:
                    said = f"FLOPs of {described_claim(claim)}: {product}"
                    self.find(*line, OPERANDS, point, values, said, str(amounts.matmul_flops))
            ran = [(count.plain_name, count.operands) for count in counted.operators.get(line, ())] if claims else []
            for claim in missing(claims, ran):
                there = "; ".join(described_claim(Claim(name, frozenset(o), None)) for name, o in ran) or "nothing"
                self.find(*line, OPERANDS, point, values, described_claim(claim), there)

    def _classes(self, point: Point, values: Mapping[str, int], call: Call) -> None:
        """Check that each reference names a class called at its line, at any depth.

        A class with equal cost does not count. If no such class is called, the kernel must cost nothing.
        """
        for line, kernels in self.kernels.items():
            referring = [(kernel, names) for kernel in kernels if (names := self.claims.classes(kernel))]
            below = [one for inner in self._called_at(point, call, line) for one in _below(point, inner)]
            called = {one.class_path for one in below} if referring else set()
            paths = {one.path.removeprefix(call.path).lstrip(".") for one in below} if referring else set()
            for kernel, names in referring:
                if not self._costs_something(kernel, values):
                    continue
                if not names & called:
                    there = ", ".join(sorted(called)) or "no module"
                    self.find(*line, OTHER_CLASS, point, values, ", ".join(sorted(names)), there)
                elif kernel.path is not None:
                    self._path(kernel.path, paths, line, point)

    def _path(self, path: str, paths: Collection[str], line: Line, point: Point) -> None:
        """Check a kernel's path: in at least one instance, the module must be at it."""
        if any(found == path or found.startswith(f"{path}.") for found in paths):
            self.found.add((line, path))
        else:
            self.elsewhere.setdefault((line, path), (point, ", ".join(sorted(paths))))

    def _costs_something(self, kernel: Kernel, values: Mapping[str, int]) -> bool:
        try:
            return bool(self._amounts(kernel, {**values, **_sized(SIZES[0])}))
        except LmpError:  # already a finding of its own
            return False

    def _amounts(self, kernel: Kernel, sized: Mapping[str, int]) -> Amounts:
        """The amounts of a kernel at the call that is judged, at the first element sizes."""
        known = self._known.get(id(kernel))
        return self.claims.kernel(kernel, sized) if known is None else known

    def _called_at(self, point: Point, call: Call, line: Line) -> Iterator[Call]:
        for inner in point.called_by.get(call.index, ()):
            if inner.site is not None and line in [self._place(place) for place in inner.site.chain]:
                yield inner

    def _claimed(
        self, point: Point, sized: Mapping[str, int], line: Line, kernels: list[Kernel], known: dict[int, Amounts]
    ) -> Amounts | None:
        """The sum of a line's kernels, each of which is added to ``known``; None if a formula fails."""
        claimed = Amounts()
        for kernel in kernels:
            try:
                amounts = self.claims.kernel(kernel, sized)
            except LmpError as error:
                about = About(FindingKind.formula, f"formula of {kernel.operation}")
                self.find(*line, about, point, sized, kernel.flops, first_line(error))
                return None
            known[id(kernel)] = amounts
            for quantity, amount in zip(QUANTITIES, amounts, strict=True) if min(amounts) < 0 else ():
                if amount < 0:
                    about = About(FindingKind.negative, f"{quantity} of {kernel.operation}")
                    self.find(*line, about, point, sized, str(amount), "nothing costs less than 0")
            claimed += amounts
        return claimed

    def _compare(
        self,
        point: Point,
        sized: Mapping[str, int],
        line: Line | None,
        claimed: Amounts,
        counted: Amounts,
        operators: Callable[[], list[str]] = list,
    ) -> None:
        file, number = line if line is not None else (None, None)
        if claimed == counted or (file, number, UNCOUNTED) in self.findings:
            return
        for quantity, mine, theirs in zip(QUANTITIES, claimed, counted, strict=True):
            if mine != theirs:
                about = About(FindingKind.amount, quantity) if line else About(FindingKind.total, f"total {quantity}")
                self.find(file, number, about, point, sized, str(mine), str(theirs), operators)

    def _relative(self, file: str) -> str:
        if file not in self._files:
            self._files[file] = self.file_of(file)
        return self._files[file]

    def find(
        self,
        file: str | None,
        line: int | None,
        about: About,
        point: Point,
        values: Mapping[str, int],
        claimed: str,
        counted: str,
        operators: Callable[[], list[str]] = list,
    ) -> None:
        """Keep a finding if it is the first of its line and quantity. ``operators`` describes the operators there."""
        self.differences += 1
        key = (file, line, about)
        if key in self.findings or len(self.findings) >= KEPT:
            return
        shown = ", ".join(f"{name}={value}" for name, value in values.items() if name not in RUNTIME)
        own = None if file == self.analysis.source.file else file
        where = f"{point.label} ({shown})" if shown else point.label
        found = Finding(
            kind=about.kind,
            operator=about.operator,
            line=line,
            file=own,
            quantity=about.name,
            point=where,
            claimed=claimed,
            counted=counted,
            operators=operators() or None,
        )
        self.findings[key] = found, point.synthetic


def _sized(sizes: Triple) -> dict[str, int]:
    """The element sizes by name."""
    return dict(zip(UNIVERSAL, sizes, strict=True))


def _drawn(analysis: ModuleAnalysis) -> Sizes:
    """Two triples of element sizes from a hash of the formulas: any change of the formulas changes the draw."""
    text = "\n".join(f"{k.flops} {k.memory_access.read} {k.memory_access.write} {k.repeat}" for k in analysis.kernels)
    digest = hashlib.sha256(f"{text}\n{analysis.parameters_count}".encode()).digest()
    triples = list(itertools.product((1, 4, 6, 8, 13, 16), (1, 3, 6, 9, 11), (1, 3, 4, 10, 15)))
    third = triples[digest[0] % len(triples)]
    # Bytes are linear in the three sizes. Only four triples that lie in no plane test all coefficients.
    fourth = next(t for t in triples[digest[1] % len(triples) :] + triples if _independent(*SIZES, third, t))
    return third, fourth


def _independent(first: Triple, *others: Triple) -> bool:
    """True if four triples lie in no plane: the volume that they span is not 0."""
    (a, b, c), (d, e, f), (g, h, i) = ([x - y for x, y in zip(o, first, strict=True)] for o in others)
    return a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g) != 0


def _below(point: Point, call: Call) -> Iterator[Call]:
    """The call and all calls below it, at any depth."""
    yield call
    for inner in point.called_by.get(call.index, ()):
        yield from _below(point, inner)
