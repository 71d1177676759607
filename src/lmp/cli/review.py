"""``lmp review``: what a report says, held against the code and the results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmp.cli import options as o
from lmp.cli.agents import count

if TYPE_CHECKING:
    from lmp.records import Review, ReviewFinding

Files = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Markdown files.")]
Root = Annotated[
    list[Path] | None,
    typer.Option(
        "--root", metavar="DIR", help="A folder that pointers are relative to [default: the current one, the project]."
    ),
]


def review(
    files: Files,
    root: Root = None,
    results: o.Results = None,
    transformers: o.Transformers = None,
    pytorch: o.Pytorch = None,
    path: o.Paths = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """Check a report: pointers, placeholders, tables, numbers, diagrams.

    As in: lmp review reports/implementations/*.md. Takes any markdown: every path:line in it has to open at the symbol
    that is named beside it. The numbers of lmp's own reports are worked out again from the results.
    """
    from lmp.cli.commands import DISAGREES, _note, _print_json, _results_folder
    from lmp.errors import UsageError
    from lmp.report.reviewing import review_file
    from lmp.source.trees import completed, find_trees, project_root
    from lmp.store.results import Store

    folders = tuple(root) if root else tuple(dict.fromkeys((Path.cwd(), project_root())))
    _must_be_folders(folders)
    # As reports are made: of one's own packages in the current folder, of the installed ones where none are vendored.
    trees = completed(find_trees(None, transformers, pytorch, path or [Path.cwd()]))
    store = Store(_results_folder(results))
    found: list[Review] = []
    unread = 0
    for file in files:
        try:
            found.append(review_file(file, folders, bool(root), trees, store))
        except UsageError as error:
            if len(files) == 1:
                raise
            _note(f"error: {str(error).splitlines()[0]}")
            unread = error.exit_code
    if as_json:
        _print_json([one.model_dump(mode="json") for one in found])
    else:
        _show(found, quiet)
    wrong = sum(len(one.findings) for one in found)
    if wrong:
        _note(f"error: {count(wrong, 'finding')}")
    if wrong or unread:
        raise typer.Exit(DISAGREES if wrong else unread)


def print_findings(file: str, findings: Sequence[ReviewFinding]) -> None:
    """One line each, on stderr, as compilers print theirs."""
    from lmp.cli.commands import _note

    for finding in findings:
        _note(f"{file}:{finding.line}: {finding.rule}: {finding.message}")


def _show(found: Sequence[Review], quiet: bool) -> None:
    from lmp.cli.commands import _print

    for one in found:
        for finding in one.findings:
            _print(f"{one.file}:{finding.line}: {finding.rule}: {finding.message}\n")
        if not quiet:
            state = count(len(one.findings), "finding") if one.findings else "ok"
            opened, held = count(one.pointers, "pointer"), count(one.numbers, "number")
            _print(f"{one.file}: {state}; {opened} opened, {held} held\n")
            for note in one.notes:
                _print(f"  {note}\n")


def _must_be_folders(folders: Sequence[Path]) -> None:
    from lmp.errors import UsageError

    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"--root {folder} is no folder\ngive the folder that the pointers are relative to")
