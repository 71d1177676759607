"""The implementation report of a model, from its facts to the reports folder."""

from __future__ import annotations

from pathlib import Path

from lmp.records import Narrative, Review
from lmp.report.document.ledger import Ledger, entries
from lmp.report.document.markdown import to_markdown
from lmp.report.document.told import Told, numbers_of
from lmp.report.facts import ModelFacts
from lmp.report.folder import IMPLEMENTATIONS, Report, file_name, write_changed, write_report
from lmp.report.review import Roots, review_text
from lmp.store.files import storage_errors


def model_report(facts: ModelFacts, narrative: Narrative | None = None) -> Report:
    """The report as it will be written, with its numbers and plots."""
    from lmp.report.implementation.sections import document
    from lmp.report.plots import assets

    made = document(facts)
    if narrative is not None:
        made = document(facts, Told(narrative, numbers_of(made)))
    ledger = Ledger(
        kind="model",
        subject=facts.model.class_name,
        config=facts.model.config.name,
        points={point.key: dict(point.values) for point in facts.points},
        named=dict(facts.named),
        numbers=list(entries(made)),
    )
    return Report(file_name(facts.name), IMPLEMENTATIONS, to_markdown(made), ledger, assets(facts))


def reviewed(report: Report, facts: ModelFacts) -> Review:
    """What the review says of a report that is not written yet."""
    return review_text(report.file, report.text, Roots(facts.roots), report.ledger, facts.worth)


def write_model_report(folder: Path, facts: ModelFacts, narrative: Narrative | None = None) -> tuple[Path, list[Path]]:
    """Make, review and write a report; its file, and the files that changed.

    Raises ReportRefused where the review found something, StorageError where the folder cannot be written.
    """
    report = model_report(facts, narrative)
    return folder / report.file, write_report(folder, report, reviewed(report, facts))


def write_page(folder: Path, facts: ModelFacts) -> tuple[Path, bool]:
    """Write the HTML page of a model; its file, and whether it changed."""
    from lmp.report.page import page

    file = folder / IMPLEMENTATIONS / f"{file_name(facts.name)}-analysis.html"
    with storage_errors(folder, "--reports"):
        return file, write_changed(file, page(facts).encode())
