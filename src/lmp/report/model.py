"""The implementation report of a model, from its facts to the reports folder."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

from lmp.records import Narration, Review
from lmp.report.document.ledger import Ledger, entries, names_in
from lmp.report.document.markdown import to_markdown
from lmp.report.document.parts import Document
from lmp.report.facts import ModelFacts, tree_label
from lmp.report.folder import APPENDIX_ENDING, IMPLEMENTATIONS, Report, file_name, write_changed
from lmp.report.making import Making
from lmp.report.review import Roots, review_text
from lmp.report.writing import Written, write_made
from lmp.store.files import storage_errors


def model_making(facts: ModelFacts) -> Making:
    """How the report on a model is made."""
    from lmp.report.implementation.sections import appendix as further
    from lmp.report.implementation.sections import document, returned
    from lmp.report.plots import assets

    plots = functools.cache(lambda: assets(facts))  # the same whatever is told
    return Making(
        name=facts.name,
        document=lambda told: document(facts, told),
        appendix=lambda: further(facts),
        summary=lambda made: returned(made, facts.name),
        report=lambda made: _report(facts, made, plots()),
        review=lambda report: _reviewed(facts, report),
        roots=Roots(facts.roots),
        packages={tree_label(tree): tree.package_dir for tree in facts.trees},
    )


def write_model_report(folder: Path, facts: ModelFacts, narration: Narration | None = None) -> Written:
    """Make, review and write a report; as `write_made`, which says what it raises."""
    return write_made(folder, model_making(facts), narration)


def _report(facts: ModelFacts, made: Document, plots: Mapping[str, bytes]) -> Report:
    """The report as it will be written, with its numbers and plots, and its appendix."""
    from lmp.report.implementation.sections import appendix

    name = file_name(facts.name)
    further = appendix(facts)
    beside = Report(name, IMPLEMENTATIONS, to_markdown(further), _ledger(facts, further), ending=APPENDIX_ENDING)
    return Report(name, IMPLEMENTATIONS, to_markdown(made), _ledger(facts, made), plots, appendix=beside)


def _ledger(facts: ModelFacts, made: Document) -> Ledger:
    numbers = list(entries(made))
    return Ledger(
        kind="model",
        subject=facts.model.class_name,
        config=facts.model.config.name,
        device=facts.device.name,
        points={point.key: dict(point.values) for point in facts.points},
        sizes=dict(facts.sizes),
        named={name: facts.named[name] for name in names_in(numbers)},
        numbers=numbers,
    )


def _reviewed(facts: ModelFacts, report: Report) -> Review:
    """What the review says of a report that is not written yet, and of its appendix."""
    review = review_text(report.file, report.text, Roots(facts.roots), report.ledger, facts.worth)
    if report.appendix is None:
        return review
    further = _reviewed(facts, report.appendix)
    findings = [one.model_copy(update={"message": f"{further.file}: {one.message}"}) for one in further.findings]
    counted = {name: getattr(review, name) + getattr(further, name) for name in ("pointers", "numbers")}
    return review.model_copy(update={"findings": [*review.findings, *findings], **counted})


def write_page(folder: Path, facts: ModelFacts) -> tuple[Path, bool]:
    """Write the HTML page of a model; its file, and whether it changed."""
    from lmp.report.page import page

    file = folder / IMPLEMENTATIONS / f"{file_name(facts.name)}-analysis.html"
    with storage_errors(folder, "--reports"):
        return file, write_changed(file, page(facts).encode())
