"""Numbers: each one of a report is in its ledger, and is what its claim is worth now."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lmp.errors import LmpError
from lmp.records import ReviewFinding
from lmp.report.document.amounts import written
from lmp.report.document.ledger import Entry, Ledger
from lmp.report.evaluating import Worth
from lmp.report.review.reading import Text

_DIGITS = r"-?\d[\d,]*(?:\.\d+)?"
_UNIT = r"(?:e\d+ )?[kMGTPEZYRQ]?(?:FLOP/s|FLOPs/B|FLOP|B/s|B|params)(?![\w/])|%|(?:s|ms|µs|ns)(?!\w)"
NUMBER_WITH_UNIT = re.compile(rf"(?<![\w.,:/{{-]){_DIGITS} ?(?:{_UNIT})")
_ALONE = re.compile(_DIGITS)


def check_numbers(text: Text, ledger: Ledger, worth: Worth | None) -> tuple[int, list[ReviewFinding]]:
    """How many numbers were looked at, and what is wrong with them. Without results only the ledger can tell."""
    known: dict[str, set[str]] = {}
    for entry in ledger.numbers:
        known.setdefault(_words(entry.section), set()).add(entry.text)
    findings, count = [], 0
    for line, section, number in stated(text):
        count += 1
        if number not in known.get(_words(section), ()):
            findings.append(_wrong(line, f"{number} is no number of the results that this section states"))
    places = _places(text)
    for entry in ledger.numbers if worth is not None else ():
        why = _disagreement(entry, worth)
        if why is not None:
            findings.append(_wrong(places.get((_words(entry.section), entry.text), 1), why))
    return count, findings


def stated(text: Text) -> Iterator[tuple[int, str, str]]:
    """Line, section and text of every number with a unit, and of every cell of a table that is a number."""
    for piece in text.pieces:
        yield from ((piece.line, piece.section, number) for number in _in_prose(piece.prose))
    for fence in text.fences:
        if fence.language in ("", "text"):
            for offset, line in enumerate(fence.lines):
                yield from ((fence.line + offset, fence.section, number) for number in _in_prose(line))
    for table in text.tables:
        for row, cells in table.rows:
            alone = (cell.strip() for cell in cells[1:])
            yield from ((row, table.section, cell) for cell in alone if _ALONE.fullmatch(cell))


def _in_prose(line: str) -> Iterator[str]:
    return (found[0] for found in NUMBER_WITH_UNIT.finditer(line))


def _places(text: Text) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for line, section, number in stated(text):
        found.setdefault((_words(section), number), line)
    return found


def _disagreement(entry: Entry, worth: Worth | None) -> str | None:
    if entry.claim is None or worth is None:
        return None
    try:
        now = written(worth.claimed(entry.claim), entry.unit)
    except LmpError as error:
        return f"{entry.text} cannot be worked out again: {str(error).splitlines()[0]}"
    return None if now == entry.text else f"{entry.text} is {now} in the results"


def _words(title: str) -> str:
    """A heading as it is compared: without what markdown may have changed."""
    return " ".join(re.findall(r"\w+", title))


def _wrong(line: int, message: str) -> ReviewFinding:
    return ReviewFinding(rule="number", line=line, message=message)
