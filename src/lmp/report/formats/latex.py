r"""A LaTeX table with booktabs rules, ready for ``\input``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import IO, Any

from lmp.report.formats.base import Format, Result, Show, SweepResult, one_line
from lmp.report.formats.rows import Row, rows
from lmp.report.formats.sweeps import every_row
from lmp.report.formats.table import HEADS, figures, heading, notes, sweep_heads, sweep_texts, totals

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "·": r"$\cdot$",
    **{sign: f"${sign}$" for sign in "<>|"},
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}


def point(result: Result, show: Show, out: IO[Any]) -> None:
    shown = rows(result.model, result.tree, show)
    named = [
        (
            r"\quad " * row.depth + escaped(f"{row.name} ({row.place})" if row.place else row.name),
            *_escaped(row_figures),
        )
        for row, row_figures in ((row, figures(row, show)) for row in shown)
    ]
    pairs = [(escaped(name.strip()), *[""] * (len(HEADS) - 2), escaped(value)) for name, value in totals(result, show)]
    about = [line.plain.strip() for line in heading(result)]
    below = [*notes(result, shown, show), *(f"warning: {warning}" for warning in result.warnings)]
    _write(out, HEADS, [named, pairs], 1, about, below)


def sweep(result: SweepResult, show: Show, out: IO[Any]) -> None:
    found = [_escaped(row) for row in sweep_texts(result, every_row(result, "latex"), show)]
    below = [f"warning: {warning}" for warning in result.warnings()]
    _write(out, sweep_heads(result), [found], 0, [result.model.class_name], below)


FORMAT = Format(point, sweep, warns=True)


def escaped(text: str) -> str:
    """The text as it is: nothing in it is a command, and it stays on one line."""
    return "".join(_SPECIAL.get(sign, sign) for sign in one_line(text))


def _name(row: Row) -> str:
    return r"\quad " * row.depth + escaped(f"{row.name} ({row.place})" if row.place else row.name)


def _escaped(cells: Iterable[str]) -> list[str]:
    return [escaped(cell) for cell in cells]


def _write(
    out: IO[Any],
    heads: Sequence[str],
    groups: Sequence[Iterable[Sequence[str]]],
    numbers: int,
    about: Sequence[str],
    below: Sequence[str],
) -> None:
    """``groups`` of rows of escaped cells, with a rule between them."""
    out.write("% needs \\usepackage{booktabs}\n")
    out.write("".join(f"% {one_line(line)}\n" for line in about))
    out.write(f"\\begin{{tabular}}{{{'l' * numbers}{'r' * (len(heads) - numbers)}}}\n\\toprule\n")
    out.write(" & ".join(_escaped(heads)) + " \\\\\n")
    for group in groups:
        out.write("\\midrule\n" + "".join(" & ".join(cells) + " \\\\\n" for cells in group))
    out.write("\\bottomrule\n\\end{tabular}\n")
    out.write("".join(f"\\par {{\\footnotesize {escaped(line)}}}\n" for line in below))
