"""Executes a class at points drawn over all that its assumptions allow, and compares its formulas there.

Half of the sizes are at edges: literals of formulas and source, and config values, plus and minus one. The others are
log-uniform, up to the model's own positions. Config values are changed too.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import random
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from lmp.analyze.agreement import MOST_OPERATORS, agree_from_another_base, operators_per_token
from lmp.analyze.judging import save_judged
from lmp.analyze.modules import analyze, execution_of, make_references, requested
from lmp.analyze.session import Options, Progress, Session, references_of
from lmp.errors import EvaluationError
from lmp.formula import evaluate_condition, free_variables, parse_condition
from lmp.records import UNIVERSAL, Finding, FindingKind, ModuleAnalysis
from lmp.verify.probes import Drawing, Point, Space, formula_literals
from lmp.workload.base import RUNTIME, refusal
from lmp.workload.configs import sections_of
from lmp.workload.failures import blame
from lmp.workload.gc_tuning import gc_seldom
from lmp.workload.load import quiet_warnings

if TYPE_CHECKING:
    from lmp.analyze.execution import Execution

MOST_TOKENS = 1 << 17
"""Largest number of tokens of a model that states no positions."""

MOST_BATCH = 1 << 9

ATTEMPTS = 8
"""Points drawn for one that the assumptions allow, and config values drawn for some at which the module runs."""

CHANGED = 0.5
"""Part of the points at other config values than the config's own."""

POINTS_PER_SETTING = 4


@dataclass
class Audit:
    """Result of one class: numbers of points, and the points that differ."""

    class_name: str
    seed: int
    status: str
    drawn: int = 0
    executed: int = 0
    equal: int = 0
    refused: int = 0
    """Points at which the module raises, though the assumptions allow them."""
    outside: int = 0
    """Drawn points that the assumptions or pins exclude; others were drawn in their place."""
    settings: int = 0
    """Different config values among the executed points."""
    most_tokens: int = 0
    """Largest number of tokens that was drawn."""
    positions: int | None = None
    """Positions that the model's config states."""
    positions_inside: bool | None = None
    """True if the assumptions hold for a prefill of all positions, and for a decode step at the last one."""
    seconds: float = 0.0
    different: list[dict[str, Any]] = field(default_factory=list)
    """A point, as text and, if it was drawn, as values; and its first finding."""
    refusals: list[str] = field(default_factory=list)
    """The module's errors, each once."""
    arms: tuple[int, int] = (0, 0)
    """Arms of the formulas that executed points took, of all; the class and those that it refers to."""
    pairs_of_arms: tuple[int, int] = (0, 0)
    """Pairs of arms likewise, without those that a contradiction excludes."""
    second_derivation: str = ""
    """At how many points a derivation from other config values or arguments gives the same, or why there is none."""

    def to_data(self) -> dict[str, Any]:
        return asdict(self)


def audit_modules(
    class_paths: Sequence[str], options: Options, points: int, seed: int, progress: Progress
) -> Iterator[Audit]:
    """Audit classes one by one. Those without an analysis are analysed first."""
    for class_path in class_paths:
        session = Session(options, progress)
        session.ask([class_path])
        analysis = requested(analyze(class_path, session)).analysis
        parts = make_references(analysis, session)
        progress(analysis.class_name, "verifying")
        found = audit(analysis, session, points, seed)
        found.arms = _taken("arms", [analysis, *parts])
        found.pairs_of_arms = _taken("pairs of arms", [analysis, *parts])
        yield found


def _taken(what: str, analyses: Sequence[ModuleAnalysis]) -> tuple[int, int]:
    """The sum over the checks of each analysis, which read ``arms: 3 of 4``."""
    checks = [check for one in analyses for check in one.verification.checks]
    found = [re.fullmatch(rf"{what}: (\d+) of (\d+)", check) for check in checks]
    return sum(int(one[1]) for one in found if one), sum(int(one[2]) for one in found if one)


def audit(analysis: ModuleAnalysis, session: Session, points: int, seed: int) -> Audit:
    """Audit one stored analysis: a second derivation first, then drawn points.

    If it differs from execution, it is stored as failed.
    """
    began = time.process_time()
    found = Audit(analysis.class_name, seed, analysis.verification.status)
    findings: list[Finding] = []
    with gc_seldom(), quiet_warnings():
        execution = execution_of(analysis.class_name, session, analysis)
        drawing = _Points(execution, analysis, seed)
        found.most_tokens = drawing.space.most_tokens
        found.positions = positions_of(execution.workload.config)
        if found.positions is not None:
            found.positions_inside = _inside(analysis, drawing.space, found.positions)
        second = agree_from_another_base(execution, analysis)
        found.second_derivation = "; ".join(second.checks)
        for finding in (f for f in second.findings if f.kind is not FindingKind.left_out):
            findings.append(finding)
            found.different.append({"at": finding.point, **_told(finding)})
        settings: set[tuple[tuple[str, int], ...]] = set()
        while found.drawn < points and found.outside < ATTEMPTS * points:
            point = drawing.next()
            if _is_outside(analysis, {**drawing.space.own, **point}):
                found.outside += 1  # the module may raise there, so it is not run
                continue
            judged = execution.judged_at(analysis, point)
            if judged is None:
                found.drawn += 1
                found.refused += 1
                why = execution.why_not_at(point)
                if why not in found.refusals:
                    found.refusals.append(why)
                continue
            if judged.status == "unverified":
                found.outside += 1
                continue
            found.drawn += 1
            found.executed += 1
            settings.add(tuple((n, v) for n, v in sorted(point.items()) if n not in RUNTIME))
            # A kernel names one of the modules that its line calls; another one may run at this point alone.
            differing = [finding for finding in judged.findings if finding.quantity != "path"]
            found.equal += not differing
            if differing:
                findings += differing
                values = drawing.shown(point)
                at = ", ".join(f"{name}={value}" for name, value in values.items())
                found.different.append({"at": at, "values": values, **_told(differing[0])})
        found.settings = len(settings)
    if findings:
        failed = analysis.verification.model_copy(update={"status": "failed", "findings": findings[:1]})
        save_judged(analysis, failed, session)
    found.seconds = round(time.process_time() - began, 2)
    return found


def _told(finding: Finding) -> dict[str, Any]:
    return finding.model_dump(include={"line", "file", "quantity", "claimed", "counted"})


class _Points:
    """Draws points at which the module can be constructed."""

    def __init__(self, execution: Execution, analysis: ModuleAnalysis, seed: int) -> None:
        self.execution, self.analysis = execution, analysis
        digest = hashlib.sha256(f"{analysis.class_name} {seed}".encode()).digest()
        self.random = random.Random(digest)
        workload, judged = execution.workload, execution.points_for(analysis)
        own = dict(judged[0].values)
        layers = frozenset(workload.full_layers)
        rate = operators_per_token(judged)
        tokens = min(positions_of(workload.config) or MOST_TOKENS, MOST_TOKENS)
        if rate > 0:
            tokens = min(tokens, max(int(MOST_OPERATORS / rate), 64))
        self.space = Space(
            own={**own, **{n: v for n, v in workload.hints.items() if n not in layers}},
            flags=frozenset(workload.flags),
            fixed=layers | analysis.pinned.keys(),
            call_sizes=workload.input_sizes,
            has_cache=workload.has_cache,
            fewest_tokens=workload.fewest_tokens,
            most_batch=MOST_BATCH,
            most_tokens=tokens,
        )
        callees = [execution.session.lookup(name) for name in references_of(analysis)]
        numbers = {
            *formula_literals([analysis, *callees]),
            *source_literals(execution),
            *(v for _, v in _numbers(workload.config)),
        }
        self.drawing = Drawing(self.space, sorted(n for n in numbers if n > 1), digest)
        self._setting: Point = dict(self.space.own)
        self._left = 0

    def next(self) -> Point:
        """The next point. Config values at which the module does not run at a small call are drawn again."""
        if self._left == 0:
            self._left = POINTS_PER_SETTING
            self._setting = dict(self.space.own)
            if self.random.random() < CHANGED and self.drawing.configured:
                self._setting = self._runnable()
        self._left -= 1
        point = {**self._setting, **self.drawing.call()}
        cached = point["cache_len"] if self.space.has_cache else 0
        if point["seq_len"] + cached > self.space.most_tokens:
            point["seq_len"] = max(self.space.fewest_tokens, self.space.most_tokens - cached)
        return point

    def _runnable(self) -> Point:
        for _ in range(ATTEMPTS):
            setting = self.drawing.setting(self.space.own)
            small = {"batch_size": 2, "seq_len": 3 * self.space.fewest_tokens, "cache_len": 0}
            error = refusal(self.execution.workload, {**setting, **small})
            if error is None:
                return setting
            if blame(error) == "lmp":
                raise error
        return dict(self.space.own)

    def shown(self, point: Mapping[str, int]) -> Point:
        """The sizes of the call, and the values that differ from the config's own."""
        own = self.space.own
        return {n: v for n, v in point.items() if n in RUNTIME or n in self.space.call_sizes or own.get(n) != v}


def _inside(analysis: ModuleAnalysis, space: Space, positions: int) -> bool:
    """True if the assumptions hold at the config for the longest prefill, and for the last decode step of a cache."""
    calls = [(positions, 0), (1, positions - 1)] if space.has_cache else [(positions, 0)]
    own = {**analysis.values, **space.own, "batch_size": 1}
    return not any(_is_outside(analysis, {**own, "seq_len": new, "cache_len": cached}) for new, cached in calls)


def _is_outside(analysis: ModuleAnalysis, values: Mapping[str, int]) -> bool:
    """True if an assumption or a pin of the class itself is broken at these values.

    Assumptions on other variables, and those of its callees, need a run: the judge looks at them.
    """
    if any(values.get(name, value) != value for name, value in analysis.pinned.items()):
        return True
    known = {**dict.fromkeys(UNIVERSAL, 2), **values}
    assumed = (parse_condition(text) for text in analysis.assumptions)
    with contextlib.suppress(EvaluationError):  # the judge finds it
        return any(free_variables(c) <= known.keys() and not evaluate_condition(c, known) for c in assumed)
    return False


def positions_of(config: Any) -> int | None:
    """The smallest number of positions that a config or a section of it states."""
    names = ("max_position_embeddings", "n_positions", "max_source_positions", "max_target_positions")
    return min((v for n, v in _numbers(config) if n in names and v > 1), default=None)


def _numbers(config: Any) -> Iterator[tuple[str, int]]:
    for _, part in sections_of(config) if config is not None else ():
        yield from ((n, v) for n, v in vars(part).items() if type(v) is int)


def source_literals(execution: Execution) -> set[int]:
    """The integers in the class's own source and in the plain functions of its file."""
    source = execution.source
    tree = ast.parse(source.path.read_text())
    own = source.class_path.rpartition(".")[2]
    parts = [node for node in tree.body if not isinstance(node, ast.ClassDef) or node.name == own]
    constants = (node.value for part in parts for node in ast.walk(part) if isinstance(node, ast.Constant))
    return {value for value in constants if type(value) is int and 1 < value <= MOST_TOKENS}
