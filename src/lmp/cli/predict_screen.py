"""``lmp predict``: the one-screen table of a prediction, its JSON, and its plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lmp.cli.output import note
from lmp.cli.tables import short

if TYPE_CHECKING:
    from rich.table import Table

    from lmp.predict.prediction import Predictor
    from lmp.predict.screen.asking import Answer, Subject
    from lmp.predict.screen.changes import Change
    from lmp.predict.screen.dearest import Dear
    from lmp.predict.screen.plots import Axes
    from lmp.predict.screen.room import Room
    from lmp.predict.screen.whole import Whole

NO_OVERHEAD = "no overhead of a step was measured; --overhead-us adds one"
LEAST_GAIN = 1.005
"""Tokens a second over those of now, from which a change is said to help."""
FEW = 2
"""Lines of a class that are shown in the table; --explain has all."""
STATED = "host time of a launch is that of another host (docs/prediction.md); --launch-us sets it, with --engine"


def print_all(found: Whole, serving: str | None, each: bool, explain: bool) -> None:
    """The table; the operators one by one with ``each``, the rewrites with ``explain``."""
    from lmp.cli.predict_engine import print_engine
    from lmp.cli.tables import console
    from lmp.report.formats.device_card import device_lines
    from lmp.report.formats.table import print_lines_of_card

    screen = console()
    now = found.answer
    print_lines_of_card(screen, device_lines(found.card))
    for text in _head(found, serving):
        screen.print(text)
    screen.print(_kernels(found.dearest))
    helping = [one for one in found.changes if one.gain is None or one.gain >= LEAST_GAIN]
    if helping:
        screen.print(_next(helping))
    idle = [one.what for one in found.changes if one.gain is not None and one.gain < LEAST_GAIN]
    if idle:
        screen.print(f"no gain: {', '.join(idle)}")
    if each:
        screen.print(_each(now))
    if now.step is not None:
        print_engine(now.step, explain)
    if now.host[0]:
        note(STATED)
    elif not now.profile.overhead_us:
        note(NO_OVERHEAD)


def _head(found: Whole, serving: str | None) -> list[str]:
    now = found.answer
    overhead = f", {now.profile.overhead_us:g} us of a step overhead" if now.profile.overhead_us else ""
    lines = [
        f"below: {serving or 'eager mode, each operator a kernel'}{overhead}",
        *_left(now),
        _bound(now),
        f"memory: {_memory(found.room)}",
        *_counted(now),
    ]
    for what in ("provenance", "family"):
        told = ", ".join(f"{name} {share:.0%}" for name, share in now.call.shares(what).items() if share >= 0.005)
        lines.append(f"{what}: {told}")
    lines += [f"calibration: {_calibrations(now)}"] if now.call.calibrations else []
    return lines + [f"extrapolated: {text}" for text in now.call.extrapolated[:2]]


def _counted(now: Answer) -> list[str]:
    from lmp.predict.experts import words

    return [f"counted: {words(one)}" for one in now.experts]


def _left(now: Answer) -> list[str]:
    """One line where a large part of the step is kernels that an engine may not run."""
    from lmp.predict.rewrite.timing import TOO_MUCH

    if now.step is None or now.profile.kernels is None or now.step.left_share < TOO_MUCH:
        return []
    dearest = now.step.left[0].kernel
    where = f"{dearest.operation} in line {dearest.line} of {short(dearest.class_name)}"
    return [
        f"{now.step.left_share:.0%} of it is kernels that no rule took, the dearest {where}: an engine may not run them"
    ]


def _calibrations(now: Answer) -> str:
    """Each calibration with its error on held-out sites."""
    errors = now.call.calibrations.items()
    return "; ".join(name if error is None else f"{name}, median error {error:.1f} %" for name, error in errors)


def _bound(now: Answer) -> str:
    shares = ", ".join(f"{name} {share:.0%}" for name, share in now.call.shares("bound").items() if share >= 0.005)
    kernels = f"{now.call.launches:,} kernels, {now.call.whole[0] / 1e3:.3f} ms: {shares}"
    if not now.host[0]:
        return f"bound: {now.bound}; {kernels}"
    host, low, high = (us / 1e3 for us in now.host)
    return f"bound: {now.bound}; {kernels}; the host launches them in {host:.3f} ms ({low:.3f} to {high:.3f})"


def _memory(room: Room | str) -> str:
    from lmp.predict.engines import GIB

    if isinstance(room, str):
        return f"not known: {room}"
    held, total, weights, cache, free = (
        f"{float(size / GIB):.2f}" for size in (room.held, room.total, room.weights, room.cache, room.free)
    )
    most = "" if room.largest_batch is None else f"; largest batch at this length {room.largest_batch:,}"
    return f"{held} of {total} GiB held (weights {weights}, KV cache {cache}), {free} free{most}"


def _kernels(dear: tuple[Dear, ...]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    table.add_column("dearest kernels", overflow="fold", max_width=40)
    for column in ("runs", "ms in all", "share"):
        table.add_column(column, justify="right", no_wrap=True, min_width=len(column))
    table.add_column("limit", no_wrap=True, min_width=len("latency"))
    table.add_column("lines", overflow="fold", max_width=40)
    for one in dear:
        cells = (f"{one.runs:,}", f"{one.us / 1e3:.3f}", f"{one.share:.0%}", one.bound, places(one.lines))
        table.add_row(Text(one.operation), *map(Text, cells))
    return table


def places(lines: tuple[str, ...], most: int = 2) -> str:
    """``LlamaMLP:163, 164`` of class paths with lines; how many more there are."""
    found: dict[str, list[str]] = {}
    for line in lines:
        name, _, number = line.rpartition(":")
        found.setdefault(short(name), []).append(number)
    few = {name: [*numbers[:FEW], *(["..."] if len(numbers) > FEW else [])] for name, numbers in found.items()}
    shown = [f"{name}:{', '.join(numbers)}" for name, numbers in list(few.items())[:most]]
    return "; ".join(shown) + (f"; {len(found) - most} more" if len(found) > most else "")


def _next(found: Sequence[Change]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    table.add_column("what would help most next")
    for column in ("ms a step", "tokens/s", "gain"):
        table.add_column(column, justify="right")
    table.add_column("type", overflow="fold")
    for one in found:
        if one.us is None or one.gain is None or one.tokens_per_s is None:
            cells = ("-", "-", "-", one.reason or "")
        else:
            gain = f"{(one.gain - 1) * 100:+.0f} %"
            rate = f"{one.tokens_per_s:,.0f}" + (f" on {one.gpus} GPUs" if one.gpus > 1 else "")
            cells = (f"{one.us[0] / 1e3:.3f}", rate, gain, one.option)
        table.add_row(Text(one.what), *map(Text, cells))
    return table


def _each(now: Answer) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for column in ("operator", "line"):
        table.add_column(column)
    for column in ("runs", "us", "low", "high", "ms in all"):
        table.add_column(column, justify="right")
    for column in ("bound", "from"):
        table.add_column(column)
    for one in sorted(now.call.operators, key=lambda one: -one.us):
        kernel, time = one.kernel, one.time
        table.add_row(
            Text(f"{kernel.path or 'the model'}: {kernel.operation}"),
            Text(f"{short(kernel.class_name)}:{kernel.line}"),
            f"{kernel.repeat:,}", f"{time.us:.2f}", f"{time.low_us:.2f}", f"{time.high_us:.2f}", f"{one.us / 1e3:.3f}",
            time.bound, time.provenance,
        )  # fmt: skip
    return table


def drawn(subject: Subject, found: Whole, predictor: Predictor, axes: Axes, file: Path) -> None:
    """Draw the plot, and say where it is."""
    from lmp.predict.screen.plots import draw, over_sizes, sizes_of

    now, room = found.answer, found.room
    most = None if isinstance(room, str) or axes.x != "batch_size" else room.largest_batch
    answers = over_sizes(subject, now, predictor, axes.x, sizes_of(now, axes.x, most))
    title = f"{short(now.evaluation.class_name)} on {now.ask.device.label}, {now.ask.name}"
    draw(answers, now, axes, title, file)
    note(f"{file} written")
