"""From steps to what a request sees: time of a token, time to the first, throughput.

A steady stream of C requests of one form, on an engine that computes prompts beside decodes: while one is decoding,
each of the C - 1 others is replaced once by a new one, whose prefill it waits for. One answer of osl tokens takes osl
decode steps and C - 1 prefills:

    TPOT = t_decode(C) + (C - 1) * t_prefill / osl

An engine that computes all prompts that wait before it decodes again keeps such requests together: they end in one
step, and so do those that replace them. Their prompts fill n steps; a request of step j waits for the n - j after it:

    TPOT = t_decode(C) + mean over requests of (the prefill steps after its own) / osl

One wave has no new requests, so it has the first term alone. In all of them prefills and decodes fill the time:

    tokens/s = C * osl / (osl * t_decode(C) + prefills of C requests)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lmp.predict.prediction import Total
from lmp.predict.serve.regimes import Sizes
from lmp.predict.serve.stepper import ATTENTION, Stepper
from lmp.predict.serve.times import Index, Times
from lmp.predict.serve.workload import Workload

NO_TTFT = "under load it is that of a queue and a front end, which no kernel tells; prefill_ms is of an idle server"
"""Why an answer has no time to the first token."""


@dataclass(frozen=True)
class Served:
    """What requests of one workload get. Times are in microseconds, with 80 % intervals."""

    workload: Workload
    running: int
    """Requests that are decoded together: those in flight, as far as the cache has room for them."""
    decode: Total
    """One decode step of them, the draft included."""
    prefill: Total
    """Of one request on an idle server."""
    longest: Total
    """The longest step: for an engine that mixes, the largest chunk of a prompt beside the decodes; else a prefill."""
    tpot: Total
    """From one token of a request to its next, on average."""
    tokens_per_s: Total
    """Of all answers of one replica."""
    shares: Mapping[str, float]
    """Kernel family and provenance, as ``gemm/calibrated`` -> its part of the TPOT, the largest first."""
    beyond: Mapping[str, float]
    """Sizes beyond what was measured, in words -> the part of the TPOT of the kernels that have them."""

    @property
    def ttft(self) -> Total | None:
        """Time to the first token; None under load: `NO_TTFT`."""
        return self.prefill if self.workload.concurrency == 1 else None

    @property
    def requests_per_s(self) -> float:
        return self.tokens_per_s[0] / self.workload.osl


def served(
    stepper: Stepper, workloads: Sequence[Workload], room: Sequence[float] | None = None, with_longest: bool = True
) -> list[Served]:
    """The answer for each workload, in their order.

    ``room``: for each, how many of its requests the cache holds at once; None: all. ``with_longest``: False leaves the
    longest step to be that of the decodes alone, for who does not look at it. Raises LmpError for a step that cannot
    be predicted.
    """
    if not workloads:
        return []
    rooms = [math.inf] * len(workloads) if room is None else room
    running = [max(1, int(min(one.concurrency, most))) for one, most in zip(workloads, rooms, strict=True)]
    calls = [(run, one.speculative_tokens + 1, one.context) for one, run in zip(workloads, running, strict=True)]
    own = stepper.profile.overhead_us + np.array([one.draft_us for one in workloads])
    decode = decodes(stepper, workloads, calls).plus_us(own)
    prefill, largest = prefills(stepper, workloads)
    if stepper.profile.schedule == "mixed":
        count = np.array(running, dtype=float)
        waits, every = prefill * (count - 1), prefill * count
        longest = mixed(stepper, largest, calls).plus_us(own) if with_longest else decode
    else:
        waits, every, longest = rounds(stepper, workloads, running, prefill)

    token = decode * (1 / np.array([one.tokens_a_step for one in workloads]))
    osl = np.array([one.osl for one in workloads], dtype=float)
    steady = np.array([one.stream == "steady" for one in workloads])
    tpot = token + waits * np.where(steady, 1 / osl, 0.0)
    # Microseconds for one token of each request that runs.
    share = (token + every * (1 / osl)).totals()
    rates = [(run * 1e6 / us, run * 1e6 / high, run * 1e6 / low)
             for run, (us, low, high) in zip(running, share, strict=True)]  # fmt: skip
    columns = zip(decode.totals(), prefill.totals(), longest.totals(), tpot.totals(), rates, strict=True)
    return [
        Served(workloads[number], running[number], *times, tpot.shares(number), tpot.shares_beyond(number))
        for number, times in enumerate(columns)
    ]


def decodes(stepper: Stepper, workloads: Sequence[Workload], calls: Sequence[Sizes]) -> Times:
    """The decode steps of workloads. One that checks a draft's tokens makes logits of each of them."""
    plain = stepper.times(calls)
    drafted = np.array([one.speculative_tokens > 0 for one in workloads])
    if not drafted.any():
        return plain
    return plain * ~drafted + stepper.without("last_token_logits").times(calls) * drafted


def prefills(stepper: Stepper, workloads: Sequence[Workload]) -> tuple[Times, list[Sizes]]:
    """The prefill of one request of each workload, and its largest chunk."""
    chunks = [one.chunks() for one in workloads]
    groups: Index = np.repeat(np.arange(len(chunks)), [len(parts) for parts in chunks])
    every = stepper.times([call for parts in chunks for call in parts]).plus_us(stepper.profile.overhead_us)
    # The last of the longest chunks has the most tokens in its cache.
    return every.grouped(groups, len(chunks)), [max(parts, key=lambda call: call[1:]) for parts in chunks]


def mixed(stepper: Stepper, chunks: Sequence[Sizes], decodes: Sequence[Sizes]) -> Times:
    """Steps that compute a chunk of the prompt of one request beside the decodes of the others, without overhead.

    What depends on tokens alone is computed for both together; attention is a kernel for each of the two.
    """
    others = [(batch - 1, drafted, cache) for batch, drafted, cache in decodes]
    together = [
        (1, new + batch * drafted, cache) for (_, new, cache), (batch, drafted, _) in zip(chunks, others, strict=True)
    ]
    rest = stepper.times(together, without=ATTENTION)
    beside = stepper.times([(max(1, batch), *call) for batch, *call in others], ATTENTION)
    return rest + stepper.times(chunks, ATTENTION) + beside * np.array([float(batch > 0) for batch, *_ in others])


def rounds(
    stepper: Stepper, workloads: Sequence[Workload], running: Sequence[int], prefill: Times
) -> tuple[Times, Times, Times]:
    """Prompts that are computed together, several in a step: mean wait of a request, time of all, the longest step.

    ``prefill``: of one request of each workload, which a prompt of several steps has to itself.
    """
    full, last, several = [], [], []
    weights = []
    for one, run in zip(workloads, running, strict=True):
        new = one.isl - one.cached
        together = max(1, min(run, one.max_num_batched_tokens // new))
        steps, rest = divmod(run, together)
        several.append(new <= one.max_num_batched_tokens)
        full.append((together, min(new, one.max_num_batched_tokens), one.cached))
        last.append((max(rest, 1), *full[-1][1:]))
        # Requests of the j-th full step wait for the full steps after it, and for the last one where there is a rest.
        waits = together * steps * (steps - 1) / 2 / run
        weights.append((waits, together * steps / run if rest else 0.0, steps, float(rest > 0)))
    each, rest_of_all, steps_of_all, has_rest = np.array(weights, dtype=float).T
    overhead = stepper.profile.overhead_us
    packed = np.array(several)
    step, rest_step = stepper.times(full).plus_us(overhead), stepper.times(last).plus_us(overhead)
    whole = step * packed + prefill * ~packed
    wait = whole * each + rest_step * rest_of_all
    return wait, whole * steps_of_all + rest_step * has_rest, step
