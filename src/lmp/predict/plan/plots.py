"""The plot of a plan: tokens/s per GPU against tokens/s per user, and the front."""

from __future__ import annotations

from pathlib import Path

from lmp.predict.plan.layouts import Layout
from lmp.predict.plan.planning import Planned
from lmp.predict.screen.plots import GREY, ORANGE, STYLE, matplotlib, save


def draw(found: Planned, title: str, file: Path) -> None:
    """Write the plot in the format of the file's ending. Raises StorageError."""
    library = matplotlib()
    from matplotlib.figure import Figure

    with library.rc_context(STYLE):
        figure = Figure(figsize=(8, 5), layout="constrained")
        axes = figure.subplots()
        groups: dict[Layout, list[tuple[float, float]]] = {}
        for one in found.found:
            groups.setdefault(one.layout, []).append((one.per_user, one.per_gpu))
        for layout, spots in groups.items():
            axes.plot(*zip(*spots, strict=True), ".-", linewidth=0.6, alpha=0.7, label=layout.words)
        shown = [(one.per_user, one.per_gpu) for one in found.front]
        axes.plot(*zip(*shown, strict=True), "-", color=ORANGE, linewidth=2, alpha=0.6, label="front within the limits")
        axes.plot([found.chosen.per_user], [found.chosen.per_gpu], "*", color=ORANGE, markersize=16, label="best")
        if found.limits.tpot is not None:
            axes.axvline(1e6 / found.limits.tpot, color=GREY, linestyle="--", linewidth=1)
        axes.set(xlabel="tokens/s per user", ylabel="tokens/s per GPU", xscale="log", yscale="log")
        axes.set_title(title, parse_math=False)
        axes.legend(fontsize=7, frameon=False)
        save(figure, file)
