"""``lmp evaluate``: numbers put into the formulas of a model, at one point or at many, in the given format."""

from __future__ import annotations

import io
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from lmp.cli import given as g
from lmp.cli import options as o
from lmp.cli.devices import CalibrationFolder, DevicesFile
from lmp.cli.on_device import refuse_form, wanted_on_device
from lmp.cli.output import is_one_stream, note
from lmp.cli.progress import class_of_config, watched
from lmp.cli.subject import chosen
from lmp.report.formats import FORMATS

if TYPE_CHECKING:
    from fractions import Fraction

    from lmp.analyze.session import Options
    from lmp.link.numbers import ModelNumbers
    from lmp.link.sweep import Chunk, Sweep
    from lmp.link.values import Point, Values
    from lmp.predict.one_gpu import OneGpuHolds
    from lmp.predict.screen.records import Card
    from lmp.records import ModelAnalysis
    from lmp.report.formats.base import Format, Result, Show
    from lmp.report.formats.times import Times
    from lmp.source.trees import Trees

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


class Each(StrEnum):
    operator = "operator"
    line = "line"
    category = "category"
    module = "module"


class WeightName(StrEnum):
    flops = "flops"
    bytes = "bytes"
    read = "read"
    write = "write"


@o.takes(*(*o.ONE_CLASS, *o.SIZES, ..., *o.FOLDERS, "no_atlas", "config", "model_id", "attn", *o.OWN_CLASS, *o.PRINTED))
def evaluate(
    common: o.Common,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Value of a variable, as batch_size=1,2,4 or seq_len=1:64:8."),
    ] = None,
    max_points: Annotated[
        int | None,
        typer.Option("--max-points", metavar="N", min=1, help="Cap of points in a sweep [default: 10,000,000]."),
    ] = None,
    form: Annotated[FormatName | None, typer.Option("--format", help="Format of the output.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="File to write in place of stdout.")
    ] = None,
    depth: Annotated[
        int | None, typer.Option("--depth", metavar="N", min=0, help="Levels of modules that are shown [default: 3].")
    ] = None,
    kernels: Annotated[
        bool | None, typer.Option("--kernels/--no-kernels", help="Show operators one by one, or summed up.")
    ] = None,
    each: Annotated[
        Each | None,
        typer.Option("--each", help="A flat list, dearest first; line: the source with its costs."),
    ] = None,
    sort: Annotated[SortBy, typer.Option("--sort", help="Order of the parts of a module.")] = SortBy.order,
    top: Annotated[
        int | None,
        typer.Option(
            "--top", metavar="N", min=1, help="Show only the N most expensive parts of each module, or of a list."
        ),
    ] = None,
    by: Annotated[Share, typer.Option("--by", help="Quantity that the shares are of.")] = Share.flops,
    weight: Annotated[
        WeightName, typer.Option("--weight", help="Quantity shown as width in a flame graph.")
    ] = WeightName.flops,
    exact: Annotated[bool, typer.Option("--exact", help="Show exact integers, not GFLOP and GB.")] = False,
    columns: Annotated[
        str | None,
        typer.Option("--columns", metavar="all|NAME,NAME", help="Columns of the table [default: as many as fit]."),
    ] = None,
    config_values: Annotated[bool, typer.Option("--values", help="Show the values of the config too.")] = False,
    on_device: o.OnDevice = None,
    serving: o.ServingEngine = None,
    plot: o.Plot = None,
    x: o.PlotX = None,
    y: o.PlotY = None,
    tp: o.Tp = 1,
    ep: o.Ep = 1,
    devices_file: DevicesFile = None,
    calibration: CalibrationFolder = None,
) -> None:
    """Evaluate the formulas of a module or of a whole model.

    Examples: lmp evaluate Qwen/Qwen3-8B --phase decode -b 16 -c 8k, lmp evaluate torch.nn.Linear -b 2 -s 16 --set
    in_features=8,out_features=32,bias=0; lmp evaluate Qwen/Qwen3-8B --phase decode -b 16 -c 8k --tp 4: one GPU of four.

    With --device, the table begins with the time on it, eager and by a serving engine, and with memory.

    Every size may be a list (1,2,4) or a range: 1:64:8 in steps of 8, 128:4096:*2 by doubling, both ends included. All
    combinations are evaluated. Numbers of sequences and tokens may have a unit: 8k is 8,192, 1M is 1,048,576.
    """
    from lmp.report.formats import load

    found = load(_format_name(form, common.as_json))
    given = g.given_values(common, settings or [])
    if found.binary and output is None:
        from lmp.errors import UsageError

        raise UsageError(f"--format {form} is binary\ngive a file with --output FILE")
    only_of_tables = {"--each": each, "--columns": columns, "--values": config_values or None}
    for option, value in only_of_tables.items():
        if value is not None and _format_name(form, common.as_json) != "table":
            from lmp.errors import UsageError

            raise UsageError(
                f"{option} is for the table\nleave it out: the other formats have every operator and value"
            )
    if columns is not None and each is Each.line:
        from lmp.errors import UsageError

        raise UsageError("--columns does not go with --each line\nleave it out: it shows as many as fit")
    from lmp.predict.shard.parallel import Parallel

    parallel = Parallel(tp, ep)
    common, serving = o.engines(common, serving)
    wanted = wanted_on_device(common, on_device, serving, parallel, (devices_file, calibration))
    if wanted is not None:
        refuse_form(_format_name(form, common.as_json), given)
    quantities = o.drawn(plot, x, y)
    show = replace(
        _show(depth, kernels, sort, top, by, weight, exact, output),
        each=each.value if each else None,
        columns=None if columns is None else tuple(name.strip() for name in columns.split(",")),
        values=config_values,
    )
    named = o.one_of("classes", common.class_path, "--module", common.module)
    common, class_path = chosen(common, named, "evaluate")
    options = common.options()
    if found.point is not None and class_path is None:
        g.need_batch_size(given, common)
    name = class_path or class_of_config(options)
    with watched([name], options, common.quiet) as progress:
        from lmp.atlas.models import expand_model

        outcome = expand_model(name, options, progress, keep=False)
    model = outcome.model
    for warning in outcome.warnings:
        if warning not in (model.verification.reason or ""):
            note(f"warning: {warning}")
    trees = _trees(options) if each is Each.line else None
    several = next((name for name, values in given.items() if len(values) > 1), None)
    if several is not None and parallel.tp > 1:
        from lmp.errors import UsageError

        raise UsageError(
            f"{several} has several values, and with --tp the formulas are those of one call\n"
            "give one; lmp predict --plot draws the time of several"
        )
    beside = Beside(trees)
    if wanted is not None or parallel.tp > 1 or (several is None and "w_bytes" in given):
        from lmp.predict.quantising import stored_bytes
        from lmp.predict.screen.asking import Subject
        from lmp.predict.screen.whole import held_quickly

        config = options.found_config
        subject = Subject(model, None if config is None else config.content)
        first = {name: values[0] for name, values in given.items()} if wanted is None else wanted.ask(given).given
        held = held_quickly(subject, options, first, parallel.tp)
        if several is None and "w_bytes" in first:
            beside = replace(beside, stored=stored_bytes(held, first["w_bytes"]))
        if wanted is not None and several is None:
            beside = replace(beside, card=wanted.card(subject, given, held))
        elif wanted is not None:
            beside = replace(beside, times=_times(model, given, wanted.card_at(subject, given, held)))
        if parallel.tp > 1:
            from lmp.predict.one_gpu import holds
            from lmp.predict.shard.formulas import one_of

            one = one_of(subject.numbers(first), given, parallel, subject.plan)
            beside = replace(beside, one_gpu=holds(subject, first, parallel, held))
            model = one.analysis
            for text in one.notes:
                note(text)
    if plot is not None:
        _plot(outcome.model, given, (plot, x, quantities), wanted is not None, beside.times)
    _write_in(found, str(form), model, given, show, max_points, output, beside)
    if output is not None and not common.quiet:
        note(f"wrote {output}")


@dataclass(frozen=True)
class Beside:
    """What is shown beside the costs."""

    trees: Trees | None
    """The sources, for their lines."""
    card: Card | None = None
    """What one call takes on a device."""
    times: Times | None = None
    """What each point of a sweep takes there."""
    one_gpu: OneGpuHolds | None = None
    """What one GPU of several holds."""
    stored: Fraction | None = None
    """Bytes of the weights as a checkpoint stores them."""


def _times(model: ModelAnalysis, given: Mapping[str, Values], card_at: Callable[[Mapping[str, Any]], Card]) -> Times:
    from lmp.link.sweep import plan
    from lmp.report.formats.times import Times

    return Times(plan(_with_own_bytes(model, given), given), card_at)


def _with_own_bytes(model: ModelAnalysis, given: Mapping[str, Values]) -> ModelAnalysis:
    """The model with the bytes of its checkpoint, unless those of all weights are given."""
    from lmp.link.quantised import with_own_bytes

    return with_own_bytes(model) if "w_bytes" not in given else model


def _plot(
    model: ModelAnalysis,
    given: Mapping[str, Values],
    drawn: tuple[Path, str | None, tuple[str, ...]],
    on_device: bool,
    times: Times | None,
) -> None:
    """Draw the sweep. ``drawn``: the file, and the names of both axes."""
    from lmp.link.numbers import ModelNumbers
    from lmp.link.sweep import plan
    from lmp.report.sweep_plot import axes_of, plot

    file, x, y = drawn
    own = _with_own_bytes(model, given)
    sweep = plan(own, given)
    plot(ModelNumbers(own), sweep, axes_of(sweep, x, y, on_device), file, times)
    note(f"wrote {file}")


# --- how it is shown -------------------------------------------------------------------------------------------------


def _format_name(form: FormatName | None, as_json: bool) -> str:
    from lmp.errors import UsageError

    if as_json and form not in (None, "json"):
        raise UsageError(f"two formats are given: --json and --format {form}\ngive one")
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


def _trees(options: Options) -> Trees:
    """Where the sources of the classes are looked for: own classes below the current folder too."""
    from lmp.source.trees import find_trees

    return find_trees(None, options.transformers, options.pytorch, [*options.paths, Path.cwd()])


# --- what is written -------------------------------------------------------------------------------------------------


def _write_in(
    form: Format,
    name: str,
    model: ModelAnalysis,
    given: Mapping[str, Values],
    show: Show,
    max_points: int | None,
    output: Path | None,
    beside: Beside,
) -> None:
    from lmp.errors import UsageError
    from lmp.link.numbers import ModelNumbers
    from lmp.link.sweep import MAX_POINTS, plan
    from lmp.report.warnings import of_the_model

    at_w_bytes = model
    model = _with_own_bytes(model, given)
    numbers = ModelNumbers(model)
    several = [written for written, values in given.items() if len(values) > 1]
    if several and form.sweep is None:
        raise UsageError(
            f"--format {name} takes one value for each name, but {several[0]} has {len(given[several[0]])}\n"
            "use --format table, json, csv or parquet for a sweep"
        )
    if form.model is not None:
        from lmp.link.values import known_name

        for warning in of_the_model(model):
            note(f"warning: {warning}")
        named = {known_name(model, written): values[0] for written, values in given.items()}
        with _opened(output, form.binary) as out:
            form.model(numbers, named, out)
        return
    sweep = plan(model, given, max_points or MAX_POINTS)
    if several:
        _write_sweep(form, numbers, sweep, show, output, beside.times)
    else:
        costs = _result(numbers, at_w_bytes, sweep.fixed, beside.trees)
        result = of_one_gpu(replace(costs, card=beside.card, stored=beside.stored), beside.one_gpu)
        with _opened(output, form.binary) as out:
            assert form.point is not None
            form.point(result, show, out)
        notes = [] if beside.card is None else beside.card.notes
        for warning in [*_unsaid(result.warnings, form, output), *notes]:
            note(f"warning: {warning}")


def _result(numbers: ModelNumbers, at_w_bytes: ModelAnalysis, values: Point, trees: Trees | None) -> Result:
    from lmp.report.formats.base import Result
    from lmp.report.warnings import of_assumptions, of_costs, of_the_model, of_the_values

    tree = numbers.tree(values)
    wrong = list(of_costs(tree.kernels()))
    evaluation = numbers.evaluation(values, tree)
    warnings = [
        *wrong,
        *of_the_model(numbers.model),
        *of_the_values(numbers.model, values["cache_len"]),
        *of_assumptions(evaluation.violated_assumptions),
    ]
    evaluation = evaluation.model_copy(update={"warnings": warnings})
    return Result(numbers, tree, evaluation, warnings, at_w_bytes, trees)


def of_one_gpu(result: Result, own: OneGpuHolds | None) -> Result:
    """The result with what one GPU holds, and with what it cannot avoid to move."""
    if own is None:
        return result
    from lmp.formula import plain

    least = None if own.compulsory is None else plain(own.compulsory)
    totals = result.evaluation.totals.model_copy(update={"compulsory": least})
    return replace(result, one_gpu=own, evaluation=result.evaluation.model_copy(update={"totals": totals}))


def _write_sweep(
    form: Format, numbers: ModelNumbers, sweep: Sweep, show: Show, output: Path | None, times: Times | None
) -> None:
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
        return [*about, *of_a_sweep(broken, sweep.size), *([] if times is None else times.warnings())]

    with _opened(output, form.binary) as out:
        assert form.sweep is not None
        form.sweep(SweepResult(numbers.model, sweep, chunks, warnings, times), show, out)
    for warning in _unsaid(warnings(), form, output):
        note(f"warning: {warning}")


def _unsaid(warnings: list[str], form: Format, output: Path | None) -> list[str]:
    """The warnings to write to stderr: none where the format has written them to the same place."""
    return [] if form.warns and output is None and is_one_stream() else warnings


@contextmanager
def _opened(output: Path | None, binary: bool) -> Iterator[IO[Any]]:
    """Stdout, or a file that is written when the block ends without an error, and else stays as it was."""
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
