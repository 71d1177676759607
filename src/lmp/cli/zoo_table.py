"""The output of ``lmp zoo``: the progress of its families on stderr, and their results on stdout."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lmp.cli.output import note
from lmp.cli.tables import STYLES

if TYPE_CHECKING:
    from lmp.records import ZooEntry, ZooSummary
    from lmp.zoo.requests import Request

FEW = 20
"""The largest number of families that are shown one by one."""

CAUSES = {"config": "default config", "dependency": "optional dependency", "lmp": "lmp"}


class Watching:
    """Callback of a run that counts results of families. This one is silent; its subclasses print."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.counts: Counter[str] = Counter()
        self.running: dict[str, float] = {}
        self.last: list[ZooEntry] = []
        self._lock = threading.Lock()

    def known(self, entries: Sequence[ZooEntry], to_do: int) -> None:
        self.counts.update(entry.status for entry in entries)

    def started(self, request: Request) -> None:
        with self._lock:
            self.running[request.family] = time.monotonic()

    def ended(self, entry: ZooEntry) -> None:
        with self._lock:
            self.running.pop(entry.family, None)
            self.counts[entry.status] += 1
            self.last = [*self.last[-7:], entry]

    @property
    def done(self) -> int:
        return sum(self.counts.values())

    def how_many(self) -> str:
        others = ", ".join(f"{n} {status}" for status, n in sorted(self.counts.items()) if status != "verified")
        return f"{self.counts['verified']} verified" + (f", {others}" if others else "")


class PlainWatching(Watching):
    """Prints a line for each family, for a pipe."""

    def known(self, entries: Sequence[ZooEntry], to_do: int) -> None:
        super().known(entries, to_do)
        if entries:
            note(f"{len(entries)} of {self.total} families are known ({self.how_many()}); {to_do} to do")

    def ended(self, entry: ZooEntry) -> None:
        super().ended(entry)
        why = f": {_why(entry)}" if entry.status != "verified" else ""
        note(f"{self.done} of {self.total}: {entry.family}: {entry.status}, {entry.seconds:.0f} s{why}")


class LiveWatching(Watching):
    """Shows a table that changes in place, for a terminal."""

    def __rich__(self) -> Table:
        table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
        with self._lock:
            for entry in self.last:
                style = STYLES[entry.status]
                why = "" if entry.status == "verified" else _why(entry)[:80]
                table.add_row(
                    Text(entry.family), Text(entry.status, style=style), Text(f"{entry.seconds:.0f} s"), Text(why)
                )
            for family, began in self.running.items():
                table.add_row(Text(family), Text("runs", style="cyan"), Text(f"{time.monotonic() - began:.0f} s"), "")
            table.add_row(Text(f"{self.done} of {self.total}", style="bold"), Text(self.how_many()), "", "")
        return table


@contextmanager
def watch(total: int, quiet: bool) -> Iterator[Watching]:
    if quiet:
        yield Watching(total)
    elif not sys.stderr.isatty():
        yield PlainWatching(total)
    else:
        from rich.live import Live

        watching = LiveWatching(total)
        with Live(watching, console=Console(stderr=True), refresh_per_second=4, transient=True):
            yield watching


def print_counts(console: Console, summary: ZooSummary, asked: Collection[str]) -> None:
    """Print the number of families that are verified, not verified by cause, and not run."""
    entries = [entry for entry in summary.entries if entry.family in asked]
    verified = sum(entry.status == "verified" for entry in entries)
    sources = ", ".join(f"{name} {version}" for name, version in summary.sources.items())
    console.print(Text(f"{summary.task}: {verified} of {len(entries)} families verified ({sources})"))
    causes = Counter(CAUSES[entry.cause or "lmp"] for entry in entries if entry.status != "verified")
    if causes:
        counted = ", ".join(f"{number} {cause}" for cause, number in causes.most_common())
        console.print(Text(f"not verified, by cause: {counted}"))
    if summary.not_run:
        console.print(Text(f"not run: {len(summary.not_run)} of the {summary.families} families of {summary.task}"))


def print_families(console: Console, summary: ZooSummary, asked: Collection[str]) -> None:
    """Print a row for each family if there are few, else for each one that is not verified."""
    entries = [entry for entry in summary.entries if entry.family in asked]
    shown = entries if len(entries) <= FEW else [entry for entry in entries if entry.status != "verified"]
    if not shown:
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("family", "status", "s", "phases, or why not"):
        table.add_column(name, overflow="fold")
    for entry in shown:
        what = ", ".join(entry.phases) if entry.status == "verified" else _why(entry)
        table.add_row(
            Text(entry.family), Text(entry.status, style=STYLES[entry.status]), Text(f"{entry.seconds:.1f}"), Text(what)
        )
    console.print(table)


def _why(entry: ZooEntry) -> str:
    """The reason on one line, with control characters escaped: it quotes models and libraries."""
    from lmp.report.zoo.told import shown

    cause = f"{CAUSES[entry.cause]}: " if entry.cause else ""
    place = f" ({entry.place})" if entry.place else ""
    return shown(f"{cause}{entry.reason or ''}{place}")
