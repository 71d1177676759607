"""The plot of a sweep: costs over a size, and on a device the time of each point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lmp.errors import UsageError
from lmp.link.numbers import ModelNumbers
from lmp.link.sweep import Sweep
from lmp.link.values import CALL
from lmp.predict.charts import COLOURS, MOST_SERIES, Chart, Panel, Series, is_doubling, named, write
from lmp.predict.experts import of_many_calls
from lmp.predict.screen.records import Card, CardRun, Estimate
from lmp.records import short
from lmp.report.formats.sweeps import lists
from lmp.report.formats.times import Times

COSTS = {
    "intensity": "FLOPs a byte, eager",
    "flops": "FLOPs",
    "matmul_flops": "FLOPs of matrix products",
    "bytes": "bytes, eager",
    "read": "bytes read",
    "write": "bytes written",
    "compulsory": "compulsory bytes",
    "parameters_count": "parameters",
}
ON_DEVICE = {"latency": "ms a call", "tokens_per_s": "tokens/s", "memory": "GiB held on a GPU"}
"""Quantities that need a device."""
ELSEWHERE = {"time": "latency", "ms": "latency", "throughput": "tokens_per_s", "context": "cache_len", "flop": "flops"}
"""What people call a quantity -> its name here, where the name does not hold the word."""
WITH_INTERVAL = ("latency", "tokens_per_s")
MOST_POINTS = 10_000
GIB = 2**30


@dataclass(frozen=True)
class Axes:
    """What is drawn over what."""

    x: str
    y: tuple[str, ...]

    @property
    def on_device(self) -> bool:
        """Whether something is drawn that only a device has."""
        return any(name in ON_DEVICE for name in self.y)


def axes_of(sweep: Sweep, x: str | None, y: Sequence[str], device: bool) -> Axes:
    """The axes that are asked for. Raises UsageError for names that are none, and for a sweep that is no plot."""
    if not sweep.axes:
        raise UsageError("a plot needs several values, and all sizes have one\ngive a range, as in -b 1:256:*2")
    x = _named("--x", x or next(iter(sweep.axes)), tuple(sweep.axes))
    allowed = (*COSTS, *ON_DEVICE) if device else tuple(COSTS)
    for name in y:
        if name in ON_DEVICE and not device:
            raise UsageError(f"--y {name} is of a device\ngive one too, as in --device h100-sxm")
        _named("--y", name, allowed)
    chosen = tuple(dict.fromkeys(y)) or (("intensity", "latency") if device else ("intensity",))
    found = Axes(x, chosen)
    others = sweep.size // len(sweep.axes[x])
    if others > MOST_SERIES:
        many = f"{others:,} lines are too many for one plot, which has {MOST_SERIES}"
        raise UsageError(f"{many}\ngive fewer values beside {x}")
    if sweep.size > MOST_POINTS:
        many = f"{sweep.size:,} points are too many for a plot, which takes {MOST_POINTS:,}"
        raise UsageError(f"{many}\nwiden a step, as in 1:256:*2")
    return found


def _named(option: str, name: str, allowed: Sequence[str]) -> str:
    """The name, if it is one of those allowed. Raises UsageError that names the nearest, or lists them."""
    meant = ELSEWHERE.get(name.lower(), name.lower())
    close = [one for one in allowed if meant and (meant in one or one in meant)]
    if name not in allowed and close:
        raise UsageError(f"{option} {name[:40]!r} is no quantity of this plot\ndid you mean {' or '.join(close)}?")
    return named(option, name, allowed)


@dataclass(frozen=True)
class Point:
    """Values and costs of one point, and its card where there is a device."""

    row: Mapping[str, Any]
    card: Card | None


def _panel(points: Sequence[Point], sweep: Sweep, x: str, y: str) -> Panel:
    groups: dict[tuple[Any, ...], list[Point]] = {}
    others = [name for name in sweep.axes if name != x]
    for point in points:
        groups.setdefault(tuple(point.row[name] for name in others), []).append(point)
    series = [
        one
        for number, (values, members) in enumerate(groups.items())
        for one in _series(members, x, y, ", ".join(f"{n} = {v}" for n, v in zip(others, values, strict=True)), number)
    ]
    values = [float(value) for value in sweep.axes[x]]
    log = is_doubling(values)
    heights = [height for one in series for height in one.y if height is not None]
    title = "shaded: 80 % interval" if y in WITH_INTERVAL else ""
    return Panel(
        x, {**COSTS, **ON_DEVICE}[y], series, title, log_x=log, log_y=bool(heights) and min(heights) > 0 and log,
        ticks=values if log and len(values) <= 24 else (),
    )  # fmt: skip


def _series(members: Sequence[Point], x: str, y: str, name: str, number: int) -> list[Series]:
    across = [float(point.row[x]) for point in members]
    if y not in ON_DEVICE:
        heights = [_cost(point.row, y) for point in members]
        return [Series(name or y, across, heights, colour=COLOURS[number])]
    found = []
    for place, run in enumerate(members[0].card.runs if members[0].card is not None else []):
        estimates = [_estimate(point.card.runs[place], y) for point in members if point.card is not None]
        low, high = ([None if one is None else getattr(one, end) for one in estimates] for end in ("low", "high"))
        middle = [None if one is None else one.value for one in estimates]
        found.append(
            Series(
                ", ".join(filter(None, (run.engine, name))), across, middle, low, high,
                colour=COLOURS[(2 * number + place) % len(COLOURS)],
            )
        )  # fmt: skip
    return found


def _cost(row: Mapping[str, Any], name: str) -> float | None:
    value = row["read"] + row["write"] if name == "bytes" else row.get(name)
    return None if value is None else float(value)


def _estimate(run: CardRun, name: str) -> Estimate | None:
    if name == "latency" and run.step_us is not None:
        us = run.step_us
        return Estimate(value=us.value / 1e3, low=us.low / 1e3, high=us.high / 1e3)
    if name == "memory" and run.memory is not None:
        held = run.memory.held / GIB
        return Estimate(value=held, low=held, high=held)
    return run.tokens_per_s if name == "tokens_per_s" else None


def plot(numbers: ModelNumbers, sweep: Sweep, axes: Axes, file: Path, times: Times | None) -> None:
    """Work out every point and write the plot. Raises StorageError."""
    names = [*sweep.names, *(name for name in COSTS if name != "bytes")]
    rows = [
        dict(zip(names, row, strict=True))
        for chunk in sweep.chunks(numbers)
        for row in zip(*lists(names, chunk), strict=True)
    ]
    wanted = times if axes.on_device else None
    points = [Point(row, None if wanted is None else wanted.at(row)) for row in rows]
    label = "" if points[0].card is None else f" on {points[0].card.label}"
    fixed = ", ".join(f"{n} = {v}" for n, v in sweep.fixed.items() if n in CALL and n not in sweep.axes)
    title = f"{short(numbers.model.class_name)}{label}: {fixed}"
    panels = [_panel(points, sweep, axes.x, name) for name in axes.y]
    write(Chart(title, panels, stacked=True, notes=of_many_calls(numbers.model)), file)
