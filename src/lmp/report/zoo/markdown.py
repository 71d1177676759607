"""The summary as a document, and as markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lmp.records import ZooEntry, ZooSummary
from lmp.report.document.markdown import to_markdown
from lmp.report.document.parts import Block, Bullets, Code, Document, Inline, Line, Paragraph, Pointer, Section, Table
from lmp.report.formats.figures import figure
from lmp.report.zoo import told

_PLACE = re.compile(r"(?P<file>[^:\s]+):(?P<line>\d{1,9})(?:-(?P<end>\d{1,9}))?")


def markdown(summary: ZooSummary) -> str:
    """The same text for the same entries, in whichever order they are."""
    return to_markdown(document(summary))


def document(summary: ZooSummary) -> Document:
    sections = [
        Section("Counts", list(_counts(summary))),
        Section("Families", [_families(summary), Paragraph(POINT)]),
        Section("Not verified", list(_not_verified(summary))),
    ]
    return Document(
        title=["Zoo: ", Code(summary.task)], head=list(_head(summary)), sections=[*sections, *_further(summary)]
    )


POINT = (
    "FLOPs and bytes are of one prefill of 128 tokens, batch 1, at the family's default config; bytes are read and "
    "written. Memory is the most that the family's process held."
)


def _head(summary: ZooSummary) -> Iterator[tuple[str, Line]]:
    yield "Verified", told.share(summary)
    yield "Versions", told.versions(summary)
    yield "Executed", f"on the meta device in {summary.dtype}, attention {summary.attention}"
    made = told.made_by(summary)
    if made is not None:
        yield "Last run", made
    took = told.cost(summary.entries)
    if took is not None:
        yield (
            "A family takes",
            f"{took.cpu_mean:.1f} s of a core on average, {took.cpu_median:.1f} s in the middle, {took.cpu_most:.1f} s "
            f"at most; {figure(took.memory_most, 'B')} of memory at most; {figure(took.stored_mean, 'B')} stored",
        )


def _counts(summary: ZooSummary) -> Iterator[Block]:
    counted = told.counts(summary)
    rows: list[list[Line]] = [
        [status, meant, f"{sum(counted[status].values()):,}", *_of_causes(counted[status])]
        for status, meant in told.STATUSES.items()
    ]
    if summary.not_run:
        rows.append([told.NOT_RUN, "no entry yet", f"{len(summary.not_run):,}", *("" for _ in told.CAUSES)])
    titles = ("status", "means", "families", *(f"cause: {cause}" for cause in told.CAUSES))
    yield Table(titles, rows, right=frozenset(range(2, len(titles))))
    yield Bullets([f"{cause}: {meant}" for cause, meant in told.CAUSES.items()])


def _of_causes(found: dict[str, int]) -> list[str]:
    return [f"{found[cause]:,}" if found.get(cause) else "" for cause in told.CAUSES]


def _families(summary: ZooSummary) -> Table:
    rows: list[list[Line]] = [[_cell(column, entry) for column in told.COLUMNS] for entry in told.entries(summary)]
    right = frozenset(index for index, column in enumerate(told.COLUMNS) if column.right)
    return Table([column.title for column in told.COLUMNS], rows, "the summary, which has no entry yet", right)


def _cell(column: told.Column, entry: ZooEntry) -> Line:
    text = column.text(entry)
    if text is None:
        return ""
    return Code(told.shown(text)) if column.key in ("family", "class") else text


def _not_verified(summary: ZooSummary) -> Iterator[Block]:
    left = [entry for entry in told.entries(summary) if entry.status != "verified"]
    rows: list[list[Line]] = [
        [
            Code(told.shown(entry.family)),
            entry.status,
            entry.cause or "not said",
            told.shown(entry.reason or "no reason was given"),
            _place(entry.place),
        ]
        for entry in left
    ]
    yield Table(("family", "status", "cause", "why not", "place"), rows, "all entries, each of which is verified")


def _place(place: str | None) -> Line:
    if place is None:
        return ""
    found = _PLACE.fullmatch(place)
    if found is None:
        return Code(told.shown(place))
    return Pointer(found["file"], int(found["line"]), int(found["end"]) if found["end"] else None)


def _further(summary: ZooSummary) -> Iterator[Section]:
    adjusted = [(entry, entry.adjustments) for entry in told.entries(summary) if entry.adjustments]
    if adjusted:
        words = "What was set where a default config is not consistent, or has layers without end."
        yield Section("Adjustments", [Paragraph(words), Bullets([_listed(*each) for each in adjusted])])
    pinned = [(entry, entry.pinned) for entry in told.entries(summary) if entry.pinned]
    if pinned:
        words = "Values of the config that stand as numbers in formulas, which hold for them alone."
        yield Section("Pinned values", [Paragraph(words), Bullets([_listed(*each) for each in pinned])])
    decided = [entry for entry in told.entries(summary) if entry.decisions]
    if decided:
        words = "Lines that decide on values of tensors: the formulas are of the path that was taken."
        items: list[Line] = [[Code(told.shown(e.family)), f": {e.decisions:,}"] for e in decided]
        yield Section("Decisions", [Paragraph(words), Bullets(items)])
    if summary.not_run:
        names: list[Inline] = []
        for name in sorted(summary.not_run):
            names += [", " if names else "", Code(told.shown(name))]
        again = f"lmp zoo --task {summary.task}"
        yield Section("Not run", [Paragraph(names), Paragraph([Code(again), " goes on with them."])])


def _listed(entry: ZooEntry, found: list[str]) -> Line:
    line: list[Inline] = [Code(told.shown(entry.family)), ": "]
    for index, text in enumerate(found):
        line += ["; " if index else "", told.shown(text)]
    return line
