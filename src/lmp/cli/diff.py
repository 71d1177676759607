"""``lmp diff``: what costs more in one result than in another, and whether by more than a limit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmp.cli import given as g
from lmp.cli import options as o
from lmp.cli.output import DISAGREES, note, write_json
from lmp.cli.progress import watched

if TYPE_CHECKING:
    from fractions import Fraction

    from lmp.analyze.comparing import Found
    from lmp.formula import Number
    from lmp.link.difference import Difference, Exceeded
    from lmp.records import ModelAnalysis


class By(StrEnum):
    flops = "flops"
    bytes = "bytes"


class Each(StrEnum):
    kernel = "kernel"
    line = "line"
    module = "module"


First = Annotated[
    str,
    typer.Argument(metavar="A", help="File or folder of a result, class path, class@config, or model id."),
]
Second = Annotated[
    str | None, typer.Argument(metavar="B", help="The other result [default with --results-b: A's class].")
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
        "--fail-above", metavar="SHARE", help="Exit with 4 if FLOPs, bytes or parameters rose by more than this, as 1%."
    ),
]


@o.takes(*(*o.SIZES, ..., "engine", "results", "results_b", "transformers", "pytorch", "no_atlas", "attn", *o.PRINTED))
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
) -> None:
    """Show what became more expensive from A to B, by line and by kernel.

    Example: lmp diff old/my.Block new/my.Block --batch-size 1 --seq-len 2048 --fail-above 1%

    Stored results are compared as they are. Without a point, only formulas are compared.
    """
    from lmp.link.compare import Side, compare, exceeded

    limit = None if fail_above is None else _share(fail_above)
    axes = g.given_values(common, settings or [])
    second = _second(a, b, results_b)
    options = common.options()
    others = options if results_b is None else replace(options, results=results_b)
    with watched([a, second], options, common.quiet) as progress:
        from lmp.atlas.models import find_result

        left = find_result(a, options, progress, stored_only=results_b is not None)
        right = find_result(second, others, progress, stored_only=results_b is not None)
    given = _one_point(axes)
    values = _points(left.model, right.model, given, needed=limit is not None)
    ours, theirs = (None, None) if values is None else values
    left, right = (_as_quantised(side, given) for side in (left, right))
    found = compare(Side(a, left.model, ours), Side(second, right.model, theirs))
    over = [] if limit is None else exceeded(found, limit)
    found = found.model_copy(update={"fail_above": fail_above, "exceeded": over})
    warnings = list(_warnings(left, right, found, given, limited=limit is not None))
    if common.as_json:
        write_json(found.model_dump(mode="json"))
    else:
        from lmp.cli.difference import View, print_difference
        from lmp.cli.tables import console

        if values is None:
            note(f"no sizes are given, so formulas are compared; for numbers: lmp diff {a} {second} -b 1 -s 2k")
        view = View(by=by.value, each=each.value, top=top, formulas=formulas or values is None, exact=exact)
        print_difference(console(), found, view)
    for warning in warnings:
        note(f"warning: {warning}")
    if limit is not None:
        _exit_if_above(found, over, str(fail_above))


# --- the options -----------------------------------------------------------------------------------------------------


def _second(a: str, b: str | None, results_b: Path | None) -> str:
    from lmp.errors import UsageError

    if b is not None:
        return b
    if results_b is None:
        raise UsageError("only one result is given\ngive B too, or the folder of its results with --results-b")
    return a


def _share(text: str) -> Fraction:
    """The limit as a fraction: ``1%`` and ``0.01`` are the same."""
    from fractions import Fraction

    from lmp.errors import UsageError

    number = text.removesuffix("%").strip()
    if not re.fullmatch(r"[0-9]{1,18}(\.[0-9]{1,18})?", number):
        raise UsageError(f"--fail-above {text!r} is not a share\nwrite it as in --fail-above 1%")
    found = Fraction(number)
    if text.endswith("%"):
        return found / 100
    if found >= 1:
        raise UsageError(f"--fail-above {text} is either a share or a percentage\nwrite {text}% for a percentage")
    return found


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
    left: Found, right: Found, found: Difference, given: Mapping[str, Number], limited: bool
) -> Iterator[str]:
    from lmp.link.compare import known_to_one, unsaid
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
    for quantity in unsaid(found) if limited else []:
        yield f"{quantity} are not checked against --fail-above: A or B does not state how many there are"


def _exit_if_above(found: Difference, over: list[Exceeded], limit: str) -> None:
    from lmp.report.formats.figures import change, in_full

    for rise in over:
        share = change(rise.b - rise.a, rise.a)
        name = "FLOPs" if rise.quantity == "flops" else rise.quantity
        before, after = in_full(rise.a), in_full(rise.b)
        note(f"error: {name} rose by {share.removeprefix('+')}, from {before} to {after}: above {limit}")
    failed = [side for side, record in (("A", found.a), ("B", found.b)) if record.verification == "failed"]
    if failed:
        note(f"error: the formulas of {' and '.join(failed)} do not agree with execution: no limit can be checked")
    if over or failed:
        raise typer.Exit(DISAGREES)
