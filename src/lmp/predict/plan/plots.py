"""The plot of a plan: every layout at every batch, and the front."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from lmp.predict.charts import COLOURS, Chart, Panel, Series, named, write
from lmp.predict.plan.layouts import Layout
from lmp.predict.plan.options import Option
from lmp.predict.plan.planning import Planned

QUANTITIES: Mapping[str, tuple[str, Callable[[Option], float]]] = {
    "per_user": ("tokens/s per user", lambda one: one.per_user),
    "per_gpu": ("tokens/s per GPU", lambda one: one.per_gpu),
    "tokens_per_s": ("tokens/s in all", lambda one: one.tokens_per_s),
    "batch_size": ("requests of a replica at once", lambda one: float(one.batch)),
    "tpot": ("ms from one token to the next", lambda one: one.reply.tpot[0] / 1e3),
    "ttft": ("ms to the first token", lambda one: one.reply.ttft[0] / 1e3),
}
"""What ``--x`` and ``--y`` of ``lmp plan`` may name."""


def axes_of(x: str, y: tuple[str, ...]) -> None:
    """Raise UsageError for a name that no option has."""
    named("--x", x, tuple(QUANTITIES))
    for name in y:
        named("--y", name, tuple(QUANTITIES))


def draw(found: Planned, title: str, file: Path, x: str = "per_user", y: tuple[str, ...] = ("per_gpu",)) -> None:
    """Write the plot in the format of the file's ending. Raises StorageError."""
    panels = [_panel(found, x, name) for name in y]
    write(Chart(title, panels, stacked=len(panels) > 1), file)


def _panel(found: Planned, x: str, y: str) -> Panel:
    (across, x_of), (up, y_of) = QUANTITIES[x], QUANTITIES[y]
    groups: dict[Layout, list[Option]] = {}
    for one in found.found:
        groups.setdefault(one.layout, []).append(one)

    def series(name: str, options: list[Option], **how: object) -> Series:
        ordered = sorted(options, key=x_of)
        return Series(name, [x_of(one) for one in ordered], [y_of(one) for one in ordered], **how)  # type: ignore[arg-type]

    drawn = [
        series(layout.words, options, colour=COLOURS[1 + number % (len(COLOURS) - 1)])
        for number, (layout, options) in enumerate(groups.items())
    ]
    front = series("front within the limits", list(found.front), mark="dashed")
    best = series("best", [found.chosen], mark="star")
    limit = 1e6 / found.limits.tpot if x == "per_user" and found.limits.tpot is not None else None
    return Panel(across, up, [*drawn, front, best], log_x=True, log_y=True, limit=limit)
