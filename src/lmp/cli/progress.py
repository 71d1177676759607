"""The progress of a command on stderr: a bar on a terminal, plain lines in a pipe, nothing when quiet."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from lmp.cli.output import ascii_only, note

if TYPE_CHECKING:
    from pathlib import Path

    from rich.progress import Progress

    from lmp.analyze.session import Options

STAGES = ("reading", "tracing", "verifying", "stored")

FEWEST_DONE = 2
"""Classes that must be done before the rest of the time is estimated."""

FIRST_TIME = "first time only: results are stored, and later runs take about 1 s"

BAR_FROM = 80
"""Width from which the bar itself is shown, beside its text."""


class Watch:
    """Callback of an analysis: called with each class and its stage. ``current`` is the last class."""

    current: str | None = None

    def __call__(self, class_path: str, stage: str) -> None:
        self.current = class_path


class PlainWatch(Watch):
    def __call__(self, class_path: str, stage: str) -> None:
        from lmp.analyze.session import WAITING

        if stage != WAITING:
            super().__call__(class_path, stage)
            note(f"{class_path}: {stage}")


class BarWatch(Watch):
    """One bar over all classes: the requested ones, and those that they call.

    With ``says_first_time``, a line says at the first derivation that later runs are fast.
    """

    def __init__(self, progress: Progress, paths: list[str], says_first_time: bool = False) -> None:
        self._progress, self._asked, self._says_first_time = progress, len(paths), says_first_time
        self._done: dict[str, int] = {}
        self._task = progress.add_task("starting", total=len(paths) * len(STAGES))

    def __call__(self, class_path: str, stage: str) -> None:
        from lmp.analyze.session import WAITING

        self._done.setdefault(class_path, 0)
        if stage == WAITING:
            self._update()
            return
        super().__call__(class_path, stage)
        if stage == "tracing" and self._says_first_time:
            self._says_first_time = False
            self._progress.console.print(FIRST_TIME, style="dim")
        step = STAGES.index(stage) if stage in STAGES else 0
        self._done[class_path] = len(STAGES) if stage == STAGES[-1] else max(step, self._done[class_path])
        self._update(description=f"{class_path.rpartition('.')[2]}: {stage}")

    def _update(self, **changed: Any) -> None:
        total = max(self._asked, len(self._done))
        finished = sum(step == len(STAGES) for step in self._done.values())
        of = f"{finished} of {total} class{'' if total == 1 else 'es'}"
        self._progress.update(
            self._task,
            completed=sum(self._done.values()),
            total=total * len(STAGES),
            finished=finished,
            classes=total,
            of=of,
            **changed,
        )


def progress_text(fields: Mapping[str, Any], description: str, seconds: float, width: int) -> str:
    """``3 of 9 classes, 12 s, about 24 s left, Linear: tracing``, as much as fits, the last part cut with a mark."""
    finished, classes = fields.get("finished", 0), fields.get("classes", 0)
    parts = [fields["of"]] if "of" in fields else []
    parts.append(f"{seconds:.0f} s")
    if FEWEST_DONE <= finished < classes:
        parts.append(f"about {seconds * (classes - finished) / finished:.0f} s left")
    text = ", ".join([*parts, description])
    return text if len(text) <= width else f"{text[: max(0, width - 3)]}..."


@contextmanager
def watched(paths: list[str], options: Options, quiet: bool, first_time: bool = True) -> Iterator[Watch]:
    """Progress while the block runs; a search that fails in it writes SCRATCHPAD.md to the results folder.

    ``first_time``: a derivation that is now needed is not needed the next time.
    """
    with (
        watch(paths, quiet, first_time and not options.fresh) as progress,
        scratchpad(options.results, lambda: progress.current or " ".join(paths)),
    ):
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
    from lmp.atlas.models import class_of_config as found

    with scratchpad(options.results, lambda: options.model_id or str(options.config_file)):
        return found(options)


@contextmanager
def watch(paths: list[str], quiet: bool, says_first_time: bool = False) -> Iterator[Watch]:
    if quiet:
        yield Watch()
    elif not sys.stderr.isatty():
        yield PlainWatch()
    else:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task
        from rich.text import Text

        class Steps(ProgressColumn):
            def render(self, task: Task) -> Text:
                width = console.width - (35 if bar else 3)
                return Text(progress_text(task.fields, task.description, task.elapsed or 0, width), no_wrap=True)

        console = Console(stderr=True, highlight=False)
        spinner = SpinnerColumn("line" if ascii_only(sys.stderr) else "dots")
        bar = [BarColumn(bar_width=30)] if console.width >= BAR_FROM and not ascii_only(sys.stderr) else []
        with Progress(spinner, *bar, Steps(), console=console, transient=True) as progress:
            yield BarWatch(progress, paths, says_first_time)


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


@contextmanager
def steps(what: str, quiet: bool) -> Iterator[Callable[[int, int, str], None]]:
    """Progress of a few long steps, each with a name. The callback is called when one begins, and at the end.

    It takes the number done, the total, and the name. In a pipe each step has a line, with an estimate of the rest.
    """
    import time

    begun = time.monotonic()
    with counted(what, quiet) if quiet or sys.stderr.isatty() else nullcontext() as bar:

        def say(done: int, total: int, name: str) -> None:
            left = time_left(done, total, time.monotonic() - begun)
            if bar is not None:
                bar(done, total, f"{name}{left}")
            elif done < total:
                note(f"{what} {done + 1:,} of {total:,}: {name}{left}")

        yield say


def time_left(done: int, total: int, seconds: float) -> str:
    """``, about 24 s left``, where enough is done to tell."""
    return f", about {seconds * (total - done) / done:,.0f} s left" if FEWEST_DONE <= done < total else ""


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
