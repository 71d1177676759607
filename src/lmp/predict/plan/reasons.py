"""Why the best is best: what each neighbouring choice would give, or break."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lmp.predict.plan.limits import Limits
from lmp.predict.plan.options import MOST_BATCH, Considered, Fit, Option

MOST = 8
"""Other layouts that are named."""


def reasons(chosen: Option, found: Sequence[Option], plan: Considered, limits: Limits) -> list[str]:
    """One sentence for the batch, and one for each other layout, the nearest to the chosen one first."""
    return [*_batch(chosen, found, limits), *_layouts(chosen, found, plan, limits)]


def _batch(chosen: Option, found: Sequence[Option], limits: Limits) -> Iterator[str]:
    larger = [one for one in found if one.layout == chosen.layout and one.batch > chosen.batch]
    if larger:
        yield f"batch {larger[0].batch:,} has {_against(larger[0], chosen, limits)}"
    elif chosen.batch >= MOST_BATCH:
        yield f"batch {chosen.batch:,} is the largest that is tried"
    else:
        yield f"batch {chosen.batch:,} is the largest that fits: the cache has no room for more requests"


def _layouts(chosen: Option, found: Sequence[Option], plan: Considered, limits: Limits) -> Iterator[str]:
    """The best batch of other layouts, then those that exceed a limit, do not fit or do not divide."""
    within: list[Option] = []
    beyond: list[Option] = []
    for layout in dict.fromkeys(one.layout for one in found):
        own = [one for one in found if one.layout == layout and layout != chosen.layout]
        meeting = [one for one in own if one.meets(limits)]
        within += [max(meeting, key=lambda one: one.per_gpu)] if meeting else []
        beyond += [min(own, key=lambda one: one.excess(limits))] if own and not meeting else []
    within.sort(key=lambda one: -one.per_gpu)
    for one in within[:MOST]:
        yield f"{one.layout.words} has {_against(one, chosen, limits)}, at batch {one.batch:,}"
    if len(within) > MOST:
        yield f"layouts with fewer tokens/s per GPU than these: {len(within) - MOST}"
    beyond.sort(key=lambda one: one.excess(limits))
    for one in beyond[:MOST]:
        yield f"{one.layout.words} has {_times(one, limits)} at its best batch, {one.batch:,}"
    if len(beyond) > MOST:
        yield f"more layouts that exceed a limit at every batch: {len(beyond) - MOST}"
    fits = sorted((fit for fit in plan.fits if not fit.most), key=lambda fit: -fit.free)
    for fit in fits[:MOST]:
        yield f"{fit.layout.words} does not fit: {_missing(fit)}"
    if len(fits) > MOST:
        yield f"more layouts that do not fit: {len(fits) - MOST}"
    for layout, reason in list(plan.refused.items())[:MOST]:
        yield f"{layout.words} does not divide: {reason}"


def _against(one: Option, chosen: Option, limits: Limits) -> str:
    if not one.meets(limits):
        return _times(one, limits)
    told = f"{one.per_gpu:,.0f} tokens/s per GPU, {(one.per_gpu / chosen.per_gpu - 1) * 100:+.0f} %"
    highest = one.reply.tokens_per_s[2] / one.layout.gpus
    return f"{told} (intervals overlap)" if highest > chosen.reply.tokens_per_s[1] / chosen.layout.gpus else told


def _times(one: Option, limits: Limits) -> str:
    """What exceeds its limit."""
    told = []
    if limits.tpot is not None and one.reply.tpot[0] > limits.tpot:
        told.append(f"a TPOT of {one.reply.tpot[0] / 1e3:.2f} ms")
    if limits.ttft is not None and one.reply.ttft[0] > limits.ttft:
        told.append(f"a TTFT of {one.reply.ttft[0] / 1e3:.1f} ms")
    return " and ".join(told)


def _missing(fit: Fit) -> str:
    gib = 2**30
    weights, total = float(fit.weights / gib), float(fit.total / gib)
    if fit.free < 0:
        return f"weights of {weights:.1f} GiB with activations and reserve are more than {total:.1f} GiB"
    return f"{float(fit.free / gib):.1f} GiB are left for the cache, less than one request takes"
