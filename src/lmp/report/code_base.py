"""The report on a code base, from its folder to the reports folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lmp.errors import UsageError
from lmp.recon.facts import RepoFacts, Selection
from lmp.records import Narrative
from lmp.report.document.ledger import Ledger, entries
from lmp.report.document.markdown import to_markdown
from lmp.report.document.told import Told, numbers_of
from lmp.report.evaluating import Worth
from lmp.report.folder import REPOSITORIES, Report, file_name, write_report
from lmp.report.review import Roots, review_text

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Done:
    """What became of a report on a code base."""

    file: Path
    changed: bool
    told: tuple[str, ...] = ()
    """What its reader should know now: pointers of the old report that are stale, files that were not read."""


def write_repository_report(
    folder: Path,
    root: Path,
    selection: Selection,
    progress: Progress,
    update: bool = False,
    narrative: Narrative | None = None,
) -> Done:
    """Read a code base, and write what there is to say of it. ``update`` says what has changed since the last report.

    Raises UsageError for a folder that is none or has no code, ReportRefused where the review found something.
    """
    from lmp.recon.reading import read_repository

    if not root.is_dir():
        raise UsageError(f"{root} is no folder\ngive the folder of a code base, or the class path of a model")
    facts = read_repository(root, selection, progress)
    _must_have_code(facts, root)
    report = repository_report(facts, root, narrative)
    notes = _stale(folder / report.file, root) if update else ()
    review = review_text(report.file, report.text, Roots(folders=(root,)), report.ledger, Worth(None, {}, facts.counts))
    written = write_report(folder, report, review)
    return Done(folder / report.file, bool(written), notes)


def repository_report(facts: RepoFacts, root: Path, narrative: Narrative | None = None) -> Report:
    """The report as it will be written, with its numbers."""
    from lmp.report.repository.document import document

    made = document(facts, root)
    if narrative is not None:
        made = document(facts, root, Told(narrative, numbers_of(made)))
    ledger = Ledger(
        kind="repository",
        subject=facts.root_name,
        folder=str(root),
        named=dict(facts.counts),
        numbers=list(entries(made)),
    )
    return Report(file_name(facts.root_name), REPOSITORIES, to_markdown(made), ledger)


def _must_have_code(facts: RepoFacts, root: Path) -> None:
    if not facts.definitions and not facts.kernels:
        read = f"{len(facts.files)} files were read, {len(facts.skipped)} skipped"
        raise UsageError(f"{root} has no code in Python, CUDA or C++ that could be reported on: {read}")


def _stale(old: Path, root: Path) -> tuple[str, ...]:
    from lmp.report.repository.update import stale

    if not old.is_file():
        return ("there is no earlier report: everything is new",)
    found = stale(old.read_text(encoding="utf-8", errors="replace"), root)
    return (f"{len(found)} stale pointers in the earlier report", *map(str, found))
