"""``lmp zoo``: every model family of transformers, each in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmp.cli import options as o
from lmp.cli.output import DISAGREES, note, write, write_json

if TYPE_CHECKING:
    from lmp.records import ZooSummary
    from lmp.source.auto import Family
    from lmp.zoo.requests import Executor, Limits
    from lmp.zoo.run import ZooOptions


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
    typer.Argument(metavar="FAMILY...", help="Model types of transformers, patterns such as 'qwen*', or all."),
]
Tasks = Annotated[
    list[Task] | None,
    typer.Option(
        "--task", help="Task of the models; base: models without a head [default: the first task with the family]."
    ),
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", metavar="N", min=1, help="Number of processes [default: one per core].")
]
TimeLimit = Annotated[
    float,
    typer.Option(
        "--time-limit",
        metavar="S",
        min=1,
        help="CPU time that a family may take, in seconds; wall time: four times as much.",
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
        "--compare", metavar="FILE", help="Summary to compare with: exits with 4 if a verified family is lost."
    ),
]
Show = Annotated[
    Path | None,
    typer.Option("--show", metavar="FILE", help="Show a summary and run nothing; with --quiet only its counts."),
]
Retry = Annotated[bool, typer.Option("--retry", help="Run the families again that were not verified.")]
List = Annotated[bool, typer.Option("--list", help="List the families and run nothing.")]


@o.takes(*(..., "fresh", "only_list", "results", "reports", "transformers", "pytorch", "attn", "dtype", *o.PRINTED))
def zoo(
    common: o.Common,
    families: Families = None,
    task: Tasks = None,
    jobs: Jobs = None,
    time_limit: TimeLimit = 300,
    memory_limit: MemoryLimit = 4,
    scheduler: Scheduler = None,
    compare: Compare = None,
    show: Show = None,
    retry: Retry = False,
    only_list: List = False,
    reports: Annotated[
        Path | None,
        typer.Option(
            "--reports",
            metavar="DIR",
            help="Folder of the summaries [default: reports in a project, else in the user's data folder].",
        ),
    ] = None,
) -> None:
    """Expand and verify many model families, each at its default config.

    Examples: lmp zoo --task causal-lm, lmp zoo llama 'qwen*'. Finished families are not run again: an interrupted run
    continues. Summaries are written to reports/zoo/ as JSON, markdown and one HTML page.
    """
    from lmp.zoo.entries import read_summary
    from lmp.zoo.requests import Limits
    from lmp.zoo.run import ZooOptions, families_to_run
    from lmp.zoo.run import summaries as summaries_of

    if show is not None:
        found = read_summary(show)
        _show_summaries([found], {entry.family for entry in found.entries}, common.as_json, counts_alone=common.quiet)
        return
    options = ZooOptions(
        results=common.said_results_folder(),
        transformers=common.transformers,
        pytorch=common.pytorch,
        attention=None if common.attn is None else str(common.attn),
        dtype=str(common.dtype),
        fresh=common.fresh,
        retry=retry,
    )
    before = read_summary(compare) if compare is not None else None
    chosen = families_to_run(families or [], [str(t) for t in task or []], options, before)
    if only_list:
        write("".join(f"{family.task}\t{family.name}\t{family.class_name}\n" for family in chosen))
        return
    limits = Limits(time_limit, int(memory_limit * 2**30))
    folder = o.reports_folder(reports) / "zoo"
    try:
        summaries = _run(chosen, options, _executor(scheduler, jobs, limits), common.quiet)
    except KeyboardInterrupt:
        # The families that are done are written; the same command goes on with the rest.
        _write_summaries(
            summaries_of(dict.fromkeys(family.task for family in chosen), options, None), folder, common.quiet
        )
        raise
    _write_summaries(summaries, folder, common.quiet)
    _show_summaries(summaries, {family.name for family in chosen}, common.as_json)
    if before is not None:
        _compare(before, summaries, {family.name for family in chosen})


def _executor(scheduler: str | None, jobs: int | None, limits: Limits) -> Executor:
    if scheduler is not None:
        from lmp.errors import UsageError

        if jobs is not None:
            raise UsageError("--jobs is for this machine, but --scheduler has its own workers\nleave out one")
        from lmp.zoo.cluster import DaskCluster

        return DaskCluster(scheduler, limits)
    from lmp.zoo.local import LocalProcesses

    return LocalProcesses(jobs or _cores(), limits)


def _cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _run(chosen: Sequence[Family], options: ZooOptions, executor: Executor, quiet: bool) -> list[ZooSummary]:
    from lmp.cli.zoo_table import watch
    from lmp.zoo.run import run_zoo

    with watch(len(chosen), quiet) as watching:
        return run_zoo(chosen, options, executor, watching)


def _write_summaries(summaries: Sequence[ZooSummary], folder: Path, quiet: bool) -> None:
    """Write JSON and markdown, and the HTML page if its packages are installed."""
    from lmp.report.extra import INSTALL, missing
    from lmp.report.zoo.markdown import markdown
    from lmp.store.files import storage_errors, write_whole
    from lmp.zoo.entries import summary_text

    for summary in summaries:
        with storage_errors(folder, "--reports"):
            write_whole(folder / f"{summary.task}.json", summary_text(summary))
            write_whole(folder / f"{summary.task}.md", markdown(summary))
            if "jinja2" in missing():
                note(f"no HTML page: it needs jinja2; install it: {INSTALL}")
                continue
            from lmp.report.zoo.page import page

            write_whole(folder / f"{summary.task}.html", page(summary))
        if not quiet:
            note(f"written: {folder / summary.task}.json, .md and .html")


def _show_summaries(
    summaries: Sequence[ZooSummary], asked: set[str], as_json: bool, counts_alone: bool = False
) -> None:
    from lmp.cli.tables import console
    from lmp.cli.zoo_table import print_counts, print_families

    if as_json:
        write_json([summary.model_dump(mode="json", exclude_none=True) for summary in summaries])
        return
    for summary in summaries:
        print_counts(console(), summary, asked)
        if not counts_alone:
            print_families(console(), summary, asked)


def _compare(before: ZooSummary, summaries: Sequence[ZooSummary], asked: set[str]) -> None:
    """Exit with 4 if a family that was verified before is not verified now."""
    from lmp.errors import UsageError
    from lmp.zoo.comparing import compared

    now = next((summary for summary in summaries if summary.task == before.task), None)
    if now is None:
        raise UsageError(
            f"the summary to compare with is of {before.task}, which was not run\ngive --task {before.task}"
        )
    found = compared(before, now)
    for change in found.gained:
        note(f"gained: {change.family}: {change.before} before, now verified")
    for change in found.changed:
        note(f"changed: {change.family}: {change.before} before, now {change.now}: {change.why}")
    lost = [change for change in found.regressed if change.family in asked]
    for change in lost:
        note(f"lost: {change.family}: verified before, now {change.now}: {change.why}")
    absent = [name for name in found.absent if name in asked]
    if absent:
        note(f"lost: {', '.join(absent)}: verified before, now missing")
    kept = len(asked) - len(lost) - len(absent)
    note(f"compared with the summary of {before.task}: {kept} of {len(asked)} families are as good as before")
    if lost or absent:
        raise typer.Exit(DISAGREES)
