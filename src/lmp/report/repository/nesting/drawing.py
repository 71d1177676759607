"""Steps as pseudocode: the code's own words, indented as they nest, with the place of each at its right."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lmp.report.document.parts import Fence, Inline, Pointer
from lmp.report.repository.nesting.exploring import Nest
from lmp.report.repository.nesting.steps import Step, shown
from lmp.report.repository.pieces import cut

WIDTH = 100
INDENT = 2
LANGUAGES = {"python": "python", "cuda": "cpp", "c++": "cpp", "c": "c", "hip": "cpp", "metal": "cpp"}
_LOOKS_LIKE_PLACE = re.compile(r"(\.\w+|\w):(?=\d)")


def fence(nest: Nest, language: str) -> Fence:
    """The pseudocode of a nest, begun by the function that it is of."""
    comment = "#" if language == "python" else "//"
    place = Pointer(nest.root.place.file, nest.root.place.line, symbol=nest.root.name)
    pieces: list[Inline] = _line(0, f"{nest.root.qualname}:", place, comment)
    _draw(nest.steps, 1, comment, pieces)
    return Fence(pieces, LANGUAGES.get(language, "text"))


def _draw(steps: Sequence[Step], depth: int, comment: str, pieces: list[Inline]) -> None:
    for step in shown(list(steps)):
        text = _LOOKS_LIKE_PLACE.sub(r"\1: ", step.written())
        pieces += _line(depth, text, Pointer(step.place.file, step.place.line), comment, _beside(step))
        _draw(step.inside, depth + 1, comment, pieces)


def _beside(step: Step) -> list[Inline]:
    """Where a call leads, if that cannot be read from the line, and how it was told."""
    remark: list[Inline] = []
    if step.target is not None and not any(each.shown for each in step.inside):
        remark += ["-> ", Pointer(step.target.file, step.target.line, symbol=step.name.rpartition(".")[2] or None)]
    if step.remark:
        remark += [" " if remark else "", f"({step.remark})"]
    return remark


def _line(depth: int, text: str, place: Pointer, comment: str, beside: Sequence[Inline] = ()) -> list[Inline]:
    """One line where everything fits, else the place on a line of its own, and what is beside it on one more."""
    indent = " " * min(INDENT * depth, 40)
    head = f"{indent}{cut(text, WIDTH - len(indent))}"
    width = len(place.place) + (len(place.symbol) + 3 if place.symbol else 0)
    pieces: list[Inline] = [head]
    if len(head) + width + 4 <= WIDTH:
        pieces.append(" " * max(2, WIDTH - len(head) - width - len(comment) - 1))
    else:
        pieces.append("\n" + " " * max(len(indent), WIDTH - width - len(comment) - 1))
    pieces += [f"{comment} ", place]
    if beside:
        pieces += _fitting(beside, indent, comment)
    return [*pieces, "\n"]


def _fitting(beside: Sequence[Inline], indent: str, comment: str) -> list[Inline]:
    """What is beside a call, on lines of its own; a place that is too long goes without its symbol."""
    pieces: list[Inline] = []
    start = f"\n{indent[: WIDTH // 3]}  {comment} "
    for piece in beside:
        if piece == " ":
            continue
        if isinstance(piece, Pointer) and len(start) + 2 + len(piece.place) + len(piece.symbol or "") > WIDTH:
            piece = Pointer(piece.file, piece.line)
        new_line = isinstance(piece, str) and piece.lstrip().startswith("(")
        pieces += [
            start if new_line or not pieces else "",
            piece.lstrip() if isinstance(piece, str) and new_line else piece,
        ]
    return pieces
