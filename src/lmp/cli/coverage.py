"""What `lmp verify --coverage` prints: the arms of each class's formulas, and the points that took them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from lmp.records import ArmTaken, ModuleAnalysis


def print_coverage(out: Console, analyses: Sequence[ModuleAnalysis]) -> None:
    """Print a table of arms for each class."""
    for analysis in analyses:
        arms = analysis.verification.arms
        out.print()
        out.print(Text(analysis.class_name, style="bold"), soft_wrap=True)
        if not arms:
            why = "its formulas have no arms" if analysis.verification.status == "verified" else "no arms were judged"
            out.print(Text(f"  {why}"))
            continue
        needed = [arm for arm in arms if arm.excluded is None]
        out.print(Text(f"  {sum(arm.point is not None for arm in needed)} of {len(needed)} arms taken"))
        out.print(_table(arms))


def _table(arms: Sequence[ArmTaken]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for head in ("arm of", "side", "taken at"):
        table.add_column(head, overflow="fold")
    last = None
    for arm in arms:
        taken = Text(arm.point) if arm.point is not None else Text(_why_not(arm), style="dim")
        table.add_row(Text("" if arm.of == last else arm.of), Text(arm.side), taken)
        last = arm.of
    return table


def _why_not(arm: ArmTaken) -> str:
    return "no executed point" if arm.excluded is None else f"excluded: {arm.excluded}"
