"""The template's own checklist, with what came of each item."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lmp.report.document.amounts import Number
from lmp.report.document.parts import Bullets, Line, Paragraph, Pointer, Section, Table
from lmp.report.repository.components import chosen
from lmp.report.repository.pieces import plural, sentence
from lmp.report.repository.study import Study

TLDR_ITEM = "TL;DR is specific and accurate (not generic marketing)"
MAP_ITEM = "Module map includes real paths and roles"
COMPONENTS_ITEM = "Key components table has file:line pointers and correct responsibilities"
DEEP = ("Prefill vs decode loop (real nesting)", "KV cache", "Scheduler / batching", "Sampling / decoding")


def checklist(study: Study, sections: Sequence[Section]) -> Section:
    named = {section.title: section for section in _every(sections)}
    tldr = named["TL;DR (5–8 lines)"]
    facts = [piece for piece in _pieces(tldr) if isinstance(piece, (Pointer, Number))]
    bullets = next((block.items for block in tldr.blocks if isinstance(block, Bullets)), ())
    table = next(block for block in named["Module map (table)"].blocks if isinstance(block, Table))
    places = plural(len(facts), "place or count", "places and counts")
    items: list[Line] = [
        sentence(f"{TLDR_ITEM}: ", *plural(len(bullets), "line"), " with ", *places, "."),
        sentence(f"{MAP_ITEM}: ", *plural(len(table.rows), "row"), "; every path is of files that were read."),
        sentence(
            f"{COMPONENTS_ITEM}: ", *plural(len(chosen(study)), "row"), "; the review finds each name at its line."
        ),
        _deep(study, named),
        "No placeholder markers remain anywhere in this file: held by the review that runs before the file is written.",
    ]
    return Section("Self-review checklist (before calling it “done”)", [Bullets(items)])


def _deep(study: Study, named: dict[str, Section]) -> Line:
    start = "If LLM-related: prefill/decode + KV cache + scheduler + sampling are described with code pointers: "
    if not study.llm.related:
        return f"{start}it is not LLM-related."
    counts = [(title, sum(isinstance(piece, Pointer) for piece in _pieces(named[title]))) for title in DEEP]
    missing = [title for title, number in counts if not number]
    total = sum(number for _, number in counts)
    said = (
        f"; without any: {', '.join(missing)}, where was looked stands there"
        if missing
        else "; none of the four is without"
    )
    return sentence(start, *plural(total, "pointer"), said, ".")


def _every(sections: Sequence[Section]) -> Iterator[Section]:
    for section in sections:
        yield section
        yield from _every(section.sections)


def _pieces(section: Section) -> Iterator[object]:
    for block in section.blocks:
        lines: list[Line] = []
        if isinstance(block, Bullets):
            lines = list(block.items)
        elif isinstance(block, Table):
            lines = [cell for row in block.rows for cell in row]
        elif isinstance(block, Paragraph) or hasattr(block, "content"):
            lines = [block.content]
        for line in lines:
            yield from line if isinstance(line, (list, tuple)) else (line,)
