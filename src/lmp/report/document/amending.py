"""Rows and sentences of a document that a narrative strikes or corrects, and the section that says which and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from lmp.records import Correction, Strike
from lmp.report.document.markdown import plain
from lmp.report.document.parts import Block, Bullets, Document, Line, Section, Table
from lmp.report.document.told import Told

TITLE = "Struck and corrected"

Amendment = Strike | Correction
Rows = Sequence[Sequence[Line]]


def amended(document: Document, told: Told) -> Document:
    """The document with all strikes and corrections, and a last section of them; as it is where there are none."""
    narrative = told.narrative
    asked: list[Amendment] = [*narrative.strikes, *narrative.corrections]
    if not asked:
        return document
    for one in asked:
        found = matches(document, one)
        if len(found) == 1:
            document = replace(document, sections=[_section(each, one, told) for each in document.sections])
    return replace(document, sections=[*document.sections, _record(asked, told)])


def matches(document: Document, asked: Amendment) -> list[str]:
    """The rows and sentences that begin as is asked, as plain text."""
    return [
        text
        for section in _every(document.sections)
        if section.title == asked.section
        for block in section.blocks
        for text in _texts(block, asked)
        if text.startswith(asked.row.replace("`", "").strip())
    ]


def _every(sections: Sequence[Section]) -> Iterator[Section]:
    for section in sections:
        yield section
        yield from _every(section.sections)


def _texts(block: Block, asked: Amendment) -> list[str]:
    column = asked.column if isinstance(asked, Correction) else None
    if isinstance(block, Table) and column != "":
        has_column = column is None or column in block.columns
        return [_plain(row[0]) for row in block.rows] if has_column else []
    if isinstance(block, Bullets) and not column:
        return [_plain(item) for item in block.items]
    return []


def _section(section: Section, asked: Amendment, told: Told) -> Section:
    inner = [_section(each, asked, told) for each in section.sections]
    if section.title != asked.section:
        return replace(section, sections=inner)
    return replace(section, sections=inner, blocks=[_block(block, asked, told) for block in section.blocks])


def _block(block: Block, asked: Amendment, told: Told) -> Block:
    begins = asked.row.replace("`", "").strip()
    is_it: Callable[[Line], bool] = lambda line: _plain(line).startswith(begins)  # noqa: E731
    if not _texts(block, asked):
        return block
    if isinstance(block, Bullets):
        items = [
            told.line(asked.text) if isinstance(asked, Correction) and is_it(item) else item
            for item in block.items
            if isinstance(asked, Correction) or not is_it(item)
        ]
        return replace(block, items=items, searched=block.searched or f"this section, before a row was struck: {TITLE}")
    if not isinstance(block, Table):
        return block
    if isinstance(asked, Strike):
        searched = block.searched or f"this section, before a row was struck: {TITLE}"
        return replace(block, rows=[row for row in block.rows if not is_it(row[0])], searched=searched)
    at = list(block.columns).index(asked.column)
    rows: Rows = [
        [told.line(asked.text) if number == at and is_it(row[0]) else cell for number, cell in enumerate(row)]
        for row in block.rows
    ]
    return replace(block, rows=rows)


def _record(asked: Sequence[Amendment], told: Told) -> Section:
    rows: list[list[Line]] = [
        [
            one.section,
            told.line(one.row),
            "struck" if isinstance(one, Strike) else "corrected",
            told.line(one.why),
        ]
        for one in asked
    ]
    return Section(TITLE, [Table(("Section", "Row", "What was done", "What shows it"), rows)])


def _plain(line: Line) -> str:
    pieces = line if isinstance(line, (list, tuple)) else [line]
    return "".join(map(plain, pieces))
