"""Records of the answer card: what a call takes on a device, as ``--json`` writes it."""

from __future__ import annotations

from pydantic import Field

from lmp.link.records import Evaluation
from lmp.records import Record


class Estimate(Record):
    """A predicted figure with its 80 % interval."""

    value: float
    low: float
    high: float


class CardMemory(Record):
    """Bytes on each GPU; of a pipeline, on the GPU with the least room."""

    held: int = Field(description="weights, KV cache after the call, activations and reserve")
    total: int = Field(description="what the device offers; of it, the part that a serving engine takes")
    weights: int
    kv: int
    fits: bool
    kv_a_token: int = Field(description="bytes that one token more adds to the cache of one sequence")
    smallest_tp: int | None = Field(description="GPUs that share each layer on which it fits; null: on none up to 64")
    largest_batch: int | None = Field(description="sequences of this length that fit; null where no cache grows")


class CardRun(Record):
    """One way to run the call. What is not known is null, and its reason says why."""

    engine: str = Field(description="eager: each operator of the class is a kernel; else the profile of an engine")
    serving: bool
    step_us: Estimate | None
    tokens_per_s: Estimate | None
    tokens: int | None = Field(description="new tokens of the call, in all sequences")
    bound: str | None = Field(description="launch (the host starts kernels), compute, memory, link, or latency")
    kernels: int | None
    kernels_us: Estimate | None
    host_us: Estimate | None = Field(description="the host starts all kernels in this time; null where graphs hide it")
    provenance: dict[str, float] = Field(description="part of the time by where it is from, the largest first")
    reason: str | None = Field(description="why there is no time")
    memory: CardMemory | None
    memory_reason: str | None = Field(description="why memory is not known")


class Card(Record):
    """What a call takes on a device: eager and serving side by side."""

    device: str
    label: str
    gpus: int
    tp: int
    ep: int
    pp: int
    runs: list[CardRun]
    notes: list[str] = Field(description="what the reader has to know, one sentence each")


class ExpertsRead(Record):
    """Experts whose weights a product over experts is counted to read: the most that the call's tokens reach.

    Routing may read fewer, where tokens share experts.
    """

    experts: int
    read: int
    tokens: int


class Answered(Evaluation):
    """The cost of one ``forward()`` at one point, exact; with a device, what it takes there."""

    experts_read: list[ExpertsRead] = Field(
        default=[], description="of products over experts in calls of several tokens; not there without any"
    )
    card: Card | None = Field(default=None, description="with --device; not there without it")
