"""The table of `lmp atlas`: its entries, and what was left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from lmp.atlas.archive import Atlas
    from lmp.atlas.records import Listed


def print_atlas(out: Console, atlas: Atlas, entries: Sequence[tuple[Listed, str]]) -> None:
    """Print a row for each entry, with whether its rules are those installed, then the models that were left out."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for head in ("model", "family", "status", "points", "rules"):
        table.add_column(head, justify="right" if head == "points" else "left", overflow="fold")
    for entry, rules in entries:
        name = entry.model_id or f"{entry.family}, default config"
        cells = (name, entry.family, entry.status, f"{entry.points:,}", rules)
        table.add_row(*map(Text, cells))
    out.print(table)
    for name, why in atlas.index.left_out.items():
        out.print(Text(f"left out: {name}: {why}", style="dim"), soft_wrap=True)
    size = sum(file.stat().st_size for file in atlas.folder.glob("*")) if atlas.folder.is_dir() else 0
    count = f"{len(entries):,} entr{'y' if len(entries) == 1 else 'ies'}"
    out.print(Text(f"{count}, {size / 1e6:.1f} MB, in {atlas.folder}"), soft_wrap=True)
