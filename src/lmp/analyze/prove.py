"""Derives one class and compares it with execution. If they differ, narrows the claim until they agree.

derive -> judge -> the first step of NARROWING that helps -> judge -> ...
"""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto

from lmp.analyze.branches import explore_branches, explore_pairs
from lmp.analyze.execution import Execution
from lmp.analyze.operands import without_differing
from lmp.analyze.session import references_of
from lmp.errors import TraceFailed, VerificationFailed
from lmp.formula import Condition, Not, evaluate_condition, free_variables, parse_condition, simplify_condition, to_text
from lmp.records import ModuleAnalysis, Verification
from lmp.source.locate import ClassSource
from lmp.trace.engine import TraceEngine
from lmp.verify.arms import truths
from lmp.verify.judge import Judgement
from lmp.verify.points import COUNTEREXAMPLES, what_to_keep
from lmp.workload.base import RUNTIME

MOST_ROUNDS = 4
"""Most derivations with points at which the formulas differed."""

FEWEST_POINTS = 3
"""Fewest points at which a module must run to be judged."""


@dataclass(frozen=True)
class Proof:
    """An analysis and its verification: ``verified``, or ``unverified`` with the reason."""

    analysis: ModuleAnalysis
    verification: Verification


def prove(execution: Execution, engine: TraceEngine, source: ClassSource) -> Proof:
    """Derive a class that a workload runs, and judge it. The classes that it calls must be analysed before.

    Raises TraceFailed if no formula explains the runs. Raises VerificationFailed if the formulas differ from execution
    and narrowing does not help.
    """
    if len(execution.held_out) < FEWEST_POINTS:
        raise TraceFailed(
            f"{execution.source.class_path} runs at {len(execution.held_out)} of the sizes that it is verified at\n"
            "give inputs that work for any batch and length"
        )
    if execution.workload.vary:
        explore_branches(engine.deriver.runs, source.class_path)
    elif execution.workload.has_tokens:
        explore_pairs(engine.deriver.runs)
    attempt = _Attempt(execution, engine, source)
    attempt.run()
    # A path with further classes is left out where the formulas fail there; what leads to it is an assumption.
    if attempt.status == "failed" and engine.deriver.leave_out_further_classes(source.class_path):
        attempt = _Attempt(execution, engine, source)
        attempt.run()
    # Assumptions may exclude every held-out point, if sizes divide only in the runs that gave the formulas.
    if attempt.status != "verified" and not attempt.analysis.uncounted:
        # Specialised formulas come from other points, so they may hold where the general ones do not.
        specialised = _Attempt(execution, engine, source, specialised=True)
        with suppress(TraceFailed):
            specialised.run()
            if specialised.status == "verified":
                attempt = specialised
        # The last derivation is not always the one that is kept: callers bind the parameters of that one.
        attempt.keep()
    if attempt.status == "failed":
        execution.session.known.pop(source.class_path)
        raise _differs(source, attempt.judgement.verification, execution.workload.vary)
    checks = [*attempt.judgement.verification.checks, *attempt.dropped]
    return Proof(attempt.analysis, attempt.judgement.verification.model_copy(update={"checks": checks}))


MOST_SHOWN = 160
"""Characters of operands that an error shows."""


def _cut(operands: str | None) -> str:
    return textwrap.shorten(operands or "", MOST_SHOWN, placeholder=" ...")


def _differs(source: ClassSource, verification: Verification, is_own: bool) -> VerificationFailed:
    first = verification.findings[0]
    todo = (
        "put that line's work into a module of its own, or report this class" if is_own else "please report this class"
    )
    error = VerificationFailed(
        f"{source.class_path}: {first.quantity} of line {first.line} is {_cut(first.claimed)} by formula and "
        f"{_cut(first.counted)} executed, at {first.point}.\nNothing was stored; {todo}."
    )
    return error if first.line is None else error.at(first.file or source.forward_file, first.line)


class _Attempt:
    """One derivation, its judgement, and the narrowing of its claim.

    ``specialised``: config values are numbers in the formulas.
    """

    analysis: ModuleAnalysis
    judgement: Judgement

    def __init__(
        self, execution: Execution, engine: TraceEngine, source: ClassSource, specialised: bool = False
    ) -> None:
        self.execution, self.engine, self.source = execution, engine, source
        self.class_path, self.specialised = source.class_path, specialised
        self.is_in_model = execution.workload.model_class is not None
        self.dropped: list[str] = []
        """Operands that were left out, for the checks."""

    def keep(self) -> None:
        """Let callers refer to this attempt's analysis."""
        self._take(self.analysis)
        self.engine.rebind(self.analysis)

    @property
    def status(self) -> str:
        return self.judgement.verification.status

    def run(self) -> None:
        """Derive and judge. Derive again with points that differ; narrow if only synthetic configs differ."""
        again = True
        while again:
            self._derive()
            if self.analysis.uncounted:
                names = ", ".join(self.analysis.uncounted)
                reason = f"operators without a rule: {names}; their FLOPs are not in the formulas"
                self.judgement = Judgement(Verification(status="unverified", reason=reason))
                return
            self._pin()
            self._judge()
            self._with_counterexamples()
            again = self._narrow()
        if self.status == "verified":
            self._without_untaken()

    def _with_counterexamples(self) -> None:
        """Derive again with the points at which the formulas differ, as long as that helps."""
        runs = self.engine.deriver.runs
        for _ in range(MOST_ROUNDS):
            before = self.analysis, self.judgement
            concrete = len(runs.concrete)
            runs.explore([dict(p.values) for p in self.judgement.differing if p.kind in COUNTEREXAMPLES])
            if len(runs.concrete) == concrete:
                return  # nothing differs there, or the derivation has seen it
            try:
                self._derive()
            except TraceFailed:
                del runs.concrete[concrete:]  # no formula explains them; a narrower claim may still hold
                self._take(before[0])
                self.analysis, self.judgement = before
                return
            self._pin()
            self._judge()

    def _without_untaken(self) -> None:
        """Drop the arms and pairs that no executable point takes: what excludes them becomes an assumption."""
        for _ in range(MOST_ROUNDS):
            narrowed = self.execution.without_untaken(self.analysis)
            if narrowed == self.analysis:
                return
            self._take(narrowed)
            self._judge()
            while self._drop_operands():
                self._judge()

    def _narrow(self) -> bool:
        """Take steps of NARROWING while only synthetic configs differ. Returns true to derive again.

        Operands that differ are left out first: they narrow nothing that is claimed of costs.
        """
        while self._drop_operands():
            self._judge()
        for step in NARROWING:
            if not self.judgement.only_at_synthetic:
                return False
            if step(self) is Next.DERIVE_AGAIN:
                return True
        return False

    def _drop_operands(self) -> bool:
        """Drop the operands that differ, if nothing else does."""
        without = without_differing(self.analysis, self.judgement.verification.findings)
        if without is None:
            return False
        self._take(without[0])
        self.dropped += without[1]
        return True

    def _derive(self) -> None:
        execution, class_path = self.execution, self.class_path
        in_order = self.engine.deriver.runs.holds_layers(class_path)
        found = self.engine.analyse(
            class_path, self.source.record(), lambda full: execution.held_out_values(in_order, full), self.specialised
        )
        if self.is_in_model:
            found = found.model_copy(update={"decisions": execution.answered(class_path)})
            found = execution.without_refused(found)
        found = execution.bounded(found)
        self.engine.rebind(found)
        if class_path == execution.source.class_path:
            found = found.model_copy(update=execution.about(found))
        execution.session.progress(class_path, "verifying")
        self._take(found)

    def _take(self, analysis: ModuleAnalysis) -> None:
        """Register the analysis: the judge must find it if the class refers to itself."""
        self.analysis = self.execution.session.known[self.class_path] = analysis

    def _pin(self) -> None:
        """Pin the values that the formulas are limited to, as far as they are known before judging."""
        execution, workload = self.execution, self.execution.workload
        if any(name in self.analysis.pinned for name in workload.full_layers):
            execution.hold_structure()  # counted layers are those of the config itself
        points = execution.held_out_values()
        # The formulas may contain the number that the code made of a size, unless a judged point changes it.
        unseen = {n: v for n, v in self.engine.pinned(self.class_path).items() if all(p[n] == v for p in points)}
        kept = {n: workload.hints[n] for n in execution.kept}
        self.analysis = self.pinned({**unseen, **kept, **self._pins_of_callees()})

    def _pins_of_callees(self) -> dict[str, int]:
        """Pinned values of the called classes: they limit the caller too."""
        known, workload = self.execution.session.known, self.execution.workload
        full = {**workload.hints, **workload.full_layers}
        callees = [known[name] for name in references_of(self.analysis) if name in known]
        return {n: v for callee in callees for n, v in callee.pinned.items() if full.get(n) == v}

    def pinned(self, values: dict[str, int]) -> ModuleAnalysis:
        """The analysis with more pinned values: it claims nothing for others."""
        return self.analysis.model_copy(update={"pinned": {**self.analysis.pinned, **values}})

    def _judge(self) -> None:
        self.judgement = self.execution.judgement(self.analysis, self._asked())

    def _asked(self) -> list[Condition]:
        """Comparisons of sizes that the source of the class makes, with either result in some run."""
        runs, known = self.engine.deriver.runs, {*RUNTIME, *self.execution.workload.hints}
        asked = {
            condition: None
            for run in runs.symbolic
            for one, condition in run.conditions
            if self.class_path in one.within and free_variables(condition) <= known
        }
        assumed = [parse_condition(text) for text in self.analysis.assumptions]
        met = [truths(run.numbers) for run in (*runs.symbolic, *runs.concrete)]
        inside = [truth for truth in met if all(truth(condition) is not False for condition in assumed)]
        return [c for c in asked if len({truth(c) for truth in inside} - {None}) > 1]

    def claim(self, analysis: ModuleAnalysis) -> None:
        """Judge a narrower analysis, and keep it."""
        self._take(analysis)
        self._judge()


class Next(Enum):
    """The action after a step of narrowing."""

    GO_ON = auto()
    DERIVE_AGAIN = auto()


def pin_specialised(attempt: _Attempt) -> Next:
    """Pin sizes that the code turned into numbers in the class's own calls."""
    return _pin_more(attempt, attempt.engine.pinned(attempt.class_path))


def pin_specialised_anywhere(attempt: _Attempt) -> Next:
    """Pin sizes that the code turned into numbers anywhere in the model."""
    return _pin_more(attempt, attempt.engine.pinned())


def assume_comparisons(attempt: _Attempt) -> Next:
    """Assume the results of those comparisons in constructors whose other result differs."""
    analysis, execution = attempt.analysis, attempt.execution
    own, variables = execution.workload.hints, execution.workload.variables
    assumed: dict[Condition, None] = {}
    for point in attempt.judgement.differing:
        for condition in execution.comparisons:
            holds = evaluate_condition(condition, own)
            if evaluate_condition(condition, point.values) != holds:
                assumed[condition if holds else simplify_condition(Not(condition))] = None
    if not assumed:
        return Next.GO_ON
    used = {name for condition in assumed for name in free_variables(condition)}
    parameters = {name: variables[name].path for name in used} | analysis.parameters
    values = {name: variables[name].default for name in used} | analysis.values
    assumptions = dict.fromkeys([*analysis.assumptions, *map(to_text, assumed)])
    update = {"parameters": parameters, "values": values, "assumptions": list(assumptions)}
    attempt.claim(analysis.model_copy(update=update))
    return Next.GO_ON


def keep_structure(attempt: _Attempt) -> Next:
    """Keep the values that decide which modules exist, and derive again."""
    return Next.DERIVE_AGAIN if attempt.execution.hold_structure() else Next.GO_ON


def keep_values_of_class(attempt: _Attempt) -> Next:
    """Pin the config's values of as few of the class's variables as suffice."""
    return _keep_values(attempt, everything=False)


def keep_values_of_model(attempt: _Attempt) -> Next:
    """Pin the config's values of as few variables as suffice. A standalone module must hold for any sizes."""
    return _keep_values(attempt, everything=True) if attempt.is_in_model else Next.GO_ON


NARROWING: tuple[Callable[[_Attempt], Next], ...] = (
    assume_comparisons,
    pin_specialised,
    pin_specialised_anywhere,
    keep_structure,
    keep_values_of_class,
    keep_values_of_model,
)
"""Narrowing steps, tried in this order if an analysis differs only at synthetic configs."""


def _pin_more(attempt: _Attempt, values: dict[str, int]) -> Next:
    if values.keys() - attempt.analysis.pinned.keys():
        attempt.claim(attempt.pinned(values))
    return Next.GO_ON


def _keep_values(attempt: _Attempt, everything: bool) -> Next:
    execution, analysis = attempt.execution, attempt.analysis
    workload = execution.workload
    if not attempt.is_in_model and not workload.has_cache:
        return Next.GO_ON
    points = [point.values for point in execution.points_for(analysis) if point.synthetic]
    own = {n: v for n, v in workload.hints.items() if n not in workload.full_layers}
    names = [n for n in own if everything or n in analysis.parameters]
    kept = what_to_keep(own, points, names, functools.partial(execution.holds_at, analysis))
    before = attempt.analysis, attempt.judgement
    if kept:
        attempt.claim(attempt.pinned(kept))
        if attempt.status != "verified":
            attempt.analysis, attempt.judgement = before  # the narrower claim does not hold either
    return Next.GO_ON
