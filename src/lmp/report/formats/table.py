"""A table for people: modules inside one another, what each costs, and the totals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import IO, Any

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lmp.link.numbers import KernelNumbers
from lmp.records import Operands
from lmp.report.formats.base import Format, Result, Show, SweepResult
from lmp.report.formats.figures import figure, in_full, percent, ratio
from lmp.report.formats.rows import Row, rows
from lmp.report.formats.sweeps import columns, first_and_last
from lmp.report.terminal import Terminal

STYLES = {"verified": "green", "failed": "bold red", "unverified": "yellow"}
HEADS = ("module", "repeat", "share", "FLOPs", "matmul FLOPs", "read", "written", "FLOPs/byte")
WIDE = 110
"""From this width on all columns are there; below it repeats stand with the names."""

_NARROW = ("module", "share", "FLOPs", "read", "written", "FLOPs/byte")
ENDS = 8
"""Rows of a sweep that are shown from each end."""


def point(result: Result, show: Show, out: IO[Any]) -> None:
    console = _console(show, out)
    for line in heading(result):
        console.print(line)
    said: list[str]
    if show.each is None:
        shown = rows(result.model, result.tree, show)
        narrow = show.width < WIDE
        table = _table(_NARROW if narrow else HEADS, numbers=1)
        for row in shown:
            table.add_row(*_cells(row, show, narrow))
        said = notes(result, shown, show)
    else:
        table, said = each_operator(result, show)
    console.print(table)
    for note in said:
        console.print(Text(f"  {note}", style="dim"))
    console.print(_pairs(totals(result, show)))
    for warning in result.warnings:
        console.print(Text(f"warning: {warning}", style="yellow"))


def sweep(result: SweepResult, show: Show, out: IO[Any]) -> None:
    """The first and the last rows, after all of them have been computed."""
    found, size = first_and_last(result, ENDS), result.sweep.size
    console = _console(show, out)
    console.print(Text(result.model.class_name, style="bold"))
    fixed = [(name, value) for name, value in result.sweep.fixed.items() if name not in result.sweep.axes]
    console.print(Text("  " + ", ".join(f"{name} = {in_full(value)}" for name, value in fixed)))
    table = _table(sweep_heads(result), numbers=0)
    for index, (row, cells) in enumerate(zip(found, sweep_texts(result, found, show), strict=True)):
        if index == ENDS and size > len(found):
            table.add_row(*(Text("...", style="dim") for _ in cells))
        table.add_row(*(Text(cell, style="" if row["assumptions_hold"] else "yellow") for cell in cells))
    console.print(table)
    left_out = size - len(found)
    more = f", {left_out:,} of them not shown: --format csv, json and parquet give all" if left_out else ""
    console.print(Text(f"  {size:,} points{more}", style="dim"))
    for warning in result.warnings():
        console.print(Text(f"warning: {warning}", style="yellow"))


def sweep_heads(result: SweepResult) -> list[str]:
    return [_HEADS.get(name, name) for name in _sweep_columns(result)]


def sweep_texts(result: SweepResult, found: Sequence[Mapping[str, Any]], show: Show) -> list[list[str]]:
    names = _sweep_columns(result)
    return [[_sweep_cell(name, row[name], show) for name in names] for row in found]


def _sweep_columns(result: SweepResult) -> list[str]:
    """Only what changes from row to row, of the values."""
    axes, names = result.sweep.axes, result.sweep.names
    return [name for name in columns(result) if name in axes or name not in names]


FORMAT = Format(point, sweep)

_HEADS = {
    "flops": "FLOPs",
    "matmul_flops": "matmul FLOPs",
    "write": "written",
    "intensity": "FLOPs/byte",
    "assumptions_hold": "holds",
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
        found.append(f"shares are of the {_OF[show.by]}")
    return found


_OF = {"bytes": "bytes read and written", "read": "bytes read", "write": "bytes written"}


def _cells(row: Row, show: Show, narrow: bool) -> list[RenderableType]:
    texts = dict(zip(HEADS[1:], figures(row, show), strict=True))
    times = f" x{texts['repeat']}" if narrow and texts["repeat"] not in ("", "1") else ""
    if row.kind == "kernel":
        name = Text.assemble((row.operation, "cyan"), (f" {row.place}{times}", "dim"))
    else:
        name = Text(row.name + times, style="dim" if row.kind == "rest" else "bold" if row.depth == 0 else "")
    return [
        Padding(name, (0, 0, 0, 2 * row.depth)),
        *(Text(texts[head]) for head in (_NARROW if narrow else HEADS)[1:]),
    ]


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


EACH = 20
"""Operators that a flat list shows if no other number is asked for."""


def each_operator(result: Result, show: Show) -> tuple[Table, list[str]]:
    """The most expensive operators, with the sizes of their products, and what the reader has to know of them."""
    kernels = [kernel for kernel in result.tree.kernels() if any(kernel.total)]
    key = show.by if show.sort == "order" else show.sort
    kernels.sort(key=lambda kernel: _rank(kernel, key), reverse=True)
    most = show.top or EACH
    table = _table(("operator", "sizes", "runs", "share", "FLOPs", "read", "written"), numbers=2)
    whole = sum((getattr(kernel.total, show.by) for kernel in kernels), start=Fraction(0))
    for kernel in kernels[:most]:
        part = getattr(kernel.total, show.by)
        name = Text.assemble((kernel.kernel.operation, "cyan"), (f" {kernel.path or '(the model)'}", "dim"))
        table.add_row(
            Text.assemble(name, (f":{kernel.kernel.line}", "dim")),
            sizes_text(result.numbers.operands(kernel.kernel, result.evaluation.values)),
            f"{kernel.runs:,}",
            percent(Fraction(part) / whole if whole else None),
            figure(kernel.total.flops, "FLOP", show.exact),
            figure(kernel.total.read, "B", show.exact),
            figure(kernel.total.write, "B", show.exact),
        )
    said = [f"{len(kernels) - most:,} more operators: --top"] if len(kernels) > most else []
    return table, [*said, f"most expensive first, by {_RANKED.get(key, key)}; figures are of all runs"]


_RANKED = {"flops": "FLOPs", "intensity": "FLOPs per byte", **_OF}


def _rank(kernel: KernelNumbers, key: str) -> Fraction:
    total = kernel.total
    if key == "intensity":
        return Fraction(total.flops) / Fraction(total.bytes) if total.bytes else Fraction(0)
    return Fraction(getattr(total, key))


def sizes_text(operands: Operands | None) -> str:
    """The sizes of one operator: of a product, of attention, else the shape of its first output."""
    if operands is None:
        return "-"
    sizes = operands
    if sizes.q_len is not None:
        window = f", window {sizes.window:,}" if sizes.window else ""
        return (
            f"batch {sizes.batch:,}, q {sizes.q_len:,}, kv {sizes.kv_len:,}, heads {sizes.heads:,}, "
            f"KV heads {sizes.kv_heads:,}, dim {sizes.head_dim:,}{window}"
        )
    if sizes.tokens is not None:
        of = f"{sizes.tokens:,} tokens x {sizes.top_k:,} of {sizes.experts:,} experts"
        return f"{of}, n {sizes.n:,} x k {sizes.k:,}"
    if sizes.m is not None:
        batch = "" if sizes.batch == 1 else f"{sizes.batch:,} of "
        return f"{batch}{sizes.m:,} x {sizes.n:,} x {sizes.k:,}"
    return f"[{', '.join(map(str, sizes.outputs[0].shape))}]" if sizes.outputs else "-"


def _sweep_cell(name: str, value: Any, show: Show) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return figure(value, _UNITS[name], show.exact) if name in _UNITS else in_full(value)


def _console(show: Show, out: IO[Any]) -> Console:
    return Terminal(
        file=out, width=show.width, highlight=False, force_terminal=show.color or None, no_color=not show.color
    )


def _table(heads: Sequence[str], numbers: int) -> Table:
    """``numbers`` is the first column of figures."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for index, head in enumerate(heads):
        if index < numbers:
            table.add_column(head, overflow="fold", min_width=16)
        else:
            table.add_column(head, overflow="fold", justify="right")
    return table


def _pairs(pairs: Sequence[tuple[str, str]]) -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", overflow="fold")
    for name, value in pairs:
        table.add_row(Text(name, style="bold"), Text(value))
    return table
