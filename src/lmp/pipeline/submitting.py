"""An analysis that anything wrote, another tool, another model, a person: through the gate, and into the store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lmp.errors import Missing, UsageError
from lmp.records import HandIn, ModuleAnalysis, Provenance

if TYPE_CHECKING:
    from lmp.agents.base import Verdict
    from lmp.agents.gate import Gate
    from lmp.pipeline.module import Options, Progress
    from lmp.pipeline.subject import HandInSession

MAX_BYTES = 10_000_000
"""Of a file that is handed in. The largest analysis that lmp itself has made has 200 kB."""

MAX_CLASSES = 1000
"""Classes that are analysed for one hand-in; more of them, and something goes in a circle."""


@dataclass(frozen=True)
class Submitted:
    """What became of a hand-in, for who prints it."""

    hand_in: HandIn
    notes: tuple[str, ...]
    made: tuple[str, ...]
    """Classes that were analysed for it."""
    analysis: ModuleAnalysis | None = None


def read_hand_in(content: bytes, name: str) -> object:
    """The JSON value that a file holds. Raises UsageError for what is too large or no JSON."""
    from lmp.store.results import strict_json

    give = "give a file that holds one JSON object; `lmp schema module_draft` prints its form"
    if len(content) > MAX_BYTES:
        raise UsageError(f"{name} has {len(content):,} bytes, and at most {MAX_BYTES:,} are read\n{give}")
    try:
        return strict_json(content)
    except (ValueError, RecursionError) as error:
        first = (str(error).splitlines() or [""])[0]
        raise UsageError(f"{name} is no valid JSON: {first}\n{give}") from error


def submit(
    class_path: str, handed_in: object, options: Options, progress: Progress, replace_verified: bool = False
) -> Submitted:
    """Check an analysis and store it, or keep it with the findings beside the place of the result.

    Classes that it refers to and that have no analysis are analysed first, by lmp's own engine. Raises NotFound where
    there is no such class, UsageError where it would take the place of a better one.
    """
    from lmp.agents.gate import Gate
    from lmp.pipeline.subject import ClassSubject, HandInSession

    session = HandInSession(options, progress)
    session.ask([class_path])
    subject = ClassSubject(session, class_path, engine="submitted")
    name = subject.source.class_path
    progress(name, "checking")
    verdict, made = checked(Gate(subject), handed_in, lambda missing: analyse(missing, options, progress))
    if verdict.analysis is None:
        return Submitted(_kept(session, name, handed_in, verdict), verdict.notes, made)
    provenance = [Provenance(stage="submitted")]
    analysis = verdict.analysis.model_copy(update={"provenance": provenance})
    file = store_accepted(session, analysis, replace_verified)
    progress(name, "stored")
    verification = analysis.verification
    hand_in = HandIn(
        class_name=name, accepted=True, status=verification.status, reason=verification.reason, file=str(file)
    )
    return Submitted(hand_in, verdict.notes, made, analysis)


def checked(gate: Gate, handed_in: object, analyse: Callable[[str], None]) -> tuple[Verdict, tuple[str, ...]]:
    """The gate's verdict, once every class that is referred to has an analysis; and which were made for it."""
    made: dict[str, None] = {}
    while True:
        try:
            return gate.check(handed_in), tuple(made)
        except Missing as error:
            new = [name for name in error.classes if name not in made]
            if not new or len(made) > MAX_CLASSES:
                raise
            for name in new:
                analyse(name)
                made[name] = None


def analyse(class_path: str, options: Options, progress: Progress) -> None:
    """By lmp's own engine, whatever was asked for: it costs nothing but time."""
    from lmp.pipeline.module import analyze_modules

    own = replace(options, engine="trace", inputs=None, init=None, fresh=False)
    analyze_modules([class_path], own, progress)


def _kept(session: HandInSession, name: str, handed_in: object, verdict: Verdict) -> HandIn:
    refused = HandIn(class_name=name, accepted=False, status="failed", findings=list(verdict.findings))
    draft = session.store.keep_draft(refused, handed_in, session.names(name))
    return refused.model_copy(update={"file": str(draft)})


def store_accepted(session: HandInSession, analysis: ModuleAnalysis, replace_verified: bool = False) -> Path:
    """Store what the gate accepted, and drop what was kept of hand-ins that it refused.

    Raises UsageError where a verified analysis would give way to one that is not.
    """
    name = analysis.class_name
    config = session.names(name)
    before = session.stored(name)
    better = before is not None and before.verification.status == "verified"
    if before is not None and better and analysis.verification.status != "verified" and not replace_verified:
        raise UsageError(
            f"{session.store.file(name, config)} is verified (engine {before.engine}), and what is handed in is not: "
            f"{analysis.verification.reason}\ngive --replace to store it all the same"
        )
    file = session.store.save(analysis)
    session.store.drop_draft(name, config)
    return file
