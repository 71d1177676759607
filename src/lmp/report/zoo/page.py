"""The summary as one HTML page: every row is in the markup, so that it can be read where no script runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import metadata

from lmp.records import ZooEntry, ZooSummary
from lmp.report import html
from lmp.report.formats.figures import figure
from lmp.report.page.writing import PACKAGE as PAGE
from lmp.report.zoo import told
from lmp.report.zoo.markdown import POINT

PACKAGE = "lmp.report.zoo"
SCRIPTS = ("zoo",)


@dataclass(frozen=True)
class Cell:
    """``order``: the place of the row when rows are sorted by this column, equal values alike; None: always last."""

    text: str
    order: int | None
    right: bool


@dataclass(frozen=True)
class Row:
    family: str
    task: str
    status: str
    cause: str
    cells: Sequence[Cell]
    command: str
    facts: Sequence[tuple[str, str]] = ()
    """Name and text of what else is known."""
    lists: Sequence[tuple[str, Sequence[str]]] = field(default=())
    why: str | None = None
    place: str | None = None


def page(summary: ZooSummary) -> str:
    """HTML that needs no other file and no network; the same for the same entries, in whichever order they are.

    Raises UsageError where the extra ``report`` is missing.
    """
    template = html.template(PACKAGE, "zoo.html")
    scripts = {"own": html.as_script(html.joined(PACKAGE, SCRIPTS))}
    rows = list(_rows(summary))
    return template.render(
        policy=html.policy(scripts),
        scripts=scripts,
        style=html.static(PAGE, "base.css") + "\n" + html.static(PACKAGE, "zoo.css"),
        summary=summary,
        about=list(_about(summary)),
        counts=_counts(summary),
        causes=told.CAUSES,
        columns=told.COLUMNS,
        rows=rows,
        statuses=[*told.STATUSES, told.NOT_RUN],
        tasks=sorted({row.task for row in rows}),
        share=told.share(summary),
        point=POINT,
        version=metadata.version("lmp"),
    )


def _about(summary: ZooSummary) -> Iterator[tuple[str, str]]:
    yield "versions", told.versions(summary)
    yield "executed", f"on the meta device in {summary.dtype}, attention {summary.attention}"
    made = told.made_by(summary)
    if made is not None:
        yield "last run", made
    took = told.cost(summary.entries)
    if took is not None:
        yield "a family takes", f"{took.cpu_mean:.1f} s of a core on average, {took.cpu_most:.1f} s at most"


def _counts(summary: ZooSummary) -> list[tuple[str, str, int, list[tuple[str, int]]]]:
    """Status, its meaning, families, and those of each cause."""
    counted = told.counts(summary)
    found = [
        (status, meant, sum(counted[status].values()), [(cause, counted[status][cause]) for cause in told.CAUSES])
        for status, meant in told.STATUSES.items()
    ]
    return [*found, (told.NOT_RUN, "no entry yet", len(summary.not_run), [(cause, 0) for cause in told.CAUSES])]


def _rows(summary: ZooSummary) -> Iterator[Row]:
    found = told.entries(summary)
    places = [_places(column, found) for column in told.COLUMNS]
    for index, entry in enumerate(found):
        cells = [
            Cell(told.shown(column.text(entry) or ""), place[index], column.right)
            for column, place in zip(told.COLUMNS, places, strict=True)
        ]
        yield _row(entry, cells, summary)
    for name in sorted(summary.not_run):
        known = {"family": told.shown(name), "status": told.NOT_RUN}
        cells = [Cell(known.get(column.key, ""), None, column.right) for column in told.COLUMNS]
        again = told.command(name, summary.task, summary)
        yield Row(told.shown(name), summary.task, told.NOT_RUN, "", cells, again)


def _places(column: told.Column, found: Sequence[ZooEntry]) -> list[int | None]:
    """Where each row stands in rising order: the browser compares small integers alone."""
    values = [None if column.text(entry) is None else column.order(entry) for entry in found]
    known = sorted({value for value in values if value is not None})
    rank = {value: index for index, value in enumerate(known)}
    return [None if value is None else rank[value] for value in values]


def _row(entry: ZooEntry, cells: Sequence[Cell], summary: ZooSummary) -> Row:
    lists = (("adjustments", entry.adjustments), ("pinned", entry.pinned))
    return Row(
        family=told.shown(entry.family),
        task=entry.task,
        status=entry.status,
        cause=entry.cause or "",
        cells=cells,
        command=told.command(entry.family, entry.task, summary),
        facts=list(_facts(entry)),
        lists=[(name, [told.shown(text) for text in texts]) for name, texts in lists if texts],
        why=_why(entry),
        place=None if entry.place is None else told.shown(entry.place),
    )


def _why(entry: ZooEntry) -> str | None:
    if entry.status == "verified":
        return None
    return told.shown(entry.reason or "no reason was given")


def _facts(entry: ZooEntry) -> Iterator[tuple[str, str]]:
    if entry.class_name is not None:
        yield "class", entry.class_name
    yield "task", entry.task
    yield "status", f"{entry.status}: {told.STATUSES[entry.status]}"
    if entry.cause is not None:
        yield "cause", f"{entry.cause}: {told.CAUSES[entry.cause]}"
    yield "config", told.shown(entry.config)
    if entry.phases:
        yield "phases", ", ".join(entry.phases)
    if entry.classes:
        yield "classes", f"{entry.classes:,}, each by itself"
    if entry.assumptions:
        yield "assumptions", f"{entry.assumptions:,} conditions under which the formulas hold"
    if entry.decisions:
        yield "decisions", f"{entry.decisions:,} lines that decide on values of tensors"
    if entry.totals:
        yield "exactly", ", ".join(f"{name} {value:,}" for name, value in sorted(entry.totals.items()))
    if entry.seconds:
        yield (
            "took",
            f"{entry.seconds:.1f} s, {entry.cpu_seconds:.1f} s of a core; {figure(entry.peak_bytes, 'B')} of memory; "
            f"{figure(entry.stored_bytes, 'B')} stored",
        )
