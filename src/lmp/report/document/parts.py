"""A report as values: sections of blocks, blocks of inline pieces. `markdown` escapes and writes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lmp.report.document.amounts import Number


@dataclass(frozen=True)
class Code:
    """A name or a piece of code, as it stands."""

    text: str


@dataclass(frozen=True)
class Bold:
    text: str


@dataclass(frozen=True)
class Link:
    """``target`` is a relative path below ``reports/``, an anchor, or an https address of a paper or document."""

    text: str
    target: str


@dataclass(frozen=True)
class Pointer:
    """A place in code: ``file:line``, or ``file:line-end``. ``file`` is posix, relative to a root of the report.

    Of the trees of lmp the first part of ``file`` is the tree's name: ``transformers/src/transformers/…``,
    ``pytorch/torch/…``. Of a repository it is relative to the repository.

    ``symbol`` is what must stand within three lines of ``line``: a name as in the source; of a dotted one
    (``LlamaMLP.forward``) the last part. It is printed beside the place.
    """

    file: str
    line: int
    end: int | None = None
    symbol: str | None = None

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" + (f"-{self.end}" if self.end not in (None, self.line) else "")


Inline = str | Code | Bold | Link | Pointer | Number
"""Plain text is a str: whatever looks like markup in it is escaped."""

Line = Inline | Sequence[Inline]
"""One piece, or several in a row (nothing is put between them)."""


@dataclass(frozen=True)
class Paragraph:
    content: Line


@dataclass(frozen=True)
class Bullets:
    """``searched`` says where was looked, and is what is printed where there is no item: "none found (searched: …)"."""

    items: Sequence[Line]
    searched: str = ""


@dataclass(frozen=True)
class Table:
    """Cells are lines. A table without rows says "none found (searched: …)"."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Line]]
    searched: str = ""
    right: frozenset[int] = frozenset()
    """Columns of figures, by index."""


@dataclass(frozen=True)
class Fence:
    """A block of text in a fixed width: pseudocode, a diagram. At most 100 columns; pointers print as
    ``path:line (symbol)``."""

    content: Line
    language: str = ""


@dataclass(frozen=True)
class Node:
    """Of a Mermaid graph. The label may be any text: it is quoted and escaped."""

    key: str
    label: str
    inside: str | None = None
    """Title of the group that it stands in."""


@dataclass(frozen=True)
class Mermaid:
    nodes: Sequence[Node]
    edges: Sequence[tuple[str, str, str]]
    """From, to, label."""
    direction: str = "TB"


@dataclass(frozen=True)
class Image:
    """``file`` is relative to the report."""

    file: str
    alt: str


Block = Paragraph | Bullets | Table | Fence | Mermaid | Image


@dataclass(frozen=True)
class Section:
    title: str
    blocks: Sequence[Block] = ()
    sections: Sequence[Section] = ()


@dataclass(frozen=True)
class Document:
    """``head`` are the bold lines under the title: name and content."""

    title: Line
    """A name that may be any text stands in it as `Code`."""
    head: Sequence[tuple[str, Line]]
    sections: Sequence[Section]
    foot: str = ""
    rules: bool = False
    """A horizontal rule between the sections."""
    dense: bool = False
    """No blank line under a heading, nor between a sentence and its list or block of code."""
    opening: Sequence[Block] = field(default=())
    """What stands before the first section: what the reader must know of all numbers."""
