"""``lmp diff``: what got dearer from one result to another, and whether by too much."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmp.cli import given as g
from lmp.cli import options as o
from lmp.cli.commands import DISAGREES, _note, _options, _print_json, _results_folder, _watched

if TYPE_CHECKING:
    from fractions import Fraction

    from lmp.expand.difference import Difference, Exceeded
    from lmp.pipeline.comparing import Found
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
    typer.Argument(metavar="A", help="A result's file or folder, a class path, class@config, or a model's id."),
]
Second = Annotated[
    str | None, typer.Argument(metavar="B", help="The other; with --results-b, A's class unless it is given.")
]
ResultsB = Annotated[
    Path | None,
    typer.Option("--results-b", metavar="DIR", help="Where B's results are; classes must be stored, in both."),
]
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any value of the point.")]
Formulas = Annotated[bool, typer.Option("--formulas", help="The formulas of each change, of A and of B.")]
Top = Annotated[int, typer.Option("--top", metavar="N", min=1, help="So many changes, the largest first.")]
FailAbove = Annotated[
    str | None,
    typer.Option("--fail-above", metavar="SHARE", help="Exit 4 if FLOPs, bytes or parameters rose by more, as 1%."),
]


def diff(
    a: First,
    b: Second = None,
    phase: g.PhaseName = None,
    batch_size: g.BatchSize = None,
    seq_len: g.SeqLen = None,
    cache_len: g.CacheLen = None,
    dtype: g.ElementType = None,
    settings: Settings = None,
    fail_above: FailAbove = None,
    formulas: Formulas = False,
    each: Annotated[Each, typer.Option("--each", help="What a row is.")] = Each.kernel,
    by: Annotated[By, typer.Option("--by", help="What the changes are of.")] = By.flops,
    top: Top = 20,
    exact: Annotated[bool, typer.Option("--exact", help="Whole numbers in place of GFLOP and GB.")] = False,
    engine: o.EngineName = o.Engine.auto,
    results: o.Results = None,
    results_b: ResultsB = None,
    transformers: o.Transformers = None,
    pytorch: o.Pytorch = None,
    attn: o.Attn = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """Say what got dearer from A to B, by line and by kernel.

    As in: lmp diff old/my.Block new/my.Block --batch-size 1 --seq-len 2048 --fail-above 1%

    Stored results are compared as they stand. Without a point, the formulas alone are.
    """
    from lmp.expand.compare import Side, compare, exceeded

    limit = None if fail_above is None else _share(fail_above)
    sizes = {"batch_size": batch_size, "seq_len": seq_len, "cache_len": cache_len}
    axes = g.given_values(phase, sizes, settings or [])
    second = _second(a, b, results_b)
    options = _options(engine, results, transformers, pytorch, None, None, attn, o.Dtype.bfloat16)
    others = options if results_b is None else replace(options, results=_results_folder(results_b))
    with _watched([a, second], options, quiet) as progress:
        from lmp.pipeline.comparing import find_result

        left = find_result(a, options, progress, stored_only=results_b is not None)
        right = find_result(second, others, progress, stored_only=results_b is not None)
    g.with_dtype(axes, dtype, {*left.model.parameters, *right.model.parameters})
    given = _one_point(axes)
    values = _points(left.model, right.model, given, needed=limit is not None)
    ours, theirs = (None, None) if values is None else values
    found = compare(Side(a, left.model, ours), Side(second, right.model, theirs))
    over = [] if limit is None else exceeded(found, limit)
    found = found.model_copy(update={"fail_above": fail_above, "exceeded": over})
    notes = list(_notes(left, right, found, given, limited=limit is not None))
    if as_json:
        _print_json(found.model_dump(mode="json"))
    else:
        from lmp.cli.difference import View, print_difference
        from lmp.cli.tables import console

        view = View(by=by.value, each=each.value, top=top, formulas=formulas or values is None, exact=exact)
        print_difference(console(), found, view)
    for note in notes:
        _note(f"warning: {note}")
    if limit is not None:
        _exit_if_above(found, over, str(fail_above))


# --- what is asked for -----------------------------------------------------------------------------------------------


def _second(a: str, b: str | None, results_b: Path | None) -> str:
    from lmp.errors import UsageError

    if b is not None:
        return b
    if results_b is None:
        raise UsageError("one result is given, and it takes two\ngive B too, or where its results are with --results-b")
    return a


def _share(text: str) -> Fraction:
    """``1%`` and ``0.01`` are the same."""
    from fractions import Fraction

    from lmp.errors import UsageError

    number = text.removesuffix("%").strip()
    if not re.fullmatch(r"[0-9]{1,18}(\.[0-9]{1,18})?", number):
        raise UsageError(f"--fail-above {text!r} is no share\nwrite it as in --fail-above 1%")
    found = Fraction(number)
    if text.endswith("%"):
        return found / 100
    if found >= 1:
        raise UsageError(f"--fail-above {text} may be a share or a percentage\nwrite {text}% if that is meant")
    return found


def _one_point(axes: g.Axes) -> dict[str, int]:
    from lmp.errors import UsageError

    for name, values in axes.items():
        if len(values) != 1:
            raise UsageError(f"{name} is set to {len(values):,} values, and a comparison is at one point\ngive one")
    return {name: values[0] for name, values in axes.items()}


def _points(
    a: ModelAnalysis, b: ModelAnalysis, given: dict[str, int], needed: bool
) -> tuple[dict[str, int], dict[str, int]] | None:
    """The values of both; None where nothing is given, and something has to be."""
    from lmp.errors import UsageError
    from lmp.expand.compare import points

    try:
        return points(a, b, given)
    except UsageError as error:
        if given:
            raise
        if needed:
            message = str(error).splitlines()
            raise UsageError(f"--fail-above needs a point: {message[0]}\n{message[-1]}") from error
        return None


# --- what has to be known --------------------------------------------------------------------------------------------


def _notes(left: Found, right: Found, found: Difference, given: dict[str, int], limited: bool) -> Iterator[str]:
    from lmp.expand.compare import known_to_one, unsaid
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
        yield f"{quantity} are not held against --fail-above: A or B does not say how many there are"


def _exit_if_above(found: Difference, over: list[Exceeded], limit: str) -> None:
    from lmp.report.formats.figures import change

    for rise in over:
        share = change(rise.b - rise.a, rise.a)
        name = "FLOPs" if rise.quantity == "flops" else rise.quantity
        _note(f"error: {name} rose by {share.removeprefix('+')}, from {rise.a:,} to {rise.b:,}: above {limit}")
    failed = [side for side, record in (("A", found.a), ("B", found.b)) if record.verification == "failed"]
    if failed:
        _note(f"error: the formulas of {' and '.join(failed)} do not agree with execution: no limit can be held")
    if over or failed:
        raise typer.Exit(DISAGREES)
