"""Plots of a model as SVG, for a markdown report: the roofline, and what its FLOPs and bytes are spent on.

The bytes are the same on every machine: no date, ids by a fixed salt, letters as paths of the font that comes with
matplotlib. The ground is white in both of GitHub's themes.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lmp.errors import UsageError
from lmp.formula import Number
from lmp.link.numbers import CostNumbers
from lmp.report.components import Component, components
from lmp.report.devices import Device
from lmp.report.facts import ModelFacts, Point
from lmp.report.folder import file_name
from lmp.report.formats.figures import figure
from lmp.report.labels import Box, places

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
"""Okabe and Ito's: the colour-blind tell them apart."""
OTHER = "#BBBBBB"
INK, QUIET, LINE = "#1C2128", "#57606A", "#D0D7DE"

_STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "svg.fonttype": "path",
    "svg.hashsalt": "lmp",
    "path.simplify": False,
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.labelcolor": INK,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
}
_PARTS = 3
"""Largest parts that the roofline shows in each phase."""


def assets(facts: ModelFacts) -> dict[str, bytes]:
    """File name -> content. Raises UsageError where the extra ``report`` is missing."""
    try:
        import matplotlib
    except ImportError as error:
        raise UsageError("plots need more packages\nrun `pip install 'lmp[report]'`") from error
    style: dict[Any, Any] = {**matplotlib.rcParamsDefault, "backend": "svg", **_STYLE}
    with matplotlib.rc_context(style):
        name = file_name(facts.name)
        return {f"{name}-roofline.svg": _roofline(facts), f"{name}-breakdown.svg": _breakdown(facts)}


# --- roofline --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mark:
    """FLOPs a byte, and the FLOP/s at which each kernel takes no longer than its time bound."""

    label: str
    x: float
    y: float
    shape: str
    colour: str
    size: int


def _roofline(facts: ModelFacts) -> bytes:
    device = facts.device
    marks = _marks(facts)
    fig, axes = _figure(9, 5.4)
    left, right, lowest, highest = _limits(marks, device)
    axes.set(xscale="log", yscale="log", xlim=(left, right), ylim=(lowest, highest))
    axes.set_xlabel("FLOPs a byte of eager traffic")
    axes.set_ylabel("FLOP/s")
    axes.grid(True, which="major", color=LINE, linewidth=0.6)
    axes.minorticks_off()
    axes.set_axisbelow(True)
    roof = _roofs(axes, device, left, right)
    for mark in marks:
        axes.plot(
            [mark.x], [mark.y], mark.shape, color=mark.colour, markersize=mark.size, markeredgecolor=INK,
            markeredgewidth=0.7, zorder=4,
        )  # fmt: skip
    rates = f"{figure(device.matmul_flops, 'FLOP/s')} matmul, {figure(device.other_flops, 'FLOP/s')} other"
    axes.set_title(
        f"{_plain(facts.name)} on {device.name}: {rates}, {figure(device.bandwidth, 'B/s')}\n"
        "bounds by peak rates, each kernel by itself; not measured · batch x new tokens, on cached ones",
        fontsize=9,
        parse_math=False,
    )
    _label(fig, axes, marks, roof)
    return _svg(fig)


def _marks(facts: ModelFacts) -> list[Mark]:
    """The whole model at every point; the parts that take most of the time at one prefill and one decode."""
    found = []
    chosen = {next((p.key for p in facts.points if p.phase == phase and batch(p) >= least), "") for phase, least in _AT}
    for point in facts.points:
        shape = "s" if point.phase == "prefill" else "D"
        colour = COLOURS[0] if point.phase == "prefill" else COLOURS[5]
        whole = Component("", list(facts.kernels(point)))
        found.append(_mark(_short(point), whole, facts.device, shape, colour, 8))
        if point.key in chosen:
            parts = sorted(components(facts.tree(point)), key=lambda part: -part.seconds(facts.device))
            found += [
                _mark(f"{part.name}, {_short(point)}", part, facts.device, "^" if shape == "s" else "v", colour, 6)
                for part in parts[:_PARTS]
            ]
    return [mark for mark in found if mark is not None]


_AT = (("prefill", 1), ("decode", 32))
"""Phase and least batch size of the points at which the roofline shows parts."""


def batch(point: Point) -> int:
    return point.values.get("batch_size", 1)


def _short(point: Point) -> str:
    """``decode 32 x 1 on 2,048``: batch, new tokens, cached ones."""
    cached = f" on {point.values['cache_len']:,}" if point.phase == "decode" else ""
    return f"{point.phase} {batch(point)} x {point.values.get('seq_len', 1):,}{cached}"


def _mark(label: str, part: Component, device: Device, shape: str, colour: str, size: int) -> Mark | None:
    cost, seconds = part.cost, part.seconds(device)
    if not (cost.flops and cost.bytes and seconds):
        return None
    return Mark(label, float(cost.flops / cost.bytes), cost.flops / seconds, shape, colour, size)


def _limits(marks: Sequence[Mark], device: Device) -> tuple[float, float, float, float]:
    bend = device.matmul_flops / device.bandwidth
    left = min([0.5, *(mark.x for mark in marks)]) / 3
    right = max([bend * 8, *(mark.x for mark in marks)]) * 4
    lowest = min([left * device.bandwidth * 3, *(mark.y for mark in marks)]) / 3
    return left, right, lowest, device.matmul_flops * 3


def _roofs(axes: Any, device: Device, left: float, right: float) -> list[tuple[float, float]]:
    """Both roofs; spots on them, close together."""
    spots = []
    steps = [left * (right / left) ** (step / 400) for step in range(401)]
    for rate, style in ((device.matmul_flops, "-"), (device.other_flops, "--")):
        bend = rate / device.bandwidth
        first = left if style == "-" else bend
        axes.plot(
            [first, bend, right], [first * device.bandwidth, rate, rate], style, color=QUIET, linewidth=1.4, zorder=2
        )
        spots += [(x, min(rate, x * device.bandwidth)) for x in steps]
    return spots


def _label(fig: Any, axes: Any, marks: Sequence[Mark], roof: Sequence[tuple[float, float]]) -> None:
    from matplotlib.backends.backend_svg import RendererSVG

    width, height = fig.get_size_inches() * fig.dpi
    renderer = RendererSVG(width, height, io.StringIO())
    fig.draw_without_rendering()
    fig.set_layout_engine("none")  # what was measured stays where it is
    texts = [axes.annotate(mark.label, (mark.x, mark.y), fontsize=7.5, zorder=5) for mark in marks]
    sizes = [(box.width, box.height) for box in (text.get_window_extent(renderer) for text in texts)]
    at = [tuple(axes.transData.transform((mark.x, mark.y))) for mark in marks]
    area = axes.get_window_extent(renderer)
    inside = Box(area.x0 + 3, area.y0 + 3, area.x1 - 3, area.y1 - 3)
    found = places(at, sizes, inside, [tuple(axes.transData.transform(spot)) for spot in roof])
    back = axes.transData.inverted()
    for text, mark, box, (x, y) in zip(texts, marks, found, at, strict=True):
        text.set_position(tuple(back.transform((box.left, box.bottom))))
        near = min(max(x, box.left), box.right), min(max(y, box.bottom), box.top)
        end = back.transform(near)
        axes.plot([mark.x, end[0]], [mark.y, end[1]], "-", color=QUIET, linewidth=0.5, zorder=3)


# --- breakdown -------------------------------------------------------------------------------------------------------

_QUANTITIES: tuple[tuple[str, Callable[[CostNumbers], Number]], ...] = (
    ("FLOPs", lambda cost: cost.flops),
    ("bytes", lambda cost: cost.bytes),
)


def _breakdown(facts: ModelFacts) -> bytes:
    rows = [(point, title, of) for point in _compared(facts) for title, of in _QUANTITIES]
    shares = [_shares(components(facts.tree(point)), of) for point, _, of in rows]
    names = _largest(shares)
    fig, axes = _figure(9, 1.3 + 0.38 * len(rows) + 0.2 * ((len(names) + 3) // 3))
    for row, share in enumerate(shares):
        _bar(axes, row, share, names)
    axes.set(xlim=(0, 100), ylim=(len(rows) - 0.4, -0.6))
    axes.set_yticks(range(len(rows)), [f"{_short(point)}: {title}" for point, title, _ in rows])
    axes.set_xlabel("% of the whole model")
    axes.tick_params(length=0)
    axes.set_title(
        f"{_plain(facts.name)}: share of FLOPs and of bytes by component\nbatch x new tokens, on cached ones",
        fontsize=9,
        parse_math=False,
    )
    for spine in axes.spines.values():
        spine.set_visible(False)
    _legend(axes, names, any(set(share) - set(names) for share in shares))
    return _svg(fig)


def _compared(facts: ModelFacts) -> list[Point]:
    """A prefill and two decodes, far apart; of what has no cache, two prefills."""
    prefill = [point for point in facts.points if point.phase == "prefill"]
    decode = [point for point in facts.points if point.phase == "decode"]
    if not decode:
        return prefill
    return list({point.key: point for point in (*prefill[:1], decode[0], decode[-1])}.values())


def _shares(parts: Sequence[Component], of: Callable[[CostNumbers], Number]) -> dict[str, float]:
    """Per cent of the whole, of those that have any."""
    whole = sum(of(part.cost) for part in parts)
    return {part.name: float(100 * of(part.cost) / whole) for part in parts if of(part.cost)} if whole else {}


def _largest(shares: Sequence[dict[str, float]]) -> list[str]:
    """Components with a colour of their own: those with the largest share anywhere, above 1 %."""
    most: dict[str, float] = {}
    for share in shares:
        for name, value in share.items():
            most[name] = max(most.get(name, 0), value)
    ranked = sorted((name for name in most if most[name] >= 1), key=lambda name: -most[name])
    return ranked[: len(COLOURS)]


def _bar(axes: Any, row: int, share: dict[str, float], names: Sequence[str]) -> None:
    from matplotlib.colors import to_rgb

    rest = sum(value for name, value in share.items() if name not in names)
    start = 0.0
    for colour, value in [*((COLOURS[i], share.get(name, 0.0)) for i, name in enumerate(names)), (OTHER, rest)]:
        axes.barh(row, value, left=start, height=0.68, color=colour, edgecolor="white", linewidth=0.8)
        if value >= 4:
            red, green, blue = to_rgb(colour)
            dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
            axes.text(
                start + value / 2, row, f"{value:.0f}", ha="center", va="center", fontsize=8,
                color="white" if dark else INK,
            )  # fmt: skip
        start += value
    if not share:
        axes.text(1, row, "none", va="center", fontsize=8, color=QUIET)


def _legend(axes: Any, names: Sequence[str], has_rest: bool) -> None:
    from matplotlib.patches import Patch

    shown = [*zip(COLOURS, names, strict=False), *([(OTHER, "the rest")] if has_rest else [])]
    axes.figure.legend(
        handles=[Patch(color=colour, label=name) for colour, name in shown],
        loc="outside lower center", ncols=3, frameon=False, fontsize=8, handlelength=1.2, columnspacing=1.6,
    )  # fmt: skip


# --- both ------------------------------------------------------------------------------------------------------------


def _figure(width: float, height: float) -> tuple[Any, Any]:
    """Inches. No pyplot: it keeps state of its own."""
    from matplotlib.figure import Figure

    fig = Figure(figsize=(width, height), dpi=72, facecolor="white", layout="constrained")
    return fig, fig.add_subplot()


def _plain(name: str) -> str:
    """What no XML may hold is in no picture."""
    return "".join(sign if sign.isprintable() else "?" for sign in name)


def _svg(fig: Any) -> bytes:
    out = io.BytesIO()
    fig.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()
