"""Plots of a prediction: time and tokens a second over a size of the call, and its kernels under the roofline."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from lmp.errors import UsageError
from lmp.formula import read_number
from lmp.predict.charts import COLOURS, GREY, Chart, Panel, Series, named, write
from lmp.predict.experts import OF_MANY_CALLS
from lmp.predict.prediction import Predictor, Total
from lmp.predict.screen.asking import Answer, Subject, answer

BEYOND = 8
"""The plot goes to so many times the asked size."""
LABELS = {"batch_size": "batch", "seq_len": "new tokens of a sequence", "cache_len": "tokens in the cache"}
X_NAMES = tuple(LABELS)


@dataclass(frozen=True)
class Quantity:
    """What a prediction has at each point."""

    label: str
    of: Callable[[Answer], Total]


def _intensity(found: Answer) -> Total:
    totals = found.evaluation.totals
    value = float(Fraction(totals.flops) / (Fraction(read_number(totals.read)) + Fraction(read_number(totals.write))))
    return value, value, value


QUANTITIES: Mapping[str, Quantity] = {
    "latency": Quantity("ms a step", lambda found: tuple(us / 1e3 for us in found.us)),  # type: ignore[arg-type,return-value]
    "tokens_per_s": Quantity("tokens/s", lambda found: found.tokens_per_s),
    "intensity": Quantity("FLOPs a byte, eager", _intensity),
}
"""What ``--y`` of ``lmp predict`` may name."""


@dataclass(frozen=True)
class Axes:
    """What is drawn. Raises UsageError for names that are not known."""

    x: str = "batch_size"
    y: tuple[str, ...] = ("latency", "tokens_per_s")

    def __post_init__(self) -> None:
        named("--x", self.x, X_NAMES)
        for name in self.y:
            named("--y", name, tuple(QUANTITIES))


def sizes_of(now: Answer, x: str = "batch_size", most: int | None = None) -> list[int]:
    """Doubling sizes from 1 to 8 times the asked one, at most ``most``, the asked one among them.

    Raises UsageError for a size that is 0 in this call: of a prefill the cache, say.
    """
    own = int(now.values.get(x, 0))
    if not own:
        raise UsageError(f"--x {x} is 0 in this call\ngive another x, or a call that has it")
    last = max(own, min(BEYOND * own, most) if most else BEYOND * own)
    doubled = {2**power for power in range(last.bit_length()) if 2**power <= last}
    return sorted(doubled | {own, last})


def over_sizes(subject: Subject, now: Answer, predictor: Predictor, x: str, sizes: Sequence[int]) -> list[Answer]:
    """The same prediction at other sizes. Raises as `answer`."""
    asks = (replace(now.ask, given=now.ask.to(**{x: size})) for size in sizes)
    return [answer(subject, ask, predictor) for ask in asks]


def draw(found: Sequence[Answer], now: Answer, axes: Axes, title: str, file: Path) -> None:
    """Write the plot of answers at several sizes, and of the kernels of one. Raises StorageError."""
    panels = [_panel(found, axes.x, name) for name in axes.y]
    notes = [OF_MANY_CALLS] if any(one.experts for one in found) else []
    write(Chart(title, [*panels, _roofline(now)], notes=notes), file)


def _panel(found: Sequence[Answer], x: str, name: str) -> Panel:
    quantity = QUANTITIES[name]
    sizes = [float(one.values[x]) for one in found]
    middle, low, high = zip(*(quantity.of(one) for one in found), strict=True)
    drawn = Series(f"{name}, 80 % interval", sizes, middle, low, high)
    return Panel(LABELS[x], quantity.label, [drawn], "shaded: 80 % interval", log_x=True, log_y=True, ticks=sizes)


def _roofline(now: Answer) -> Panel:
    """Each launched kernel with FLOPs: its FLOPs a byte, and the FLOP/s at the predicted time. Area: share of time."""
    device, whole = now.ask.device, now.call.whole[0] or 1.0
    spots = list(_spots(now))
    least = min([0.1, *(x for x, _, _ in spots)]) / 2
    roofs = []
    for dtype in [name for name in ("bfloat16", "fp8") if name in device.dense]:
        peak = device.dense[dtype]
        bend = peak / device.bandwidth
        name = f"{dtype} {peak / 1e12:.0f} TFLOP/s, {device.bandwidth / 1e12:g} TB/s"
        ends = [least, bend, bend * 20], [least * device.bandwidth, peak, peak]
        roofs.append(Series(name, *ends, mark="dashed", colour=GREY))
    x, y, us = (list(part) for part in zip(*spots, strict=True)) if spots else ([], [], [])
    shares = [one / whole for one in us]
    dots = Series("kernels; area: share of time", x, y, mark="dots", areas=shares, colour=COLOURS[0])
    return Panel("FLOPs a byte", "FLOP/s", [*roofs, dots], title=f"kernels on {device.label}", log_x=True, log_y=True)


def _spots(now: Answer) -> Iterator[tuple[float, float, float]]:
    for one in now.call.operators:
        moved = Fraction(read_number(one.kernel.read)) + Fraction(read_number(one.kernel.write))
        if one.kernel.flops and moved and one.time.us:
            yield float(one.kernel.flops / moved), one.kernel.flops / one.time.us * 1e6, one.us
