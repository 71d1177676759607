"""What a model keeps for its sequences: bytes by kind of layer, and the blocks in which an engine allocates them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from lmp.observe.held import Held, KeptLayer
from lmp.predict.sharding import kv_heads_on_one

BLOCK = 16
"""Tokens of a block."""
ALIKE = 1.25
"""Kinds of layers whose numbers differ by less than this are padded to the most, not divided into groups."""


@dataclass(frozen=True)
class KvKind:
    """Layers that keep alike, on one GPU."""

    kind: str
    """attention, window, chunk, latent, recurrent, or whole: all layers of the model together."""
    layers: int
    heads: int
    """KV heads on this GPU."""
    token_bytes: Fraction
    """Of one layer."""
    window: int | None
    state_bytes: int
    """Of one layer and sequence: what does not grow."""

    def bytes(self, tokens: int) -> Fraction:
        """Bytes of one sequence of so many tokens, all layers of this kind."""
        seen = tokens if self.window is None else min(tokens, self.window)
        return self.layers * (self.token_bytes * seen + self.state_bytes)


def kv_kinds(held: Held, tp: int, kv_bytes: Fraction, layers: range | None = None) -> list[KvKind]:
    """The kinds of layers on one GPU. ``layers`` are those of a pipeline's stage; None is all of them."""
    found: dict[tuple[str, int, Fraction, int | None, int], int] = {}
    for kept in held.kept:
        count = len(kept.indices) if layers is None else sum(index in layers for index in kept.indices)
        if count and (kept.elements or kept.other_bytes or kept.state_bytes):
            key = _kind(held, kept, tp, kv_bytes)
            found[key] = found.get(key, 0) + count
    return [KvKind(kind, count, *rest) for (kind, *rest), count in found.items()]  # type: ignore[arg-type]


def _kind(held: Held, kept: KeptLayer, tp: int, kv_bytes: Fraction) -> tuple[str, int, Fraction, int | None, int]:
    state = -(-kept.state_bytes // tp)
    other = Fraction(kept.other_bytes)
    latent, rope = held.config.get("kv_lora_rank"), held.config.get("qk_rope_head_dim")
    if kept.heads and isinstance(latent, int) and isinstance(rope, int):
        # Engines keep the latent that keys and values of all heads are made of: each GPU has it whole.
        return "latent", 1, (latent + rope) * kv_bytes + other, kept.window, state
    if kept.heads:
        heads = kv_heads_on_one(kept.heads, tp)
        kind = "attention" if kept.window is None else "window"
        if kept.window is not None and kept.window == held.config.get("attention_chunk_size"):
            kind = "chunk"
        return kind, heads, Fraction(kept.elements * heads, kept.heads) * kv_bytes + other, kept.window, state
    if other:
        return "whole", 0, other, None, kept.state_bytes
    return "recurrent", 0, other, None, state


@dataclass(frozen=True)
class Blocks:
    """How an engine divides its cache: every block is of one layer of each group, and all have the same size."""

    block_bytes: Fraction
    """Of one block: so many bytes for each layer of a group."""
    groups: int
    tokens: int
    """Of a block of attention."""
    token_bytes: Fraction
    """Bytes of a token when each group has it: what the log's GiB divided by its tokens is."""
    request: int
    """Blocks that a request of the longest length may need."""

    def count(self, available: Fraction) -> int:
        """Blocks in so many bytes."""
        return max(0, int(available // self.block_bytes))


def blocks_of(kinds: Sequence[KvKind], longest: int, batched: int) -> Blocks | None:
    """The blocks for requests of ``longest`` tokens, of which ``batched`` are computed at once. None: no cache."""
    kinds = [kind for kind in kinds if kind.token_bytes or kind.state_bytes]
    if not kinds:
        return None
    growing = [kind for kind in kinds if kind.token_bytes]
    page = max((BLOCK * kind.token_bytes for kind in growing), default=Fraction(0))
    state = max(kind.state_bytes for kind in kinds)
    if state > page:
        # The block of attention is made so long that it holds a state.
        page = page * -(-state // page) if page else Fraction(state)
    counts = [kind.layers for kind in kinds]
    size = max(counts) if max(counts) < ALIKE * min(counts) else min(counts)
    groups, request, tokens = 0, 0, 0
    for kind in kinds:
        own = -(-kind.layers // size)
        groups += own
        if not kind.token_bytes:
            request += own
            continue
        length = int(page // kind.token_bytes)
        tokens = max(tokens, length)
        request += own * _blocks(kind, length, longest, batched)
    tokens = tokens or longest
    return Blocks(page * size, groups, tokens, page * size * groups / tokens, request)


def _blocks(kind: KvKind, length: int, longest: int, batched: int) -> int:
    """Blocks of one layer for a request: of a window, what is computed at once beside what it looks back to."""
    if kind.kind == "window" and kind.window is not None:
        return -(-min(kind.window - 1 + batched, longest) // length) + 1
    if kind.kind == "chunk" and kind.window is not None:
        return -(-min(kind.window + batched, longest) // length)
    return -(-longest // length)
