"""The tables of one analysis: the lines of a forward() with their kernels and formulas, and its verification.

Sources and formulas are foreign text: cells hold them as `Text`, never as rich's markup.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lmp.cli.output import ascii_only
from lmp.link.verdict import verdict
from lmp.report.terminal import Terminal
from lmp.source.trees import UNKNOWN

if TYPE_CHECKING:
    from lmp.analyze.session import Outcome
    from lmp.records import Kernel, ModuleAnalysis

PIPED_WIDTH = 120
WIDE = 110
"""From this width on the three formulas of a kernel are printed side by side, below it under one another."""

NARROW = 50
"""Below this width a label stands above its texts."""

LABEL = 17
"""Width of the labels below a table."""

STACKED = 76
"""Below this width what stands in columns elsewhere stands under one another: findings of a check, models of a list."""

_LINE, _GAP = 4, 2
"""Width of a line number, and of the space between columns."""

STYLES = {"verified": "green", "failed": "bold red", "unverified": "yellow", "error": "red", "stopped": "red"}
"""Style of a verdict; a family of the zoo may also have ended with an error, or been stopped."""


def console() -> Terminal:
    if sys.stdout.isatty():
        return Terminal(highlight=False)
    return Terminal(highlight=False, width=PIPED_WIDTH)


def joined(facts: Iterable[str]) -> str:
    """Facts in one line, with a separator that the terminal has."""
    return (" - " if ascii_only(sys.stdout) else " · ").join(facts)


def indented(text: str, style: str = "") -> Padding:
    """A text with two columns before each of its lines."""
    return Padding(Text(text, style=style, overflow="fold"), (0, 0, 0, 2), expand=False)


def short(class_path: str) -> str:
    return class_path.rpartition(".")[2]


def short_names(class_paths: Iterable[str]) -> dict[str, str]:
    """Class path -> short name. A class that shares its short name with another one is not there."""
    paths = list(dict.fromkeys(class_paths))
    shorts = [short(path) for path in paths]
    return {path: name for path, name in zip(paths, shorts, strict=True) if shorts.count(name) == 1}


def shown(formula: str) -> str:
    """The formula with the short names of the classes that it refers to."""
    from lmp.errors import FormulaError
    from lmp.formula import Ref, parse, rewrite

    if "$" not in formula:
        return formula
    try:
        node = parse(formula)
    except FormulaError:
        return formula
    shortened = rewrite(node, lambda n: Ref(short(n.target), n.arguments, n.bindings) if isinstance(n, Ref) else n)
    return str(shortened).replace("${{", "").replace("}}(", "(")


# --- one analysis ----------------------------------------------------------------------------------------------------


def print_outcomes(out: Console, outcomes: Sequence[Outcome], why_engine: str) -> None:
    """Print each requested analysis in full, and the names of the analyses that they needed."""
    for outcome in outcomes:
        if outcome.requested:
            print_analysis(out, outcome.analysis, outcome.file, outcome.reused, why_engine)
    on_the_way = [outcome for outcome in outcomes if not outcome.requested]
    if on_the_way:
        out.print(Text("analysed too, because the above refer to them:", style="bold"))
        for outcome in on_the_way:
            status = outcome.analysis.verification.status
            state = f"  {status}{', from the store' if outcome.reused else ''}"
            out.print(Text.assemble(f"  {outcome.analysis.class_name}", (state, STYLES[status])), soft_wrap=True)


def print_analysis(out: Console, analysis: ModuleAnalysis, file: Path, reused: bool, why_engine: str) -> None:
    out.print(_heading(analysis, why_engine, reused, file))
    out.print(_header_row(out.width))
    for (source, function), kernels in _by_place(analysis.kernels):
        if source or function:
            where = f"in {function or 'a helper'}(), {source or analysis.source.file}"
            out.print(Text(where, style="italic"))
        for row in _kernel_rows(kernels, out.width):
            out.print(row)
    for name, texts in _footnotes(analysis):
        out.print(labelled(name, texts))
    out.print()


def _heading(analysis: ModuleAnalysis, why_engine: str, reused: bool, file: Path) -> Group:
    source, config = analysis.source, analysis.config
    lines = f"{source.file}:{source.lines[0]}-{source.lines[1]}"
    how = f"{analysis.engine} ({why_engine})" if why_engine and not reused else analysis.engine
    known = source.version != UNKNOWN
    facts = [f"{source.distribution} {source.version}" if known else source.distribution]
    facts += [f"engine: {how}"] if analysis.given else [f"config: {config.name} ({config.origin})", f"engine: {how}"]
    if analysis.attn_implementation:
        facts.append(f"attention: {analysis.attn_implementation}")
    facts.append(analysis.dtype)
    if analysis.as_a_part:
        facts.append(f"as called in: {analysis.within}")
    return Group(
        Text(analysis.class_name, style="bold"),
        indented(
            verdict(analysis.verification, analysis.assumptions, analysis.pinned), STYLES[analysis.verification.status]
        ),
        indented(f"{lines}  forward()"),
        indented(joined(facts)),
        indented(f"{file}{', from the store' if reused else ''}", "dim"),
    )


Place = tuple[str, str]


def _by_place(kernels: Sequence[Kernel]) -> list[tuple[Place, list[Kernel]]]:
    """The kernels by place: those of forward() first, then each helper function; each sorted by line."""

    def place(kernel: Kernel) -> Place:
        return kernel.file or "", kernel.function or ""

    places = list(dict.fromkeys([("", ""), *map(place, kernels)]))
    found = {p: sorted((k for k in kernels if place(k) == p), key=lambda k: k.line) for p in places}
    return [(p, ks) for p, ks in found.items() if ks]


def _kernel_rows(kernels: Sequence[Kernel], width: int) -> Iterator[RenderableType]:
    """The rows of each line: its code once, over the whole width, and its kernels under it."""
    for line, group in groupby(kernels, key=lambda kernel: kernel.line):
        rows = list(group)
        yield _row(width, [(_LINE, Text(str(line), justify="right")), (0, Text(rows[0].code.strip(), style="bold"))])
        for kernel in rows:
            if width < STACKED:
                yield _row(width, [(_LINE, ""), (0, _kernel_name(kernel))])
                yield _row(width, [(_LINE + 1, ""), (0, _costs(kernel, width))])
                continue
            yield _row(width, [(_LINE, ""), (_kernel_width(width), _kernel_name(kernel)), (0, _costs(kernel, width))])


def _header_row(width: int) -> RenderableType:
    costs: RenderableType = Text("FLOPs, bytes read, bytes written", style="dim")
    if width >= WIDE:
        costs = _thirds([Text(name, style="dim") for name in ("FLOPs", "read bytes", "write bytes")])
    head = Text("code, kernel", style="dim")
    if width < STACKED:
        text = "code, kernel, and its FLOPs, bytes read, bytes written"
        return _row(width, [(_LINE, Text("line", style="dim")), (0, Text(text, style="dim"))])
    return _row(width, [(_LINE, Text("line", style="dim", justify="right")), (_kernel_width(width), head), (0, costs)])


def _row(width: int, cells: Sequence[tuple[int, RenderableType]]) -> Table:
    """A row as a table of its own, so that rows can differ. The last cell, of width 0, takes the rest of the width."""
    taken = sum(cell_width + _GAP for cell_width, _ in cells if cell_width)
    table = Table.grid(padding=(0, _GAP, 0, 0))
    for cell_width, _ in cells:
        table.add_column(width=cell_width or max(1, width - taken), overflow="fold")
    table.add_row(*(cell for _, cell in cells))
    return table


def _kernel_width(width: int) -> int:
    return max(16, min(36, width // 5))


def _kernel_name(kernel: Kernel) -> Text:
    times = "" if kernel.repeat == 1 else f" (x {kernel.repeat})"
    causal = " (causal, counted in full)" if kernel.causal else ""
    return Text.assemble((kernel.operation, "cyan"), (f"{times}{causal}", "dim"))


def _costs(kernel: Kernel, width: int) -> RenderableType:
    """The formulas of a kernel, side by side or under one another; a reference once for all three."""
    if _is_one_reference(kernel):
        return Text(shown(kernel.flops))
    formulas = [Text(shown(formula)) for formula in _formulas(kernel)]
    if width >= WIDE:
        return _thirds(formulas)
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, formula in zip(("flops", "read", "write"), formulas, strict=True):
        table.add_row(Text(name, style="dim"), formula)
    return table


def _thirds(cells: Sequence[Text]) -> Table:
    table = Table.grid(padding=(0, _GAP, 0, 0), expand=True)
    for _ in cells:
        table.add_column(ratio=1, overflow="fold")
    table.add_row(*cells)
    return table


def _formulas(kernel: Kernel) -> tuple[str, str, str]:
    return kernel.flops, kernel.memory_access.read, kernel.memory_access.write


def _is_one_reference(kernel: Kernel) -> bool:
    return "$" in kernel.flops and len(set(_formulas(kernel))) == 1


def _footnotes(analysis: ModuleAnalysis) -> Iterator[tuple[str, list[str]]]:
    if analysis.compulsory is not None:
        both = (shown(analysis.compulsory.read), shown(analysis.compulsory.write))
        yield "compulsory bytes", [f"read {both[0]}", f"write {both[1]}"]
    if analysis.parameters_count is not None:
        yield "parameters", [shown(analysis.parameters_count)]
    values = analysis.values
    given = [f"{n} = {p}" + (f" = {values[n]}" if n in values else "") for n, p in analysis.parameters.items()]
    for name, texts in (
        ("variables", given),
        ("called with", [analysis.given.inputs] if analysis.given else []),
        (
            "constructed with",
            [analysis.given.init or ("an instance" if analysis.given.live else "")] if analysis.given else [],
        ),
        ("decisions", [f"{d.file}:{d.line}  {d.code}  -> {', '.join(d.taken)}" for d in analysis.decisions]),
        ("assumptions", analysis.assumptions),
        ("pinned", [f"{name} = {value}" for name, value in analysis.pinned.items()]),
        ("inlined", [f"{short(name)} ({reason})" for name, reason in analysis.inlined.items()]),
        ("free lines", [_ranges(analysis.free_lines)]),
        ("lines not taken", [_ranges(analysis.not_taken_lines)]),
        ("UNCOUNTED", analysis.uncounted),
    ):
        if any(texts):
            yield name, texts


def labelled(name: str, texts: Iterable[str]) -> Labelled:
    """Texts under one another, with a label at the first."""
    return Labelled(name, tuple(texts))


@dataclass(frozen=True)
class Labelled:
    """Texts beside their label. In a narrow terminal they stand below it, so that no number is broken."""

    name: str
    texts: tuple[str, ...]

    def __rich_console__(self, out: Console, options: ConsoleOptions) -> RenderResult:
        style = "bold red" if self.name.isupper() else "dim"
        if options.max_width < NARROW:
            if self.name:
                yield Text(self.name, style=style)
            for text in self.texts:
                yield indented(text)
            return
        table = Table.grid(padding=(0, 1, 0, 0))
        table.add_column(width=LABEL, no_wrap=True)
        table.add_column(overflow="fold")
        for index, text in enumerate(self.texts):
            table.add_row(Text(self.name if index == 0 else "", style=style), Text(text))
        yield table


def _ranges(lines: Iterable[int]) -> str:
    """``3-5, 8``."""
    spans: list[list[int]] = []
    for line in sorted(set(lines)):
        if spans and spans[-1][1] == line - 1:
            spans[-1][1] = line
        else:
            spans.append([line, line])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
