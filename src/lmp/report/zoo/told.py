"""What both forms of the summary say of a family, and in which order."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean, median

from lmp.records import ZooEntry, ZooSummary
from lmp.report.formats.figures import figure
from lmp.source.quoting import escaped

STATUSES: dict[str, str] = {
    "verified": "formulas equal execution, FLOPs and bytes, at every point of every phase",
    "unverified": "there are formulas, but not all of them could be held against execution",
    "failed": "formulas differ from execution somewhere",
    "error": "no formulas came",
    "stopped": "ended by a limit of time or memory, or crashed",
}
CAUSES: dict[str, str] = {
    "config": "the model's default config",
    "dependency": "an optional dependency that is missing",
    "lmp": "a rule of lmp that is missing or wrong",
}
NOT_RUN = "not run"
DEFAULT_DTYPE, DEFAULT_ATTENTION = "bfloat16", "sdpa"


@dataclass(frozen=True)
class Column:
    """``text`` is what is shown, None where there is nothing; ``order`` is what rows are sorted by."""

    key: str
    title: str
    text: Callable[[ZooEntry], str | None]
    order: Callable[[ZooEntry], float | str]
    right: bool = False


def _total(*names: str) -> Callable[[ZooEntry], int | None]:
    def of(entry: ZooEntry) -> int | None:
        found = [entry.totals[name] for name in names if name in entry.totals]
        return sum(found) if len(found) == len(names) else None

    return of


def _figures(key: str, title: str, of: Callable[[ZooEntry], int | None], unit: str = "") -> Column:
    def text(entry: ZooEntry) -> str | None:
        value = of(entry)
        return None if value is None else figure(value, unit)

    return Column(key, title, text, lambda entry: of(entry) or 0, right=True)


def _words(key: str, title: str, of: Callable[[ZooEntry], str | None]) -> Column:
    return Column(key, title, of, lambda entry: (of(entry) or "").lower())


def short_class(entry: ZooEntry) -> str | None:
    return None if entry.class_name is None else entry.class_name.rpartition(".")[2]


COLUMNS: tuple[Column, ...] = (
    _words("family", "family", lambda entry: entry.family),
    _words("class", "class", short_class),
    Column("status", "status", lambda entry: entry.status, lambda entry: list(STATUSES).index(entry.status)),
    _words("cause", "cause", lambda entry: entry.cause),
    _words("phases", "phases", lambda entry: ", ".join(entry.phases) or None),
    _figures("parameters", "parameters", _total("parameters_count")),
    _figures("flops", "FLOPs", _total("flops")),
    _figures("bytes", "bytes", _total("read", "write"), "B"),
    Column(
        "seconds",
        "seconds",
        lambda entry: f"{entry.seconds:.1f}" if entry.seconds else None,
        lambda entry: entry.seconds,
        right=True,
    ),
    _figures("memory", "memory", lambda entry: entry.peak_bytes or None, "B"),
)
"""FLOPs and bytes (read and written) are of one prefill, batch 1, 128 tokens."""


def entries(summary: ZooSummary) -> list[ZooEntry]:
    """In the order of their names, in whichever order they were made."""
    return sorted(summary.entries, key=lambda entry: (entry.family, entry.task))


def counts(summary: ZooSummary) -> dict[str, Counter[str]]:
    """How many entries each status has for each cause; ``""`` where there is none."""
    found: dict[str, Counter[str]] = {status: Counter() for status in STATUSES}
    for entry in summary.entries:
        found[entry.status][entry.cause or ""] += 1
    return found


def command(family: str, task: str, summary: ZooSummary) -> str:
    """What makes the entry again."""
    words = ["lmp", "zoo", family, "--task", task]
    if summary.dtype != DEFAULT_DTYPE:
        words += ["--dtype", summary.dtype]
    if summary.attention != DEFAULT_ATTENTION:
        words += ["--attn", summary.attention]
    return shlex.join([*words, "--fresh"])


def shown(text: str) -> str:
    """A text of a model or a library on one line, without what a terminal or browser would obey."""
    return escaped(" ".join(text.split()), kept="")


def versions(summary: ZooSummary) -> str:
    named = [f"{name} {version}" for name, version in sorted(summary.sources.items())]
    return ", ".join([f"lmp {summary.lmp}", *named])


def share(summary: ZooSummary) -> str:
    """``175 of 188 (93.0 %)``, rounded down: no share is said to be reached that is not."""
    if not summary.families:
        return "0 of 0"
    tenths = summary.verified * 1000 // summary.families
    return f"{summary.verified:,} of {summary.families:,} ({tenths // 10}.{tenths % 10} %)"


def made_by(summary: ZooSummary) -> str | None:
    run = summary.run
    if run is None:
        return None
    rate = f", {60 * run.made / run.wall_seconds:.1f} a minute" if run.wall_seconds else ""
    return (
        f"{run.made:,} {'entry' if run.made == 1 else 'entries'} in {run.wall_seconds:,.1f} s by {run.workers}{rate}; "
        f"the command itself took {figure(run.parent_peak_bytes, 'B')} of memory at most"
    )


@dataclass(frozen=True)
class Cost:
    """What one family takes: of the entries that say so. Seconds are of one core."""

    families: int
    cpu_seconds: float
    cpu_mean: float
    cpu_median: float
    cpu_nine_tenths: float
    """Nine of ten families take no longer."""
    cpu_most: float
    memory_median: int
    memory_most: int
    stored_bytes: int
    stored_mean: int


def cost(found: Sequence[ZooEntry]) -> Cost | None:
    """None where no entry says what it took."""
    timed = [entry for entry in found if entry.cpu_seconds]
    if not timed:
        return None
    cpu = sorted(entry.cpu_seconds for entry in timed)
    memory = sorted(entry.peak_bytes for entry in timed)
    stored = sum(entry.stored_bytes for entry in timed)
    return Cost(
        families=len(timed),
        cpu_seconds=sum(cpu),
        cpu_mean=mean(cpu),
        cpu_median=median(cpu),
        cpu_nine_tenths=cpu[-(-9 * len(cpu) // 10) - 1],
        cpu_most=cpu[-1],
        memory_median=int(median(memory)),
        memory_most=memory[-1],
        stored_bytes=stored,
        stored_mean=stored // len(timed),
    )
