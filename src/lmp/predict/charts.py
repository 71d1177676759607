"""Charts as data, and the three ways to write one: SVG and PNG by matplotlib, an offline page by plotly.

The ground is white in every format, so that a chart reads the same on a dark page.
"""

from __future__ import annotations

import html
import importlib.util
import io
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from lmp.errors import UsageError
from lmp.store.files import storage_errors, whole_file

PICTURES = (".svg", ".png", ".pdf")
FORMATS = (*PICTURES[:2], ".html", ".pdf")
INSTALL = "run `pip install 'lmp[report]'`"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#7A5195", "#B8860B", "#56789A", "#8C564B")
"""The first four are Okabe and Ito's, which the colour-blind tell apart."""
INK, GREY, GROUND, GRID = "#1C2128", "#57606A", "#FFFFFF", "#D0D7DE"
MOST_SERIES = len(COLOURS)
STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans", "font.size": 9, "svg.fonttype": "path", "svg.hashsalt": "lmp", "text.color": INK,
    "axes.grid": True, "grid.linewidth": 0.4, "grid.color": GRID, "axes.edgecolor": GREY, "axes.labelcolor": INK,
    "xtick.color": GREY, "ytick.color": GREY, "figure.facecolor": GROUND, "axes.facecolor": GROUND,
    "savefig.facecolor": GROUND,
}  # fmt: skip

Mark = Literal["line", "dashed", "dots", "star"]


@dataclass(frozen=True)
class Series:
    """One line, or marks. A value that is None is not drawn."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    """Ends of a band around the line; empty for none."""
    mark: Mark = "line"
    colour: str = COLOURS[0]
    areas: Sequence[float] = ()
    """Part of the whole that each dot stands for, 0 to 1; empty: all alike."""
    listed: bool = True


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    x_label: str
    y_label: str
    series: Sequence[Series]
    title: str = ""
    log_x: bool = False
    log_y: bool = False
    ticks: Sequence[float] = ()
    """Values on the x axis; empty for the library's own."""
    limit: float | None = None
    """Where a vertical line stands."""


@dataclass(frozen=True)
class Chart:
    title: str
    panels: Sequence[Panel]
    stacked: bool = False
    """Whether panels stand below one another, with one x axis."""
    notes: Sequence[str] = ()
    """What the reader has to know, below the panels."""


# --- what can be written ---------------------------------------------------------------------------------------------


def plottable(file: Path, option: str = "--plot") -> Path:
    """The file, if a chart can be written to it. Raises UsageError before anything is worked out."""
    if file.suffix.lower() not in FORMATS:
        raise UsageError(f"{option} {file} has no ending of a picture\ngive one of {', '.join(FORMATS)}")
    if file.is_dir():
        raise UsageError(f"{option} {file} is a folder\ngive a file in it, as {file / 'plot.svg'}")
    check_library(file)
    return file


def check_library(file: Path) -> None:
    """Raise UsageError where the library that writes the file is not installed."""
    needed = "matplotlib" if file.suffix.lower() in PICTURES else "plotly"
    if importlib.util.find_spec(needed) is None:
        raise UsageError(f"plots need {needed}, which is not installed\n{INSTALL}")


def named(option: str, name: str, allowed: Sequence[str]) -> str:
    """The name, if it is one of those that are allowed. Raises UsageError that lists them."""
    if name not in allowed:
        raise UsageError(f"{option} {name[:40]!r} is no quantity of this plot\ngive one of {', '.join(allowed)}")
    return name


def is_doubling(values: Sequence[float]) -> bool:
    """Whether a range is by factors: its largest step is several times its smallest."""
    steps = [b - a for a, b in pairwise(values)]
    return len(steps) > 1 and values[0] > 0 and max(steps) > 3 * min(steps)


def write(chart: Chart, file: Path, option: str = "--plot") -> None:
    """Write the chart whole or not at all. Raises UsageError, StorageError."""
    check_library(file)
    content = _picture(chart, file.suffix.lower()[1:]) if file.suffix.lower() in PICTURES else _page(chart).encode()
    with storage_errors(file, option), whole_file(file) as out:
        out.write(content)


# --- by matplotlib ---------------------------------------------------------------------------------------------------


def _picture(chart: Chart, kind: str) -> bytes:
    import matplotlib
    from matplotlib.figure import Figure

    count, out = len(chart.panels), io.BytesIO()
    size = (7.5, 1.2 + 2.6 * count) if chart.stacked else (max(7.5, 5.2 * count), 4.8)
    style: dict[Any, Any] = {**matplotlib.rcParamsDefault, "backend": "svg", **STYLE}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=size, layout="constrained")
        shape = (count, 1) if chart.stacked else (1, count)
        every = figure.subplots(*shape, squeeze=False, sharex=chart.stacked).ravel()
        title = "\n".join(textwrap.wrap(_printable(chart.title), round(size[0] * 11)))
        figure.suptitle(title, parse_math=False, fontsize=10)
        if chart.notes:
            below = "\n".join(textwrap.wrap(_printable("; ".join(chart.notes)), round(size[0] * 14)))
            figure.supxlabel(below, parse_math=False, fontsize=8, color=GREY)
        for number, (axes, panel) in enumerate(zip(every, chart.panels, strict=True)):
            _draw(axes, panel, last=not chart.stacked or number == count - 1)
        metadata = {"Date": None, "Creator": None} if kind == "svg" else None
        figure.savefig(out, format=kind, metadata=metadata, dpi=150)
    return out.getvalue()


def _draw(axes: Any, panel: Panel, last: bool) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    for one in panel.series:
        _series(axes, one)
    axes.set(xscale="log" if panel.log_x else "linear", yscale="log" if panel.log_y else "linear")
    axes.set_ylabel(panel.y_label, parse_math=False)
    if last:
        axes.set_xlabel(panel.x_label, parse_math=False)
    if panel.title:
        axes.set_title(_printable(panel.title), parse_math=False, fontsize=9)
    if panel.ticks:
        axes.set_xticks(panel.ticks, [_tick(tick) for tick in panel.ticks])
        axes.tick_params(axis="x", labelrotation=45 if len(panel.ticks) > 8 else 0)
        axes.xaxis.set_minor_locator(NullLocator())
    if panel.log_y:
        # A range of less than a decade has several labels too.
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
        axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    if panel.limit is not None:
        axes.axvline(panel.limit, color=GREY, linestyle="--", linewidth=1)
    if any(one.listed for one in panel.series) and len(panel.series) > 1:
        axes.legend(fontsize=7, frameon=False)


def _series(axes: Any, one: Series) -> None:
    label = _printable(one.name) if one.listed else "_nolegend_"
    x, y = list(one.x), [float("nan") if value is None else value for value in one.y]
    if one.mark == "dots":
        areas = [12 + 600 * area for area in one.areas] or 30
        axes.scatter(x, y, s=areas, color=one.colour, alpha=0.6, linewidth=0, label=label)
        return
    style = {"line": "o-", "dashed": "--", "star": "*"}[one.mark]
    axes.plot(x, y, style, color=one.colour, markersize=14 if one.mark == "star" else 4, linewidth=1.4, label=label)
    if one.low:
        low, high = ([float("nan") if value is None else value for value in ends] for ends in (one.low, one.high))
        axes.fill_between(x, low, high, color=one.colour, alpha=0.2, linewidth=0)


def _tick(value: float) -> str:
    """``8k`` of 8,192, as sizes are typed."""
    for unit, letter in ((2**20, "M"), (2**10, "k")):
        if value >= unit and value % unit == 0:
            return f"{value / unit:g}{letter}"
    return f"{value:g}"


def _short(value: float) -> str:
    """``2.5 T`` of 2,500,000,000,000."""
    for unit, letter in ((1e15, " P"), (1e12, " T"), (1e9, " G"), (1e6, " M"), (1e4, " k")):
        if abs(value) >= unit:
            return f"{value / (1e3 if letter == ' k' else unit):g}{letter}"
    return f"{value:g}"


def _printable(text: str) -> str:
    """What no XML may hold is in no picture."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)


# --- by plotly -------------------------------------------------------------------------------------------------------


def _page(chart: Chart) -> str:
    """One page that works offline: the script is in it."""
    from plotly import graph_objects as shapes
    from plotly.subplots import make_subplots

    count = len(chart.panels)
    rows, columns = (count, 1) if chart.stacked else (1, count)
    titles = [html.escape(panel.title) for panel in chart.panels]
    figure = make_subplots(rows, columns, shared_xaxes=chart.stacked, subplot_titles=titles if any(titles) else None)
    for number, panel in enumerate(chart.panels):
        place = {"row": number + 1 if chart.stacked else 1, "col": 1 if chart.stacked else number + 1}
        for one in panel.series:
            for trace in _traces(one, shapes):
                figure.add_trace(trace, **place)
        last = not chart.stacked or number == count - 1
        ticks = (
            {"tickvals": list(panel.ticks), "ticktext": [_tick(tick) for tick in panel.ticks]} if panel.ticks else {}
        )
        figure.update_xaxes(
            title_text=html.escape(panel.x_label) if last else None, type="log" if panel.log_x else "linear",
            gridcolor=GRID, **ticks, **place,
        )  # fmt: skip
        figure.update_yaxes(
            title_text=html.escape(panel.y_label), type="log" if panel.log_y else "linear", gridcolor=GRID, **place
        )
        if panel.limit is not None:
            figure.add_vline(panel.limit, line={"color": GREY, "dash": "dash", "width": 1}, **place)
    height = 160 + 280 * rows if chart.stacked else 520
    figure.update_layout(
        title=html.escape(_printable(chart.title)), paper_bgcolor=GROUND, plot_bgcolor=GROUND, font={"color": INK},
        height=height,
    )  # fmt: skip
    body = figure.to_html(full_html=False, include_plotlyjs=True, config={"displaylogo": False})
    title = html.escape(_printable(chart.title))
    below = "".join(f"<p>{html.escape(_printable(text))}</p>\n" for text in chart.notes)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>body{{background:{GROUND};margin:1rem}}</style></head><body>\n{body}\n{below}</body></html>\n"
    )


def _traces(one: Series, shapes: Any) -> list[Any]:
    """The series, and before it the band around it."""
    group = {"legendgroup": one.name, "showlegend": False, "hoverinfo": "skip"}
    band = []
    if one.low:
        spots = [(x, low, high) for x, low, high in zip(one.x, one.low, one.high, strict=True) if low is not None]
        x, low, high = (list(part) for part in zip(*spots, strict=True)) if spots else ([], [], [])
        fill = {"fill": "toself", "fillcolor": one.colour, "opacity": 0.2, "line": {"width": 0}, "mode": "lines"}
        band = [shapes.Scatter(x=[*x, *x[::-1]], y=[*high, *low[::-1]], **fill, **group)]
    sizes = [6 + 40 * area**0.5 for area in one.areas] or (14 if one.mark == "star" else 6)
    marker = {"size": sizes, "symbol": "star" if one.mark == "star" else "circle", "opacity": 0.8}
    mode = {"line": "lines+markers", "dashed": "lines", "dots": "markers", "star": "markers"}[one.mark]
    line = {"dash": "dash"} if one.mark == "dashed" else {}
    trace = shapes.Scatter(
        x=list(one.x), y=list(one.y), name=html.escape(_printable(one.name)), mode=mode,
        line={"color": one.colour, **line}, marker={"color": one.colour, **marker}, showlegend=one.listed,
        legendgroup=one.name,
    )  # fmt: skip
    return [*band, trace]
