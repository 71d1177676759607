"""Diagrams: boxes are closed and fit on 100 columns, Mermaid graphs have quoted labels and no unknown node."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from lmp.records import ReviewFinding
from lmp.report.review.reading import FencePiece, Text

WIDTH = 100
_DRAWN = frozenset("┌┐└┘├┤┬┴┼─│╔╗╚╝║═╭╮╰╯▼▲►◄→←↓↑")
_RIGHT = frozenset("─┬┴┼┐┘┤├═╮╯")
_DOWN = frozenset("│├┤┼┴└┘╰╯▼↓")
_UP = frozenset("│├┤┼┬┌┐╭╮▲↑▼↓")

_HEADER = re.compile(r"(flowchart|graph)\s+(TB|TD|BT|LR|RL)\s*;?")
_LABEL = r'(?:\["[^"]*"\]|\("[^"]*"\)|\{"[^"]*"\}|\[\("[^"]*"\)\]|\(\["[^"]*"\]\))?'
_NODE = re.compile(rf"(?P<key>\w+){_LABEL}")
_ARROW = r'\s*(?:-->|---|-\.->|==>)\s*(?:\|"[^"]*"\|\s*)?'
_EDGE = re.compile(rf"(?P<a>\w+){_LABEL}{_ARROW}(?P<b>\w+){_LABEL};?")
_GROUP = re.compile(r'subgraph\s+\w+(?:\s*\["[^"]*"\])?')
_OTHER = re.compile(r"(?:classDef|class|style|linkStyle|direction)\s.*|%%.*|end")


def check_diagrams(text: Text) -> Iterator[ReviewFinding]:
    for fence in text.fences:
        if fence.language == "mermaid":
            yield from _mermaid(fence)
        elif fence.language in ("", "text") and any(_DRAWN & set(line) for line in fence.lines):
            yield from _drawing(fence)


# --- boxes -----------------------------------------------------------------------------------------------------------


def _drawing(fence: FencePiece) -> Iterator[ReviewFinding]:
    for offset, line in enumerate(fence.lines):
        if len(line) > WIDTH:
            yield _wrong(fence, offset, f"the diagram is {len(line)} columns wide, at most {WIDTH} fit")
        for column, sign in enumerate(line):
            open_at = _open_side(fence.lines, offset, column, sign)
            if open_at:
                yield _wrong(
                    fence, offset, f"the box is not closed: {sign} in column {column + 1} has nothing {open_at}"
                )


def _open_side(lines: Sequence[str], row: int, column: int, sign: str) -> str | None:
    """Where the corner of a box has nothing to go on with."""
    if sign in "┌╭╔" and _at(lines, row, column + 1) not in _RIGHT:
        return "to its right"
    if sign in "┐╮╗┘╯╝" and _at(lines, row, column - 1) not in "─┬┴┼┌└├═╭╰╔╚":
        return "to its left"
    if sign in "┌┐╭╮" and _at(lines, row + 1, column) not in _DOWN:
        return "below"
    if sign in "└┘╰╯" and _at(lines, row - 1, column) not in _UP:
        # The last branch of a tree hangs from text.
        is_branch = sign in "└╰" and not _closes(lines[row], column)
        return None if is_branch and _at(lines, row - 1, column).strip() else "above"
    return None


def _closes(line: str, column: int) -> bool:
    """Whether a lower left corner belongs to a box: its line goes on to a lower right corner."""
    return re.match(r"[└╰][─┬┴┼]*[┘╯]", line[column:]) is not None


def _at(lines: Sequence[str], row: int, column: int) -> str:
    if 0 <= row < len(lines) and 0 <= column < len(lines[row]):
        return lines[row][column]
    return " "


# --- Mermaid ---------------------------------------------------------------------------------------------------------


def _mermaid(fence: FencePiece) -> Iterator[ReviewFinding]:
    if not _HEADER.fullmatch(fence.lines[0].strip()):
        yield _wrong(fence, 0, "a Mermaid graph begins with flowchart TB, or another direction")
        return
    nodes: set[str] = set()
    used: dict[str, int] = {}
    depth = 0
    for offset, written in enumerate(fence.lines[1:], 1):
        line = written.strip()
        edge = _EDGE.fullmatch(line)
        if edge:
            for key in (edge["a"], edge["b"]):
                used.setdefault(key, offset)
            nodes |= {key for key in (edge["a"], edge["b"]) if re.search(rf"\b{key}\s*[\[({{]", line)}
        elif _GROUP.fullmatch(line):
            depth += 1
            nodes.add(line.split()[1].partition("[")[0])
        elif line == "end":
            depth -= 1
        elif (node := _NODE.fullmatch(line)) is not None:
            nodes.add(node["key"])
        elif line and not _OTHER.fullmatch(line):
            yield _wrong(fence, offset, f"not a node with a quoted label, an edge or a group: {line[:60]}")
    if depth:
        yield _wrong(fence, len(fence.lines) - 1, "a subgraph of the Mermaid graph has no end, or an end no subgraph")
    for key, offset in used.items():
        if key not in nodes:
            yield _wrong(fence, offset, f"the edge leads to {key}, which is no node of the graph")


def _wrong(fence: FencePiece, offset: int, message: str) -> ReviewFinding:
    return ReviewFinding(rule="diagram", line=fence.line + offset, message=message)
