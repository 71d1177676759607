"""``lmp diff``: what costs more in one result than in another, and whether by more than a limit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmp.cli import given as g
from lmp.cli import options as o
from lmp.cli.output import DISAGREES, note, write, write_json
from lmp.cli.progress import watched

if TYPE_CHECKING:
    from lmp.analyze.comparing import Found
    from lmp.analyze.session import Options, Progress
    from lmp.formula import Number
    from lmp.link.difference import Difference, Exceeded
    from lmp.records import ModelAnalysis
    from lmp.report.limits import Limits


class By(StrEnum):
    flops = "flops"
    bytes = "bytes"


class Form(StrEnum):
    table = "table"
    markdown = "markdown"
    json = "json"


class Each(StrEnum):
    kernel = "kernel"
    line = "line"
    module = "module"


First = Annotated[
    str,
    typer.Argument(
        metavar="A",
        help="File or folder of a result, class path, class@config, model id, config.json or its folder, or a class "
        "in a file: my_model.py:Block, at a git revision my_model.py:Block@HEAD~1.",
    ),
]
Second = Annotated[
    str | None,
    typer.Argument(
        metavar="B",
        help="The other result [default: with --results-b A's class; of a revision, the file as it is now].",
    ),
]
ResultsB = Annotated[
    Path | None,
    typer.Option("--results-b", metavar="DIR", help="Folder of B's results; both folders must hold the classes."),
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Value of a variable at the point.")
]
Formulas = Annotated[bool, typer.Option("--formulas", help="Show the formulas of A and of B for each change.")]
Top = Annotated[int, typer.Option("--top", metavar="N", min=1, help="Number of changes to show, the largest first.")]
FailAbove = Annotated[
    str | None,
    typer.Option(
        "--fail-above",
        metavar="SHARE",
        help="Exit with 4 if FLOPs, bytes or parameters rose by more than this: 1%, or bytes=1%,flops=0.",
    ),
]


@o.takes(
    *(*o.SIZES, ..., "engine", "results", "results_b", "transformers", "pytorch", "no_atlas", "attn"),
    *(*o.OWN_CLASS, *o.PRINTED),
)
def diff(
    common: o.Common,
    a: First,
    b: Second = None,
    settings: Settings = None,
    fail_above: FailAbove = None,
    formulas: Formulas = False,
    each: Annotated[Each, typer.Option("--each", help="What a row is.")] = Each.kernel,
    by: Annotated[By, typer.Option("--by", help="Quantity whose changes are shown.")] = By.flops,
    top: Top = 20,
    exact: Annotated[bool, typer.Option("--exact", help="Show exact integers, not GFLOP and GB.")] = False,
    results_b: ResultsB = None,
    form: Annotated[
        Form | None, typer.Option("--format", help="markdown: a comment for a pull request [default: table].")
    ] = None,
) -> None:
    """Show what became more expensive from A to B, by line and by kernel.

    Examples: lmp diff old/my.Block new/my.Block --batch-size 1 --seq-len 2048 --fail-above 1%; lmp diff
    my_model.py:Block@main my_model.py:Block -b 1 -s 2k --inputs "x: float[batch_size, seq_len, 256]" --fail-above
    bytes=1%,flops=0 --format markdown

    Stored results are compared as they are. Without a point, only formulas are compared.
    """
    from lmp.errors import UsageError
    from lmp.link.compare import Side, compare
    from lmp.report.limits import limits_of

    if common.as_json and form not in (None, Form.json):
        raise UsageError(f"two formats are given: --json and --format {form}\ngive one")
    limit = None if fail_above is None else limits_of(fail_above)
    axes = g.given_values(common, settings or [])
    second = _second(a, b, results_b)
    options = common.options()
    others = options if results_b is None else replace(options, results=results_b)
    with ExitStack() as kept, watched([a, second], options, common.quiet) as progress:
        from lmp.atlas.models import find_result

        if common.inputs is None and common.init is None:
            _need_inputs((a, second), options, common.as_json or form is not None)
        places = [_place(text, common, kept, progress) for text in (a, second)]
        left = find_result(places[0], options, progress, stored_only=results_b is not None)
        right = find_result(places[1], others, progress, stored_only=results_b is not None)
    given = _one_point(axes)
    values = _points(left.model, right.model, given, needed=limit is not None)
    ours, theirs = (None, None) if values is None else values
    left, right = (_as_quantised(side, given) for side in (left, right))
    found = compare(Side(a, left.model, ours), Side(second, right.model, theirs))
    over = [] if limit is None else limit.exceeded(found)
    unknown = [] if limit is None else limit.unsaid(found)
    unchecked = unknown if limit is not None and limit.named else []
    found = found.model_copy(update={"fail_above": fail_above, "exceeded": over})
    checked = [] if limit is None else limit.checked(found)
    call = "" if values is None else _call(left, right, found)
    warnings = list(_warnings(left, right, found, given, [name for name in unknown if name not in unchecked]))
    if form is Form.markdown:
        from lmp.report.diff_markdown import comment

        write(comment(found, fail_above, unchecked, call, checked))
    elif common.as_json or form is Form.json:
        write_json(found.model_dump(mode="json"))
    else:
        from lmp.cli.difference import View, print_difference
        from lmp.cli.tables import console

        if values is None:
            note(f"no sizes are given, so formulas are compared; for numbers: lmp diff {a} {second} -b 1 -s 2k")
        view = View(by=by.value, each=each.value, top=top, formulas=formulas or values is None, exact=exact)
        print_difference(console(), found, view, checked, call)
    for warning in warnings:
        note(f"warning: {warning}")
    if limit is not None:
        _exit_if_above(found, over, limit, unchecked, call)


# --- the options -----------------------------------------------------------------------------------------------------


def _second(a: str, b: str | None, results_b: Path | None) -> str:
    from lmp.errors import UsageError

    if b is not None:
        return b
    from lmp.codebase.revisions import own_at

    own = own_at(a)
    if own is not None and own.revision is not None:
        return own.now
    if results_b is None:
        raise UsageError("only one result is given\ngive B too, or the folder of its results with --results-b")
    return a


def _need_inputs(texts: Sequence[str], options: Options, beside_stdout: bool) -> None:
    """Raise UsageError, with the command to type, for a class in a file that needs inputs to be called.

    A comparison makes both analyses anew, so that stored ones say nothing of it.
    """
    import tempfile

    from lmp.cli.own import need_inputs
    from lmp.codebase.revisions import own_at

    with tempfile.TemporaryDirectory(prefix="lmp-diff-") as empty:
        for own in filter(None, map(own_at, texts)):
            need_inputs(own, replace(options, results=Path(empty)), beside_stdout)


def _place(text: str, common: o.Common, kept: ExitStack, progress: Progress) -> str:
    """The text; for a class in a file, the file of the analysis that is made of it now, in a folder of its own."""
    from lmp.codebase.revisions import analysed, own_at

    own = own_at(text)
    if own is None:
        return text
    import tempfile

    folder = kept.enter_context(tempfile.TemporaryDirectory(prefix="lmp-diff-"))
    progress(text, "analysing")
    given = {"--inputs": common.inputs, "--init": common.init, "--attn": common.attn}
    options = [word for name, value in given.items() if value is not None for word in (name, str(value))]
    options += [word for path in common.path or () for word in ("--path", str(path.absolute()))]
    return str(analysed(own, Path(folder), options))


def _as_quantised(side: Found, given: Mapping[str, Number]) -> Found:
    """The side with the bytes of its checkpoint, unless the bytes of all weights are given."""
    from lmp.link.quantised import with_own_bytes

    return side if "w_bytes" in given else replace(side, model=with_own_bytes(side.model))


def _one_point(axes: g.Axes) -> dict[str, Number]:
    from lmp.errors import UsageError

    for name, values in axes.items():
        if len(values) != 1:
            raise UsageError(f"{name} is set to {len(values):,} values, but a comparison takes one point\ngive one")
    return {name: values[0] for name, values in axes.items()}


def _points(
    a: ModelAnalysis, b: ModelAnalysis, given: Mapping[str, Number], needed: bool
) -> tuple[Mapping[str, Number], Mapping[str, Number]] | None:
    """The values of both sides; None if no value is given and the formulas need some."""
    from lmp.errors import UsageError
    from lmp.link.compare import values_of_both

    try:
        return values_of_both(a, b, given)
    except UsageError as error:
        if given:
            raise
        if needed:
            message = str(error).splitlines()
            raise UsageError(f"--fail-above needs a point: {message[0]}\n{message[-1]}") from error
        return None


# --- warnings and the limit ------------------------------------------------------------------------------------------


def _warnings(
    left: Found, right: Found, found: Difference, given: Mapping[str, Number], unsaid: Sequence[str]
) -> Iterator[str]:
    from lmp.link.compare import known_to_one
    from lmp.report.warnings import of_assumptions, of_the_model, of_the_values

    if left.file is not None and right.file is not None and left.file.resolve() == right.file.resolve():
        yield f"A and B are the same file: {left.file}"
    for name, side in known_to_one(left.model, right.model, given).items():
        yield f"{name} is a variable of {side} alone: it changes nothing in the other"
    both = [
        [
            *of_the_model(side.model),
            *(() if record.values is None else of_the_values(side.model, record.values["cache_len"])),
            *of_assumptions(record.violated_assumptions),
        ]
        for side, record in ((left, found.a), (right, found.b))
    ]
    for index, name in enumerate("AB"):
        for warning in both[index]:
            if index == 0 or warning not in both[0]:
                yield f"{'A and B' if warning in both[1 - index] else name}: {warning}"
    for quantity in unsaid:
        yield f"{quantity} are not checked against --fail-above: A or B does not state how many there are"


def _call(left: Found, right: Found, found: Difference) -> str:
    """The phase and its sizes, in words."""
    from lmp.report.formats.card import call_in_words
    from lmp.report.terminal import GLUE

    known = {*left.model.parameters, *right.model.parameters}
    return call_in_words({**(found.a.values or {}), **(found.b.values or {})}, known).replace(GLUE, " ")


def _exit_if_above(
    found: Difference, over: list[Exceeded], limits: Limits, unchecked: Sequence[str], call: str
) -> None:
    from lmp.report.formats.figures import change, in_full
    from lmp.report.limits import share as limit_in_words

    for rise in over:
        share = change(rise.b - rise.a, rise.a)
        name = "FLOPs" if rise.quantity == "flops" else rise.quantity
        before, after = in_full(rise.a), in_full(rise.b)
        limit = limits.text if not limits.named else limit_in_words(limits.of[rise.quantity])
        note(f"error: {name} rose by {share.removeprefix('+')}, from {before} to {after}: above {limit}, at {call}")
    for quantity in unchecked:
        note(f"error: {quantity} cannot be checked against --fail-above: A or B does not state how many there are")
    failed = [side for side, record in (("A", found.a), ("B", found.b)) if record.verification == "failed"]
    if failed:
        note(f"error: the formulas of {' and '.join(failed)} do not agree with execution: no limit can be checked")
    if over or failed or unchecked:
        raise typer.Exit(DISAGREES)
