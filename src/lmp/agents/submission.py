"""A submission that another tool, another model or a person wrote: through the gate, and into the store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lmp.errors import Missing, UsageError
from lmp.records import HandIn, ModuleAnalysis, Provenance

if TYPE_CHECKING:
    from lmp.agents.gate import AnalysisVerdict, Gate
    from lmp.analyze.session import Options, Progress, Session

MAX_BYTES = 10_000_000
"""Of a submitted file. The largest analysis that lmp itself has made has 200 kB."""

MAX_CLASSES = 1000
"""Classes that are analysed for one submission; more would mean an endless loop."""


@dataclass(frozen=True)
class Submitted:
    """The outcome of a submission, for the command that prints it."""

    hand_in: HandIn
    notes: tuple[str, ...]
    made: tuple[str, ...]
    """Classes that were analysed for it."""
    analysis: ModuleAnalysis | None = None


def read_submission(content: bytes, name: str) -> object:
    """The JSON value of a file. Raises UsageError if it is too large or no JSON."""
    from lmp.store.results import strict_json

    give = "give a file that holds one JSON object; `lmp schema module_draft` prints its form"
    if len(content) > MAX_BYTES:
        raise UsageError(f"{name} has {len(content):,} bytes, and at most {MAX_BYTES:,} are read\n{give}")
    try:
        return strict_json(content)
    except (ValueError, RecursionError) as error:
        first = (str(error).splitlines() or [""])[0]
        raise UsageError(f"{name} is not valid JSON: {first}\n{give}") from error


def submit(
    class_path: str, submitted: object, options: Options, progress: Progress, replace_verified: bool = False
) -> Submitted:
    """Check an analysis and store it, or keep it with the findings beside the place of the result.

    Classes that it refers to and that have no analysis are analysed first, by lmp's own engine. Raises NotFound if
    there is no such class, UsageError if it would replace a better analysis.
    """
    from lmp.agents.gate import Gate
    from lmp.agents.subject import ClassSubject
    from lmp.analyze.session import Session

    session = Session(options, progress, takes_foreign=True)
    session.ask([class_path])
    subject = ClassSubject(session, class_path, engine="submitted")
    name = subject.source.class_path
    progress(name, "checking")
    verdict, made = check_with_callees(
        Gate(subject), submitted, lambda missing: analyse_missing(missing, options, progress)
    )
    if verdict.analysis is None:
        return Submitted(_keep_refused(session, name, submitted, verdict), verdict.notes, made)
    provenance = [Provenance(stage="submitted")]
    analysis = verdict.analysis.model_copy(update={"provenance": provenance})
    file = store_accepted(session, analysis, replace_verified)
    progress(name, "stored")
    verification = analysis.verification
    hand_in = HandIn(
        class_name=name, accepted=True, status=verification.status, reason=verification.reason, file=str(file)
    )
    return Submitted(hand_in, verdict.notes, made, analysis)


def check_with_callees(
    gate: Gate, submitted: object, analyse: Callable[[str], None]
) -> tuple[AnalysisVerdict, tuple[str, ...]]:
    """Check, with ``analyse`` called for each class without an analysis; the verdict and those classes."""
    made: dict[str, None] = {}
    while True:
        try:
            return gate.check(submitted), tuple(made)
        except Missing as error:
            new = [name for name in error.classes if name not in made]
            if not new or len(made) > MAX_CLASSES:
                raise
            for name in new:
                analyse(name)
                made[name] = None


def analyse_missing(class_path: str, options: Options, progress: Progress) -> None:
    """Analyse a class with lmp's own engine, whatever engine was asked for: it costs only time."""
    from lmp.analyze.modules import analyze_modules

    own = replace(options, engine="trace", inputs=None, init=None, fresh=False)
    analyze_modules([class_path], own, progress)


def _keep_refused(session: Session, name: str, submitted: object, verdict: AnalysisVerdict) -> HandIn:
    refused = HandIn(class_name=name, accepted=False, status="failed", findings=list(verdict.findings))
    draft = session.store.keep_draft(refused, submitted, session.names(name))
    return refused.model_copy(update={"file": str(draft)})


def store_accepted(session: Session, analysis: ModuleAnalysis, replace_verified: bool = False) -> Path:
    """Store what the gate accepted, and remove the draft that it refused before.

    Raises UsageError if an analysis that is not verified would replace a verified one.
    """
    name = analysis.class_name
    config = session.names(name)
    before = session.stored(name)
    better = before is not None and before.verification.status == "verified"
    if before is not None and better and analysis.verification.status != "verified" and not replace_verified:
        raise UsageError(
            f"{session.store.file(name, config)} is verified (engine {before.engine}), and what is submitted is not: "
            f"{analysis.verification.reason}\ngive --replace to store it all the same"
        )
    file = session.store.save(analysis)
    session.store.drop_draft(name, config)
    return file
