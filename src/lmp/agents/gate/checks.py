"""The gate's checks in their order, and the verdict."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from lmp.agents.gate.assumptions import isolated
from lmp.agents.gate.form import read_draft
from lmp.agents.gate.formulas import (
    COSTS,
    DraftReferences,
    Slot,
    is_zero,
    read_formulas,
    spell,
    undeclared,
    unresolved_paths,
    with_standard_names,
    without_universal,
    wrong_parameters,
)
from lmp.agents.gate.lines import DraftLines, kernels_by_statement
from lmp.agents.gate.numbers import gate_findings
from lmp.agents.gate.partial import OF_A_LINE, reduced, sound_kernels
from lmp.errors import LmpError, Missing, NotFound, TraceFailed, UsageError
from lmp.link.verdict import verdict
from lmp.records import Draft, GateFinding, ModuleAnalysis, Verification
from lmp.source.locate import locate
from lmp.source.members import Members, members_of
from lmp.verify.claims import separate_not_correctable, uncounted_operators

if TYPE_CHECKING:
    from lmp.agents.subject import ClassSubject

MOST = 20
"""Findings that are returned at once."""


@dataclass(frozen=True)
class AnalysisVerdict:
    """The gate's answer: an analysis that may be stored, or findings."""

    analysis: ModuleAnalysis | None
    findings: tuple[GateFinding, ...] = ()
    notes: tuple[str, ...] = ()
    """Remarks about an accepted or refused submission: fields that lmp fills in by itself."""

    @property
    def accepted(self) -> bool:
        return self.analysis is not None

    @property
    def summary(self) -> str:
        """The class that is accepted, and how far it is proven."""
        assert self.analysis is not None
        found = self.analysis
        return f"{found.class_name} {verdict(found.verification, found.assumptions, found.pinned)}"


class Gate:
    """Checks submissions for one class. One instance serves every attempt: it keeps what was read and executed."""

    def __init__(self, subject: ClassSubject) -> None:
        self.subject = subject
        self.lines = DraftLines(subject.source, subject.trees)

    @cached_property
    def members(self) -> Members:
        return members_of(self.subject.source, self.subject.trees)

    def check(self, submitted: object) -> AnalysisVerdict:
        """An analysis that may be stored, or findings.

        Raises Missing if nothing is wrong except that classes it refers to have no analysis: ``classes`` names them.
        Once they have one, the same draft can be checked again.
        """
        draft, findings, notes = read_draft(submitted)
        if draft is None:
            return _refuse(findings, notes)
        wrong_class = self._wrong_class(draft)
        if wrong_class is not None:
            return _refuse([wrong_class], notes)
        draft = without_universal(with_standard_names(draft))
        draft = draft.model_copy(update={"class_name": self.subject.source.class_path})
        slots, findings = read_formulas(draft)
        findings += undeclared(draft, slots)
        findings += unresolved_paths(draft, self.members, self.subject.config_names)
        references = DraftReferences(self.subject, self.members)
        slots = references.resolve(slots)
        findings += references.findings
        draft, misplaced = self.lines.check_kernels(draft)
        findings += misplaced
        findings += self.lines.check_lists(draft, _costing(slots))
        findings += self.lines.uncovered(draft)
        if findings:
            numbers = [] if references.missing else self._numbers_beside(draft, slots, findings)
            return _refuse([*findings, *numbers], notes)
        if references.missing:
            raise _missing(references.missing)
        return self._judge(spell(draft, slots), references, notes)

    def _numbers_beside(
        self, draft: Draft, slots: Sequence[Slot], findings: Sequence[GateFinding]
    ) -> list[GateFinding]:
        """What execution says of the kernels without a mistake of form; nothing where the form allows no comparison."""
        wrong = wrong_parameters(draft, self.members, self.subject.config_names)
        kept = sound_kernels(draft, slots, findings, wrong)
        if not kept:
            return []
        known = kernels_by_statement(draft.kernels, self.lines)
        told = {self.lines.statement(finding.file, finding.line or 0) for finding in findings}
        told |= {place for place, kernels in known.items() if not set(kernels) <= set(kept)}
        part, part_slots = reduced(draft, slots, kept, wrong)
        try:
            analysis = self.subject.complete(spell(part, part_slots).model_dump(mode="json"))
            own, _ = separate_not_correctable(self.subject.numbers(analysis))
        except LmpError:
            return []
        own = [f for f in own if f.kind in OF_A_LINE and (f.file or analysis.source.file, f.line or 0) not in told]
        # The kernels have their numbers in the whole draft.
        at = {place: [kept.index(kernel) for kernel in of] for place, of in known.items() if place not in told}
        found = gate_findings(own, analysis, at, self.subject.changed(analysis))
        return [f if f.kernel is None else f.model_copy(update={"kernel": kept[f.kernel]}) for f in found]

    def _without_value(self, analysis: ModuleAnalysis) -> Iterator[GateFinding]:
        """A finding for each variable that the model's own config gives no value: `evaluate` could not use it."""
        for name in self.subject.without_value(analysis):
            path = analysis.parameters[name]
            message = f"parameter {name}: {path} has no value at the model's config; give a path to a number there"
            yield GateFinding(rule="variable", message=message, claimed=path[:200])

    def _wrong_class(self, draft: Draft) -> GateFinding | None:
        asked, given = self.subject.source, draft.class_name
        if given in (asked.class_path, asked.requested):
            return None
        try:
            if locate(given, self.subject.trees).class_path == asked.class_path:
                return None
        except (NotFound, UsageError):
            pass
        return GateFinding(rule="class", message=f"class_name is {given}; asked for is {asked.class_path}")

    def _judge(self, draft: Draft, references: DraftReferences, notes: list[str]) -> AnalysisVerdict:
        analysis = self.subject.complete(draft.model_dump(mode="json"))
        narrow = [*isolated(analysis.assumptions, analysis.values), *self._without_value(analysis)]
        if narrow:
            return _refuse(narrow, notes)
        try:
            verification = self.subject.judge(analysis)
        except TraceFailed as error:
            unread = list(self.lines.uncovered(draft, every_function=True))
            if unread:
                return _refuse(unread, notes)
            verification = _not_executed(error, references)
        kernels = kernels_by_statement(draft.kernels, self.lines)
        operators = uncounted_operators(verification)
        own, verification = separate_not_correctable(verification)
        if own:
            return _refuse(list(gate_findings(own, analysis, kernels, self.subject.changed(analysis))), notes)
        if operators:
            analysis = analysis.model_copy(update={"uncounted": operators})
        if verification.status == "verified":
            analysis = self.subject.without_untaken(analysis)
            analysis, said = self.subject.with_operands(analysis)
            notes = [*notes, *said]
        return AnalysisVerdict(analysis.model_copy(update={"verification": verification}), (), tuple(notes))


def _not_executed(error: TraceFailed, references: DraftReferences) -> Verification:
    reason = f"it cannot be executed here: {'; '.join(str(error).splitlines())}"
    if references.open:
        reason += f"; open references: {', '.join(references.open)}"
    return Verification(status="unverified", reason=reason, open=list(references.open) or None)


def _costing(slots: Iterable[Slot]) -> Collection[int]:
    """Kernels with a cost that is not the number 0."""
    return {s.kernel for s in slots if s.kernel is not None and s.quantity in COSTS and not is_zero(s.node)}


def _refuse(findings: list[GateFinding], notes: list[str]) -> AnalysisVerdict:
    rest = len(findings) - MOST
    more = [f"{rest} more findings are not shown: correct these first"] if rest > 0 else []
    return AnalysisVerdict(None, tuple(findings[:MOST]), (*notes, *more))


def _missing(classes: Iterable[str]) -> Missing:
    names = tuple(classes)
    each = "; ".join(f"run `lmp analyze-module {name}`" for name in names[:3])
    return Missing(f"there is no analysis yet of {', '.join(names)}\n{each}", classes=names)
