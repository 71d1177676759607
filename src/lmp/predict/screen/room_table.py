"""Memory of a call as tables and formulas, so that a page works out at any batch and length what `room` does.

Weights and reserve are numbers of each tp. The cache is a formula in batch, tokens and ``kv_bytes``. Activations
without an engine are those of calls that were looked at: a straight line between two is never below what is alive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from lmp.formula import Expr, Number, number_text, parse
from lmp.observe.held import Held
from lmp.predict.cache_blocks import ALIKE, BLOCK, KvKind
from lmp.predict.devices import Device
from lmp.predict.engines import Settings, total_memory
from lmp.predict.memory import TP_SIZES, Asked, Stage, divides, heads_of, lives, stages_of
from lmp.predict.quantising import narrowed

APART = (Fraction(10**9 + 7), Fraction(10**9 + 9))
"""Bytes of an element from which a line through two points is found: no two kinds of layers are alike at both."""
TOKENS = "max(1, {seq_len} + {cache_len})"
"""Tokens of a sequence after the call, as `room` counts them."""


@dataclass(frozen=True)
class OfTp:
    """One GPU of a tensor-parallel group."""

    tp: int
    divides: bool
    """Whether the attention heads divide over the GPUs."""
    weights: Mapping[str, tuple[Fraction, Fraction]]
    """Bytes of an element -> bytes of the weights, without an engine and with one. Empty text: as they are stored."""
    activations: tuple[Fraction, ...]
    """Without an engine, of calls of each of the lengths."""
    serving: Mapping[str, Fraction]
    """Device -> an engine's activations."""
    reserve: Fraction
    cache: Expr
    """Bytes of all sequences."""
    token: Expr
    """Bytes that one token more adds to one sequence."""
    block: Expr | None
    """Bytes of an engine's block; None: it keeps nothing."""
    request: Expr | None
    """Blocks of one sequence."""


@dataclass(frozen=True)
class RoomTable:
    """Memory of a model on several devices."""

    lengths: tuple[int, ...]
    """New tokens of the calls whose activations are known, rising."""
    gpus: tuple[OfTp, ...]
    totals: Mapping[str, Fraction]
    """Device -> bytes that it offers."""
    utilization: Fraction
    """Part of it that an engine takes."""
    most_batch: int
    """An engine's own allocations are those of at most so many sequences."""


def room_table(
    held: Callable[[int], Held | str],
    devices: Sequence[Device],
    widths: Sequence[Number],
    lengths: Sequence[int],
    sizes: Sequence[int] = TP_SIZES,
    eager: Callable[[Held], Held] = lambda held: held,
) -> RoomTable | str:
    """Memory on devices, with matrices of so many bytes an element; or why it is not known.

    ``held``: what the model holds, of each tp, or why that is not known: a tp that does not divide it is left out.
    ``eager``: the same of a call without an engine, which may return logits of every position.
    """
    gpus = []
    for tp in sizes:
        its = held(tp)
        if not isinstance(its, str):
            gpus.append(_of_tp((its, eager(its)), tp, devices, widths, lengths))
        elif tp == 1:
            return its
    settings = Settings()
    totals = {device.name: total_memory(device) for device in devices}
    return RoomTable(tuple(lengths), tuple(gpus), totals, settings.utilization, settings.max_num_seqs)


def _of_tp(
    helds: tuple[Held, Held], tp: int, devices: Sequence[Device], widths: Sequence[Number], lengths: Sequence[int]
) -> OfTp:
    held, eager = helds
    first = devices[0]
    live = {False: lives(eager, False), True: lives(held, True)}

    def stage(device: Device, engine: bool, width: Number | None = None, **more: Any) -> Stage:
        wanted = Asked(tp=tp, engine=Settings() if engine else None, **{"chunk": 1, **more})
        return stages_of(narrowed(held, width), device, wanted, live[engine])[0]

    stored = {"": None, **{number_text(width): width for width in widths}}
    kinds = [stage(first, False, kv_bytes=size).kinds for size in APART]
    cache = [_Kind(one, other) for one, other in zip(*kinds, strict=True)]
    own = [one for one in cache if one.grows or one.kind.state_bytes]
    weights = {text: (stage(first, False, width).weight_bytes, stage(first, True, width).weight_bytes)
               for text, width in stored.items()}  # fmt: skip
    return OfTp(
        tp=tp,
        divides=divides(tp, *heads_of(held)),
        weights=weights,
        activations=tuple(stage(first, False, chunk=length).activation_bytes for length in lengths),
        serving={device.name: stage(device, True).activation_bytes for device in devices},
        reserve=stage(first, False).reserve,
        cache=parse(f"{{batch_size}} * ({_sum(one.bytes(TOKENS) for one in cache)})"),
        token=parse(_sum(one.token(TOKENS) for one in cache)),
        block=parse(_block(own)) if own else None,
        request=parse(_request(own)) if own else None,
    )


def _sum(parts: Iterator[str]) -> str:
    return " + ".join(parts) or "0"


@dataclass(frozen=True)
class _Kind:
    """Layers that keep alike, with the bytes of a token as a line in the bytes of an element."""

    kind: KvKind
    other: KvKind

    @property
    def line(self) -> tuple[Fraction, Fraction]:
        """Bytes of a token that grow with those of an element, and that do not."""
        low, high = APART
        slope = (self.other.token_bytes - self.kind.token_bytes) / (high - low)
        return slope, self.kind.token_bytes - slope * low

    @property
    def grows(self) -> bool:
        return self.kind.token_bytes != 0

    @property
    def each(self) -> str:
        """Formula of the bytes of a token in one layer."""
        slope, rest = self.line
        return f"({_text(slope)} * {{kv_bytes}} + {_text(rest)})"

    def bytes(self, tokens: str) -> str:
        """Formula of the bytes of one sequence."""
        window = self.kind.window
        seen = tokens if window is None else f"min({tokens}, {window})"
        return f"{self.kind.layers} * ({self.each} * {seen} + {self.kind.state_bytes})"

    def token(self, tokens: str) -> str:
        """Formula of what one token more adds."""
        window = self.kind.window
        more = "1" if window is None else f"(min({tokens} + 1, {window}) - min({tokens}, {window}))"
        return f"{self.kind.layers} * {self.each} * {more}"


def _text(value: Fraction) -> str:
    return f"({value.numerator} / {value.denominator})" if value.denominator > 1 else str(value.numerator)


# --- blocks: as `lmp.predict.cache_blocks.blocks_of` divides the cache ---


def _page(kinds: Sequence[_Kind]) -> str:
    """Formula of the bytes of one layer of a block: a block of attention is made so long that it holds a state."""
    growing = [one for one in kinds if one.grows]
    state = max(one.kind.state_bytes for one in kinds)
    if not growing:
        return str(state)
    page = f"max({', '.join(['0', *(f'{BLOCK} * {one.each}' for one in growing)])})"
    return f"where({state} > {page}, {page} * ceil({state} / {page}), {page})"


def _group(kinds: Sequence[_Kind]) -> int:
    """Layers of a group."""
    counts = [one.kind.layers for one in kinds]
    return max(counts) if max(counts) < ALIKE * min(counts) else min(counts)


def _block(kinds: Sequence[_Kind]) -> str:
    return f"{_page(kinds)} * {_group(kinds)}"


def _request(kinds: Sequence[_Kind]) -> str:
    page, size, batched = _page(kinds), _group(kinds), Settings().max_num_batched_tokens
    parts = []
    for one in kinds:
        groups = -(-one.kind.layers // size)
        if not one.grows:
            parts.append(str(groups))
            continue
        length, window = f"floor({page} / {one.each})", one.kind.window
        blocks = f"ceil({TOKENS} / {length})"
        if one.kind.kind == "window" and window is not None:
            blocks = f"(ceil(min({window} - 1 + {batched}, {TOKENS}) / {length}) + 1)"
        elif one.kind.kind == "chunk" and window is not None:
            blocks = f"ceil(min({window} + {batched}, {TOKENS}) / {length})"
        parts.append(f"{groups} * {blocks}")
    return " + ".join(parts)
