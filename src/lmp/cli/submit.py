"""``lmp submit``: the gate for an analysis that another tool or a person wrote."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmp.cli import narrative
from lmp.cli import options as o
from lmp.cli.output import DISAGREES, count, note, write, write_json
from lmp.cli.progress import watched

if TYPE_CHECKING:
    from lmp.agents.submission import Submitted
    from lmp.records import GateFinding


class StageName(StrEnum):
    parts = "parts"
    narrate = "narrate"
    refute = "refute"


Class = Annotated[
    str,
    typer.Argument(
        metavar="CLASS",
        help="Class of the analysis, or a public alias of it. For --stage: a model or a folder, as in report.",
    ),
]
File = Annotated[str, typer.Argument(metavar="FILE", help="The submission as JSON; - reads standard input.")]
Stage = Annotated[
    StageName | None,
    typer.Option(
        "--stage",
        help="parts: the file names the parts of a code base; narrate: it is a narrative; refute: what a second reader"
        " says of it.",
    ),
]
By = Annotated[str | None, typer.Option("--by", metavar="NAME", help="With --stage: who wrote it; the report says so.")]
Replace = Annotated[
    bool, typer.Option("--replace", help="Replace a verified analysis even if this one cannot be verified.")
]


@o.takes(..., *o.FOLDERS, *o.CONFIG, *o.OWN_CLASS, *o.PRINTED)
def submit(
    common: o.Common,
    class_path: Class,
    file: File,
    replace_verified: Replace = False,
    stage: Stage = None,
    by: By = None,
    reports: narrative.Reports = None,
    device: narrative.DeviceName = None,
) -> None:
    """Check a submitted analysis; store it, or list what is wrong with it.

    With --stage it is for a report, which is written with it: the parts of a code base, a narrative, or the second
    pass over one.
    """
    from lmp.agents.submission import read_submission

    submission = read_submission(_content(file), "the input" if file == "-" else file)
    if stage is not None:
        folder, author = o.reports_folder(reports), narrative.named_by(by)
        if stage is StageName.parts:
            narrative.submit_parts(narrative.study_of(common, class_path), submission, author, folder)
        else:
            making = narrative.making_of(common, class_path, device, folder)
            narrative.submit(making, submission, stage is StageName.refute, author, folder)
        return
    narrative.refuse_of_reports(reports, device, by)
    options = common.options()
    with watched([class_path], options, common.quiet) as progress:
        from lmp.agents.submission import submit as check_and_store

        submitted = check_and_store(class_path, submission, options, progress, replace_verified)
    if common.as_json:
        write_json(submitted.hand_in.model_dump(mode="json", exclude_none=True))
    else:
        write("".join(f"{line}\n" for line in _told(submitted)))
    if not submitted.hand_in.accepted:
        note(f"error: refused, with {count(len(submitted.hand_in.findings), 'finding')}")
        note(f"the draft is kept as {submitted.hand_in.file}; correct it and submit it again")
        raise typer.Exit(DISAGREES)


def _content(file: str) -> bytes:
    """The input, cut one byte above the limit: an endless input ends."""
    from lmp.agents.submission import MAX_BYTES
    from lmp.errors import UsageError

    if file == "-":
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    try:
        with Path(file).open("rb") as handle:
            return handle.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}\ngive a file, or - for standard input") from error


def _told(submitted: Submitted) -> list[str]:
    """The result as lines for people. Every text of the submission is made harmless."""
    found = submitted.hand_in
    state = "refused" if not found.accepted else found.status
    lines = [f"{found.class_name}: {state}"]
    if found.accepted and submitted.analysis is not None:
        points = submitted.analysis.verification.points
        lines[0] += f" at {points} points" if found.status == "verified" else ""
        lines += [f"  {found.reason}"] if found.reason else []
        lines.append(f"  stored as {found.file}")
    lines += [f"  analysed first: {name}" for name in submitted.made]
    lines += [f"  note: {note}" for note in submitted.notes]
    for number, finding in enumerate(found.findings, start=1):
        lines.append(f"  {number}. {_place(finding)}{finding.rule}: {finding.message}")
    return [harmless(line) for line in lines]


def _place(finding: GateFinding) -> str:
    # As people count: the first one is 1.
    where = [f"kernel {finding.kernel + 1}"] if finding.kernel is not None else []
    where += [f"line {finding.line}"] if finding.line is not None else []
    return f"{', '.join(where)}{f' of {finding.file}' if finding.file else ''}: " if where else ""


def harmless(text: str) -> str:
    """The text on one line, with the control characters escaped."""
    from lmp.source.quoting import escaped

    return escaped(text, kept="")
