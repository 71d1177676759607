"""What arrives at a server: requests of one form, how many at once, and how they arrive."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

MOST = 2**24
"""Most tokens of a request, and most requests at once."""
Tokens = Annotated[int, Field(ge=1, le=MOST)]


class Workload(BaseModel):
    """Requests of one form, so many at once on one replica."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    isl: Tokens
    """Tokens of the prompt."""
    osl: Annotated[int, Field(ge=2, le=MOST)]
    """Tokens of the answer: the first comes of the prefill, the others of decode steps."""
    concurrency: Annotated[int, Field(ge=1, le=MOST)]
    """Requests in flight."""
    stream: Literal["steady", "wave"] = "steady"
    """``steady``: each finished request is followed by another, whose prefill delays the others. ``wave``: none is."""
    prefix: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = 0.0
    """Part of the prompt whose keys and values are in the cache already, 0 to below 1."""
    max_num_batched_tokens: Tokens = 8192
    """Most new tokens of one step: a longer prompt is taken in chunks."""
    speculative_tokens: Annotated[int, Field(ge=0, le=1024)] = 0
    """Tokens that a draft proposes for each step; 0: no speculation."""
    acceptance: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    """Chance that a proposed token is taken, each by itself."""
    draft_us: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] = 0.0
    """Microseconds that the draft takes for one step, as the user states them."""

    @model_validator(mode="after")
    def fits(self) -> Workload:
        if self.speculative_tokens and self.acceptance is None:
            raise ValueError("speculative tokens need an acceptance, the chance that one is taken")
        if not self.speculative_tokens and (self.acceptance is not None or self.draft_us):
            raise ValueError("acceptance and draft_us are of speculative decoding: give speculative_tokens too")
        return self

    @property
    def cached(self) -> int:
        """Tokens of the prompt that are in the cache. At least one token is computed: its logits make the answer."""
        return min(int(self.prefix * self.isl), self.isl - 1)

    @property
    def context(self) -> int:
        """Mean tokens in the cache of a request that is decoding."""
        return self.isl + self.osl // 2

    @property
    def tokens_a_step(self) -> float:
        """Expected tokens of one decode step: 1 + A + ... + A^K, as each is taken only after those before it."""
        if self.acceptance is None:
            return 1.0
        return math.fsum(self.acceptance**taken for taken in range(self.speculative_tokens + 1))

    def chunks(self) -> list[tuple[int, int, int]]:
        """Calls of the prefill of one request: one sequence, new tokens, tokens in its cache."""
        starts = range(self.cached, self.isl, self.max_num_batched_tokens)
        return [(1, min(self.max_num_batched_tokens, self.isl - start), start) for start in starts]
