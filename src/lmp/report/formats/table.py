"""A table for people: modules inside one another, what each costs, and the totals."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import IO, Any

from rich.text import Text

from lmp.errors import UsageError
from lmp.link.values import CALL
from lmp.predict.experts import of_many_calls
from lmp.records import DEFAULT_CONFIG, ModelAnalysis, short
from lmp.report.formats import times
from lmp.report.formats.base import Format, Result, Show, SweepResult
from lmp.report.formats.card import NUMBERS, STYLES, CardLine, card, values_of_the_call, values_of_the_config
from lmp.report.formats.device_card import device_lines
from lmp.report.formats.each import RANKED, FlatTable, flat_list
from lmp.report.formats.figures import figure, in_full, percent, ratio
from lmp.report.formats.listing import print_lines
from lmp.report.formats.rows import Row, rows
from lmp.report.formats.sweeps import columns, first_and_last
from lmp.report.terminal import GLUE, LEAST_NAME, Column, Line, Terminal, bar, cut, fitted, wrapped
from lmp.report.warnings import of_the_whole
from lmp.source.hub import CONFIG_NAME

HEADS = ("module", "repeat", "share", "FLOPs", "matmul FLOPs", "read", "written", "FLOPs/byte")

COLUMNS = (
    Column("repeat", "repeat", 45),
    Column("share", "share", 90),
    Column("bar", "", 50, left=True),
    Column("flops", "FLOPs", 80),
    Column("matmul", "matmul FLOPs", 10),
    Column("bytes", "bytes", 70),
    Column("read", "read", 40),
    Column("write", "written", 39),
    Column("intensity", "FLOPs/byte", 30),
)
ASKED = 85
"""Rank of the figure that the shares are of."""

MARK = "*"
MARKED = 3
"""The most rows that are marked as the most expensive ones."""

NARROW = 60
"""Below this width labels do not stand in a column of their own."""

_LABEL = 11
MOST_WANTED = 100
_SWEEP_RANKS = {
    "flops": 80,
    "compulsory": 70,
    "read": 60,
    "write": 59,
    "parameters_count": 50,
    "intensity": 40,
    "assumptions_hold": 30,
    "matmul_flops": 10,
}
"""Columns of a sweep that may be dropped; the values that change are never."""

ENDS = 8
"""Rows of a sweep that are shown from each end."""


def point(result: Result, show: Show, out: IO[Any]) -> None:
    console = console_of(show, out)
    table = None if show.each == "line" else _tree(result, show) if show.each is None else flat_list(result, show)
    table = table and replace(table, columns=_asked_first(table.columns, show.by))
    wanted = None if table is None else wanted_columns(table.columns, show)
    print_card(console, result, show)
    said = print_lines(console, result, show) if table is None else _printed(console, table, wanted)
    for note in said:
        console.paragraph(note, "dim", "  ")
    _print_totals(console, result, show)
    on_card = set(of_the_whole(result.model))
    for warning in result.warnings:
        if warning not in on_card:
            console.paragraph(f"warning: {warning}", "yellow")


def _asked_first(columns: Sequence[Column], by: str) -> list[Column]:
    """The columns, of which that of the shares is dropped after all other figures."""
    return [replace(column, rank=ASKED) if column.name == by else column for column in columns]


def _tree(result: Result, show: Show) -> FlatTable:
    shown = rows(result.model, result.tree, show)
    marks = [f"{MARK} the most expensive of the parts shown"] if _dearest(shown) else []
    return FlatTable("module", COLUMNS, _lines(shown, show), (*marks, *notes(result, shown, show)))


def sweep(result: SweepResult, show: Show, out: IO[Any]) -> None:
    """The first and the last rows, after all of them have been computed."""
    found, size = first_and_last(result, ENDS), result.sweep.size
    table = _sweep_table(result, found, show)
    wanted = wanted_columns(table.columns, show)
    console = console_of(show, out)
    console.put(Text(short(result.model.class_name), style="bold"))
    fixed = [(n, v) for n, v in result.sweep.fixed.items() if n not in result.sweep.axes and (show.values or n in CALL)]
    console.paragraph(", ".join(f"{name}{GLUE}={GLUE}{in_full(value)}" for name, value in fixed), "", "  ")
    said = _printed(console, table, wanted, uncut=True)
    left_out = size - len(found)
    more = f", {left_out:,} of them not shown: --format csv, json and parquet give all" if left_out else ""
    for note in [*said, *of_many_calls(result.model), f"{size:,} points{more}"]:
        console.paragraph(note, "dim", "  ")
    for warning in result.warnings():
        console.paragraph(f"warning: {warning}", "yellow")


def _sweep_table(result: SweepResult, found: Sequence[Mapping[str, Any]], show: Show) -> FlatTable:
    """The first column is one of those that change, whose names are not cut."""
    (first, *columns), texts = _sweep_columns(result), sweep_texts(result, found, show)
    if not all(row["assumptions_hold"] for row in found):  # that is wanted most where they do not
        columns = [replace(one, rank=99) if one.name == "assumptions_hold" else one for one in columns]
    widest = max(map(len, [first.head, *(cells[0] for cells in texts)]))
    lines = [
        Line(cells[0].rjust(widest), cells[1:], style="" if row["assumptions_hold"] else "yellow")
        for row, cells in zip(found, texts, strict=True)
    ]
    if result.sweep.size > len(found):
        lines.insert(ENDS, Line("...".rjust(widest), ["..."] * len(columns), style="dim"))
    return FlatTable(first.head.rjust(widest), columns, lines)


def _printed(console: Terminal, table: FlatTable, wanted: Sequence[str] | None, uncut: bool = False) -> list[str]:
    """Print the table, and return what the reader has to know of it."""
    least = max(map(len, [table.head, *(line.name for line in table.lines)])) if uncut else LEAST_NAME
    found = fitted(table.head, table.columns, table.lines, console.width, wanted, least, table.part)
    for line in found.lines:
        console.put(line)
    return [*found.notes(), *table.notes]


def wanted_columns(columns: Sequence[Column], show: Show) -> list[str] | None:
    """Names of the columns to show; None is as many as fit. Raises UsageError for a name that no column has."""
    if show.columns is None:
        return None
    names = [column.name for column in columns]
    if "all" in show.columns:
        return names
    for name in show.columns:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            hint = f": did you mean {close[0]}?" if close else ""
            raise UsageError(f"the table has no column {name!r}{hint}\nthe names are all, {', '.join(names)}")
    return list(show.columns)


def print_card(console: Terminal, result: Result, show: Show) -> None:
    """The answer card, and the values of the call."""
    model = result.model
    config = "default config" if model.config.name == DEFAULT_CONFIG.name else f"config {_config_name(model)}"
    for text in wrapped(f"{short(result.evaluation.class_name)}, {config}", console.width):
        console.put(Text(cut(text, console.width, console.signs("…")), style="bold"))
    narrow = console.width < NARROW
    on_device = [] if result.card is None else device_lines(result.card)
    print_lines_of_card(console, on_device)
    print_lines_of_card(console, _numbers_first(card(result, show)) if narrow else card(result, show))
    console.paragraph(f"values: {values_of_the_call(result)}", "dim")
    if show.values:
        config = f"config {model.config.name} ({model.config.origin}) · {model.source.distribution}"
        console.paragraph(f"{result.evaluation.class_name} · {config} {model.source.version}", "dim")
        console.paragraph(f"config: {values_of_the_config(result) or 'no values'}", "dim")
    console.put()


def _config_name(model: ModelAnalysis) -> str:
    """The config's name; of a file that is called as every config is, its path."""
    found = model.config
    return found.origin if PurePath(found.origin).name == CONFIG_NAME else found.name


def print_lines_of_card(console: Terminal, lines: Sequence[CardLine]) -> None:
    """Lines with their labels, wrapped between their parts."""
    narrow = console.width < NARROW
    for line in lines:
        label = line.label if narrow else line.label.ljust(_LABEL)
        parts = (*line.parts, line.words) if line.words else line.parts
        first, others = (f"{label} " if line.label else ""), ("" if narrow else " " * (_LABEL + 1))
        for written in wrapped(" · ".join(parts), console.width, first, others):
            console.put(Text(written, style=line.style))


def _numbers_first(lines: Sequence[CardLine]) -> list[CardLine]:
    """The lines for a narrow terminal: what is asked for stands in the first ten, what it is stands below."""
    numbers = [replace(line, words="") for line in lines[1:]]
    words = [CardLine(line.label, (line.words,)) for line in lines if line.words]
    return [*numbers[:NUMBERS], lines[0], *numbers[NUMBERS:], *words]


def _print_totals(console: Terminal, result: Result, show: Show) -> None:
    pairs = totals(result, show)
    first, second = (max(map(len, texts)) for texts in zip(*pairs, strict=True))
    for name, value in pairs:
        joined = f"{name.ljust(first)}  {value.rjust(second)}"
        if len(joined) <= console.width:
            console.put(joined)
        else:
            console.paragraph(f"{name.strip()} {value.replace(' ', GLUE)}")


def sweep_heads(result: SweepResult) -> list[str]:
    return [column.head for column in _sweep_columns(result)]


def sweep_texts(result: SweepResult, found: Sequence[Mapping[str, Any]], show: Show) -> list[list[str]]:
    axes, costs = _sweep_names(result)
    engines = () if result.times is None else result.times.engines

    def cells(row: Mapping[str, Any], names: Sequence[str]) -> list[str]:
        return [_sweep_cell(name, row[name], show) for name in names]

    return [[*cells(row, axes), *times.cells(engines, row), *cells(row, costs)] for row in found]


def _sweep_columns(result: SweepResult) -> list[Column]:
    """Columns for people: what changes from row to row, times on a device, costs."""
    axes, costs = _sweep_names(result)
    engines = () if result.times is None else result.times.engines

    def named(names: Sequence[str]) -> list[Column]:
        return [Column(name, _HEADS.get(name, name), _SWEEP_RANKS.get(name, MOST_WANTED)) for name in names]

    return [*named(axes), *times.columns(engines), *named(costs)]


def _sweep_names(result: SweepResult) -> tuple[list[str], list[str]]:
    """Names of the values that change from row to row, and of the costs."""
    of_times = [] if result.times is None else result.times.names
    others = {*result.sweep.names, *of_times}
    names = columns(result)
    return [name for name in names if name in result.sweep.axes], [name for name in names if name not in others]


FORMAT = Format(point, sweep, warns=True)

_HEADS = {
    "flops": "FLOPs",
    "matmul_flops": "matmul FLOPs",
    "write": "written",
    "intensity": "FLOPs/byte",
    "assumptions_hold": "formulas hold",
    "parameters_count": "parameters",
}
_UNITS = {"flops": "FLOP", "matmul_flops": "FLOP", "read": "B", "write": "B", "compulsory": "B", "parameters_count": ""}


def heading(result: Result) -> list[Text]:
    """Class, config and values, and how far the formulas are verified."""
    evaluation, model = result.evaluation, result.model
    values = ", ".join(f"{name} = {in_full(value)}" for name, value in evaluation.values.items())
    status = evaluation.verification
    method = evaluation.quantization
    own = [] if method is None else [Text(f"  weights as the checkpoint stores them ({method}); all others at w_bytes")]
    return [
        Text(evaluation.class_name, style="bold"),
        Text(
            f"  config: {model.config.name} ({model.config.origin}) · {model.source.distribution} "
            f"{model.source.version} · {values}"
        ),
        *own,
        Text.assemble("  ", (status if status == "verified" else status.upper(), STYLES[status])),
    ]


def totals(result: Result, show: Show) -> list[tuple[str, str]]:
    found = result.evaluation.totals
    pairs = [
        ("FLOPs", figure(found.flops, "FLOP", show.exact)),
        ("  matmul FLOPs", figure(found.matmul_flops, "FLOP", show.exact)),
        ("bytes read", figure(found.read, "B", show.exact)),
        ("bytes written", figure(found.write, "B", show.exact)),
        ("compulsory bytes", "unknown" if found.compulsory is None else figure(found.compulsory, "B", show.exact)),
        ("FLOPs per byte", ratio(found.flops, found.read + found.write)),
    ]
    if found.parameters_count is not None:
        pairs.append(("parameters", figure(found.parameters_count, "", show.exact)))
    return pairs


def notes(result: Result, shown: Sequence[Row], show: Show) -> list[str]:
    """What the reader of the rows has to know."""
    found = []
    free = sum(not any(kernel.total) for kernel in result.tree.kernels())
    if free:
        found.append(
            f"{free} operator{' costs' if free == 1 else 's cost'} nothing at these values and "
            f"{'is' if free == 1 else 'are'} not shown"
        )
    if any(row.repeat not in (None, 1) for row in shown):
        found.append("figures count every repeat, of a module and of those around it")
    if show.by != "flops":
        found.append(f"shares are of the {RANKED[show.by]}")
    return found


def _lines(shown: Sequence[Row], show: Show) -> list[Line]:
    marked = _dearest(shown)
    found = []
    for index, row in enumerate(shown):
        name = f"{row.operation} {row.place}" if row.kind == "kernel" else row.name
        style = "bold" if index in marked or row.depth == 0 else "dim" if row.kind == "rest" else ""
        repeat, *costs = figures(row, show)
        share = f"{costs[0]} {MARK if index in marked else ' '}"
        moved = figure(row.cost.bytes, "B", show.exact)
        found.append(Line(name, [repeat, share, bar(row.share), *costs[1:3], moved, *costs[3:]],
                          2 * row.depth, style))  # fmt: skip
    return found


def _dearest(shown: Sequence[Row]) -> set[int]:
    """Rows with the largest shares, of those that have no rows inside: at most MARKED, and at most half of them."""
    last = [i for i, row in enumerate(shown) if i + 1 == len(shown) or shown[i + 1].depth <= row.depth]
    ranked = sorted((i for i in last if shown[i].share), key=lambda i: shown[i].share or 0, reverse=True)
    return set(ranked[: min(MARKED, len(last) // 2)])


def figures(row: Row, show: Show) -> list[str]:
    """Repeat, share, FLOPs, matmul FLOPs, bytes read, bytes written, FLOPs per byte."""
    cost = row.cost
    return [
        "" if row.repeat is None else f"{row.repeat:,}",
        percent(row.share),
        figure(cost.flops, "FLOP", show.exact),
        figure(cost.matmul_flops, "FLOP", show.exact),
        figure(cost.read, "B", show.exact),
        figure(cost.write, "B", show.exact),
        ratio(cost.flops, cost.bytes),
    ]


def _sweep_cell(name: str, value: Any, show: Show) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return figure(value, _UNITS[name], show.exact) if name in _UNITS else in_full(value)


def console_of(show: Show, out: IO[Any]) -> Terminal:
    return Terminal(
        file=out, width=show.width, highlight=False, force_terminal=show.color or None, no_color=not show.color
    )
