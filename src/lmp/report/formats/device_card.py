"""The answer card's lines on a device: eager and serving side by side, as every table shows them."""

from __future__ import annotations

from collections.abc import Iterator

from lmp.predict.engines import GIB
from lmp.predict.screen.records import Card, CardMemory, CardRun
from lmp.report.formats.card import CardLine
from lmp.report.terminal import GLUE

BOUNDS = {
    "compute": "compute-bound",
    "memory": "memory-bound",
    "link": "bound by the links between GPUs",
    "latency": "bound by the latency of small kernels",
    "nothing": "no kernel runs",
}


def device_lines(card: Card) -> list[CardLine]:
    """The device and what a token takes in the cache, then one line for each way to run the call."""
    return [CardLine("device", tuple(_device(card))), *(CardLine(run.engine, tuple(_run(run))) for run in card.runs)]


def _device(card: Card) -> Iterator[str]:
    many = [f"{name}{GLUE}{value}" for name, value in (("tp", card.tp), ("ep", card.ep), ("pp", card.pp)) if value > 1]
    gpus = "" if card.gpus == 1 else f"{card.gpus}{GLUE}x{GLUE}"
    yield ", ".join([f"{gpus}{card.label}", *many])
    known = next((run.memory for run in card.runs if run.memory is not None), None)
    each = " on each GPU" if card.gpus > 1 else ""
    if known is not None:
        yield f"KV cache {known.kv_a_token:,}{GLUE}B a token of a sequence{each}"
    else:
        yield f"memory not known: {card.runs[0].memory_reason}"


def _run(run: CardRun) -> Iterator[str]:
    step, rate = run.step_us, run.tokens_per_s
    if step is None or rate is None:
        yield f"no time: {run.reason}"
    else:
        yield f"{in_time(step.value)}, 80{GLUE}%{GLUE}interval {in_time(step.low)} to {in_time(step.high)}"
        yield f"{rate.value:,.0f} tokens/s ({rate.low:,.0f} to {rate.high:,.0f})"
        yield bound(run)
    if run.memory is not None and (run.memory.fits or step is not None):
        yield _memory(run.memory)


def bound(run: CardRun) -> str:
    """What the step waits for. A step that the host is too slow for says so."""
    if run.bound != "launch" or run.host_us is None:
        return BOUNDS.get(run.bound or "", f"bound by {run.bound}")
    kernels = "less" if run.kernels_us is None else in_time(run.kernels_us.value)
    return f"launch-bound: the host takes {in_time(run.host_us.value)} to start kernels that run for {kernels}"


def _memory(found: CardMemory) -> str:
    gib = f"{found.held / GIB:,.2f} of {found.total / GIB:,.2f}{GLUE}GiB"
    if found.fits:
        more = f", up to batch{GLUE}{found.largest_batch:,}" if found.largest_batch is not None else ""
        return f"holds {gib}: fits{more}"
    return f"would hold {gib}: does NOT fit"


def in_time(us: float) -> str:
    """``26.080 ms``, below one millisecond ``812.0 us``."""
    return f"{us / 1e3:,.3f}{GLUE}ms" if us >= 1e3 else f"{us:,.1f}{GLUE}us"
