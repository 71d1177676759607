"""A plan: layouts pruned by memory, what each serves, the front, and the best within the limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from lmp.errors import UsageError
from lmp.observe.held import Held, Live
from lmp.predict.devices import Device
from lmp.predict.engines import GIB, Settings
from lmp.predict.memory import Asked, memory
from lmp.predict.plan.layouts import Layout, layouts, sizes_of
from lmp.predict.plan.limits import Limits
from lmp.predict.plan.options import Considered, Fit, Option, Reply, Serve, best, front, nearest, options
from lmp.predict.plan.reasons import reasons
from lmp.predict.quantising import narrowed
from lmp.predict.serve.replica import of_replica
from lmp.predict.serve.stepper import Stepper
from lmp.predict.serve.workload import Workload


@dataclass(frozen=True)
class Requests:
    """What every replica serves: a steady stream of requests of one form."""

    isl: int
    """Tokens of the prompt."""
    osl: int
    """Tokens of the answer."""
    batch: int | None = None
    """Requests of a replica at once; None: every number that fits."""


@dataclass(frozen=True)
class Fleet:
    """The GPUs, and how the model is held on them."""

    device: Device
    gpus: int
    width: Fraction | None = None
    """Bytes of an element of linear layers; None: as the checkpoint stores them."""
    kv_bytes: Fraction | None = None
    """Bytes of an element of the cache; None: those of the model's dtype."""


@dataclass(frozen=True)
class Planned:
    """Every option, and what to take."""

    found: tuple[Option, ...]
    considered: Considered
    limits: Limits
    chosen: Option
    front: tuple[Option, ...]
    """Of the options within the limits."""
    reasons: tuple[str, ...] = field(default=())


def planned(held: Held, fleet: Fleet, requests: Requests, serve: Serve, limits: Limits) -> Planned:
    """The plan. Raises UsageError if nothing fits, or if nothing keeps to the limits, with the nearest that does."""
    divided = layouts(fleet.gpus, sizes_of(held))
    held = remembering(held)
    fits = [fit_of(held, fleet, requests, layout) for layout in divided]
    if not any(fit.most for fit in fits):
        raise UsageError(nothing_fits(fits, fleet))
    most = max(fit.most for fit in fits)
    if requests.batch is not None and requests.batch > most:
        raise UsageError(
            f"no layout holds {requests.batch:,} requests of {requests.isl + requests.osl:,} tokens in a replica\n"
            f"the most is {most:,}: give a smaller -b, or leave it out"
        )
    found, considered = options(fits, serve, requests.batch)
    if not found:
        raise UsageError(f"no layout that fits divides the model: {next(iter(considered.refused.values()))}")
    chosen = best(found, limits)
    if chosen is None:
        raise UsageError(nothing_meets(found, limits))
    within = front([one for one in found if one.meets(limits)])
    why = reasons(chosen, found, considered, limits)
    return Planned(tuple(found), considered, limits, chosen, tuple(within), tuple(why))


def remembering(held: Held) -> Held:
    """The model, each of whose runs is made once: layouts ask for the same ones."""
    known: dict[tuple[int, tuple[tuple[str, int], ...]], Live | str] = {}

    def live(tokens: int, sizes: Mapping[str, int]) -> Live | str:
        key = (tokens, tuple(sorted(sizes.items())))
        if key not in known:
            known[key] = held.live(tokens, sizes)
        return known[key]

    return replace(held, live=live)


def fit_of(held: Held, fleet: Fleet, requests: Requests, layout: Layout) -> Fit:
    """Memory of a layout. Expert parallelism divides the experts' bytes as tensor parallelism does."""
    length = requests.isl + requests.osl
    asked = Asked(
        layout.tp, layout.pp, 1, length, fleet.kv_bytes, engine=Settings(max_model_len=length),
    )  # fmt: skip
    found = memory(narrowed(held, fleet.width), fleet.device, asked)
    most = found.largest_batch
    if most is None:  # nothing grows with the length: no cache, or a state alone
        most = int(found.fits)
    stage, engine = found.stage, found.asked.engine
    total = found.total * (engine.utilization if engine is not None else 1)
    return Fit(layout, most, stage.weight_bytes, total, stage.available)


def nothing_fits(fits: Sequence[Fit], fleet: Fleet) -> str:
    """What is missing on the layout that comes nearest, and what to do."""
    nearest_fit = max(fits, key=lambda fit: fit.free)
    weights, total = float(nearest_fit.weights / GIB), float(nearest_fit.total / GIB)
    return (
        f"no layout on {fleet.gpus} x {fleet.device.name} fits: {nearest_fit.layout.words} holds weights of "
        f"{weights:.1f} GiB on a GPU and has {total:.1f} GiB for everything\n"
        "give more --gpus, a larger device, --dtype fp8 or shorter requests"
    )


def nothing_meets(found: Sequence[Option], limits: Limits) -> str:
    """The nearest limits that can be met, each by itself and both together."""
    near = nearest(found, limits)
    alone = []
    for name, limit, times in (
        ("--tpot", limits.tpot, [one.reply.tpot[0] for one in found]),
        ("--ttft", limits.ttft, [one.reply.ttft[0] for one in found]),
    ):
        if limit is not None and min(times) > limit:
            alone.append(f"{name} {limit / 1e3:g}ms is below the least, {min(times) / 1e3:.2f} ms")
    told = "; ".join(alone) or "each limit can be met, but not both together"
    tpot, ttft = near.reply.tpot[0] / 1e3, near.reply.ttft[0] / 1e3
    return (
        f"nothing keeps to the limits: {told}\n"
        f"the nearest is {near.layout.words} at batch {near.batch:,}: TPOT {tpot:.2f} ms, TTFT {ttft:.1f} ms"
    )


# --- what a replica does ---------------------------------------------------------------------------------------------


def replies(stepper: Stepper, requests: Requests, batches: Sequence[int]) -> list[Reply]:
    """What one replica does with each batch."""
    work = [Workload(isl=requests.isl, osl=requests.osl, concurrency=batch) for batch in (1, *batches)]
    alone, *found = of_replica(stepper, work, with_longest=False)
    return [Reply(one.tpot, alone.prefill, one.tokens_per_s) for one in found]
