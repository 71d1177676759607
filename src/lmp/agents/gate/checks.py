"""The order of the checks, and the verdict."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cached_property

from lmp.agents.base import Subject, Verdict
from lmp.agents.gate import counting
from lmp.agents.gate.formulas import COSTS, Slot, in_lmps_names, is_zero, read_formulas, spelled, undeclared
from lmp.agents.gate.paths import unresolvable, without_universal
from lmp.agents.gate.places import Places, kernels_at
from lmp.agents.gate.reading import read
from lmp.agents.gate.referring import Referring
from lmp.errors import Missing, NotFound, TraceFailed, UsageError
from lmp.records import Draft, GateFinding, Verification
from lmp.source.locate import locate
from lmp.source.members import Members, members_of

MOST = 20
"""Findings that are handed back at once."""


class Gate:
    """Checks what is handed in of one class. One instance serves every round: what was read and executed is kept."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.places = Places(subject.source, subject.trees)

    @cached_property
    def members(self) -> Members:
        return members_of(self.subject.source, self.subject.trees)

    def check(self, handed_in: object) -> Verdict:
        """An analysis that may be stored, or findings.

        Raises Missing where nothing is wrong but that classes it refers to have no analysis yet: ``classes`` are
        those. Once they have one, the same draft can be checked again.
        """
        draft, findings, notes = read(handed_in)
        if draft is None:
            return _refused(findings, notes)
        wrong_class = self._wrong_class(draft)
        if wrong_class is not None:
            return _refused([wrong_class], notes)
        draft = without_universal(in_lmps_names(draft))
        draft = draft.model_copy(update={"class_name": self.subject.source.class_path})
        slots, findings = read_formulas(draft)
        findings += undeclared(draft, slots)
        findings += unresolvable(draft, self.members, self.subject.config_names)
        referring = Referring(self.subject, self.members)
        slots = referring.slots(slots)
        findings += referring.findings
        draft, misplaced = self.places.kernels(draft)
        findings += misplaced
        findings += self.places.lists(draft, _costing(slots))
        findings += self.places.uncovered(draft)
        if findings:
            return _refused(findings, notes)
        if referring.missing:
            raise _missing(referring.missing)
        return self._judged(spelled(draft, slots), referring, notes)

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

    # -- the numbers -----------------------------------------------------------------------------------------------

    def _judged(self, draft: Draft, referring: Referring, notes: list[str]) -> Verdict:
        analysis = self.subject.completed(draft.model_dump(mode="json"))
        try:
            verification = self.subject.judged(analysis)
        except TraceFailed as error:
            unread = list(self.places.uncovered(draft, every_function=True))
            if unread:
                return _refused(unread, notes)
            reason = f"it cannot be executed here: {'; '.join(str(error).splitlines())}"
            if referring.open:
                reason += f"; open references: {', '.join(referring.open)}"
            verification = Verification(status="unverified", reason=reason)
        kernels = kernels_at(draft.kernels, self.places)
        operators = counting.uncounted(verification)
        own, verification = counting.without_unknown(verification)
        if own:
            return _refused(list(counting.told(own, analysis, kernels)), notes)
        if operators:
            analysis = analysis.model_copy(update={"uncounted": operators})
        return Verdict(analysis.model_copy(update={"verification": verification}), (), tuple(notes))


def _costing(slots: Iterable[Slot]) -> Collection[int]:
    """Kernels with a cost that is not plainly 0."""
    return {s.kernel for s in slots if s.kernel is not None and s.quantity in COSTS and not is_zero(s.node)}


def _refused(findings: list[GateFinding], notes: list[str]) -> Verdict:
    rest = len(findings) - MOST
    more = [f"{rest} more findings are not shown: mend these first"] if rest > 0 else []
    return Verdict(None, tuple(findings[:MOST]), (*notes, *more))


def _missing(classes: Iterable[str]) -> Missing:
    names = tuple(classes)
    each = "; ".join(f"run `lmp analyze-module {name}`" for name in names[:3])
    return Missing(f"there is no analysis yet of {', '.join(names)}\n{each}", classes=names)
