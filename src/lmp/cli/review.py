"""``lmp review``: the pointers and numbers of a report, checked against the code and the results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmp.cli import options as o
from lmp.cli.output import DISAGREES, count, note, write, write_json

if TYPE_CHECKING:
    from lmp.records import Review

Files = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Markdown files.")]
Root = Annotated[
    list[Path] | None,
    typer.Option(
        "--root", metavar="DIR", help="Folder that pointers are relative to [default: the current one, the project]."
    ),
]


@o.takes(..., *o.FOLDERS, "path", *o.PRINTED)
def review(common: o.Common, files: Files, root: Root = None) -> None:
    """Check a report: pointers, placeholders, tables, numbers, diagrams.

    Example: lmp review reports/implementations/*.md. Takes any markdown: every path:line must open at the symbol that
    is named beside it. Numbers in lmp's own reports are computed again from the results.
    """
    from lmp.errors import UsageError
    from lmp.report.reviewing import review_file
    from lmp.source.project import project_root
    from lmp.source.trees import completed, find_trees
    from lmp.store.results import Store

    folders = tuple(root) if root else tuple(dict.fromkeys((Path.cwd(), project_root() or Path.cwd())))
    _must_be_folders(folders)
    # The same trees as for reports: own packages of the current folder, installed ones where none are vendored.
    trees = completed(find_trees(None, common.transformers, common.pytorch, common.path or [Path.cwd()]))
    store = Store(common.results_folder)
    found: list[Review] = []
    unread = 0
    for file in files:
        try:
            found.append(review_file(file, folders, bool(root), trees, store, common.options()))
        except UsageError as error:
            if len(files) == 1:
                raise
            note(f"error: {str(error).splitlines()[0]}")
            unread = error.exit_code
    if common.as_json:
        write_json([one.model_dump(mode="json") for one in found])
    else:
        _show_reviews(found, common.quiet)
    wrong = sum(len(one.findings) for one in found)
    if wrong:
        note(f"error: {count(wrong, 'finding')}")
    if wrong or unread:
        raise typer.Exit(DISAGREES if wrong else unread)


def _show_reviews(found: Sequence[Review], quiet: bool) -> None:
    for one in found:
        for finding in one.findings:
            write(f"{one.file}:{finding.line}: {finding.rule}: {finding.message}\n")
        if not quiet:
            state = count(len(one.findings), "finding") if one.findings else "ok"
            opened, held = count(one.pointers, "pointer"), count(one.numbers, "number")
            write(f"{one.file}: {state}; {opened} opened, {held} checked\n")
            for note in one.notes:
                write(f"  {note}\n")


def _must_be_folders(folders: Sequence[Path]) -> None:
    from lmp.errors import UsageError

    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"--root {folder} is not a folder\ngive the folder that the pointers are relative to")
