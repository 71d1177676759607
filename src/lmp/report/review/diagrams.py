"""Diagrams: boxes are closed and fit on 100 columns, Mermaid graphs have quoted labels and no unknown node."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

from lmp.records import ReviewFinding
from lmp.report.review.mermaid import wrong_in
from lmp.report.review.reading import FencePiece, Text

WIDTH = 100
_DRAWN = frozenset("┌┐└┘├┤┬┴┼─│╔╗╚╝║═╭╮╰╯▼▲►◄→←↓↑")
_RIGHT = frozenset("─┬┴┼┐┘┤├═╮╯")
_DOWN = frozenset("│├┤┼┴└┘╰╯▼↓")
_UP = frozenset("│├┤┼┬┌┐╭╮▲↑▼↓")


def check_diagrams(text: Text, strict: bool = False) -> Iterator[ReviewFinding]:
    """``strict`` is for what lmp wrote: of its width, and with all that its own graphs have."""
    for fence in text.fences:
        if fence.language == "mermaid":
            yield from (_wrong(fence, offset, message) for offset, message in wrong_in(fence.lines, strict))
        elif fence.language in ("", "text") and any(_DRAWN & set(line) for line in fence.lines):
            yield from _drawing(fence, strict)


# --- boxes -----------------------------------------------------------------------------------------------------------


def _drawing(fence: FencePiece, strict: bool) -> Iterator[ReviewFinding]:
    for offset, line in enumerate(fence.lines):
        if strict and len(line) > WIDTH:
            yield _wrong(fence, offset, f"the diagram is {len(line)} columns wide, at most {WIDTH} fit")
    found = list(_open(fence.lines, strict))
    # Some signs are two columns wide: a drawing may have been aligned by them, or without a thought of them.
    if found and not (any(map(_is_wide, "".join(fence.lines))) and not any(_open(_in_columns(fence.lines), strict))):
        yield from (_wrong(fence, offset, message) for offset, message in found)


def _open(lines: Sequence[str], strict: bool) -> Iterator[tuple[int, str]]:
    has_boxes = any(set("┌┐└┘") & set(line) for line in lines)
    for offset, line in enumerate(lines):
        for column, sign in enumerate(line):
            open_at = _open_side(lines, offset, column, sign, strict)
            if open_at:
                yield offset, f"the box is not closed: {sign} in column {column + 1} has nothing {open_at}"
            elif strict and has_boxes and sign == "│" and not _leads_on(lines, offset, column):
                yield offset, f"the box is not closed: {sign} in column {column + 1} has nothing above or below"
            elif strict and sign in "─┬┴" and (side := _lost_corner(lines, offset, column)):
                yield offset, f"the box is not closed: there is no corner {side} of column {column + 1}"


def _lost_corner(lines: Sequence[str], row: int, column: int) -> str | None:
    """On which side of a line there is nothing, with a bar above or below that."""
    for side, beside in (("left", column - 1), ("right", column + 1)):
        is_blank = beside >= 0 and not _at(lines, row, beside).strip()
        if is_blank and "│" in (_at(lines, row - 1, beside), _at(lines, row + 1, beside)):
            return side
    return None


def _leads_on(lines: Sequence[str], row: int, column: int) -> bool:
    return any(_at(lines, row + step, column).strip() for step in (-1, 1))


def _is_wide(sign: str) -> bool:
    return unicodedata.east_asian_width(sign) in "WF"


def _in_columns(lines: Sequence[str]) -> list[str]:
    """Each line with a second sign after one that is two columns wide."""
    return ["".join(sign * 2 if _is_wide(sign) else sign for sign in line) for line in lines]


def _open_side(lines: Sequence[str], row: int, column: int, sign: str, strict: bool) -> str | None:
    """Where the corner of a box has nothing to go on with."""
    if sign in "┌╭╔" and _at(lines, row, column + 1) not in _RIGHT:
        return "to its right"
    if sign in "┐╮╗┘╯╝" and _at(lines, row, column - 1) not in "─┬┴┼┌└├═╭╰╔╚":
        return "to its left"
    if sign in "┌┐╭╮" and _at(lines, row + 1, column) not in _DOWN:
        return "below"
    if sign in "└┘╰╯" and _at(lines, row - 1, column) not in _UP:
        # The last branch of a tree hangs from text, and a box of somebody else's may have text in its side.
        is_branch = sign in "└╰" and not _closes(lines[row], column)
        return None if (is_branch or not strict) and _at(lines, row - 1, column).strip() else "above"
    return None


def _closes(line: str, column: int) -> bool:
    """Whether a lower left corner belongs to a box: its line goes on to a lower right corner."""
    return re.match(r"[└╰][─┬┴┼]*[┘╯]", line[column:]) is not None


def _at(lines: Sequence[str], row: int, column: int) -> str:
    if 0 <= row < len(lines) and 0 <= column < len(lines[row]):
        return lines[row][column]
    return " "


def _wrong(fence: FencePiece, offset: int, message: str) -> ReviewFinding:
    return ReviewFinding(rule="diagram", line=fence.line + offset, message=message)
