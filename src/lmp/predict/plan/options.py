"""What each layout serves at each batch that fits, and which of them no other one beats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from lmp.errors import UsageError, first_line
from lmp.predict.plan.layouts import Layout
from lmp.predict.plan.limits import Limits
from lmp.predict.prediction import Total

MOST_BATCH = 1024
"""Most requests of one replica at once: the largest default of vLLM's ``max_num_seqs``."""


@dataclass(frozen=True)
class Fit:
    """Memory of a layout on the GPU with the least room."""

    layout: Layout
    most: int
    """Requests of the whole length that one replica holds at once; 0: it does not fit."""
    weights: Fraction
    """Bytes on a GPU."""
    total: Fraction
    """Bytes that the engine may take of a GPU."""
    free: Fraction
    """Bytes left for the cache; negative where even the weights do not fit."""


@dataclass(frozen=True)
class Reply:
    """What one replica does with so many requests at once. Microseconds, with 80 % intervals."""

    tpot: Total
    ttft: Total
    """Of a request on an idle replica."""
    tokens_per_s: Total
    """Of one replica."""


@dataclass(frozen=True)
class Option:
    """A layout at one batch."""

    layout: Layout
    batch: int
    """Requests of one replica at once."""
    fit: Fit
    reply: Reply

    @property
    def per_user(self) -> float:
        """Tokens a second of one request."""
        return 1e6 / self.reply.tpot[0]

    @property
    def per_gpu(self) -> float:
        """Tokens a second of all requests, divided by GPUs."""
        return self.reply.tokens_per_s[0] / self.layout.gpus

    @property
    def tokens_per_s(self) -> float:
        """Of all replicas."""
        return self.reply.tokens_per_s[0] * self.layout.replicas

    def meets(self, limits: Limits) -> bool:
        """Whether the predicted times, not the ends of their intervals, are within the limits."""
        return self.excess(limits) <= 1.0

    def excess(self, limits: Limits) -> float:
        """The largest quotient of a time and its limit; 0 without limits."""
        pairs = ((self.reply.tpot[0], limits.tpot), (self.reply.ttft[0], limits.ttft))
        return max((time / limit for time, limit in pairs if limit is not None), default=0.0)


Serve = Callable[[Layout, Sequence[int]], Sequence[Reply]]
"""A layout and batches of a replica -> what it does with each."""


STEPS = 4
"""Batches that are tried from one power of two to the next."""


def batches(most: int) -> list[int]:
    """All up to 8, then four for each doubling, and the largest."""
    last = min(most, MOST_BATCH)
    tried = {2**power * (STEPS + step) // STEPS for power in range(last.bit_length()) for step in range(STEPS)}
    return sorted({one for one in tried if one < last} | {last}) if last > 0 else []


@dataclass(frozen=True)
class Considered:
    """Every layout that was looked at."""

    fits: tuple[Fit, ...]
    refused: Mapping[Layout, str]
    """Layouts over which the model's own operators do not divide, with the reasons."""


def options(fits: Sequence[Fit], serve: Serve, batch: int | None = None) -> tuple[list[Option], Considered]:
    """Every layout that fits, at every batch that fits, or at one. Raises what ``serve`` raises, except UsageError."""
    found: list[Option] = []
    refused: dict[Layout, str] = {}
    for fit in fits:
        sizes = batches(fit.most) if batch is None else [batch] * (batch <= fit.most)
        try:
            replies = serve(fit.layout, sizes) if sizes else []
        except UsageError as error:
            refused[fit.layout] = first_line(error)
            continue
        found += [Option(fit.layout, size, fit, reply) for size, reply in zip(sizes, replies, strict=True)]
    return found, Considered(tuple(fits), refused)


def front(found: Sequence[Option]) -> list[Option]:
    """Those than which no other one has more tokens/s per user and as many per GPU, or the reverse; fastest first."""
    kept: list[Option] = []
    for one in sorted(found, key=lambda one: (-one.per_user, -one.per_gpu, one.layout)):
        if not kept or one.per_gpu > kept[-1].per_gpu:
            kept.append(one)
    return kept


def nearest(found: Sequence[Option], limits: Limits) -> Option:
    """The option that exceeds the limits least."""
    return min(found, key=lambda one: (one.excess(limits), one.layout, one.batch))


def best(found: Sequence[Option], limits: Limits) -> Option | None:
    """The most tokens/s per GPU within the limits; the smaller group where two are equal. None if none is within."""
    within = [one for one in found if one.meets(limits)]
    return max(within, key=lambda one: (one.per_gpu, -one.layout.gpus, -one.batch), default=None)
