"""``lmp evaluate``: a model's formulas with numbers put in, at one point or at many, in the form that is asked for."""

from __future__ import annotations

import io
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from lmp.cli import given as g
from lmp.cli import options as o
from lmp.report.formats import FORMATS

if TYPE_CHECKING:
    from lmp.expand.numbers import ModelNumbers
    from lmp.expand.point import Values
    from lmp.expand.sweep import Chunk, Sweep
    from lmp.records import ModelAnalysis
    from lmp.report.formats.base import Format, Show

FormatName = StrEnum("FormatName", list(FORMATS))  # type: ignore[misc]


class SortBy(StrEnum):
    order = "order"
    flops = "flops"
    bytes = "bytes"
    read = "read"
    write = "write"
    intensity = "intensity"


class Share(StrEnum):
    flops = "flops"
    bytes = "bytes"


class WeightName(StrEnum):
    flops = "flops"
    bytes = "bytes"
    read = "read"
    write = "write"


def evaluate(
    class_path: o.ClassPath = None,
    module: o.ModulePath = None,
    phase: g.PhaseName = None,
    batch_size: g.BatchSize = None,
    seq_len: g.SeqLen = None,
    cache_len: g.CacheLen = None,
    dtype: g.ElementType = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any value, as batch_size=1,2,4 or seq_len=1:64:8."),
    ] = None,
    max_points: Annotated[
        int | None, typer.Option("--max-points", metavar="N", min=1, help="Points of a sweep [default: 10,000,000].")
    ] = None,
    form: Annotated[FormatName | None, typer.Option("--format", help="The form of the output.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="A file in place of stdout.")
    ] = None,
    depth: Annotated[
        int | None, typer.Option("--depth", metavar="N", min=0, help="Levels of modules that are shown [default: 3].")
    ] = None,
    kernels: Annotated[
        bool | None, typer.Option("--kernels/--no-kernels", help="Operators one by one, or summed up.")
    ] = None,
    sort: Annotated[SortBy, typer.Option("--sort", help="How the parts of a module stand.")] = SortBy.order,
    top: Annotated[
        int | None, typer.Option("--top", metavar="N", min=1, help="The dearest parts of each module alone.")
    ] = None,
    by: Annotated[Share, typer.Option("--by", help="What the shares are of.")] = Share.flops,
    weight: Annotated[WeightName, typer.Option("--weight", help="Widths in a flame graph.")] = WeightName.flops,
    exact: Annotated[bool, typer.Option("--exact", help="Whole numbers in place of GFLOP and GB.")] = False,
    engine: o.EngineName = o.Engine.auto,
    results: o.Results = None,
    transformers: o.Transformers = None,
    pytorch: o.Pytorch = None,
    config: o.Config = None,
    model_id: o.ModelId = None,
    attn: o.Attn = None,
    inputs: o.Inputs = None,
    init: o.Init = None,
    path: o.Paths = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """Put numbers into the formulas, of a module or of a whole model.

    As in: lmp evaluate torch.nn.Linear --batch-size 2 --seq-len 16 --set in_features=8,out_features=32,bias=0

    Every size may be a list (1,2,4) or a range (1:64:8 in steps of 8, 128:4096:*2 by doubling, ends included): then all
    combinations are evaluated.
    """
    from lmp.cli.commands import _one_class, _options, _watched
    from lmp.report.formats import load

    found = load(_format_name(form, as_json))
    sizes = {"batch_size": batch_size, "seq_len": seq_len, "cache_len": cache_len}
    given = g.given_values(phase, sizes, settings or [])
    if found.binary and output is None:
        from lmp.errors import UsageError

        raise UsageError(f"{form} is not text\ngive a file for it with --output FILE")
    show = _show(depth, kernels, sort, top, by, weight, exact, output)
    options = _options(engine, results, transformers, pytorch, config, model_id, attn, o.Dtype.bfloat16)
    options = replace(options, inputs=inputs, init=init, paths=tuple(path or ()))
    name = _one_class(class_path, module, options)
    with _watched([name], options, quiet) as progress:
        from lmp.pipeline.model import expand_model

        outcome = expand_model(name, options, progress, keep=False)
    model = outcome.model
    for warning in outcome.warnings:
        if warning not in (model.verification.reason or ""):
            _note(f"warning: {warning}")
    g.with_dtype(given, dtype, model.parameters)
    say: Callable[[str], None] = (lambda text: None) if quiet else _note
    _write(found, str(form), model, given, show, max_points, output)
    if output is not None:
        say(f"wrote {output}")


# --- what is asked for -----------------------------------------------------------------------------------------------


def _format_name(form: FormatName | None, as_json: bool) -> str:
    from lmp.errors import UsageError

    if as_json and form not in (None, "json"):
        raise UsageError(f"two forms are asked for: --json and --format {form}\ngive one")
    return "json" if as_json else str(form or "table")


def _show(
    depth: int | None,
    kernels: bool | None,
    sort: SortBy,
    top: int | None,
    by: Share,
    weight: WeightName,
    exact: bool,
    output: Path | None,
) -> Show:
    from lmp.cli.tables import PIPED_WIDTH
    from lmp.report.formats.base import Show

    color, width = output is None and sys.stdout.isatty(), PIPED_WIDTH
    if color:
        import shutil

        width = shutil.get_terminal_size().columns
    return Show(
        depth=depth,
        kernels=kernels,
        sort=sort.value,
        top=top,
        by=by.value,
        weight=weight.value,
        exact=exact,
        width=width,
        color=color,
    )


# --- what comes out --------------------------------------------------------------------------------------------------


def _write(
    form: Format,
    name: str,
    model: ModelAnalysis,
    given: Mapping[str, Values],
    show: Show,
    max_points: int | None,
    output: Path | None,
) -> None:
    from lmp.errors import UsageError
    from lmp.expand.numbers import ModelNumbers
    from lmp.expand.sweep import MAX_POINTS, plan
    from lmp.report.warnings import of_the_model

    numbers = ModelNumbers(model)
    several = [written for written, values in given.items() if len(values) > 1]
    if several and form.sweep is None:
        raise UsageError(
            f"--format {name} takes one value for each name, and {several[0]} has {len(given[several[0]])}\n"
            "use --format table, json, csv or parquet for a sweep"
        )
    if form.model is not None:
        from lmp.expand.point import known_name

        for warning in of_the_model(model):
            _note(f"warning: {warning}")
        named = {known_name(model, written): values[0] for written, values in given.items()}
        with _opened(output, form.binary) as out:
            form.model(numbers, named, out)
        return
    sweep = plan(model, given, max_points or MAX_POINTS)
    if several:
        _write_sweep(form, numbers, sweep, show, output)
    else:
        _write_point(form, numbers, sweep.fixed, show, output)


def _write_point(
    form: Format, numbers: ModelNumbers, values: Mapping[str, int], show: Show, output: Path | None
) -> None:
    from lmp.report.formats.base import Result
    from lmp.report.warnings import of_assumptions, of_the_model, of_the_values

    tree = numbers.tree(values)
    evaluation = numbers.evaluation(values, tree)
    warnings = [
        *of_the_model(numbers.model),
        *of_the_values(numbers.model, values["cache_len"]),
        *of_assumptions(evaluation.violated_assumptions),
    ]
    with _opened(output, form.binary) as out:
        assert form.point is not None
        form.point(Result(numbers, tree, evaluation, warnings), show, out)
    for warning in warnings:
        _note(f"warning: {warning}")


def _write_sweep(form: Format, numbers: ModelNumbers, sweep: Sweep, show: Show, output: Path | None) -> None:
    from lmp.report.formats.base import SweepResult
    from lmp.report.warnings import of_a_sweep, of_the_model, of_the_values

    broken: Counter[str] = Counter()

    def chunks() -> Iterator[Chunk]:
        broken.clear()
        for chunk in sweep.chunks(numbers):
            broken.update(chunk.broken)
            yield chunk

    def warnings() -> list[str]:
        cache_len = max(sweep.axes.get("cache_len", (sweep.fixed["cache_len"],)))
        about = [*of_the_model(numbers.model), *of_the_values(numbers.model, cache_len)]
        return [*about, *of_a_sweep(broken, sweep.size)]

    with _opened(output, form.binary) as out:
        assert form.sweep is not None
        form.sweep(SweepResult(numbers.model, sweep, chunks, warnings), show, out)
    for warning in warnings():
        _note(f"warning: {warning}")


@contextmanager
def _opened(output: Path | None, binary: bool) -> Iterator[IO[Any]]:
    """Stdout, or a file that is there when the block has ended well, and else is what it was before."""
    if output is None:
        yield sys.stdout
        return
    from lmp.store.files import storage_errors, whole_file

    with storage_errors(output, "--output"), whole_file(output) as file:
        if binary:
            yield file
            return
        text = io.TextIOWrapper(file, encoding="utf-8", newline="\n", write_through=False)
        yield text
        text.flush()
        text.detach()


def _note(text: str) -> None:
    print(text, file=sys.stderr)
