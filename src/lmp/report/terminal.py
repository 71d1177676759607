"""The terminal that tables are written to: its width, its signs, and tables that fit it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

GLUE = "\u00a0"
"""Joins words that are never on two lines, as a number and its unit. It is printed as a space."""

GAP = 2
"""Spaces between two columns."""

LEAST_NAME = 8
"""Cells that the first column has at least, however narrow the terminal is."""

BAR = 8
"""Cells of a whole bar."""

_IN_ASCII = str.maketrans({"·": "-", "…": "~", "█": "#", "×": "x", "—": "-"})


class Terminal(Console):
    """rich's console, but for what it does when the reader of a pipe has gone: it would end the program with 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError

    @property
    def ascii_only(self) -> bool:
        return self.options.ascii_only

    def signs(self, text: str) -> str:
        """The text in signs that the encoding has: a bar of # where it has no blocks."""
        return text.translate(_IN_ASCII) if self.ascii_only else text

    def put(self, text: Text | str = "") -> None:
        """Print one line as it is: neither wrapped nor cut. Control characters of foreign text become spaces."""
        text = Text(text) if isinstance(text, str) else text
        text.plain = self.signs("".join(sign if sign.isprintable() else " " for sign in text.plain))
        self.print(text, soft_wrap=True)

    def paragraph(self, text: str, style: str = "", indent: str = "") -> None:
        """Print the text wrapped between words."""
        for line in wrapped(text, self.width, indent, indent):
            self.put(Text(line, style=style))


def wrapped(text: str, width: int, first: str = "", others: str = "") -> list[str]:
    """Lines of at most ``width`` cells, broken at spaces alone. A longer word has a line of its own."""
    lines = textwrap.wrap(
        text,
        max(1, width),
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(GLUE, " ") for line in lines]


def cut(text: str, width: int, ellipsis: str = "…") -> str:
    """The text with its middle left out: ``model.lay…q_proj``. The end, which tells more, has the larger part."""
    if cell_len(text) <= width:
        return text
    room = max(0, width - len(ellipsis))
    end = room - room // 3
    return text[: room - end] + ellipsis + (text[-end:] if end else "")


def cut_end(text: str, width: int, ellipsis: str = "…") -> str:
    """The text with its end left out: ``scaled dot pr…``."""
    if cell_len(text) <= width:
        return text
    return text[: max(0, width - len(ellipsis))].rstrip() + ellipsis


def bar(share: Fraction | None) -> str:
    """A bar of BAR blocks for the whole, rounded to whole blocks."""
    return "█" * max(0, min(BAR, int(share * BAR + Fraction(1, 2)))) if share else ""


# --- tables ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """``name`` is what --columns takes. A table drops the column of the least ``rank`` first."""

    name: str
    head: str
    rank: int
    left: bool = False


@dataclass(frozen=True)
class Line:
    """A row: its name, the cells of all columns, and how it is shown.

    ``end`` is the end of the name that is cut last, as the place of an operator.
    """

    name: str
    cells: Sequence[str]
    indent: int = 0
    style: str = ""
    end: str = ""


@dataclass(frozen=True)
class Fitted:
    """A table as lines of text, and what of it is not there."""

    lines: tuple[Text, ...]
    hidden: tuple[str, ...]
    """Names of the columns that the width has no room for."""
    cut: bool
    """Whether a name is cut."""

    def notes(self) -> list[str]:
        found = []
        if self.hidden:
            many = f"{len(self.hidden)} column{'' if len(self.hidden) == 1 else 's'} hidden"
            found.append(f"{many}: {', '.join(self.hidden)}; --columns all shows all")
        if self.cut:
            found.append("names are cut in the middle; --format csv has them whole")
        return found


def fitted(
    head: str,
    columns: Sequence[Column],
    rows: Sequence[Line],
    width: int,
    wanted: Sequence[str] | None = None,
    least_name: int = LEAST_NAME,
    part: int = 3,
) -> Fitted:
    """The rows with as many columns as the width takes; with those that are ``wanted``, whatever the width is.

    Names are cut to the width that is left, but not below ``least_name`` cells. A column is dropped before names get
    less than this ``part`` of the width.
    """
    widths = [max(map(cell_len, [column.head, *(row.cells[i] for row in rows)])) for i, column in enumerate(columns)]
    natural = max([cell_len(head), *(row.indent + cell_len(row.name) for row in rows)])
    least = min(natural, max(least_name, width // part))
    kept = [i for i, column in enumerate(columns) if wanted is None or column.name in wanted]
    dropped: list[int] = []

    def room() -> int:
        return width - sum(widths[i] + GAP for i in kept)

    while wanted is None and kept and room() < (least if len(kept) > 2 else least_name):
        dropped.append(min(kept, key=lambda i: columns[i].rank))
        kept.remove(dropped[-1])
    name_width = max(min(natural, room()), least if wanted is not None else least_name)

    def laid(name: str, cells: Sequence[str], indent: int, end: str = "") -> str:
        indent = min(indent, name_width - least_name)
        rest = name_width - indent - cell_len(end)
        fits = end and rest >= LEAST_NAME
        shown = cut_end(name.removesuffix(end), rest) + end if fits else cut(name, name_width - indent)
        label = " " * indent + shown
        parts = [label + " " * (name_width - cell_len(label))]
        for i in kept:
            space = " " * (widths[i] - cell_len(cells[i]))
            parts.append(cells[i] + space if columns[i].left else space + cells[i])
        return (" " * GAP).join(parts).rstrip()

    lines = [Text(laid(head, [column.head for column in columns], 0), style="bold")]
    lines += [Text(laid(row.name, row.cells, row.indent, row.end), style=row.style) for row in rows]
    was_cut = any(cell_len(row.name) > name_width - min(row.indent, name_width - least_name) for row in rows)
    return Fitted(tuple(lines), tuple(columns[i].name for i in sorted(dropped)), was_cut)
