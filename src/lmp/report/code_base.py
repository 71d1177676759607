"""The report on a code base, from its folder to the reports folder."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from lmp.codebase.facts import RepoFacts, Selection
from lmp.codebase.file_kinds import CODE
from lmp.codebase.texts import printable
from lmp.errors import UsageError
from lmp.report.document.ledger import Ledger, entries
from lmp.report.document.markdown import to_markdown
from lmp.report.document.parts import Document
from lmp.report.evaluating import Worth
from lmp.report.folder import ASSETS, IMPLEMENTATIONS, REPOSITORIES, Report, file_name
from lmp.report.making import Making
from lmp.report.review import Roots, review_text
from lmp.store.files import storage_errors

if TYPE_CHECKING:
    from lmp.codebase.parts import NamedParts
    from lmp.report.repository.state import RepoState
    from lmp.report.repository.study import Study

Progress = Callable[[int, int, str], None]


def read_code_base(root: Path, selection: Selection, progress: Progress) -> RepoFacts:
    """What reading a code base finds. Raises UsageError for a folder that is none or has no code."""
    from lmp.codebase.reading import read_repository
    from lmp.report.repository.scanning import signs_of

    if not root.is_dir():
        raise UsageError(
            f"{printable(str(root))} is no folder\n"
            "give the folder of a code base, or the class path of a model (`lmp review` reads a report)"
        )
    facts = read_repository(root, selection, progress, signs_of)
    _must_have_code(facts, root, selection)
    # What was read stays to the end and has no cycles: Python need not go through it again and again to look for some.
    gc.freeze()
    return facts


def repository_making(
    facts: RepoFacts,
    root: Path,
    state: RepoState | None = None,
    implementation: bool = False,
    named: NamedParts | None = None,
) -> Making:
    """How the report on a code base is made: in the repository template, or in that of implementations. What ``state``
    has of unchanged files is not read again. ``named`` are parts that a reader named."""
    from lmp.report.repository.document import document, implementation_document

    made = implementation_document if implementation else document
    kind = IMPLEMENTATIONS if implementation else REPOSITORIES
    known = state.signs if state is not None else None
    roots, worth = Roots(folders=(root,)), Worth(None, {}, facts.counts)
    return Making(
        name=facts.root_name,
        document=lambda told: made(facts, root, told, known, named),
        report=lambda written: _report(facts, root, written, kind),
        review=lambda report: review_text(report.file, report.text, roots, report.ledger, worth),
        roots=roots,
    )


def studied(facts: RepoFacts, root: Path, state: RepoState | None = None) -> Study:
    """What the report is made from, without parts that a reader named."""
    from lmp.report.repository.document import study

    return study(facts, root, known=state.signs if state is not None else None)


def returned(
    facts: RepoFacts, root: Path, report: Path, implementation: bool = False, named: NamedParts | None = None
) -> list[str]:
    """The summary that the command prints: insights, optimizations, limitations, links to sections of the report."""
    from lmp.report.repository.document import study
    from lmp.report.repository.implementation import returned_summary

    return returned_summary(study(facts, root, named=named), str(report), implementation)


def _report(facts: RepoFacts, root: Path, made: Document, kind: str) -> Report:
    """The report as it will be written, with its numbers."""
    ledger = Ledger(
        kind="repository",
        subject=facts.root_name,
        folder=str(root) if _is_text(str(root)) else printable(str(root)),
        named=dict(facts.counts),
        numbers=list(entries(made)),
    )
    # Both templates keep their numbers in one folder.
    name = f"{facts.root_name}-implementation" if kind == IMPLEMENTATIONS else facts.root_name
    return Report(file_name(name), kind, to_markdown(made), ledger)


def state_file(folder: Path, facts: RepoFacts) -> Path:
    """Where is kept what the last report was made from."""
    return folder / ASSETS / f"{file_name(facts.root_name)}-state.json"


def last_state(folder: Path, facts: RepoFacts) -> RepoState | None:
    """What the last report was made from; None where there was none."""
    from lmp.report.repository.state import load

    return load(state_file(folder, facts))


def remember(folder: Path, facts: RepoFacts, root: Path, report: Path) -> None:
    """Keep what a report was made from, for `--update`. Raises StorageError where that cannot be written."""
    from lmp.report.repository.document import study
    from lmp.report.repository.state import state_of

    file = state_file(folder, facts)
    with storage_errors(file, "--reports"):
        state_of(study(facts, root).base, report.read_text(encoding="utf-8")).save(file)


def since_the_last(
    folder: Path, making: Making, facts: RepoFacts, root: Path, state: RepoState | None
) -> tuple[str, ...]:
    """What has changed since the report that is in the reports folder, and which of its pointers are stale: one line
    each."""
    from lmp.report.repository.document import study
    from lmp.report.repository.state import changes
    from lmp.report.repository.update import stale

    old = folder / making.plain.file
    if not old.is_file():
        return ("there is no earlier report: everything is new",)
    found = stale(old.read_text(encoding="utf-8", errors="replace"), root, state)
    told = [str(changes(state, study(facts, root).base))] if state is not None else []
    return (*told, f"stale pointers in the earlier report: {len(found)}", *(f"  {one}" for one in found))


def _is_text(path: str) -> bool:
    """Whether a path can be written as UTF-8."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _must_have_code(facts: RepoFacts, root: Path, selection: Selection) -> None:
    if any(file.language in CODE for file in facts.files):
        return
    shown = printable(str(root))
    read = f"{counted(len(facts.files), 'file')} read, {counted(len(facts.skipped), 'file')} skipped"
    if selection.include or selection.exclude:
        given = [f"--include {each!r}" for each in selection.include]
        given += [f"--exclude {each!r}" for each in selection.exclude]
        raise UsageError(
            f"{' '.join(given)} leaves no code in Python, CUDA or C++ of {shown}: {read}\n"
            "patterns are those of .gitignore, for example --include 'src/**/*.py'; leave them out to read everything"
        )
    raise UsageError(
        f"{shown} has no code in Python, CUDA or C++ that could be reported on: {read}\n"
        "give the folder that holds the sources"
    )


def counted(number: int, one: str) -> str:
    """``1 file``."""
    return f"{number:,} {one if number == 1 else one + 's'}"
