"""The numbers of a written report, each with how it is worked out: what lies beside the report for its review."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from pydantic import Field

from lmp.records import Record
from lmp.report.document.amounts import Claim, Number
from lmp.report.document.markdown import title
from lmp.report.document.parts import Block, Bullets, Document, Fence, Line, Paragraph, Section, Table


class Entry(Record):
    """One number of one section, as it is printed there."""

    section: str
    text: str
    unit: str = ""
    claim: Claim | None = Field(default=None, description="None: a number that is quoted from a source, as it stands")


class Ledger(Record):
    """``reports/assets/<name>-numbers.json``."""

    kind: Literal["model", "repository"]
    subject: str = Field(description="class path, or name of the repository")
    config: str = Field(default="default", description="the results folder's config: after the @")
    device: str | None = Field(default=None, description="whose peak rates the bounds are of")
    folder: str | None = Field(default=None, description="of a repository: where it was read, as it was given")
    points: dict[str, dict[str, int]] = Field(default_factory=dict)
    sizes: dict[str, int] = Field(default_factory=dict, description="values that were given for every point: --set")
    named: dict[str, int] = Field(default_factory=dict, description="values of the terms above that have a name")
    numbers: list[Entry] = Field(default_factory=list)
    lines: list[str] = Field(default=[], description="the facts of each line that has any, as written")


def names_in(numbers: Iterable[Entry]) -> list[str]:
    """The names of the terms that these numbers are made of, in their order."""
    terms = (term for entry in numbers if entry.claim is not None for term in entry.claim.terms.values())
    return list(dict.fromkeys(term.name for term in terms if term.name is not None))


def entries(document: Document) -> Iterator[Entry]:
    """Every number of a document once for each section that it stands in."""
    seen: set[tuple[str, str]] = set()
    for section, number in numbers_in(document):
        key = (section, number.text)
        if key not in seen:
            seen.add(key)
            yield Entry(section=section, text=number.text, unit=number.unit, claim=number.claim)


def numbers_in(document: Document) -> Iterator[tuple[str, Number]]:
    """Every number of a document, after the title of its section."""
    for _, line in document.head:
        yield from ((title(document), number) for number in _in_line(line))
    for block in document.opening:
        yield from ((title(document), number) for number in _in_block(block))
    for section in document.sections:
        yield from _in_section(section)


def _in_section(section: Section) -> Iterator[tuple[str, Number]]:
    for block in section.blocks:
        yield from ((section.title, number) for number in _in_block(block))
    for inner in section.sections:
        yield from _in_section(inner)


def _in_block(block: Block) -> Iterator[Number]:
    match block:
        case Paragraph(content) | Fence(content):
            yield from _in_line(content)
        case Bullets(items):
            for item in items:
                yield from _in_line(item)
        case Table():
            for row in block.rows:
                for cell in row:
                    yield from _in_line(cell)


def _in_line(line: Line) -> Iterator[Number]:
    pieces = line if isinstance(line, (list, tuple)) else [line]
    yield from (piece for piece in pieces if isinstance(piece, Number))
