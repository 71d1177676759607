"""A GitHub table, with what stands around it as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import IO, Any

from lmp.report.formats.base import Format, Result, Show, SweepResult, one_line
from lmp.report.formats.card import card
from lmp.report.formats.rows import rows
from lmp.report.formats.sweeps import every_row
from lmp.report.formats.table import HEADS, figures, heading, notes, sweep_heads, sweep_texts, totals

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!&])")


def point(result: Result, show: Show, out: IO[Any]) -> None:
    first, *more = heading(result)
    out.write(f"**{escaped(first.plain)}**\n\n")
    for line in more:
        out.write(f"{escaped(line.plain.strip())}\n\n")
    for row in card(result, show):
        words = " · ".join((*row.parts, row.words) if row.words else row.parts)
        out.write(f"- {escaped(f'{row.label}: {words}' if row.label else words)}\n")
    out.write("\n")
    shown = rows(result.model, result.tree, show)
    named = [("\u2003" * row.depth + escaped(_name(row.name, row.place)), *figures(row, show)) for row in shown]
    out.write(table(HEADS, named, 1))
    items = [*notes(result, shown, show), *(f"{name.strip()}: {value}" for name, value in totals(result, show))]
    _list(out, [*items, *(f"warning: {warning}" for warning in result.warnings)])


def sweep(result: SweepResult, show: Show, out: IO[Any]) -> None:
    found = every_row(result, "markdown")
    out.write(f"**{escaped(result.model.class_name)}**\n\n")
    out.write(table(sweep_heads(result), sweep_texts(result, found, show), 0))
    _list(out, [f"warning: {warning}" for warning in result.warnings()])


FORMAT = Format(point, sweep, warns=True)


def table(heads: Sequence[str], found: Iterable[Sequence[str]], numbers: int) -> str:
    """``found`` are rows whose first ``numbers`` cells are escaped already; the others are figures."""
    marks = [":--" if index < numbers else "--:" for index in range(len(heads))]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in [[escaped(head) for head in heads], marks, *found])


def escaped(text: str) -> str:
    """The text as it is: nothing in it is markup, and it stays on one line."""
    return _SPECIAL.sub(r"\\\1", one_line(text))


def _name(name: str, place: str) -> str:
    return f"{name} ({place})" if place else name


def _list(out: IO[Any], items: Sequence[str]) -> None:
    if items:
        out.write("\n" + "".join(f"- {escaped(item)}\n" for item in items))
