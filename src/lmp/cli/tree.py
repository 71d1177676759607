"""A tree of modules as lines of text that fit the terminal: nothing is cut, and no number is broken over two lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

NARROW = 60
"""Below this width a level is indented by one column, not by two."""

LEAST = 24
"""Columns that names need beside the numbers. With less, the number stands after the names."""

_GAP = "  "


@dataclass(frozen=True)
class Branch:
    """A module: its level in the tree, its number, and the texts of its line. A line breaks between two texts."""

    level: int
    number: str
    texts: Sequence[Text]


def print_tree(out: Console, what: str, branches: Sequence[Branch]) -> None:
    """Print the modules under the name of their number. Lines that continue one are indented below it."""
    digits = max(len(what), *(len(branch.number) for branch in branches))
    beside = out.width - digits - len(_GAP) >= LEAST
    head = f"{what:>{digits}}{_GAP}module" if beside else f"module{_GAP}{what}"
    out.print(Text(head, style="dim"))
    for branch in branches:
        margin = digits + len(_GAP) if beside else 0
        indent = min(branch.level * (1 if out.width < NARROW else 2), max(0, out.width - margin - LEAST // 2))
        texts = branch.texts if beside else [*branch.texts, Text(branch.number)]
        for index, line in enumerate(_lines(texts, max(1, out.width - margin - indent))):
            number = f"{branch.number:>{digits}}{_GAP}" if index == 0 and beside else " " * margin
            out.print(Text.assemble(number, " " * indent, line), soft_wrap=True)


def _lines(texts: Sequence[Text], width: int) -> Iterator[Text]:
    """The texts in lines of the width. A text that is longer than a line is folded."""
    hang = 2 if width > LEAST // 2 else 0
    line = Text()
    for text in texts:
        gap = _GAP if line.plain.strip() else ""
        if line.plain.strip() and len(line) + len(gap) + len(text) > width:
            yield line
            line, gap = Text(" " * hang), ""
        line = Text.assemble(line, gap, text)
        while len(line) > width:
            space = line.plain.rfind(" ", 0, width + 1)
            end = space if line.plain[: max(space, 0)].strip() else width
            yield line[:end]
            line = Text.assemble(" " * hang, line[end + (end == space) :])
    yield line
