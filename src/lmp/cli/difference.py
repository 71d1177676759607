"""The table of a comparison: both results, their totals, and their differences, the largest change first.

Sources and formulas are foreign text: cells hold them as `Text`, never as rich's markup.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lmp.cli.tables import NARROW, STYLES, joined, labelled, short
from lmp.formula import Number, plain
from lmp.link import difference as d
from lmp.report.formats.base import one_line
from lmp.report.formats.figures import change, figure, in_full, signed
from lmp.report.limits import LABELS, Checked
from lmp.report.limits import share as limit_in_words

_NAMES: dict[d.TotalName, tuple[str, str]] = {
    "flops": ("FLOPs", "FLOP"),
    "matmul_flops": ("  matmul FLOPs", "FLOP"),
    "read": ("bytes read", "B"),
    "write": ("bytes written", "B"),
    "compulsory": ("compulsory bytes", "B"),
    "parameters_count": ("parameters", ""),
}
_STATES = {"added": "yellow", "removed": "green", "changed": "cyan", "values": "dim"}
_GAP = 2
"""Columns between the columns of a table."""

_LEAST_LABEL = 16
"""Columns that the name of a module and an operator needs beside its numbers."""

MAX_CODE = 48
"""Characters of a line that are shown: enough to recognise it."""


@dataclass(frozen=True)
class View:
    """The options of what is shown."""

    by: Literal["flops", "bytes"]
    each: Literal["kernel", "line", "module"]
    top: int
    formulas: bool
    exact: bool


@dataclass(frozen=True)
class _Row:
    state: str
    module: str
    what: str
    place: str
    costs: tuple[d.Costs | None, d.Costs | None, d.Costs | None]
    """Costs of A, of B, and the change; None for a side that does not exist, all None without a point."""
    formulas: tuple[tuple[str, str | None, str | None], ...] = ()
    """The formulas that differ: name, A's formula and B's; None for a side that does not exist."""


def print_difference(
    out: Console, found: d.Difference, view: View, checked: Sequence[Checked] = (), call: str = ""
) -> None:
    """``checked``: each quantity beside its limit. ``call``: the phase with its sizes."""
    _print_sides(out, found)
    _print_totals(out, found, view)
    if checked:
        _print_limits(out, checked, call, view.exact)
    for label, text in _facts(found):
        out.print(labelled(label, [text]))
    every = list(_rows(found, view))
    rows = _sorted([row for row in every if view.formulas or any(_moved(row))], view)
    if rows:
        out.print()
    shown = rows[: view.top]
    if view.formulas or (shown and _width(shown, view) > out.width):
        for row in shown:
            _print_block(out, row, view)
    elif shown:
        out.print(_table(shown, view))
    for note in _notes(found, every, rows, shown, view):
        out.print(Text(f"  {note}", style="dim"))


# --- the whole -------------------------------------------------------------------------------------------------------


def _print_sides(out: Console, found: d.Difference) -> None:
    for name, side in (("A", found.a), ("B", found.b)):
        status = side.verification
        facts = [f"{side.distribution} {side.version}", f"config: {side.config.name} ({side.config.origin})"]
        facts += [f"attention: {side.attn_implementation}"] if side.attn_implementation else []
        verdict = Text(status if status == "verified" else status.upper(), style=STYLES[status])
        out.print(Text.assemble(f"{name}  ", (side.class_name, "bold")), soft_wrap=True)
        line = Text.assemble(joined([*facts, side.dtype, ""]), verdict)
        out.print(Padding(line, (0, 0, 0, 3), expand=False))
        if side.given != side.class_name:
            out.print(Text(f"   {side.given}", style="dim"), soft_wrap=True)
    out.print()


def _facts(found: d.Difference) -> Iterator[tuple[str, str]]:
    if found.a.values is not None:
        common = {n: v for n, v in found.a.values.items() if n not in found.values_differ}
        yield "values", ", ".join(f"{name} = {in_full(value)}" for name, value in common.items())
    if found.values_differ:
        yield "values A -> B", ", ".join(_differing(found.values_differ))
    for name, side in (("A", found.a), ("B", found.b)):
        if side.assumptions:
            yield f"{name} alone needs", "; ".join(side.assumptions)


def _differing(values: Mapping[str, tuple[Number | None, Number | None]]) -> Iterator[str]:
    for name, pair in values.items():
        before, after = ("none" if value is None else in_full(value) for value in pair)
        yield f"{name} {before} -> {after}"


def _print_totals(out: Console, found: d.Difference, view: View) -> None:
    """The totals in columns, or where the terminal is too narrow for their numbers under one another."""
    if found.a.values is None:
        out.print(_totals(found, view))
        return
    lines = {
        label: _numbers(total, unit, view.exact)
        for name, (label, unit) in _NAMES.items()
        if (total := found.totals[name]).a is not None or total.b is not None
    }
    if _columns([[label, *cells] for label, cells in lines.items()]) <= out.width:
        out.print(_totals(found, view))
        return
    for label, (before, after, more, share) in lines.items():
        out.print(labelled(label.strip(), [f"{before} -> {after}", f"{more} {share}".rstrip()]))


def _print_limits(out: Console, checked: Sequence[Checked], call: str, exact: bool) -> None:
    """A row for each quantity with a limit: both sides, the change, the limit and the verdict."""
    out.print()
    out.print(Text(f"limits, at {call}"), soft_wrap=True)
    rows = [_limit_cells(one, exact) for one in checked]
    if _columns([["", "A", "B", "change", "limit", "verdict"], *rows]) > out.width:
        for label, before, after, more, limit, verdict in rows:
            out.print(labelled(label, [f"{before} -> {after}", f"{more}, limit {limit}: {verdict}"]))
        out.print()
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("", no_wrap=True)
    for head in ("A", "B", "change", "limit"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for one, (label, *cells, verdict) in zip(checked, rows, strict=True):
        styled = Text(verdict, style={"within": "green", "ABOVE": "bold red"}.get(one.verdict, "yellow"))
        table.add_row(Text(label, style="bold"), *map(Text, cells), styled)
    out.print(table)
    out.print()


def _limit_cells(one: Checked, exact: bool) -> list[str]:
    label, unit = LABELS[one.quantity]
    sides = ["unknown" if value is None else figure(value, unit, exact) for value in (one.a, one.b)]
    more = "unknown" if one.a is None or one.b is None else change(plain(Fraction(one.b) - Fraction(one.a)), one.a)
    return [label, *sides, more, limit_in_words(one.limit), one.verdict]


def _columns(rows: Sequence[Sequence[str]]) -> int:
    """Width of a table with these cells, with the space between its columns."""
    return sum(max(map(len, column)) + _GAP for column in zip(*rows, strict=True)) - _GAP


def _totals(found: d.Difference, view: View) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    point = found.a.values is not None
    table.add_column("", no_wrap=True)
    for head in ("A", "B", "change", "") if point else ("A", "B"):
        table.add_column(head, overflow="fold", justify="right" if point else "left")
    for name, (label, unit) in _NAMES.items():
        total = found.totals[name]
        if total.a is None and total.b is None:
            continue
        cells = _numbers(total, unit, view.exact) if point else _texts(total)
        table.add_row(Text(label, style="bold"), *map(Text, cells))
    return table


def _numbers(total: d.Total, unit: str, exact: bool) -> list[str]:
    sides = [None if side is None else side.value for side in (total.a, total.b)]
    cells = ["unknown" if value is None else figure(value, unit, exact) for value in sides]
    if total.change is None or sides[0] is None:
        return [*cells, "unknown", ""]
    return [*cells, signed(total.change, unit, exact), change(total.change, sides[0])]


def _texts(total: d.Total) -> list[str]:
    if total.same_formula and total.a is not None:
        return [total.a.formula, "the same"]
    return ["unknown" if side is None else side.formula for side in (total.a, total.b)]


# --- what changed ----------------------------------------------------------------------------------------------------


def _rows(found: d.Difference, view: View) -> Iterator[_Row]:
    if view.each == "line":
        for line in found.lines:
            side = line.b or line.a
            assert side is not None
            code = one_line(side.code)
            cut = f"{code[:MAX_CODE]} ..." if len(code) > MAX_CODE else code
            yield _Row(line.state, f"{_module(line)}  {_place(line)}", cut, "", _costs(line))
        return
    if view.each == "module":
        yield from map(_module_row, found.modules)
        return
    # One row is enough for a module that is new, unless its formulas are asked for: those are its operators'.
    whole = [] if view.formulas else [module for module in found.modules if module.outermost]
    yield from map(_module_row, whole)
    inside = [(module.state, _either(module).path) for module in whole]
    for kernel in found.kernels:
        path = _either(kernel).path
        if not any(kernel.state == state and f"{path}.".startswith(f"{start}.") for state, start in inside):
            state = "values" if kernel.same_formulas else kernel.state
            what = _changed([side.operation for side in (kernel.a, kernel.b) if side is not None])
            yield _Row(state, _module(kernel), what, _place(kernel), _costs(kernel), tuple(_differing_formulas(kernel)))


def _module_row(module: d.ModuleChange) -> _Row:
    names = [short(side.class_name) for side in (module.a, module.b) if side is not None]
    runs = ((module.a.runs, module.b.runs),) if module.a and module.b and module.a.runs != module.b.runs else ()
    formulas = tuple(("runs", *pair) for pair in runs)
    return _Row(
        module.state, _module(module), f"{_changed(names)}, with everything in it", "", _costs(module), formulas
    )


_Change = d.KernelChange | d.LineChange | d.ModuleChange


def _either(found: _Change) -> d.KernelPlace | d.LinePlace | d.ModulePlace:
    side = found.b or found.a
    assert side is not None
    return side


def _module(found: _Change) -> str:
    return _changed([side.path or "(the model)" for side in (found.a, found.b) if side is not None])


def _changed(texts: Sequence[str]) -> str:
    """One text, or ``before -> after``."""
    return " -> ".join(dict.fromkeys(texts))


def _place(found: d.KernelChange | d.LineChange) -> str:
    """``modeling_llama.py:175 -> 180``; the class's name if its file is not known."""
    places = [
        ((side.file or short(side.class_name)).rpartition("/")[2], str(side.line))
        for side in (found.a, found.b)
        if side is not None
    ]
    if len(places) == 2 and places[0][0] == places[1][0]:
        return f"{places[0][0]}:{_changed([line for _, line in places])}"
    return _changed([f"{file}:{line}" for file, line in places])


def _costs(found: _Change) -> tuple[d.Costs | None, d.Costs | None, d.Costs | None]:
    a, b = (None if side is None else side.cost for side in (found.a, found.b))
    return a, b, found.change


def _differing_formulas(found: d.KernelChange) -> Iterator[tuple[str, str | None, str | None]]:
    for name in ("runs", "flops", "read", "write"):
        before, after = (None if side is None else str(getattr(side, name)) for side in (found.a, found.b))
        says_nothing = {before, after} <= {None, "1" if name == "runs" else "0"}
        if before != after and not says_nothing:
            yield name, before, after


def _moved(row: _Row) -> tuple[int, Fraction]:
    """The change in FLOPs and in bytes read and written; a read that became a write is a change too."""
    found = row.costs[2]
    if found is None:
        return 0, Fraction(0)
    return found.flops, abs(Fraction(found.read)) + abs(Fraction(found.write))


def _weighed(cost: d.Costs | None, by: str) -> Fraction:
    if cost is None:
        return Fraction(0)
    return Fraction(cost.flops if by == "flops" else cost.read + cost.write)


def _sorted(rows: list[_Row], view: View) -> list[_Row]:
    """The rows, the largest change first, up or down; without a point in the order of the models."""
    other = "bytes" if view.by == "flops" else "flops"
    return sorted(rows, key=lambda r: (-abs(_weighed(r.costs[2], view.by)), -abs(_weighed(r.costs[2], other))))


def _width(rows: Sequence[_Row], view: View) -> int:
    """The least width of the table of these rows, in which no number is broken and labels have some room."""
    heads = ["", "-" * _LEAST_LABEL, "FLOPs in A", "in B", "change", "", "change of FLOPs"]
    return _columns([heads, *([row.state, "", *_cells(row, view)] for row in rows)])


def _table(rows: Sequence[_Row], view: View) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("")
    table.add_column(
        {"kernel": "module and operator", "line": "module and line", "module": "module"}[view.each], overflow="fold"
    )
    name, other = ("FLOPs", "bytes") if view.by == "flops" else ("bytes", "FLOPs")
    for head in (f"{name} in A", "in B", "change", "", f"change of {other}"):
        table.add_column(head, justify="right", no_wrap=True)
    for row in rows:
        label = Text.assemble(row.module, "\n  ", (row.what, "cyan"), (f" {row.place}".rstrip(), "dim"))
        table.add_row(Text(row.state, style=_STATES[row.state]), label, *map(Text, _cells(row, view)))
    return table


def _cells(row: _Row, view: View) -> list[str]:
    a, b, by_point = row.costs
    unit, other, other_unit = ("FLOP", "bytes", "B") if view.by == "flops" else ("B", "flops", "FLOP")
    before, more = _weighed(a, view.by), _weighed(by_point, view.by)
    return [
        "-" if a is None else figure(before, unit, view.exact),
        "-" if b is None else figure(_weighed(b, view.by), unit, view.exact),
        signed(more, unit, view.exact),
        "" if a is None or b is None else change(more, before),
        signed(_weighed(by_point, other), other_unit, view.exact),
    ]


def _print_block(out: Console, row: _Row, view: View) -> None:
    out.print(
        Text.assemble(
            (f"{row.state:<8}", _STATES[row.state]), f" {row.module}  ", (row.what, "cyan"), (f" {row.place}", "dim")
        )
    )
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    if row.costs[2] is not None:
        before, after, more, share, other = _cells(row, view)
        first, second = ("FLOPs", "bytes") if view.by == "flops" else ("bytes", "FLOPs")
        whole = f"{before} -> {after}, {more} {share}" if row.state in ("changed", "values") else more
        grid.add_row(Text(first), Text(""), Text(whole))
        grid.add_row(Text(second), Text(""), Text(other))
    for name, a, b in row.formulas:
        for side, formula in (("A", a), ("B", b)):
            if formula is not None:
                label = name if side == "A" or a is None else ""
                grid.add_row(Text(label, style="dim"), Text(side, style="dim"), Text(formula))
    out.print(Padding(grid, (0, 0, 0, 9 if out.width >= NARROW else 1)))


def _notes(
    found: d.Difference, every: Sequence[_Row], rows: Sequence[_Row], shown: Sequence[_Row], view: View
) -> Iterator[str]:
    rest = rows[len(shown) :]
    if rest:
        total = sum(_weighed(row.costs[2], view.by) for row in rest)
        more = f", {signed(total, 'FLOP' if view.by == 'flops' else 'B')} in all" if found.a.values is not None else ""
        yield f"{len(rest)} more{more}: --top {len(rows)} shows them"
    if shown and view.each != "kernel":
        yield "a row includes everything that runs inside it: rows overlap and do not add up"
    same = f"{found.unchanged} operator{' costs' if found.unchanged == 1 else 's cost'} the same in both"
    yield same if every else f"nothing changed: {same}"
    if len(every) > len(rows):
        yield f"{len(every) - len(rows)} changed and cost the same at these values: --formulas shows them"
    if found.free:
        yield f"{found.free} without cost {'is' if found.free == 1 else 'are'} in A or in B alone"
