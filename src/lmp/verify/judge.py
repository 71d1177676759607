"""Holding an analysis against execution, line by line, at points of any sizes. Exact integers: equal or not."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from lmp.errors import LmpError, NotFound
from lmp.formula import evaluate, evaluate_condition, is_open, parse
from lmp.records import UNIVERSAL, Finding, Kernel, ModuleAnalysis, Verification
from lmp.verify.claims import (
    LEFT_OUT,
    LISTED_FREE,
    LISTED_NOT_TAKEN,
    OPEN,
    OTHER_CLASS,
    OTHER_PATH,
    PARAMETERS_COUNT,
    QUANTITIES,
    UNCOUNTED,
    UNCOVERED,
    WHOLE_RUN,
    Amounts,
    Claims,
    Lookup,
)
from lmp.verify.counted import SIZES, Costs, Counted, Line, child_of, described
from lmp.verify.counter import Counter, OperatorCount, flop_counter, together
from lmp.verify.resolve import contradicted, resolve_all
from lmp.workload.base import RUNTIME, Workload
from lmp.workload.calls import Call, Place, by_caller
from lmp.workload.results import Results
from lmp.workload.running import Running

PHASES = ("prefill", "decode", "chunked prefill", "first token")

KEPT = 20
"""Findings that are kept, the first of each line."""

StatementOf = Callable[[str, int], int]
"""A file relative to its tree and a line of it -> the first line of the statement that the line belongs to."""


@dataclass(frozen=True)
class Point:
    """One executed run: what it was run with, and everything that was counted in it."""

    label: str
    values: Mapping[str, int]
    counts: Sequence[OperatorCount]
    calls: Sequence[Call]
    config: Any = None
    flop_counter: int | None = None
    """What torch's own counter says of the same run; None if it was not asked."""
    made_up: bool = False
    """Whether the config's values are lmp's own inventions: a layer that it has only there need not be judged."""

    @cached_property
    def by_call(self) -> dict[int, list[tuple[tuple[Place, ...], OperatorCount]]]:
        """Index of a call -> the operators below it, each with its places in that call."""
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
        cached = self.values.get("cache_len", 0) > 0
        single = self.values.get("seq_len", 0) == 1
        return ("decode" if single else "chunked prefill") if cached else ("first token" if single else "prefill")


def observe(
    workload: Workload,
    values: Mapping[str, int],
    label: str = "",
    cross_check: bool = True,
    results: Results | None = None,
    made_up: bool = False,
) -> Point:
    """Build the workload's module with these values and run it under the counter, and under torch's own.

    ``results``: shapes that operators were seen to make before, at other points. ``made_up``: see `Point`.
    """
    module = workload.build(values)
    counter = Counter(module, workload.dtype)
    torchs = flop_counter()
    run = (results or Results()).run
    # Both count in one run, each what an operator says to it.
    observers = (Running(run), *([torchs] if cross_check else []), counter)
    workload.run(module, values, together(*observers), before=Running(run))
    total = int(torchs.get_total_flops()) if cross_check else None
    config = getattr(module, "config", None)
    return Point(named(label, values), values, counter.counts, counter.calls, config, total, made_up)


def named(label: str, values: Mapping[str, int]) -> str:
    """A point as findings and checks call it."""
    runtime = ", ".join(f"{name}={values[name]}" for name in RUNTIME if name in values)
    return f"{label}: {runtime}" if label else runtime


def judge(
    analysis: ModuleAnalysis,
    points: Sequence[Point],
    lookup: Lookup,
    file_of: Callable[[str], str],
    statement_of: StatementOf | None = None,
    strict: bool = False,
) -> Verification:
    """Compare every executed call of the analysis's class at every point.

    ``file_of`` turns the path of an executed file into the path that analyses use; ``lookup`` finds the analysis
    that a reference names. With ``statement_of`` a statement of several lines is one line: which of them an operator
    runs at is for the interpreter to say, and whoever only reads the source cannot know it. ``strict``: a phase that
    runs and that the assumptions leave out is a difference, not just unverified.
    """
    judge_ = _Judge(analysis, Claims(lookup), file_of, statement_of or (lambda file, line: line), strict)
    return judge_.verify(points)


def called_classes(
    analysis: ModuleAnalysis,
    kernel: Kernel,
    points: Sequence[Point],
    file_of: Callable[[str], str],
    statement_of: StatementOf,
) -> set[str]:
    """The classes that are called at a kernel's line, and below; empty where nothing is."""
    judge_ = _Judge(analysis, Claims(_no_lookup), file_of, statement_of)
    line = judge_._line(kernel.file or analysis.source.file, kernel.line)
    calls = ((p, call) for p in points for call in p.calls if call.class_path == analysis.class_name)
    return {
        one.class_path for p, call in calls for inner in judge_._called_at(p, call, line) for one in _below(p, inner)
    }


def _no_lookup(class_path: str) -> ModuleAnalysis:
    raise NotFound(f"{class_path} is not looked for here")


@dataclass
class _Judge:
    analysis: ModuleAnalysis
    claims: Claims
    file_of: Callable[[str], str]
    statement_of: StatementOf
    strict: bool = False
    findings: dict[tuple[Any, ...], Finding] = field(default_factory=dict)
    checks: list[str] = field(default_factory=list)
    judged: set[str] = field(default_factory=set)
    never: dict[str, str] = field(default_factory=dict)
    """Module paths of calls that were passed over, and why."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Phases that were executed and passed over, and why."""
    phases: set[str] = field(default_factory=set)
    """Phases that were judged."""
    found: set[tuple[Line, str]] = field(default_factory=set)
    """Paths of kernels at which a module was called."""
    elsewhere: dict[tuple[Line, str], tuple[Point, str]] = field(default_factory=dict)
    """Paths of kernels at which none was called, where that was, and what was called."""
    held: int = 0
    differences: int = 0

    def __post_init__(self) -> None:
        self.kernels: dict[Line, list[Kernel]] = defaultdict(list)
        analysis, own = self.analysis, self.analysis.source.file
        for kernel in analysis.kernels:
            self.kernels[self._line(kernel.file or own, kernel.line)].append(kernel)
        free = {own: analysis.free_lines, **analysis.free_lines_elsewhere}
        self.free = {self._line(file, line) for file, lines in free.items() for line in lines}
        self.not_taken = {self._line(own, line) for line in analysis.not_taken_lines}
        self._files: dict[str, str] = {}
        self.unsettled = self.claims.unsettled(analysis)
        self.sizes = (*SIZES, _drawn(analysis))

    def _line(self, file: str, line: int) -> Line:
        return file, self.statement_of(file, line)

    def verify(self, points: Sequence[Point]) -> Verification:
        for point in points:
            self.point(point)
        return self._outcome().model_copy(update={"phases": [phase for phase in PHASES if phase in self.phases]})

    def _outcome(self) -> Verification:
        for (line, path), (point, called) in self.elsewhere.items():
            if (line, path) not in self.found:
                self.find(*line, OTHER_PATH, point, {}, path, called)
        unjudged = {phase: why for phase, why in self.left_out.items() if phase not in self.phases}
        if self.strict:
            for phase, why in unjudged.items():
                self.findings[None, None, phase] = Finding(
                    line=None, quantity=LEFT_OUT, point=phase, claimed=why, counted=f"{phase} runs"
                )
        findings = list(self.findings.values())[:KEPT]
        if findings:
            return Verification(status="failed", points=self.held, checks=self.checks, findings=findings)
        if self.unsettled:
            return Verification(status="unverified", points=self.held, checks=self.checks, reason=self._why_unsettled())
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
        """Everything else is judged; what runs where nobody has said yet what it is, is left out."""
        attributes = [f"{name} (line {line})" for name, line in self.unsettled.items() if is_open(name)]
        below = [name for name in self.unsettled if not is_open(name)]
        said = [f"{OPEN}: {', '.join(attributes)}"] if attributes else []
        said += [f"{OPEN} below {', '.join(below)}"] if below else []
        return f"{'; '.join(said)}; `lmp expand MODEL --engine agent` says which classes they are"

    def _is_unsettled(self, called: Call, call: Call) -> bool:
        path = called.path.removeprefix(call.path).lstrip(".")
        attributes = [name.removeprefix("self.") for name in self.unsettled if is_open(name)]
        return called.class_path in self.unsettled or any(path == a or path.startswith(f"{a}.") for a in attributes)

    # --- one point

    def point(self, point: Point) -> None:
        """Judge every call of the class at this point; add a sentence on how it went."""
        before = self.differences
        calls = [call for call in point.calls if call.class_path == self.analysis.class_name]
        pinned = self._pinned_elsewhere(point)
        if pinned:
            self.checks.append(f"skipped {point.label}: {pinned}")
            if calls:
                self.left_out.setdefault(point.phase, pinned)
            return
        seen: dict[Any, str | None] = {}
        judged, skipped = 0, ""
        for call in calls:
            values, failed = resolve_all(self.analysis.parameters, call, point.values, point.config)
            failed |= contradicted(values, call, point.values)
            for name, why in failed.items():
                self.find(None, None, f"parameter {name}", point, {}, self.analysis.parameters[name], why)
            if failed:
                continue
            unmet = self._unmet_assumption(point, values)
            if unmet is not None:
                skipped = skipped or unmet
                self._not_judged(point, call, unmet)
                continue
            counted = self.counted(point, call)
            # Layers that are alike are judged once.
            parameters = sum(parameter.numel() for parameter in call.module.parameters())
            key = (tuple(values.items()), parameters, counted.summary())
            if key not in seen:
                known = dict(self.findings), self.differences
                self.call(point, values, call, counted)
                self._parameters_count(point, values, parameters)
                seen[key] = None
                if self.differences != known[1] and (unmet := self._unmet_below(values)) is not None:
                    # What differs is what a class that it runs says of sizes that are none of its own.
                    (self.findings, self.differences), seen[key] = known, unmet
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
        if judged and self.differences == before:
            self.held += 1
            number = f"{judged} call{'s' if judged != 1 else ''}"
            self.checks.append(f"line by line: FLOPs, matmul FLOPs, read and write equal at {point.label} ({number})")
            if point.flop_counter is not None:
                self.checks.append(f"matmul_flops of the whole run equal torch.utils.flop_counter at {point.label}")

    def _not_judged(self, point: Point, call: Call, why: str) -> None:
        if not point.made_up:
            self.never.setdefault(call.path, why)

    def _pinned_elsewhere(self, point: Point) -> str:
        """The analysis holds for one value of what is pinned in it; a point with another is none of its own."""
        for name, value in self.analysis.pinned.items():
            if point.values.get(name, value) != value:
                return f"{name} is {point.values[name]}, and the formulas are for {value}"
        return ""

    def _unmet_assumption(self, point: Point, values: Mapping[str, int]) -> str | None:
        w_bytes, a_bytes = SIZES[0]
        for condition in self.analysis.assumptions:
            try:
                if not evaluate_condition(condition, {"w_bytes": w_bytes, "a_bytes": a_bytes, **values}):
                    return f"the assumption {condition} does not hold"
            except LmpError as error:
                self.find(None, None, "assumption", point, values, condition, _first_line(error))
        return None

    def _unmet_below(self, values: Mapping[str, int]) -> str | None:
        w_bytes, a_bytes = SIZES[0]
        return self.claims.unmet(self.analysis, {"w_bytes": w_bytes, "a_bytes": a_bytes, **values})

    def _against_flop_counter(self, point: Point) -> None:
        own = sum(count.matmul_flops for count in point.counts)
        if point.flop_counter is not None and own != point.flop_counter:
            self.find(
                None, None, WHOLE_RUN, point, {}, f"{own} (lmp)", f"{point.flop_counter} (torch.utils.flop_counter)"
            )

    # --- one call

    def counted(self, point: Point, call: Call) -> Counted:
        """The operators of the call, nested calls included, each at the innermost place that has a kernel."""
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
                counted.uncovered.append((place, UNCOUNTED, described(count)))
            if home is not None:
                counted.lines[home] = counted.lines.get(home, counted.nothing) + costs
            if any(costs.at):
                # What a helper's operators cost may stand at its call: then the call costs something.
                # Where it stands nowhere, the line that it is written at is what is wrong, not those that lead there.
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
                claimed = _first_line(error)
            if claimed != str(counted):
                self.find(None, None, PARAMETERS_COUNT, point, values, claimed, str(counted))

    def call(self, point: Point, values: Mapping[str, int], call: Call, counted: Counted) -> None:
        """Compare one call, line by line and then in sum."""
        before = self.differences
        for place, what, shown in counted.uncovered:
            file, number = place if place is not None else (None, None)
            self.find(file, number, what, point, values, "nothing", shown, counted.described(place, call))
        for index, (w_bytes, a_bytes) in enumerate(self.sizes):
            sized = {**values, "w_bytes": w_bytes, "a_bytes": a_bytes}
            claimed_total = Amounts()
            for line, kernels in self.kernels.items():
                claimed = self._claimed(point, sized, line, kernels)
                if claimed is not None:
                    claimed_total += claimed
                    operators = counted.described(line, call)
                    self._compare(point, sized, line, claimed, counted.at(line, index), operators)
            if self.differences == before:
                whole = sum((counted.at(line, index) for line in counted.lines), Amounts())
                self._compare(point, sized, None, claimed_total, whole)
        self._classes(point, values, call)

    def _classes(self, point: Point, values: Mapping[str, int], call: Call) -> None:
        """A reference is to a class that is called at its line, or below what is called there: not to one that costs
        the same. Where nothing of the kind is called, it costs nothing."""
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
        """Instances may hold the same at other places: one of them has to hold it where the kernel says."""
        if any(found == path or found.startswith(f"{path}.") for found in paths):
            self.found.add((line, path))
        else:
            self.elsewhere.setdefault((line, path), (point, ", ".join(sorted(paths))))

    def _costs_something(self, kernel: Kernel, values: Mapping[str, int]) -> bool:
        try:
            return bool(self.claims.kernel(kernel, {**values, **dict(zip(UNIVERSAL, SIZES[0], strict=True))}))
        except LmpError:  # a finding of its own
            return False

    def _called_at(self, point: Point, call: Call, line: Line) -> Iterator[Call]:
        for inner in point.called_by.get(call.index, ()):
            if inner.site is not None and line in [self._place(place) for place in inner.site.chain]:
                yield inner

    def _claimed(self, point: Point, sized: Mapping[str, int], line: Line, kernels: list[Kernel]) -> Amounts | None:
        claimed = Amounts()
        for kernel in kernels:
            try:
                amounts = self.claims.kernel(kernel, sized)
            except LmpError as error:
                self.find(*line, f"formula of {kernel.operation}", point, sized, kernel.flops, _first_line(error))
                return None
            for quantity in QUANTITIES:
                if getattr(amounts, quantity) < 0:
                    what = f"{quantity} of {kernel.operation}"
                    self.find(*line, what, point, sized, str(getattr(amounts, quantity)), "nothing costs less than 0")
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
        if (file, number, UNCOUNTED) in self.findings:
            return
        for quantity in QUANTITIES:
            mine, theirs = getattr(claimed, quantity), getattr(counted, quantity)
            if mine != theirs:
                what = quantity if line else f"total {quantity}"
                self.find(file, number, what, point, sized, str(mine), str(theirs), operators)

    def _relative(self, file: str) -> str:
        if file not in self._files:
            self._files[file] = self.file_of(file)
        return self._files[file]

    def find(
        self,
        file: str | None,
        line: int | None,
        quantity: str,
        point: Point,
        values: Mapping[str, int],
        claimed: str,
        counted: str,
        operators: Callable[[], list[str]] = list,
    ) -> None:
        """Keep a finding, if it is the first of its line and quantity. ``operators`` describes what ran there."""
        self.differences += 1
        key = (file, line, quantity)
        if key in self.findings or len(self.findings) >= KEPT:
            return
        shown = ", ".join(f"{name}={value}" for name, value in values.items() if name not in RUNTIME)
        own = None if file == self.analysis.source.file else file
        where = f"{point.label} ({shown})" if shown else point.label
        self.findings[key] = Finding(
            line=line,
            file=own,
            quantity=quantity,
            point=where,
            claimed=claimed,
            counted=counted,
            operators=operators() or None,
        )


def _drawn(analysis: ModuleAnalysis) -> tuple[int, int]:
    """A pair of sizes that nobody can write formulas for: every change of the formulas draws another."""
    text = "\n".join(f"{k.flops} {k.memory_access.read} {k.memory_access.write} {k.repeat}" for k in analysis.kernels)
    digest = hashlib.sha256(f"{text}\n{analysis.parameters_count}".encode()).digest()
    drawn = [(w, a) for w in (1, 4, 6, 8, 13, 16) for a in (1, 3, 6, 9, 11) if a - 2 != 3 * (w - 2)]
    # What is on one line with the others would tell nothing more of what is linear.
    return drawn[digest[0] % len(drawn)]


def _below(point: Point, call: Call) -> Iterator[Call]:
    """The call, and those that it makes, at any depth."""
    yield call
    for inner in point.called_by.get(call.index, ()):
        yield from _below(point, inner)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
