"""One pass over a whole report: no line says "none found" of what another section, or a looser search, has."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from lmp.codebase.facts import Definition
from lmp.report.document.markdown import NONE_FOUND
from lmp.report.document.parts import (
    Block,
    Bold,
    Bullets,
    Document,
    Fence,
    Inline,
    Line,
    Paragraph,
    Pointer,
    Section,
    Table,
)
from lmp.report.repository.pieces import joined, pointer, sentence
from lmp.report.repository.study import Study
from lmp.report.review.consistency import named_like

CANDIDATES = 4
_NONE = re.compile(rf"{NONE_FOUND} \(searched: (?:[^()]|\([^()]*\))*\)")


def settled(document: Document, study: Study) -> Document:
    """The report with candidates in place of "none found", where a place of it or a definition has such a name."""
    places = [(section.title, each) for section in _every(document.sections) for each in _pointers(section.blocks)]
    return replace(document, sections=[_section(each, places, study) for each in document.sections])


def _section(section: Section, places: Sequence[tuple[str, Pointer]], study: Study) -> Section:
    other = [each for title, each in places if title != section.title]

    def line(given: Line) -> Line:
        return _line(given, other, study)

    def row(cells: Sequence[Line]) -> Sequence[Line]:
        title = "".join(_text(cells[0]))
        return [cells[0], *(_line(cell, other, study, title) for cell in cells[1:])]

    blocks: list[Block] = []
    for block in section.blocks:
        if isinstance(block, Bullets):
            block = replace(block, items=[line(each) for each in block.items])
        elif isinstance(block, Table):
            block = replace(block, rows=[row(cells) for cells in block.rows])
        elif isinstance(block, Paragraph):
            block = Paragraph(line(block.content))
        blocks.append(block)
    return replace(section, blocks=blocks, sections=[_section(each, places, study) for each in section.sections])


def _line(given: Line, other: Sequence[Pointer], study: Study, title: str = "") -> Line:
    pieces = list(_pieces(given))
    at = next((at for at, each in enumerate(pieces) if isinstance(each, str) and _NONE.search(each)), None)
    if at is None:
        return given
    wanted = named_like(title or "".join(_text(pieces)).partition(":")[0].strip())
    found = list(_candidates(wanted, other, study)) if wanted is not None else []
    if not found:
        return given
    before, _, after = _NONE.sub("\x00", str(pieces[at]), count=1).partition("\x00")
    return sentence(
        *pieces[:at], f"{before}not determined, candidates: ", joined(found[:CANDIDATES]), after, *pieces[at + 1 :]
    )


def _candidates(wanted: re.Pattern[str], other: Sequence[Pointer], study: Study) -> Iterator[Pointer]:
    """Places of the report first, then definitions that most files take."""
    seen: set[tuple[str, int]] = set()
    named = [each for each in other if each.symbol and wanted.search(each.symbol)]
    defined = [each for each in study.base.definitions if wanted.search(each.name) and not each.name.startswith("__")]
    # What runs on the device itself exchanges values of one kernel, not of processes.
    defined = [each for each in defined if not _on_device(study, each)]
    defined.sort(key=lambda each: (-study.base.imported_by(each), each.place.file, each.place.line))
    for each in [*named, *(pointer(one.place, one.qualname) for one in defined)]:
        if (each.file, each.line) not in seen:
            seen.add((each.file, each.line))
            yield each


def _on_device(study: Study, of: Definition) -> bool:
    lines = study.base.lines(of.place.file)[of.place.line - 1 : of.end]
    return any("__device__" in line for line in lines)


# --- parts of a document ---------------------------------------------------------------------------------------------


def _every(sections: Sequence[Section]) -> Iterator[Section]:
    for section in sections:
        yield section
        yield from _every(section.sections)


def _pointers(blocks: Sequence[Block]) -> Iterator[Pointer]:
    for block in blocks:
        lines: list[Line] = []
        if isinstance(block, Bullets):
            lines = list(block.items)
        elif isinstance(block, Table):
            lines = [cell for cells in block.rows for cell in cells]
        elif isinstance(block, (Paragraph, Fence)):
            lines = [block.content]
        yield from (each for line in lines for each in _pieces(line) if isinstance(each, Pointer))


def _pieces(line: Line) -> Sequence[Inline]:
    return list(line) if isinstance(line, (list, tuple)) else [line]  # type: ignore[list-item]


def _text(line: Line) -> Iterator[str]:
    """The words of a line, without its code."""
    yield from (
        each.text if isinstance(each, Bold) else each for each in _pieces(line) if isinstance(each, (str, Bold))
    )
