"""What an agent wrote, as pieces of a document: names and pointers as such, the report's own numbers, the rest as text.

Nothing that it wrote becomes markup by itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from lmp.records import Narration, Narrative, Provenance
from lmp.report.document.amounts import Number
from lmp.report.document.ledger import numbers_in
from lmp.report.document.parts import Code, Document, Inline, Line, Pointer
from lmp.source.quoting import escaped

T = TypeVar("T")

_POINTER = r"`(?P<file>[^`:\s][^`:]*):(?P<line>\d{1,9})(?:-(?P<end>\d{1,9}))?`(?: \(`(?P<symbol>[^`]+)`\))?"
_PIECE = re.compile(rf"{_POINTER}|`(?P<code>[^`]+)`")


@dataclass
class Asked:
    """What a report asked a narrative for: the places that it has for one."""

    insights: dict[str, None] = field(default_factory=dict)
    deep_dive: dict[str, None] = field(default_factory=dict)
    tldr: bool = False
    pitfalls: bool = False
    open_questions: bool = False


@dataclass(frozen=True)
class Told:
    """A narrative with the numbers that the report has without it: these, and no others, it may state."""

    narrative: Narrative
    numbers: Mapping[str, Number] = field(default_factory=dict)
    """Text of a number -> the number."""
    asked: Asked = field(default_factory=Asked, compare=False)

    def tldr(self) -> list[Line]:
        self.asked.tldr = True
        return [self.line(text) for text in self.narrative.tldr]

    def insights(self, name: str) -> list[Line]:
        """On a component: by its class path, or its own name."""
        self.asked.insights[name] = None
        short = name.rpartition(".")[2]
        texts = self.narrative.insights.get(name) or self.narrative.insights.get(short) or []
        return [self.line(text) for text in texts]

    def deep_dive(self, heading: str) -> list[Line]:
        self.asked.deep_dive[heading] = None
        return [self.line(text) for text in self.narrative.deep_dive.get(heading, [])]

    def open_questions(self) -> list[Line]:
        self.asked.open_questions = True
        return [self.line(text) for text in self.narrative.open_questions]

    def pitfalls(self) -> list[tuple[Line, Line, Line]]:
        """What it is, how it is noticed, what helps."""
        self.asked.pitfalls = True
        return [(self.line(p.what), self.line(p.detect), self.line(p.fix)) for p in self.narrative.pitfalls]

    @cached_property
    def _known(self) -> re.Pattern[str]:
        """One of the numbers, the longest that fits."""
        longest_first = sorted(self.numbers, key=len, reverse=True)
        return re.compile(rf"(?<![\w.,])(?:{'|'.join(map(re.escape, longest_first))})(?!\w)")

    def line(self, text: str) -> Line:
        """A sentence as pieces. What a terminal would obey, or show in another order, is written out."""
        return list(self._pieces(escaped(" ".join(text.split()), kept="")))

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
        end = 0
        for found in self._known.finditer(text):
            if found.start() > end:
                yield text[end : found.start()]
            yield self.numbers[found[0]]
            end = found.end()
        if end < len(text):
            yield text[end:]


def numbers_of(document: Document) -> dict[str, Number]:
    """The numbers with a unit that a report states, by their text."""
    return {number.text: number for _, number in numbers_in(document) if number.unit}


def texts(narrative: Narrative) -> Iterator[tuple[str, str]]:
    """Every text of a narrative, after its place in it: ``tldr[2]``, ``pitfalls[0].fix``."""
    yield from _numbered("tldr", narrative.tldr)
    for name, insights in narrative.insights.items():
        yield from _numbered(f"insights[{name!r}]", insights)
    for index, pitfall in enumerate(narrative.pitfalls):
        yield from ((f"pitfalls[{index}].{name}", getattr(pitfall, name)) for name in ("what", "detect", "fix"))
    for heading, further in narrative.deep_dive.items():
        yield from _numbered(f"deep_dive[{heading!r}]", further)
    yield from _numbered("open_questions", narrative.open_questions)
    yield from ((f"strikes[{index}].why", strike.why) for index, strike in enumerate(narrative.strikes))
    for index, correction in enumerate(narrative.corrections):
        yield from ((f"corrections[{index}].{name}", getattr(correction, name)) for name in ("text", "why"))


def without(narrative: Narrative, names: Collection[str]) -> Narrative | None:
    """The narrative without these texts, as `texts` names them, and what they are a part of. None: nothing is told."""
    gone = {
        name.rpartition(".")[0] if name.endswith((".what", ".detect", ".fix", ".why", ".text")) else name
        for name in names
    }

    def left(name: str, items: Sequence[T]) -> list[T]:
        return [item for index, item in enumerate(items) if f"{name}[{index}]" not in gone]

    def parts(name: str, told: Mapping[str, list[str]]) -> dict[str, list[str]]:
        kept = {key: left(f"{name}[{key!r}]", sentences) for key, sentences in told.items()}
        return {key: sentences for key, sentences in kept.items() if sentences}

    tldr = left("tldr", narrative.tldr)
    return (
        None
        if not tldr
        else narrative.model_copy(
            update={
                "tldr": tldr,
                "insights": parts("insights", narrative.insights),
                "pitfalls": left("pitfalls", narrative.pitfalls),
                "deep_dive": parts("deep_dive", narrative.deep_dive),
                "open_questions": left("open_questions", narrative.open_questions),
                "strikes": left("strikes", narrative.strikes),
                "corrections": left("corrections", narrative.corrections),
            }
        )
    )


def _numbered(name: str, told: list[str]) -> Iterator[tuple[str, str]]:
    yield from ((f"{name}[{index}]", text) for index, text in enumerate(told))


def written_by(narration: Narration) -> Line:
    """Who wrote it, for the head of the report. The same wherever the report is made."""
    by = narration.provenance
    line = ["written by ", *author(by), " from this report and the code", *origin(by)]
    return [*line, "; its places and numbers are reviewed like all others; ", _second_pass(narration)]


def author(by: Provenance) -> list[Inline]:
    """The models, else who submitted it."""
    line: list[Inline] = []
    for index, model in enumerate(by.models):
        line += [", " if index else "", Code(escaped(model, kept=""))]
    if not by.models:
        line.append("an author who is not known" if by.author is None else escaped(by.author, kept=""))
    return line


def origin(by: Provenance) -> list[Inline]:
    """From which prompt it is, and how it came."""
    line: list[Inline] = []
    if by.prompt_sha256:
        line += [" (prompt ", Code(f"sha256 {by.prompt_sha256[:16]}"), ")"]
    return [*line, " and submitted with lmp submit" if by.stage == "submitted" else ""]


def _second_pass(narration: Narration) -> str:
    found = narration.refutation
    if found is None:
        why = f": {narration.not_refuted}" if narration.not_refuted else ""
        return f"no second pass has held its texts against the code{escaped(why, kept='')}"
    refuted = sum(not one.holds for one in found.judged)
    left_out = f"{refuted} of them refuted and left out" if refuted else "none refuted"
    return f"a second pass held its {len(found.judged)} texts against the code: {left_out}"
