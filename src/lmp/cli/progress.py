"""The progress of a command on stderr: a bar on a terminal, plain lines in a pipe, nothing when quiet."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lmp.cli.output import note

if TYPE_CHECKING:
    from pathlib import Path

    from rich.progress import Progress

    from lmp.analyze.session import Options

STAGES = ("reading", "tracing", "verifying", "stored")


class Watch:
    """Callback of an analysis: called with each class and its stage. ``current`` is the last class."""

    current: str | None = None

    def __call__(self, class_path: str, stage: str) -> None:
        self.current = class_path


class PlainWatch(Watch):
    def __call__(self, class_path: str, stage: str) -> None:
        super().__call__(class_path, stage)
        note(f"{class_path}: {stage}")


class BarWatch(Watch):
    """One bar over all classes: the requested ones, and those that they call."""

    def __init__(self, progress: Progress, paths: list[str]) -> None:
        self._progress = progress
        self._asked = len(paths)
        self._done: dict[str, int] = {}
        self._task = progress.add_task("starting", total=len(paths) * len(STAGES))

    def __call__(self, class_path: str, stage: str) -> None:
        super().__call__(class_path, stage)
        step = STAGES.index(stage) if stage in STAGES else 0
        self._done[class_path] = len(STAGES) if stage == STAGES[-1] else max(step, self._done.get(class_path, 0))
        self._progress.update(
            self._task,
            description=f"{class_path.rpartition('.')[2]}: {stage}",
            completed=sum(self._done.values()),
            total=max(self._asked, len(self._done)) * len(STAGES),
        )


@contextmanager
def watched(paths: list[str], options: Options, quiet: bool) -> Iterator[Watch]:
    """Progress while the block runs; a search that fails in it writes SCRATCHPAD.md to the results folder."""
    with watch(paths, quiet) as progress, scratchpad(options.results, lambda: progress.current or " ".join(paths)):
        yield progress


@contextmanager
def scratchpad(results: Path, looked_for: Callable[[], str]) -> Iterator[None]:
    """A search that fails in the block writes SCRATCHPAD.md to the results folder, and the error names that file."""
    from lmp.errors import NotFound, StorageError

    try:
        yield
    except NotFound as error:
        from lmp.source.scratchpad import write_scratchpad

        try:
            page = write_scratchpad(results, looked_for(), error)
        except StorageError as failure:
            error.message += f"\n({str(failure).splitlines()[0]})"
        else:
            error.message += f" (what was looked for: {page})"
        raise


def class_of_config(options: Options) -> str:
    """The class that the given config is of, for a command that names no class."""
    from lmp.analyze.session import class_of_config as found

    with scratchpad(options.results, lambda: options.model_id or str(options.config_file)):
        return found(options)


@contextmanager
def watch(paths: list[str], quiet: bool) -> Iterator[Watch]:
    if quiet:
        yield Watch()
    elif not sys.stderr.isatty():
        yield PlainWatch()
    else:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (
            SpinnerColumn(),
            BarColumn(bar_width=30),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            yield BarWatch(progress, paths)


@contextmanager
def counted(what: str, quiet: bool) -> Iterator[Callable[[int, int, str], None]]:
    """Progress of work whose steps are counted. The callback takes the number done, the total, and the current name."""
    if quiet:
        yield lambda done, total, name: None
    elif not sys.stderr.isatty():
        yield _in_tenths(what)
    else:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task(what, total=None)
            yield lambda done, total, name: progress.update(
                task, completed=done, total=total, description=f"{what} {name[-60:]}"
            )


def _in_tenths(what: str) -> Callable[[int, int, str], None]:
    """Callback that prints a plain line at the beginning and after each tenth."""
    last = -1

    def say(done: int, total: int, name: str) -> None:
        nonlocal last
        tenth = 10 * done // total if total else 10
        if tenth > last:
            last = tenth
            note(f"{what}: {done:,} of {total:,}")

    return say
