"""The report on a code base, from its folder to the reports folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lmp.errors import UsageError
from lmp.recon.facts import RepoFacts, Selection
from lmp.report.document.ledger import Ledger, entries
from lmp.report.document.markdown import to_markdown
from lmp.report.document.parts import Document
from lmp.report.evaluating import Worth
from lmp.report.folder import REPOSITORIES, Report, file_name
from lmp.report.making import Making
from lmp.report.review import Roots, review_text

Progress = Callable[[int, int, str], None]


def read_code_base(root: Path, selection: Selection, progress: Progress) -> RepoFacts:
    """What reading a code base finds. Raises UsageError for a folder that is none or has no code."""
    from lmp.recon.reading import read_repository

    if not root.is_dir():
        raise UsageError(f"{root} is no folder\ngive the folder of a code base, or the class path of a model")
    facts = read_repository(root, selection, progress)
    _must_have_code(facts, root)
    return facts


def repository_making(facts: RepoFacts, root: Path) -> Making:
    """How the report on a code base is made."""
    from lmp.report.repository.document import document

    roots, worth = Roots(folders=(root,)), Worth(None, {}, facts.counts)
    return Making(
        name=facts.root_name,
        document=lambda told: document(facts, root, told),
        report=lambda made: _report(facts, root, made),
        review=lambda report: review_text(report.file, report.text, roots, report.ledger, worth),
        roots=roots,
    )


def _report(facts: RepoFacts, root: Path, made: Document) -> Report:
    """The report as it will be written, with its numbers."""
    ledger = Ledger(
        kind="repository",
        subject=facts.root_name,
        folder=str(root),
        named=dict(facts.counts),
        numbers=list(entries(made)),
    )
    return Report(file_name(facts.root_name), REPOSITORIES, to_markdown(made), ledger)


def stale_pointers(folder: Path, making: Making, root: Path) -> tuple[str, ...]:
    """What does not hold any more of the report that is in the reports folder: one line each."""
    from lmp.report.repository.update import stale

    old = folder / making.plain.file
    if not old.is_file():
        return ("there is no earlier report: everything is new",)
    found = stale(old.read_text(encoding="utf-8", errors="replace"), root)
    return (f"{len(found)} stale pointers in the earlier report", *map(str, found))


def _must_have_code(facts: RepoFacts, root: Path) -> None:
    if not facts.definitions and not facts.kernels:
        read = f"{len(facts.files)} files were read, {len(facts.skipped)} skipped"
        raise UsageError(
            f"{root} has no code in Python, CUDA or C++ that could be reported on: {read}\n"
            "give the folder that holds the sources"
        )
