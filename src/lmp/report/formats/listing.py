"""``--each line``: the source of each forward() with what its lines cost beside it, in the order of the source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len
from rich.text import Text

from lmp.errors import LmpError
from lmp.link.numbers import CostNumbers, ModuleNumbers, summed
from lmp.records import ModelKernel, short
from lmp.report.formats.base import Result, Show, weighed
from lmp.report.formats.each import rank, share_of
from lmp.report.formats.figures import figure, percent
from lmp.report.terminal import GLUE, Terminal, bar, cut, wrapped
from lmp.source.locate import locate
from lmp.source.parsed import parse
from lmp.source.quoting import escaped

Function = tuple[str, str, str]
"""A class; and the file and the name of a plain function that its forward() calls, both empty for forward() itself."""

_COLUMNS = (("share", 6), ("", 8), ("FLOPs", 11), ("bytes", 9))
_ROOM_FOR_CODE = 24
"""Cells that the code has before figures are left out for it."""

LEAST_CODE = 8
"""Cells of code that stand even where the width has no room for them."""


@dataclass(frozen=True)
class Listing:
    """The lines of one forward()."""

    file: str
    first: int
    lines: tuple[str, ...]


def _listing(class_name: str, result: Result) -> Listing | None:
    """The source of a class's forward(), if it is at hand."""
    if result.trees is None:
        return None
    try:
        found = locate(class_name, result.trees)
        first, last = found.lines
        return Listing(found.forward_file, first, parse(found.forward_path).lines[first - 1 : last])
    except LmpError:
        return None


@dataclass
class _Costs:
    """What the lines of one function cost, over all instances of the class, modules that they call included."""

    runs: int = 0
    lines: dict[int, CostNumbers] = field(default_factory=dict)
    code: dict[int, str] = field(default_factory=dict)

    def add(self, kernel: ModelKernel, cost: CostNumbers) -> None:
        self.lines[kernel.line] = self.lines.get(kernel.line, CostNumbers()).plus(cost)
        self.code.setdefault(kernel.line, kernel.code)

    @property
    def total(self) -> CostNumbers:
        return summed(self.lines.values())


def print_lines(console: Terminal, result: Result, show: Show) -> list[str]:
    """Print the functions, and return what the reader has to know of them."""
    functions = _functions(result.tree)
    dearest, left_out = _dearest(functions, show)
    said = []
    shown = [column for column in _COLUMNS if _fits(console.width, column[0])]
    if len(shown) < len(_COLUMNS):
        hidden = [name or "bar" for name, _ in _COLUMNS if (name, _) not in shown]
        said.append(f"{len(hidden)} column{'' if len(hidden) == 1 else 's'} hidden for the width: {', '.join(hidden)}")
    without: list[str] = []
    was_cut = False
    for function, costs in functions.items():
        lines = {line for line in costs.lines if (function, line) in dearest}
        if not lines:
            continue
        listing = None if function[1] or function[2] else _listing(function[0], result)
        if listing is None and not function[2]:
            without.append(short(function[0]))
        for text in wrapped(_title(function, costs, result, show, listing), console.width):
            console.put(Text(text, style="bold"))
        for line, code in _source(costs, lines, listing, show):
            cost = costs.lines.get(line, CostNumbers()) if line in lines or show.top is None else CostNumbers()
            before = _before(line, cost, result, show, [name for name, _ in shown])
            code, room = escaped(code.expandtabs(4), kept=""), max(LEAST_CODE, console.width - len(before))
            was_cut = was_cut or cell_len(code) > room
            console.put((before + cut(code, room, console.signs("…"))).rstrip())
        console.put()
    if was_cut:
        said.append("long lines are cut in the middle")
    if without:
        said.append(f"source not at hand, lines with operators only: {', '.join(dict.fromkeys(without))}")
    if left_out:
        said.append(f"{left_out:,} more line{'' if left_out == 1 else 's'} with a cost: --top")
    return [*said, "figures are of all instances and runs; a line that calls a module has the cost of that module"]


def _functions(tree: ModuleNumbers) -> Mapping[Function, _Costs]:
    """The functions in the order in which they are first called."""
    found: dict[Function, _Costs] = {}

    def walk(module: ModuleNumbers) -> None:
        counted: set[Function] = set()
        for child in module.children:
            kernel = child.call if isinstance(child, ModuleNumbers) else child.kernel
            assert kernel is not None
            function = (module.class_name, kernel.file or "", kernel.function or "")
            costs = found.setdefault(function, _Costs())
            costs.runs += 0 if function in counted else module.runs
            counted.add(function)
            if any(child.total):
                costs.add(kernel, child.total)
        for child in module.children:
            if isinstance(child, ModuleNumbers):
                walk(child)

    walk(tree)
    return found


def _dearest(functions: Mapping[Function, _Costs], show: Show) -> tuple[set[tuple[Function, int]], int]:
    """The lines to show, and how many are left out: all but for --top."""
    key = show.by if show.sort == "order" else show.sort
    ranked = sorted(
        ((function, line) for function, costs in functions.items() for line in costs.lines),
        key=lambda place: rank(functions[place[0]].lines[place[1]], key),
        reverse=True,
    )
    most = len(ranked) if show.top is None else show.top
    return set(ranked[:most]), max(0, len(ranked) - most)


def _title(function: Function, costs: _Costs, result: Result, show: Show, listing: Listing | None) -> str:
    name, file, helper = function
    known = result.model.source.file if name == result.model.class_name else None
    part = result.model.parts.get(name)
    file = file or (listing.file if listing else known or (part.file if part else None) or "")
    share = percent(share_of(costs.total, result, show))
    amount = weighed(costs.total, show.by)
    whole = figure(amount, "FLOP" if show.by == "flops" else "B", show.exact)
    called = f"in {costs.runs:,} run{'' if costs.runs == 1 else 's'}"
    whole = whole.replace(" ", GLUE)
    return f"{short(name)}.{helper or 'forward'}  {share}  {whole} {called}  {file.rpartition('/')[2]}"


def _source(costs: _Costs, lines: set[int], listing: Listing | None, show: Show) -> Sequence[tuple[int, str]]:
    """The lines to print with their code: the whole function, or of --top those that are chosen."""
    if listing is None or show.top is not None:
        first = [] if listing is None else [(listing.first, listing.lines[0])]
        return [*first, *((line, costs.code[line].strip("\n")) for line in sorted(lines))]
    own = {listing.first + i: text for i, text in enumerate(listing.lines)}
    return sorted({**{line: costs.code[line] for line in lines}, **own}.items())


def _fits(width: int, name: str) -> bool:
    """Whether a column stands at this width: shares always, then FLOPs, bytes, and the bar last."""
    needed = {"share": 0, "FLOPs": 6 + 2 + 11, "bytes": 6 + 2 + 11 + 2 + 9, "": 6 + 2 + 11 + 2 + 9 + 2 + 8}[name]
    return width >= needed + _ROOM_FOR_CODE or name == "share"


def _before(line: int, cost: CostNumbers, result: Result, show: Show, names: Sequence[str]) -> str:
    """The number of the line and its costs; blanks where it has none."""
    share = share_of(cost, result, show) if any(cost) else None
    texts = {
        "share": percent(share) if share is not None else "",
        "": bar(share),
        "FLOPs": figure(cost.flops, "FLOP", show.exact) if any(cost) else "",
        "bytes": figure(cost.bytes, "B", show.exact) if any(cost) else "",
    }
    cells = [
        texts[name].ljust(width) if name == "" else texts[name].rjust(width)
        for name, width in _COLUMNS
        if name in names
    ]
    return f"{line:>5}  {'  '.join(cells)}  "
