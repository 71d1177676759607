"""What `lmp verify` prints: one table of verdicts for all classes, and below it the reasons of those not verified."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lmp.cli.tables import STYLES, indented, short_names
from lmp.link.verdict import verdict

if TYPE_CHECKING:
    from lmp.analyze.audit import Audit
    from lmp.analyze.session import Outcome
    from lmp.records import Finding, ModuleAnalysis

TABLE_FROM = 70
"""Width from which verdicts stand in columns. In a narrower terminal each class has a line for its name."""

MOST_DIFFERENCES = 5
"""Differences that are shown of one class; --verbose shows all."""

_HEADS = ("class", "status", "points", "differences", "phases")
_NUMBERS = ("points", "differences")


def print_verdicts(out: Console, outcomes: Sequence[Outcome], verbose: bool = False) -> None:
    """Print a row for each class, then the reasons. ``verbose``: also the checks, the file and all differences."""
    analyses = [outcome.analysis for outcome in outcomes]
    shorts = short_names(analysis.class_name for analysis in analyses)
    names = [shorts.get(analysis.class_name, analysis.class_name) for analysis in analyses]
    if out.width >= TABLE_FROM:
        out.print(_table(analyses, names))
    else:
        for analysis, name in zip(analyses, names, strict=True):
            _, status, points, differences, phases = _cells(analysis, name)
            out.print(Text(name, style="bold"), soft_wrap=True)
            verdict = Text.assemble("  ", status, f", {points} points, {differences} differences")
            out.print(verdict, indented(phases.plain), sep="\n")
    for outcome in outcomes:
        _print_details(out, outcome, verbose)


def print_audits(out: Console, audits: Sequence[Audit]) -> None:
    """Print a row for each audited class, then the points that differ."""
    shorts = short_names(audit.class_name for audit in audits)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("class", overflow="fold")
    for head in ("drawn", "executed", "equal", "refused", "different", "seconds", "seed"):
        table.add_column(head, justify="right", no_wrap=True)
    for one in audits:
        numbers = (one.drawn, one.executed, one.equal, one.refused, len(one.different), f"{one.seconds:.1f}", one.seed)
        table.add_row(Text(shorts.get(one.class_name, one.class_name)), *map(str, numbers))
    out.print(table)
    for one in audits:
        out.print(indented(f"{shorts.get(one.class_name, one.class_name)}: {one.second_derivation}"))
        for found in one.different[:MOST_DIFFERENCES]:
            place = "" if found["line"] is None else f" of line {found['line']}"
            counted = f"{found['claimed']} by formula, {found['counted']} executed"
            out.print(indented(f"{found['quantity']}{place}: {counted}, at {found['at']}"))


def _table(analyses: Sequence[ModuleAnalysis], names: Sequence[str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for head in _HEADS:
        number = head in _NUMBERS
        table.add_column(
            head, justify="right" if number else "left", no_wrap=number or head == "status", overflow="fold"
        )
    for analysis, name in zip(analyses, names, strict=True):
        table.add_row(*_cells(analysis, name))
    return table


def _cells(analysis: ModuleAnalysis, name: str) -> tuple[Text, Text, Text, Text, Text]:
    found = analysis.verification
    status = found.status if found.status == "verified" else found.status.upper()
    phases = ", ".join(found.phases) or "not by phase"
    return (
        Text(name),
        Text(status, style=STYLES[found.status]),
        Text(f"{found.points:,}"),
        Text(f"{len(found.findings):,}"),
        Text(phases),
    )


def _print_details(out: Console, outcome: Outcome, verbose: bool) -> None:
    analysis, found = outcome.analysis, outcome.analysis.verification
    conditional = bool(analysis.assumptions or analysis.pinned)
    if found.status == "verified" and not verbose and not conditional:
        return
    out.print()
    out.print(Text(analysis.class_name, style="bold"), soft_wrap=True)
    if found.status == "unverified" or (found.status == "verified" and conditional):
        out.print(indented(verdict(found, analysis.assumptions, analysis.pinned), STYLES[found.status]))
    for check in found.checks if verbose else ():
        out.print(indented(check))
    shown = found.findings if verbose else found.findings[:MOST_DIFFERENCES]
    for finding in shown:
        _print_difference(out, finding)
    if len(found.findings) > len(shown):
        out.print(Text(f"  {len(found.findings) - len(shown):,} more differences: --verbose shows them", style="dim"))
    if verbose:
        out.print(Text(f"  {outcome.file}", style="dim"), soft_wrap=True)


def _print_difference(out: Console, finding: Finding) -> None:
    """A difference as a block: its texts may be long, and its numbers stay whole in a narrow terminal."""
    line = "no line" if finding.line is None else f"line {finding.line}"
    where = f"{finding.file}:{finding.line}" if finding.file and finding.line is not None else finding.file or line
    out.print(Text.assemble("  ", (where, "bold"), f"  {finding.quantity}  at {finding.point}"))
    out.print(Text(f"    formula says {finding.claimed}"))
    out.print(Text(f"    executed     {finding.counted}"))
