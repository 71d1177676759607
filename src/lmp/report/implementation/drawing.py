"""Boxes and trees in a fixed width, made of pieces, so that numbers and pointers in them stay what they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from lmp.report.document.amounts import Number
from lmp.report.document.markdown import plain
from lmp.report.document.parts import Bold, Code, Fence, Inline, Line, Link, Pointer

WIDTH = 100
Row = list[Inline]


def pieces_of(line: Line) -> Row:
    """The pieces of a line, which may be a single one."""
    return [line] if isinstance(line, (str, Code, Bold, Link, Pointer, Number)) else list(line)


def texts(lines: Iterable[str]) -> Iterator[Row]:
    """Each line of text as a row."""
    for line in lines:
        yield [line]


def length(row: Sequence[Inline]) -> int:
    return sum(len(plain(piece)) for piece in row)


def cut(row: Row, width: int) -> Row:
    """The row, shortened to ``width``: text that is too long ends in an ellipsis, whole pieces are left out."""
    if length(row) <= width:
        return row
    kept: Row = []
    for piece in row:
        left = width - length(kept)
        if len(plain(piece)) <= left - 1:
            kept.append(piece)
        else:
            if isinstance(piece, str) and left > 1:
                kept.append(piece[: left - 1])
            break
    return [*kept, "…"]


def spread(left: Row, right: Row, width: int) -> Row:
    """Two rows in one: to the left and to the right end."""
    left = cut(left, width - length(right) - 2) if right else cut(left, width)
    return [*left, " " * (width - length(left) - length(right)), *right]


def fence(rows: Sequence[Row], language: str = "") -> Fence:
    pieces: Row = []
    for index, row in enumerate(rows):
        pieces += [*(["\n"] if index else []), *row]
    return Fence(pieces, language)


def wrapped(text: str, width: int, indent: str = "", more: str | None = None) -> Iterator[str]:
    """Lines of at most ``width``; those after the first begin with ``more``."""
    import textwrap

    yield from textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=indent if more is None else more,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
