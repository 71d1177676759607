"""A report on its way to disk, with the narrative that was written for it before, as long as that holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from lmp.records import GateFinding, Narration
from lmp.report.folder import write_report
from lmp.report.making import Making
from lmp.store.files import storage_errors

T = TypeVar("T", bound=BaseModel)


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
    from lmp.report.narrative_review import findings

    file = making.narrative_file(folder)
    try:
        narration = read_kept(file, Narration)
    except ValueError:
        return None, (f"the narrative is left out: {file} is none of lmp's; --narrate writes another",)
    if narration is None:
        return None, ()
    wrong = findings(making, narration.narrative)
    if not wrong:
        return narration, ()
    return None, (
        f"the narrative in {file} is left out, as it does not hold any more; --narrate writes another",
        f"  {first_of(wrong)}",
    )


def read_kept(file: Path, kind: type[T]) -> T | None:
    """What is kept beside a report; None where nothing is. Raises ValueError for a file that is none of lmp's,
    StorageError for one that cannot be read."""
    from lmp.store.results import strict_json

    with storage_errors(file, "--reports"):
        if not file.is_file():
            return None
        content = file.read_bytes()
    try:
        return kind.model_validate(strict_json(content))
    except RecursionError as error:
        raise ValueError(str(error)) from error


def first_of(wrong: Sequence[GateFinding]) -> str:
    """The first finding, and how many more there are."""
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return f"{wrong[0].message.splitlines()[0]}{more}"
