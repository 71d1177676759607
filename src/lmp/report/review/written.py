"""Digits: the lines of a report hold the numbers and places that it was written with.

What has a unit, a claim or a symbol is held against the results and the code. The rest (a count in a sentence, a place
without a symbol) can only be held against what lmp wrote: a line that has another digit in the place of one of them is
found. Lines that were added or taken away are somebody's own.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from lmp.records import ReviewFinding
from lmp.report.review.reading import CLOSE, OPEN, Text

_TOKEN = re.compile(r"[\w./:,%+#-]*\d[\w./:,%+#-]*")
_PLACE = re.compile(r"\.\w+:\d+")
ALIKE = 0.5
"""Share of the same tokens from which a line is the one that was written there."""
MOST_LINES = 400
"""Lines in a row that are held against one another where none is the same."""


def lines_with_digits(text: Text) -> list[tuple[int, str]]:
    """Line of the file, and its words that have digits, with a space between them; lines without any are left out."""
    found: dict[int, list[str]] = {}
    for line, content in _contents(text):
        found.setdefault(line, []).extend(token.rstrip(".,:") for token in _TOKEN.findall(content))
    return [(line, " ".join(tokens)) for line, tokens in sorted(found.items()) if tokens]


def _contents(text: Text) -> Iterator[tuple[int, str]]:
    for piece in text.pieces:
        yield piece.line, piece.text.replace(OPEN, " ").replace(CLOSE, " ")
    for fence in text.fences:
        yield from ((fence.line + offset, line) for offset, line in enumerate(fence.lines))


def check_written(text: Text, written: Sequence[str]) -> Iterator[ReviewFinding]:
    """``written`` are the lines as `lines_with_digits` had them when the report was written."""
    now = lines_with_digits(text)
    texts = [tokens for _, tokens in now]
    start, first = 0, 0
    for same, same_now in (*_anchors(written, texts), (len(written), len(texts))):
        for old, at in _replaced(written[start:same], texts[first:same_now]):
            yield from _changed(old, texts[first + at], now[first + at][0])
        start, first = same + 1, same_now + 1


def _anchors(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Indices of lines that both have, each of them once, in an order that both have: as many as there are."""
    places, counts = {line: at for at, line in enumerate(old)}, (Counter(old), Counter(new))
    alike = [(places[line], at) for at, line in enumerate(new) if counts[0][line] == counts[1][line] == 1]
    # The longest run of them whose old places rise: of each length the one that ends first.
    ends: list[int] = []
    last: list[int] = []
    before: list[int] = []
    for number, (place, _) in enumerate(alike):
        length = bisect_left(ends, place)
        ends[length : length + 1] = [place]
        last[length : length + 1] = [number]
        before.append(last[length - 1] if length else -1)
    found, number = [], last[-1] if last else -1
    while number >= 0:
        found.append(alike[number])
        number = before[number]
    return found[::-1]


def _replaced(before: Sequence[str], after: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Lines in the place of one another: an old one, and the index of the new one."""
    if max(len(before), len(after)) > MOST_LINES:
        return  # another text
    for kind, first, last, start, end in SequenceMatcher(None, before, after).get_opcodes():
        if kind == "replace":
            yield from ((old, start + at) for old, at in _pairs(before[first:last], after[start:end]))


def _pairs(before: Sequence[str], after: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Lines that stand in the place of one another: an old one, and the index of the new one."""
    if len(before) == len(after):
        yield from ((old, at) for at, old in enumerate(before))
        return
    for at, new in enumerate(after):
        old = max(before, key=lambda line: _likeness(line, new))
        if _likeness(old, new) >= ALIKE:
            yield old, at


def _likeness(old: str, new: str) -> float:
    one, other = old.split(" "), new.split(" ")
    if len(one) != len(other):
        return 0
    return sum(a == b for a, b in zip(one, other, strict=True)) / len(one)


def _changed(before: str, after: str, line: int) -> Iterator[ReviewFinding]:
    old, new = before.split(" "), after.split(" ")
    if len(old) != len(new):
        return  # a line of somebody's own
    for was, token in zip(old, new, strict=True):
        if was != token:
            message = f"{token} stands where lmp wrote {was}"
            yield ReviewFinding(rule="pointer" if _PLACE.search(was) else "number", line=line, message=message)
