"""A report on its way to disk, with the narrative that was written for it before, as long as that holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lmp.records import Narration
from lmp.report.folder import write_report
from lmp.report.making import Making
from lmp.store.files import storage_errors


@dataclass(frozen=True)
class Written:
    """What became of a report."""

    file: Path
    changed: list[Path]
    """The files that are not what they were, those that lie beside it included."""
    notes: tuple[str, ...] = ()
    """What its reader should know now."""


def write_made(folder: Path, making: Making, narration: Narration | None = None) -> Written:
    """Make, review and write a report. Without a ``narration`` the one that is kept is used, if it still holds.

    Raises ReportRefused where the review found something, StorageError where the folder cannot be written.
    """
    notes: tuple[str, ...] = ()
    if narration is None:
        narration, notes = _kept(folder, making)
    report = making.plain if narration is None else making.narrated(narration)
    changed = write_report(folder, report, making.review(report))
    return Written(folder / report.file, changed, notes)


def _kept(folder: Path, making: Making) -> tuple[Narration | None, tuple[str, ...]]:
    """The narrative that was written into the last report; why it is left out now, if it is."""
    file = making.narrative_file(folder)
    with storage_errors(file, "--reports"):
        if not file.is_file():
            return None, ()
        content = file.read_bytes()
    from pydantic import ValidationError

    from lmp.report.narrative_review import findings
    from lmp.store.results import strict_json

    try:
        narration = Narration.model_validate(strict_json(content))
    except (ValueError, RecursionError, ValidationError):
        return None, (f"the narrative is left out: {file} is none of lmp's; --narrate writes another",)
    wrong = findings(making, narration.narrative)
    if not wrong:
        return narration, ()
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    why = wrong[0].message.splitlines()[0]
    return None, (
        f"the narrative in {file} is left out, as it does not hold any more; --narrate writes another",
        f"  {why}{more}",
    )
