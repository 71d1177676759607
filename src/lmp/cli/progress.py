"""What is going on, on stderr: a bar on a terminal, plain lines in a pipe, nothing when quiet."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

STAGES = ("reading", "tracing", "verifying", "stored")


class Watch:
    """Called with every class and stage. ``current`` is the class that was last heard of."""

    current: str | None = None

    def __call__(self, class_path: str, stage: str) -> None:
        self.current = class_path


class PlainWatch(Watch):
    def __call__(self, class_path: str, stage: str) -> None:
        super().__call__(class_path, stage)
        print(f"{class_path}: {stage}", file=sys.stderr, flush=True)


class BarWatch(Watch):
    """One bar over all classes: those asked for, and those that turn up on the way."""

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
    """For work whose steps are known: called with how many are done, how many there are, and the one at hand."""
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
    """Plain lines: one at the beginning, and one for every tenth that is done."""
    last = -1

    def say(done: int, total: int, name: str) -> None:
        nonlocal last
        tenth = 10 * done // total if total else 10
        if tenth > last:
            last = tenth
            print(f"{what}: {done:,} of {total:,}", file=sys.stderr, flush=True)

    return say
