"""Plots of a prediction as PNG, SVG or PDF: latency against batch, and the kernels under the roofline of the device."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from lmp.errors import StorageError, UsageError
from lmp.formula import read_number
from lmp.predict.prediction import Predictor
from lmp.predict.screen.asking import Answer, Subject, answer

FORMATS = (".png", ".svg", ".pdf")
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#57606A"
"""Two of Okabe and Ito's colours, which the colour-blind tell apart."""
STYLE: dict[str, Any] = {"font.size": 9, "svg.hashsalt": "lmp", "axes.grid": True, "grid.linewidth": 0.4}
BEYOND = 8
"""The plot goes to so many times the asked batch."""


def plottable(file: Path) -> Path:
    """The file, if a plot can be written to it. Raises UsageError before anything is worked out."""
    if file.suffix.lower() not in FORMATS:
        raise UsageError(f"--plot {file} has no ending of a picture\ngive one of {', '.join(FORMATS)}")
    matplotlib()
    return file


def matplotlib() -> Any:
    """The library. Raises UsageError where the extra ``report`` is missing."""
    try:
        import matplotlib as found
    except ImportError as error:
        raise UsageError("plots need more packages\nrun `pip install 'lmp[report]'`") from error
    return found


def batches(now: Answer, most: int | None = None) -> list[int]:
    """Doubling batch sizes from 1 to 8 times the asked one, at most ``most``, the asked one among them."""
    own = int(now.values.get("batch_size", 1))
    last = max(own, min(BEYOND * own, most) if most else BEYOND * own)
    doubled = {2**power for power in range(last.bit_length()) if 2**power <= last}
    return sorted(doubled | {own, last})


def over_batches(subject: Subject, now: Answer, predictor: Predictor, sizes: Sequence[int]) -> list[Answer]:
    """The same prediction at other batch sizes. Raises as `answer`."""
    asks = (replace(now.ask, given=now.ask.to(batch_size=size)) for size in sizes)
    return [answer(subject, ask, predictor) for ask in asks]


def draw(found: Sequence[Answer], now: Answer, title: str, file: Path) -> None:
    """Write the plot of answers at several batch sizes, and of the kernels of one. Raises StorageError."""
    library = matplotlib()
    from matplotlib.figure import Figure

    with library.rc_context(STYLE):
        figure = Figure(figsize=(11, 4.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        figure.suptitle(title, parse_math=False)
        _latency(left, found)
        _roofline(right, now)
        save(figure, file)


def save(figure: Any, file: Path) -> None:
    """Write a figure in the format of the file's ending. Raises StorageError."""
    out = io.BytesIO()
    kind = file.suffix.lower()[1:]
    figure.savefig(out, format=kind, metadata={"Date": None} if kind == "svg" else None, dpi=150)
    try:
        file.write_bytes(out.getvalue())
    except OSError as error:
        raise StorageError(f"{file} cannot be written: {error.strerror}\ngive another file with --plot") from error


def _latency(axes: Any, found: Sequence[Answer]) -> None:
    sizes = [int(one.values.get("batch_size", 1)) for one in found]
    middle, low, high = ([one.us[end] / 1e3 for one in found] for end in range(3))
    axes.plot(sizes, middle, "o-", color=BLUE, label="a step")
    axes.fill_between(sizes, low, high, color=BLUE, alpha=0.2, linewidth=0, label="80 % interval")
    axes.set(xscale="log", yscale="log", xlabel="batch", ylabel="ms a step", title="time of a step")
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    axes.legend(loc="upper left", frameon=False)
    rate = axes.twinx()
    rate.plot(sizes, [one.tokens_per_s[0] for one in found], "s--", color=ORANGE)
    rate.set_ylabel("tokens/s (dashed)", color=ORANGE)
    rate.set_yscale("log")
    rate.grid(False)


def _roofline(axes: Any, now: Answer) -> None:
    """Each launched kernel with FLOPs: its FLOPs a byte, and the FLOP/s at the predicted time. Area: share of time."""
    device = now.ask.device
    spots = []
    for one in now.call.operators:
        moved = Fraction(read_number(one.kernel.read)) + Fraction(read_number(one.kernel.write))
        if one.kernel.flops and moved and one.time.us:
            spots.append((float(one.kernel.flops / moved), one.kernel.flops / one.time.us * 1e6, one.us))
    whole = now.call.whole[0] or 1.0
    least = min([0.1, *(x for x, _, _ in spots)]) / 2
    for dtype in [name for name in ("bfloat16", "fp8") if name in device.dense]:
        peak = device.dense[dtype]
        bend = peak / device.bandwidth
        axes.plot([least, bend, bend * 20], [least * device.bandwidth, peak, peak], color=GREY, linewidth=1)
        told = f"{dtype} {peak / 1e12:.0f} TFLOP/s"
        axes.annotate(told, (bend * 0.8, peak), color=GREY, fontsize=8, ha="right", va="center")
    axes.scatter(
        [x for x, _, _ in spots], [y for _, y, _ in spots], s=[12 + 600 * us / whole for _, _, us in spots],
        color=BLUE, alpha=0.5, linewidth=0,
    )  # fmt: skip
    title = f"kernels on {device.label}, {device.bandwidth / 1e12:g} TB/s; area: share of time"
    axes.set(xscale="log", yscale="log", xlabel="FLOPs a byte", ylabel="FLOP/s", title=title)
