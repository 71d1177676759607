"""``lmp submit``: the gate, for an analysis that anything wrote."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmp.cli import options as o
from lmp.cli.agents import count
from lmp.cli.commands import DISAGREES, _note, _options, _print_json, _watched

if TYPE_CHECKING:
    from lmp.pipeline.submitting import Submitted
    from lmp.records import GateFinding

Class = Annotated[str, typer.Argument(metavar="CLASS", help="The class that it is of, or a public alias.")]
File = Annotated[str, typer.Argument(metavar="FILE", help="The analysis, as JSON; - is standard input.")]
Replace = Annotated[
    bool, typer.Option("--replace", help="Store it though a verified one is there and this one cannot be verified.")
]


def submit(
    class_path: Class,
    file: File,
    replace_verified: Replace = False,
    results: o.Results = None,
    transformers: o.Transformers = None,
    pytorch: o.Pytorch = None,
    config: o.Config = None,
    model_id: o.ModelId = None,
    attn: o.Attn = None,
    dtype: o.DtypeName = o.Dtype.bfloat16,
    inputs: o.Inputs = None,
    init: o.Init = None,
    path: o.Paths = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """Check an analysis that anything wrote; store it, or list what is wrong with it."""
    options = _options(o.Engine.trace, results, transformers, pytorch, config, model_id, attn, dtype)
    options = replace(options, inputs=inputs, init=init, paths=tuple(path or ()))
    from lmp.pipeline.submitting import read_hand_in

    handed_in = read_hand_in(_content(file), "the input" if file == "-" else file)
    with _watched([class_path], options, quiet) as progress:
        from lmp.pipeline.submitting import submit as hand_in

        submitted = hand_in(class_path, handed_in, options, progress, replace_verified)
    if as_json:
        _print_json(submitted.hand_in.model_dump(mode="json", exclude_none=True))
    else:
        sys.stdout.write("".join(f"{line}\n" for line in _told(submitted)))
    if not submitted.hand_in.accepted:
        _note(f"error: refused, with {count(len(submitted.hand_in.findings), 'finding')}")
        _note(f"the draft is kept as {submitted.hand_in.file}; mend it and submit it again")
        raise typer.Exit(DISAGREES)


def _content(file: str) -> bytes:
    """At most a little more than is read, so that an endless input ends."""
    from lmp.errors import UsageError
    from lmp.pipeline.submitting import MAX_BYTES

    if file == "-":
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    try:
        with Path(file).open("rb") as handle:
            return handle.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}\ngive a file, or - for standard input") from error


def _told(submitted: Submitted) -> list[str]:
    """What became of it, for people. Every text of the hand-in's is made harmless."""
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
    where = [f"kernel {finding.kernel}"] if finding.kernel is not None else []
    where += [f"line {finding.line}"] if finding.line is not None else []
    return f"{', '.join(where)}{f' of {finding.file}' if finding.file else ''}: " if where else ""


def harmless(text: str) -> str:
    """The text on one line, with what a terminal would obey written out."""
    from lmp.source.quoting import escaped

    return escaped(text, kept="")
