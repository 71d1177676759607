"""Plots of a post as SVG: transparent, in tones that are read on light and on dark pages, the same bytes each time."""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from lmp.errors import NotTaken, PostFault, UsageError
from lmp.lab.config import PlotRule, Series
from lmp.lab.evaluating import Evaluator
from lmp.lab.flame import flame_svg, stacks_of
from lmp.lab.values import evaluated, number_in, pairs_of

COLOURS = ("#3B8EDB", "#CC7A12", "#2FA37C", "#CC6FA8", "#8E7BE0", "#D2603A", "#8C9A2E")
"""Mid tones: each has a contrast of at least 3 to white and to GitHub's dark ground, or nearly so."""
INK, LINE = "#808890", "#808890"

_STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "svg.fonttype": "path",
    "svg.hashsalt": "lmp",
    "path.simplify": False,
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.facecolor": "none",
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.framealpha": 0,
    "text.parse_math": False,
}


_FEW_DECADES = 10**4
"""Between the ends of an axis whose ticks are labelled at 1, 2 and 5."""

_LEGEND_LETTERS = 105
"""Letters of 8 points that stand in a line below the axes."""

_SIZES = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


@dataclass(frozen=True)
class Drawn:
    """A series with numbers: the middle of the runs, and their least and most where there are several."""

    label: str
    x: list[str]
    y: list[float]
    low: list[float]
    high: list[float]
    original: bool = False


def plot_svg(name: str, rule: PlotRule, evaluator: Evaluator) -> bytes:
    """The plot. A reader's has the original's series dashed beside it. Raises PostFault for a series without data."""
    if rule.kind == "flame":
        assert rule.capture is not None
        mine = evaluator.taken(rule.capture)
        if evaluator.original is not None and (mine is None or not mine.usable):
            evaluator = evaluator.original
        stored = evaluator.stored(rule.capture)
        stacks = stacks_of(stored.lines, rule.stacks)
        if not stacks:
            raise PostFault(f"plot {name}: capture {rule.capture} has no stacks of the form {rule.stacks}")
        return flame_svg(stacks, rule.title, rule.unit, rule.min_share)
    drawn: list[Drawn] = []
    for series in rule.series:
        drawn += _both(series, evaluator)
    return _charted(rule, drawn) + _mark(rule, drawn)


def same_drawing(one: bytes, other: bytes) -> bool:
    """True if two files show the same data, drawn by different releases of matplotlib: their bytes may differ."""
    marks = [_MARK.search(data) for data in (one, other)]
    if marks[0] is None or marks[1] is None:
        return False
    return marks[0][1] == marks[1][1] and marks[0][2] != marks[1][2]


_MARK = re.compile(rb"<!-- data ([0-9a-f]{64}), drawn by matplotlib (\S+) -->\s*\Z")


def _mark(rule: PlotRule, drawn: Sequence[Drawn]) -> bytes:
    import matplotlib

    content = json.dumps([rule.model_dump(mode="json"), [asdict(series) for series in drawn]], sort_keys=True)
    digest = hashlib.sha256(content.encode()).hexdigest()
    return f"<!-- data {digest}, drawn by matplotlib {matplotlib.__version__} -->\n".encode()


def _both(series: Series, evaluator: Evaluator) -> list[Drawn]:
    if evaluator.original is None:
        return [_drawn(series, evaluator)]
    try:
        before = _drawn(series, evaluator.original, original=True)
    except NotTaken:
        return [_drawn(series, evaluator)]
    try:
        return [_drawn(series, evaluator), before]
    except PostFault:
        return [before]  # dashed and labelled: what was not taken here is not drawn as the reader's


def _drawn(series: Series, evaluator: Evaluator, original: bool = False) -> Drawn:
    label = f"{series.label} (original)".strip() if original else series.label
    scale = evaluated(str(series.scale), _no_name)
    if series.points:
        x = [str(first) for first, _ in series.points]
        middle, low, high = (
            [float(scale * evaluator.number("", _of_runs(str(second), part, evaluator))) for _, second in series.points]
            for part in ("", ".min", ".max")
        )
        return Drawn(label, x, middle, low, high, original)
    assert series.capture is not None
    stored = evaluator.stored(series.capture)
    if not stored.usable:
        raise PostFault(f"capture {series.capture} has no numbers: {stored.record.status}: {stored.record.message}")
    runs = pairs_of(stored, series)
    by_x: dict[str, list[Fraction]] = {}
    for run in runs:
        for first, second in run:
            by_x.setdefault(first, []).append(scale * second)
    ordered = {first: sorted(values) for first, values in by_x.items()}
    middle = [float((v[(len(v) - 1) // 2] + v[len(v) // 2]) / 2) for v in ordered.values()]
    low, high = [float(v[0]) for v in ordered.values()], [float(v[-1]) for v in ordered.values()]
    return Drawn(label, list(ordered), middle, low, high, original)


def _of_runs(expression: str, part: str, evaluator: Evaluator) -> str:
    """The expression for the least or the most of the runs, where it is one value of a capture; else as it is."""
    name = re.fullmatch(r"\s*\{([a-z]\w*)\.([a-z]\w*)\}\s*", expression)
    is_value = name is not None and name[1] in evaluator.post.lab.capture
    return f"{{{name[1]}.{name[2]}{part}}}" if name is not None and is_value else expression


def _no_name(name: str) -> Fraction:
    raise PostFault(f"scale is an expression of plain numbers, and {name} is a name")


def _charted(rule: PlotRule, drawn: Sequence[Drawn]) -> bytes:
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError("plots need more packages\nrun `pip install 'lmp[report]'`") from error
    style: dict[Any, Any] = {**matplotlib.rcParamsDefault, "backend": "svg", **_STYLE}
    with matplotlib.rc_context(style):
        # No pyplot: it keeps state of its own.
        figure = Figure(figsize=(8, 4.4), dpi=72, facecolor="none", layout="constrained")
        axes = figure.add_subplot()
        axes.set_title(rule.title, fontsize=10)
        axes.set_xlabel(rule.x)
        axes.set_ylabel(rule.y)
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        (_bars if rule.kind == "bar" else _lines)(axes, rule, drawn)
        if any(series.label for series in drawn):
            # Beside the axes: no label lies on a line.
            figure.legend(fontsize=8, loc="outside lower center", ncols=_columns([series.label for series in drawn]))
        out = io.BytesIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return out.getvalue()


def _lines(axes: Any, rule: PlotRule, drawn: Sequence[Drawn]) -> None:
    shown = [number for number, series in enumerate(drawn) if not series.original]
    for number, series in enumerate(drawn):
        x = [float(number_in(text)) for text in series.x]
        own = sum(each < number for each in shown) - (series.original and bool(shown))
        colour = COLOURS[max(0, own) % len(COLOURS)]
        axes.plot(
            x, series.y, "--" if series.original else "-o", color=colour, label=series.label or None, markersize=3.5,
            linewidth=1.4, alpha=0.7 if series.original else 1,
        )  # fmt: skip
        if series.low != series.high:
            axes.fill_between(x, series.low, series.high, color=colour, alpha=0.2, linewidth=0)
    axes.grid(True, which="major", color=LINE, alpha=0.3, linewidth=0.6)
    if rule.log_x:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(_bytes if rule.x_bytes else _plain)
    if rule.log_y:
        _log_y(axes)
    else:
        axes.set_ylim(bottom=0)


def _bars(axes: Any, rule: PlotRule, drawn: Sequence[Drawn]) -> None:
    names = list(dict.fromkeys(name for series in drawn for name in series.x))
    width = 0.8 / len(drawn)
    for number, series in enumerate(drawn):
        at = [names.index(name) + (number - (len(drawn) - 1) / 2) * width for name in series.x]
        errors = None
        if series.low != series.high:
            below = [y - low for y, low in zip(series.y, series.low, strict=True)]
            above = [high - y for y, high in zip(series.y, series.high, strict=True)]
            errors = [below, above]
        axes.bar(
            at, series.y, width * 0.92, color=COLOURS[number % len(COLOURS)], label=series.label or None,
            yerr=errors, ecolor=INK, alpha=0.55 if series.original else 1,
        )  # fmt: skip
    axes.set_xticks(range(len(names)), names, rotation=20 if len(names) > 5 else 0)
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.grid(True, axis="y", color=LINE, alpha=0.3, linewidth=0.6)
    if rule.log_y:
        _log_y(axes)


def _log_y(axes: Any) -> None:
    """Plain numbers at powers of ten, and at twice and five times those where there are few."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    if high < _FEW_DECADES * low:
        axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(_plain)
    axes.yaxis.set_minor_formatter(NullFormatter())


def _columns(labels: Sequence[str]) -> int:
    """Columns of a legend whose labels have room below the axes; its rows are as long as one another."""
    most = max(1, min(len(labels), _LEGEND_LETTERS // (max(map(len, labels)) + 6)))
    return math.ceil(len(labels) / math.ceil(len(labels) / most))


def _bytes(value: float, _: object = None) -> str:
    """64 KiB, 1 MiB: sizes on an axis to base 2."""
    unit, worth = next(((unit, worth) for unit, worth in _SIZES if value >= worth), ("B", 1))
    return f"{value / worth:g} {unit}"


def _plain(value: float, _: object = None) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"
