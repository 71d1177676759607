"""Judges stored analyses again. If only the judge changed, formulas are not derived again."""

from __future__ import annotations

from collections.abc import Callable

from lmp.analyze.session import Session, references_of
from lmp.errors import LmpError
from lmp.records import HANDED_IN, ModuleAnalysis, Verification
from lmp.store.fingerprint import judged_now
from lmp.workload.failures import blame
from lmp.workload.gc_tuning import gc_paused, gc_seldom

Make = Callable[[str], ModuleAnalysis]
"""Returns the analysis of a referenced class, or raises an LmpError."""


def up_to_date(class_path: str, session: Session, make: Make) -> ModuleAnalysis | None:
    """The stored analysis, judged again if only the judge changed; None if it must be derived again."""
    return session.reusable(class_path) or judged_again(class_path, session, make)


def seems_up_to_date(class_path: str, session: Session) -> bool:
    """Forecast of `up_to_date` without execution: an analysis to judge again counts as accepted."""
    if session.reusable(class_path) is not None:
        return True
    found = None if session.options.fresh else session.load(class_path)
    return found is not None and session.standing(found) == "judge again"


def submitted(class_path: str, session: Session, make: Make) -> ModuleAnalysis | None:
    """The submitted analysis of a class, judged again; None if there is none that holds."""
    found = None if session.options.fresh else session.load(class_path)
    return judged_again(class_path, session, make) if found is not None and found.engine in HANDED_IN else None


def judged_again(class_path: str, session: Session, make: Make) -> ModuleAnalysis | None:
    """The stored analysis of a class, judged and stored again; None if it must be derived again.

    An analysis of lmp's own engine must be verified: pins and narrowing need a derivation. A submitted one must not
    fail; if it fails, its file is renamed beside its place.
    """
    found = _worth_judging(class_path, session, make)
    if found is None or session.standing(found) == "current":
        return found
    session.progress(class_path, "verifying")
    judged = _judge(found, session)
    was_submitted, status = found.engine in HANDED_IN, judged.verification.status
    if status == "verified" or (was_submitted and status == "unverified"):
        return save_judged(judged, judged.verification, session)
    session.refuted.add(class_path)
    if was_submitted:
        aside = session.store.set_aside(found)
        session.progress(class_path, f"what others had made of it does not hold any more, and is kept as {aside.name}")
    return None


def save_judged(found: ModuleAnalysis, verification: Verification, session: Session) -> ModuleAnalysis:
    """Store an analysis with its new verification."""
    update = {"verification": verification, "fingerprint": judged_now(found.fingerprint)}
    judged = found.model_copy(update=update)
    session.store.save(judged)
    return judged


def _worth_judging(class_path: str, session: Session, make: Make) -> ModuleAnalysis | None:
    """The stored analysis to judge again, with its references up to date; None if there is none."""
    skipped = session.options.fresh or class_path in session.refuted
    found = None if skipped else session.load(class_path)
    live = found is not None and found.given is not None and found.given.live
    if found is None or live or session.standing(found) == "derive again":
        return None
    try:
        with session.instead({}):
            for reference in references_of(found):
                # lmp cannot derive a submitted analysis again, so it makes the referenced ones.
                known = up_to_date(reference, session, make)
                if known is None and (found.engine not in HANDED_IN or not make(reference)):
                    return None
            return found if session.refers_truly(found) else None
    except LmpError:  # deriving it meets the same error and reports it
        return None


def _judge(found: ModuleAnalysis, session: Session) -> ModuleAnalysis:
    """A stored analysis with its new verification, by the rules of the gate.

    It is unverified if it cannot be executed here, or if an operator has no rule.
    """
    with gc_paused():
        from lmp.analyze.agreement import judged_with_derivation
        from lmp.analyze.execution import Execution
        from lmp.verify.claims import separate_not_correctable, uncounted_operators

    def execution() -> Execution:
        """The execution, shared by all classes that were run in the same model."""
        if found.within is None:
            return Execution(session, session.locate(found.class_name), found)
        if found.within not in session.executions:
            session.executions[found.within] = Execution(session, session.locate(found.class_name), found)
        known: Execution = session.executions[found.within]
        return known

    with session.instead({}), gc_seldom():
        try:
            judge = execution()
            judge.points_for(found)
        except Exception as error:
            if blame(error) == "lmp":
                raise
            return _not_executed(found, error)
        try:
            handed_in = found.engine in HANDED_IN
            verification = judged_with_derivation(judge, found) if handed_in else judge.judged(found)
        except LmpError as error:
            return _not_executed(found, error)
    update = {"uncounted": uncounted_operators(verification), "verification": separate_not_correctable(verification)[1]}
    return found.model_copy(update=update)


def _not_executed(found: ModuleAnalysis, error: Exception) -> ModuleAnalysis:
    what = "" if isinstance(error, LmpError) else f"{type(error).__name__}: "
    reason = f"it cannot be executed here: {what}{(str(error).splitlines() or [''])[0]}"
    if found.verification.open:
        reason += f"; open references: {', '.join(found.verification.open)}"
    verification = Verification(status="unverified", reason=reason, open=found.verification.open)
    return found.model_copy(update={"verification": verification})
