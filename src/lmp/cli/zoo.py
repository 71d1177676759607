"""``lmp zoo``: every model family of transformers, each in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmp.cli import options as o

if TYPE_CHECKING:
    from lmp.pipeline.zoo.requests import Executor, Limits
    from lmp.pipeline.zoo.run import ZooOptions
    from lmp.records import ZooSummary
    from lmp.source.auto import Family


class Task(StrEnum):
    all = "all"
    causal_lm = "causal-lm"
    masked_lm = "masked-lm"
    seq2seq = "seq2seq"
    vision = "vision"
    audio = "audio"
    multimodal = "multimodal"
    base = "base"


Families = Annotated[
    list[str] | None,
    typer.Argument(metavar="FAMILY...", help="Model types of transformers, patterns of them as 'qwen*', or all."),
]
Tasks = Annotated[
    list[Task] | None,
    typer.Option("--task", help="What the models are for; base: their bare models [default: the first that has one]."),
]
Jobs = Annotated[int | None, typer.Option("--jobs", metavar="N", min=1, help="Processes [default: one a core].")]
TimeLimit = Annotated[
    float,
    typer.Option(
        "--time-limit",
        metavar="S",
        min=1,
        help="Seconds of CPU time that a family may take; of wall time, four times as many.",
    ),
]
MemoryLimit = Annotated[
    float, typer.Option("--memory-limit", metavar="GB", min=0.5, help="Memory that a family's process may take.")
]
Scheduler = Annotated[
    str | None,
    typer.Option("--scheduler", metavar="ADDRESS", help="Run on a Dask cluster: tcp://host:port of its scheduler."),
]
Compare = Annotated[
    Path | None,
    typer.Option(
        "--compare", metavar="FILE", help="A summary to hold the families against: ends with 4 if any is lost."
    ),
]
Show = Annotated[
    Path | None,
    typer.Option("--show", metavar="FILE", help="Show a summary, and run nothing; with --quiet its counts alone."),
]
Retry = Annotated[bool, typer.Option("--retry", help="Make those again that were not verified.")]
List = Annotated[bool, typer.Option("--list", help="Show the families, and run nothing.")]


def zoo(
    families: Families = None,
    task: Tasks = None,
    jobs: Jobs = None,
    time_limit: TimeLimit = 300,
    memory_limit: MemoryLimit = 4,
    scheduler: Scheduler = None,
    compare: Compare = None,
    show: Show = None,
    retry: Retry = False,
    fresh: o.Fresh = False,
    only_list: List = False,
    results: o.Results = None,
    reports: Annotated[
        Path | None, typer.Option("--reports", metavar="DIR", help="Where summaries are written [default: reports].")
    ] = None,
    transformers: o.Transformers = None,
    pytorch: o.Pytorch = None,
    attn: o.Attn = None,
    dtype: o.DtypeName = o.Dtype.bfloat16,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """Expand and verify many model families, each at its default config.

    As in: lmp zoo --task causal-lm, or lmp zoo llama 'qwen*'. What was done is not done again: a run that was
    interrupted goes on. Summaries are written to reports/zoo/ as JSON, markdown and one HTML page.
    """
    from lmp.cli.commands import _print, _results_folder
    from lmp.pipeline.zoo.entries import read_summary
    from lmp.pipeline.zoo.requests import Limits
    from lmp.pipeline.zoo.run import ZooOptions
    from lmp.pipeline.zoo.run import summaries as summaries_of

    if show is not None:
        found = read_summary(show)
        _tell([found], {entry.family for entry in found.entries}, as_json, quiet)
        return
    options = ZooOptions(
        _results_folder(results), transformers, pytorch, str(attn) if attn else None, str(dtype), fresh, retry
    )
    before = read_summary(compare) if compare is not None else None
    chosen = _chosen(families or [], [str(t) for t in task or []], options, before)
    if only_list:
        _print("".join(f"{family.task}\t{family.name}\t{family.class_name}\n" for family in chosen))
        return
    limits = Limits(time_limit, int(memory_limit * 2**30))
    folder = _reports_folder(reports)
    try:
        summaries = _run(chosen, options, _executor(scheduler, jobs, limits), quiet)
    except KeyboardInterrupt:
        # What was done by then is told; the same command goes on with the rest.
        _write(summaries_of(dict.fromkeys(family.task for family in chosen), options, None), folder, quiet)
        raise
    _write(summaries, folder, quiet)
    _tell(summaries, {family.name for family in chosen}, as_json)
    if before is not None:
        _compare(before, summaries, {family.name for family in chosen})


def _chosen(
    patterns: Sequence[str], tasks: Sequence[str], options: ZooOptions, before: ZooSummary | None
) -> list[Family]:
    """The families that are meant, each for one task: the first of the tasks that has it."""
    from lmp.errors import UsageError
    from lmp.source.auto import ALL, TASKS, chosen, families

    if not patterns and not tasks and before is None:
        raise UsageError(
            f"no families are named\ngive names, a pattern as 'qwen*', all, or --task with one of {', '.join(TASKS)}"
        )
    if before is not None and not tasks:
        tasks = [before.task]
    trees = options.trees()
    every = [task for task in TASKS if ALL in tasks or not tasks or task in tasks]
    known = [family for task in every for family in families(trees, task)]
    if before is not None and not patterns:
        verified = {entry.family for entry in before.entries if entry.status == "verified"}
        return [family for family in known if family.name in verified]
    picked = chosen(known, patterns)
    if tasks or ALL in patterns:
        return picked
    first: dict[str, Family] = {}
    for family in picked:
        first.setdefault(family.name, family)
    return list(first.values())


def _executor(scheduler: str | None, jobs: int | None, limits: Limits) -> Executor:
    if scheduler is not None:
        from lmp.errors import UsageError

        if jobs is not None:
            raise UsageError("--jobs is for this machine, and --scheduler has workers of its own\nleave out one")
        from lmp.pipeline.zoo.cluster import DaskCluster

        return DaskCluster(scheduler, limits)
    from lmp.pipeline.zoo.local import LocalProcesses

    return LocalProcesses(jobs or _cores(), limits)


def _cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _run(chosen: Sequence[Family], options: ZooOptions, executor: Executor, quiet: bool) -> list[ZooSummary]:
    from lmp.cli.zoo_table import watch
    from lmp.pipeline.zoo.run import run_zoo

    with watch(len(chosen), quiet) as watching:
        return run_zoo(chosen, options, executor, watching)


def _reports_folder(given: Path | None) -> Path:
    from lmp.cli.report import _reports_folder as folder

    return folder(given) / "zoo"


def _write(summaries: Sequence[ZooSummary], folder: Path, quiet: bool) -> None:
    """JSON and markdown always, the page where its packages are installed."""
    from lmp.cli.commands import _note
    from lmp.pipeline.zoo.entries import summary_text
    from lmp.report.extra import INSTALL, missing
    from lmp.report.zoo.markdown import markdown
    from lmp.store.files import storage_errors, write_whole

    for summary in summaries:
        with storage_errors(folder, "--reports"):
            write_whole(folder / f"{summary.task}.json", summary_text(summary))
            write_whole(folder / f"{summary.task}.md", markdown(summary))
            if "jinja2" in missing():
                _note(f"no HTML page: it needs jinja2; install it: {INSTALL}")
                continue
            from lmp.report.zoo.page import page

            write_whole(folder / f"{summary.task}.html", page(summary))
        if not quiet:
            _note(f"written: {folder / summary.task}.json, .md and .html")


def _tell(summaries: Sequence[ZooSummary], asked: set[str], as_json: bool, counts_alone: bool = False) -> None:
    from lmp.cli.commands import _print_json
    from lmp.cli.tables import console
    from lmp.cli.zoo_table import print_counts, print_families

    if as_json:
        _print_json([summary.model_dump(mode="json", exclude_none=True) for summary in summaries])
        return
    for summary in summaries:
        print_counts(console(), summary, asked)
        if not counts_alone:
            print_families(console(), summary, asked)


def _compare(before: ZooSummary, summaries: Sequence[ZooSummary], asked: set[str]) -> None:
    """Ends with 4 where a family that was verified is not any more."""
    from lmp.cli.commands import DISAGREES, _note
    from lmp.errors import UsageError
    from lmp.pipeline.zoo.comparing import compared

    now = next((summary for summary in summaries if summary.task == before.task), None)
    if now is None:
        raise UsageError(
            f"the summary to compare with is of {before.task}, which was not run\ngive --task {before.task}"
        )
    found = compared(before, now)
    for change in found.gained:
        _note(f"gained: {change.family}: {change.before} before, now verified")
    for change in found.changed:
        _note(f"changed: {change.family}: {change.before} before, now {change.now}: {change.why}")
    lost = [change for change in found.regressed if change.family in asked]
    for change in lost:
        _note(f"lost: {change.family}: verified before, now {change.now}: {change.why}")
    absent = [name for name in found.absent if name in asked]
    if absent:
        _note(f"lost: {', '.join(absent)}: verified before, now not there")
    kept = len(asked) - len(lost) - len(absent)
    _note(f"compared with the summary of {before.task}: {kept} of {len(asked)} families are as good as before")
    if lost or absent:
        raise typer.Exit(DISAGREES)
