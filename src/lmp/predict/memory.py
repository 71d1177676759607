"""Memory of a model on a device: weights, cache, activations and reserve on each GPU, and what of it fits.

Without an engine, the model runs as its class does: on one chunk of a prompt at a time, or on a whole batch. With an
engine, the engine's own allocations are worked out as it would log them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from lmp.errors import UsageError
from lmp.observe.held import Held, Live, Weight
from lmp.predict.cache_blocks import Blocks, KvKind, blocks_of, kv_kinds
from lmp.predict.devices import Device
from lmp.predict.engines import (
    GIB,
    Settings,
    activation_parts,
    has_experts,
    loaded_bytes,
    non_torch,
    total_memory,
)
from lmp.predict.quantising import narrowed
from lmp.predict.shard.stages import stage_layers
from lmp.predict.sharding import Share, share_by_engine, share_by_plan

TP_SIZES = (1, 2, 4, 8, 16, 32, 64)
"""Sizes of a tensor-parallel group that are tried."""
LONGEST = 2**40
"""Tokens beyond which no context is looked for."""
_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)(?:\.|$)")


@dataclass(frozen=True)
class Asked:
    """What is to fit."""

    tp: int = 1
    pp: int = 1
    batch_size: int | None = None
    cache_len: int | None = None
    """Tokens of each sequence. None with an engine and a batch: the longest sequence that the engine takes."""
    kv_bytes: Fraction | None = None
    """Bytes of an element of the cache; None: those of the model's dtype."""
    chunk: int = 8192
    """Tokens of one call without an engine: of each of its sequences."""
    engine: Settings | None = None
    whole_batch: bool = False
    """Whether a call without an engine has all sequences at once. If not, one prompt runs at a time."""

    @property
    def length(self) -> int | None:
        """Tokens of each sequence that is to fit; None: no length was asked for."""
        if self.cache_len is None and self.batch_size is not None and self.engine is not None:
            return self.engine.max_model_len
        return self.cache_len


@dataclass(frozen=True)
class Stage:
    """One GPU of a stage of the pipeline: bytes by part."""

    layers: range
    weights: Mapping[str, Fraction]
    kinds: tuple[KvKind, ...]
    activations: Mapping[str, Mapping[str, Fraction]]
    """By the moment that may be the peak."""
    reserve: Fraction
    blocks: Blocks | None
    available: Fraction
    """Bytes left for the cache."""
    each_more: Fraction = Fraction(0)
    """Bytes of activations of each sequence after the first of one call."""

    @property
    def weight_bytes(self) -> Fraction:
        return sum(self.weights.values(), Fraction(0))

    @property
    def peak(self) -> str:
        """The moment that is the peak."""
        return max(self.activations, key=lambda name: sum(self.activations[name].values()))

    @property
    def activation_bytes(self) -> Fraction:
        return sum(self.activations[self.peak].values(), Fraction(0))

    def cache_bytes(self, batch: int, tokens: int) -> Fraction:
        """Bytes of so many sequences of so many tokens."""
        return batch * sum((kind.bytes(tokens) for kind in self.kinds), Fraction(0))

    def batch_bytes(self, batch: int, tokens: int) -> Fraction:
        """Cache of so many sequences of so many tokens, and the activations of those after the first."""
        return self.cache_bytes(batch, tokens) + max(0, batch - 1) * self.each_more

    @property
    def kv_tokens(self) -> int:
        """Tokens as the engine logs them: blocks over groups."""
        return self.blocks.count(self.available) // self.blocks.groups * self.blocks.tokens if self.blocks else 0

    @property
    def concurrency(self) -> float:
        """Requests of the longest length at once."""
        return self.blocks.count(self.available) / self.blocks.request if self.blocks else 0.0


@dataclass(frozen=True)
class Memory:
    """What fits, on the GPU that has the least room."""

    asked: Asked
    total: Fraction
    stages: tuple[Stage, ...]
    sharding: str
    """How weights are divided, in words."""
    largest_batch: int | None
    """Sequences of the asked length; None without one."""
    largest_context: int | None
    """Tokens of each of ``batch_size`` sequences, at most the model's positions; None if the cache does not grow."""
    fits: bool
    smallest_tp: int | None
    warnings: tuple[str, ...]

    @property
    def stage(self) -> Stage:
        """The stage with the least room for the cache, in sequences of one length."""
        return min(self.stages, key=lambda stage: _room(stage))


def _room(stage: Stage) -> Fraction:
    each = stage.cache_bytes(1, 4096)
    return stage.available / each if each else stage.available


def memory(held: Held, device: Device, asked: Asked) -> Memory:
    """Memory of the model on each GPU, what is the most that fits, and on how few GPUs. Raises UsageError."""
    _check(held, device, asked)
    _refuse_heads(held, asked.tp)
    live = lives(held, asked.engine is not None)
    found = _memory(held, device, asked, live)
    return replace(found, smallest_tp=_smallest(held, device, asked, live, found))


def _check(held: Held, device: Device, asked: Asked) -> None:
    if asked.engine is not None and asked.engine.quantization == "fp8":
        device.peak("fp8")
    if asked.engine is not None:
        missing = [name for name in ("hidden_size", "vocab_size") if not isinstance(held.config.get(name), int)]
        if missing:
            raise UsageError(f"the config states no {missing[0]}\nleave out --engine: the class's own run needs none")
    layers = _layer_count(held)
    if asked.pp > 1 and layers < asked.pp:
        raise UsageError(f"--pp {asked.pp} is more than the {layers} layers\ngive fewer stages")


def _refuse_heads(held: Held, tp: int) -> None:
    heads, kept = heads_of(held)
    if not isinstance(heads, int) or divides(tp, heads, kept):
        return
    allowed = ", ".join(str(size) for size in range(1, heads + 1) if divides(size, heads, kept))
    what = f"the {heads} attention heads" if heads % tp else f"the {kept} KV heads"
    raise UsageError(f"--tp {tp} does not divide {what}\nallowed are {allowed}")


def heads_of(held: Held) -> tuple[object, object]:
    """Attention heads and KV heads, as the config states them."""
    return held.config.get("num_attention_heads"), held.config.get("num_key_value_heads")


def divides(tp: int, heads: object, kept: object) -> bool:
    """Whether each GPU has as many heads as any other; KV heads are repeated where there are more GPUs than these.

    One GPU always has. So has each of several where the config states no heads.
    """
    if tp == 1 or not isinstance(heads, int):
        return True
    return heads % tp == 0 and (not isinstance(kept, int) or kept < 1 or kept % tp == 0 or tp % kept == 0)


def _memory(held: Held, device: Device, asked: Asked, live: Callable[[int, int], Live | str]) -> Memory:
    warnings = [*held.warnings]
    total = total_memory(device)
    if held.reason is not None:
        warnings.append(f"what it keeps between calls is not known: {held.reason}")
    told = live(_tokens(asked), asked.tp) if _needs_run(held, asked) else None
    if isinstance(told, str):
        warnings.append(f"activations are worked out from sizes alone: {told}")
    if "fp8" in (held.quantised or "") and "fp8" not in device.dense:
        warnings.append(f"{device.name} has no fp8 products: its kernels widen the weights first")
    warnings += _beyond(held, asked)
    made, sharding = _stages(held, device, asked, live)
    result = Memory(asked, total, made, sharding, None, None, False, None, tuple(warnings))
    return replace(
        result,
        largest_batch=_largest_batch(result),
        largest_context=_largest_context(result, held.config.get("max_position_embeddings")),
        fits=_fits(asked, made),
    )


def _needs_run(held: Held, asked: Asked) -> bool:
    """Whether a call of the class tells the activations. An engine's own fused experts are known by their sizes."""
    return asked.engine is None or not has_experts(held)


Lives = Callable[[int, int], Live | str]
"""Tokens and tp -> the peak of one call; or why it is not known."""


def lives(held: Held, serving: bool) -> Lives:
    """Peaks of a model's calls, each worked out once."""
    return functools.cache(functools.partial(_live, held, serving))


def stages_of(held: Held, device: Device, asked: Asked, live: Lives) -> tuple[Stage, ...]:
    """One GPU of each stage, without what fits on it. Raises UsageError."""
    _check(held, device, asked)
    return _stages(held, device, asked, live)[0]


def _stages(held: Held, device: Device, asked: Asked, live: Lives) -> tuple[tuple[Stage, ...], str]:
    """One GPU of each stage, and how weights are divided, in words."""
    if asked.engine is not None and asked.engine.quantization == "fp8":
        held = narrowed(held, 1)
    share, sharding = share_by_plan(held, asked.tp)
    if asked.engine is not None and asked.tp > 1:
        share, sharding = share_by_engine(held, asked.tp), "as the engine divides layers"
    return tuple(_stage(held, device, asked, share, (number, live)) for number in range(asked.pp)), sharding


def _beyond(held: Held, asked: Asked) -> Iterator[str]:
    positions = held.config.get("max_position_embeddings")
    longest = max(asked.cache_len or 0, asked.engine.max_model_len if asked.engine is not None else 0)
    if isinstance(positions, int) and longest > positions:
        yield f"{longest:,} tokens are more than the {positions:,} positions of the model"


def _tokens(asked: Asked) -> int:
    return asked.engine.max_num_batched_tokens if asked.engine is not None else asked.chunk


INNER_SIZES = ("intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size")


SHORT = (128, 256)
"""Tokens of the calls from which an engine's activations are extended: scores of all pairs are small then."""


def _live(held: Held, serving: bool, tokens: int, tp: int) -> Live | str:
    """The peak of one call of the class, inner sizes divided; or why it is not known.

    An engine's attention never has the scores of all pairs. Its activations grow evenly with the tokens.
    """
    sizes = {name: held.config.get(name) for name in INNER_SIZES}
    divided = {name: max(1, size // tp) for name, size in sizes.items() if isinstance(size, int) and size}
    given = divided if tp > 1 else {}
    if not serving or tokens <= SHORT[1]:
        return held.live(tokens, given)
    few, many = (held.live(short, given) for short in SHORT)
    if isinstance(few, str) or isinstance(many, str):
        return few if isinstance(few, str) else str(many)
    grown = Fraction(many.bytes - few.bytes, SHORT[1] - SHORT[0])
    return replace(many, bytes=round(many.bytes + grown * (tokens - SHORT[1])))


# --- one stage -------------------------------------------------------------------------------------------------------


def _layer_count(held: Held) -> int:
    found = held.config.get("num_hidden_layers")
    return found if isinstance(found, int) else 0


def _of_stage(weights: Sequence[Weight], layers: range, first: bool, last: bool) -> list[Weight]:
    """The weights on the GPUs of one stage: the embedding is on the first, and the head on the last."""
    if first and last:
        return list(weights)
    tied = not any(weight.path.rpartition(".")[2] == "lm_head" for weight in weights)
    found = []
    for weight in weights:
        number = None if "vision" in weight.path else _LAYER.search(weight.path)
        if number is not None:
            here = int(number[1]) in layers
        elif "embed" in weight.path and "vision" not in weight.path:
            here = first or (last and tied)
        else:
            here = first if "vision" in weight.path else last
        if here:
            found.append(weight)
    return found


def _stage(
    held: Held,
    device: Device,
    asked: Asked,
    share: Share,
    place: tuple[int, Callable[[int, int], Live | str]],
) -> Stage:
    number, live = place
    first, last = number == 0, number == asked.pp - 1
    layers = stage_layers(_layer_count(held), asked.pp, number)
    weights = _of_stage(held.weights, layers, first, last)
    kv_bytes = asked.kv_bytes if asked.kv_bytes is not None else Fraction(held.element_size)
    kinds = tuple(kv_kinds(held, asked.tp, kv_bytes, layers if asked.pp > 1 else None))
    told = live(_tokens(asked), asked.tp) if _needs_run(held, asked) else None
    seen = told if isinstance(told, Live) else None
    total, reserve = total_memory(device), non_torch(asked.tp, last)
    parts: Mapping[str, Fraction]
    if asked.engine is None:
        parts = {"weights": sum((w.stored * share(w) for w in weights), Fraction(0))}
        peaks = {"layers": {"live": Fraction(seen.bytes) if seen else _least(held, asked.chunk)}}
        room, blocks = total, None
    else:
        parts = loaded_bytes(held, weights, share)
        peaks = activation_parts(held, device, asked.engine, asked.tp, lambda: seen, last)
        room = total * asked.engine.utilization
        blocks = blocks_of(kinds, asked.engine.max_model_len, asked.engine.max_num_batched_tokens)
    more = sum(peaks["layers"].values(), Fraction(0)) if asked.engine is None and asked.whole_batch else Fraction(0)
    made = Stage(layers, parts, kinds, peaks, reserve, blocks, Fraction(0), more)
    return replace(made, available=room - made.weight_bytes - made.activation_bytes - reserve)


def _least(held: Held, tokens: int) -> Fraction:
    """Activations of a model that does not run: residual, input and inner values of one layer."""
    hidden = held.config.get("hidden_size")
    inner = held.config.get("intermediate_size") or hidden
    if not isinstance(hidden, int) or not isinstance(inner, int):
        raise UsageError("the config states no hidden_size, and the model does not run\nits activations are not known")
    return Fraction(tokens * (3 * hidden + 3 * inner) * held.element_size)


# --- what fits -------------------------------------------------------------------------------------------------------


def _fits(asked: Asked, stages: Sequence[Stage]) -> bool:
    """Whether every stage has room for the asked sequences; with an engine also for one of the longest length."""
    engine, tokens = asked.engine, asked.length
    for stage in stages:
        if stage.available < 0:
            return False
        if engine is not None and stage.blocks is not None and stage.concurrency < 1:
            return False
        if tokens is not None and not _has_room(engine, stage, asked.batch_size or 1, tokens):
            return False
    return True


def _has_room(engine: Settings | None, stage: Stage, batch: int, tokens: int) -> bool:
    if engine is None or stage.blocks is None:
        return stage.available >= stage.batch_bytes(batch, tokens)
    own = blocks_of(stage.kinds, tokens, engine.max_num_batched_tokens)
    assert own is not None
    return stage.blocks.count(stage.available) >= batch * own.request


def _largest_batch(found: Memory) -> int | None:
    tokens = found.asked.length
    if tokens is None or not any(stage.cache_bytes(1, tokens) or stage.each_more for stage in found.stages):
        return None
    return min(_most(lambda n, s=stage: _has_room(found.asked.engine, s, n, tokens)) for stage in found.stages)  # type: ignore[misc]


def _largest_context(found: Memory, positions: object) -> int | None:
    batch = found.asked.batch_size or 1
    if not any(kind.token_bytes and kind.window is None for stage in found.stages for kind in stage.kinds):
        return None
    most = min(_most(lambda n, s=stage: _has_room(found.asked.engine, s, batch, n)) for stage in found.stages)  # type: ignore[misc]
    return min(most, positions) if isinstance(positions, int) else most


def _most(holds: Callable[[int], bool]) -> int:
    """The largest number for which it holds, which is so for all smaller ones; 0 if for none."""
    if not holds(1):
        return 0
    low, high = 1, 2
    while high < LONGEST and holds(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _smallest(
    held: Held, device: Device, asked: Asked, live: Callable[[int, int], Live | str], found: Memory
) -> int | None:
    for tp in TP_SIZES:
        if not divides(tp, *heads_of(held)):
            continue
        other = replace(asked, tp=tp)
        if found.fits if tp == asked.tp else _fits(other, _stages(held, device, other, live)[0]):
            return tp
    return None


# --- as JSON ---------------------------------------------------------------------------------------------------------


def as_json(held: Held, device: Device, found: Memory) -> dict[str, object]:
    """What ``lmp memory --json`` prints: GiB on the GPU with the least room, and how they are made up."""
    stage, asked = found.stage, found.asked
    batch, tokens = asked.batch_size or 1, asked.cache_len
    engine = asked.engine
    kept = stage.available if engine is not None else stage.cache_bytes(batch, tokens or 0)
    token = stage.blocks.token_bytes if stage.blocks is not None else sum(k.layers * k.token_bytes for k in stage.kinds)
    return {
        "class_name": held.class_name,
        "device": device.name,
        "tp": asked.tp,
        "pp": asked.pp,
        "weights_gib": _gib(stage.weight_bytes),
        "kv_bytes_per_token": _plain(token),
        "activation_gib": _gib(stage.activation_bytes),
        "non_torch_gib": _gib(stage.reserve),
        "kv_gib": _gib(kept),
        "kv_tokens": stage.kv_tokens if engine is not None else batch * (tokens or 0),
        "max_concurrency": stage.concurrency if engine is not None else found.largest_batch,
        "fits": found.fits,
        "largest_batch": found.largest_batch,
        "largest_context": found.largest_context,
        "smallest_tp": found.smallest_tp,
        "total_gib": _gib(found.total),
        "breakdown": {
            "sharding": found.sharding,
            "weights": {name: _gib(size) for name, size in stage.weights.items()},
            "kv": [kind_json(kind) for kind in stage.kinds],
            "activations": {
                moment: {name: _gib(size) for name, size in parts.items()}
                for moment, parts in stage.activations.items()
            },
            "peak": stage.peak,
            "reserve": _gib(stage.reserve),
            "stages": [
                {"layers": [s.layers.start, s.layers.stop], "weights_gib": _gib(s.weight_bytes),
                 "activation_gib": _gib(s.activation_bytes), "kv_gib": _gib(s.available), "kv_tokens": s.kv_tokens}
                for s in found.stages
            ] if asked.pp > 1 else [],
        },
        "warnings": list(found.warnings),
    }  # fmt: skip


def kind_json(kind: KvKind) -> dict[str, object]:
    """One kind of layers on one GPU."""
    return {
        "kind": kind.kind,
        "layers": kind.layers,
        "kv_heads": kind.heads,
        "bytes_per_token": _plain(kind.token_bytes),
        "window": kind.window,
        "state_bytes": kind.state_bytes,
    }


def _gib(size: Fraction) -> float:
    return float(size / GIB)


def _plain(value: Fraction | int) -> int | float:
    return int(value) if value == int(value) else float(value)
