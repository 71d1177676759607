"""What an agent wrote, as pieces of a document: names and pointers as such, the report's own numbers, the rest as text.

Nothing that it wrote becomes markup by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from lmp.records import Narrative
from lmp.report.document.amounts import Number
from lmp.report.document.ledger import numbers_in
from lmp.report.document.parts import Code, Document, Inline, Line, Pointer

_POINTER = r"`(?P<file>[^`:\s][^`:]*):(?P<line>\d{1,9})(?:-(?P<end>\d{1,9}))?`(?: \(`(?P<symbol>[^`]+)`\))?"
_PIECE = re.compile(rf"{_POINTER}|`(?P<code>[^`]+)`")


@dataclass(frozen=True)
class Told:
    """A narrative with the numbers that the report has without it: these, and no others, it may state."""

    narrative: Narrative
    numbers: Mapping[str, Number] = field(default_factory=dict)
    """Text of a number -> the number."""

    def tldr(self) -> list[Line]:
        return [self.line(text) for text in self.narrative.tldr]

    def insights(self, name: str) -> list[Line]:
        """On a component: by its class path, or its own name."""
        short = name.rpartition(".")[2]
        texts = self.narrative.insights.get(name) or self.narrative.insights.get(short) or []
        return [self.line(text) for text in texts]

    def deep_dive(self, heading: str) -> list[Line]:
        return [self.line(text) for text in self.narrative.deep_dive.get(heading, [])]

    def open_questions(self) -> list[Line]:
        return [self.line(text) for text in self.narrative.open_questions]

    def pitfalls(self) -> list[tuple[Line, Line, Line]]:
        """What it is, how it is noticed, what helps."""
        return [(self.line(p.what), self.line(p.detect), self.line(p.fix)) for p in self.narrative.pitfalls]

    def line(self, text: str) -> Line:
        """A sentence as pieces."""
        return list(self._pieces(text))

    def _pieces(self, text: str) -> Iterator[Inline]:
        end = 0
        for found in _PIECE.finditer(text):
            yield from self._with_numbers(text[end : found.start()])
            end = found.end()
            if found["code"] is not None:
                yield Code(found["code"])
            else:
                last = int(found["end"]) if found["end"] else None
                yield Pointer(found["file"], int(found["line"]), last, found["symbol"])
        yield from self._with_numbers(text[end:])

    def _with_numbers(self, text: str) -> Iterator[Inline]:
        if not text:
            return
        if not self.numbers:
            yield text
            return
        longest_first = sorted(self.numbers, key=len, reverse=True)
        known = re.compile(rf"(?<![\w.,])(?:{'|'.join(map(re.escape, longest_first))})(?!\w)")
        end = 0
        for found in known.finditer(text):
            if found.start() > end:
                yield text[end : found.start()]
            yield self.numbers[found[0]]
            end = found.end()
        if end < len(text):
            yield text[end:]


def numbers_of(document: Document) -> dict[str, Number]:
    """The numbers with a unit that a report states, by their text."""
    return {number.text: number for _, number in numbers_in(document) if number.unit}
