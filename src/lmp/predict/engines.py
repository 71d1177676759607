"""What a serving engine allocates beside weights and cache: its profile run, its libraries, its padding.

The profile is vLLM's of the 0.19 line. Sizes come from what its code allocates; three constants come from logged runs
(``memory_truth.csv``, H100) and are marked so.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from lmp.link.quantisation import is_experts
from lmp.observe.held import Held, Live, Weight
from lmp.predict.devices import Device
from lmp.predict.sharding import Share

GIB = 2**30
MIB = 2**20

ENGINES = ("vllm",)
VERSION = "0.19"
"""Since 0.21 the engine subtracts CUDA graphs from the cache too."""

LIBRARIES = 40 * MIB
"""Workspaces of cuBLAS and of kernels, in PyTorch's memory. From the logged runs: 37 to 43 MiB remain unexplained."""
NON_TORCH = {1: Fraction("0.25"), 2: Fraction("2.07"), 4: Fraction("2.13"), 8: Fraction("2.19")}
"""GPUs of a tensor-parallel group -> GiB that PyTorch does not see: CUDA modules, NCCL and its buffers.

Of 1, 2 and 4 the median of the logged runs; of 8 the step from 2 to 4 once more.
"""
NON_TORCH_EARLIER = Fraction("0.07")
"""The same on a stage of a pipeline that is not the last: of two logged runs."""
HIDDEN_FROM_DRIVER = Fraction("0.46") * GIB
"""Memory that the driver shows and PyTorch does not: 79.65 GiB of an H100 are 79.19 in the logged runs."""

VOCABULARY = 64
"""The vocabulary is padded to a multiple of this."""
LATENT_WORKSPACE = 64 * 1024
"""Most tokens for which chunked latent attention prepares keys and values."""
SEGMENT, SMALL_SEGMENT, SMALL = 2 * MIB, 10 * MIB, MIB
"""PyTorch's allocator: large blocks come in steps of 2 MiB from 10 MiB on, and a rest up to 1 MiB is not split off."""

FUSED = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj"), "qkv"),
    **dict.fromkeys(("gate_proj", "up_proj"), "gate_up"),
    **dict.fromkeys(("q_a_proj", "kv_a_proj_with_mqa"), "qkv_a"),
}
"""Projections of one input that the engine holds as one tensor."""


@dataclass(frozen=True)
class Settings:
    """What the engine is started with."""

    utilization: Fraction = Fraction(9, 10)
    max_num_seqs: int = 1024
    max_num_batched_tokens: int = 8192
    max_model_len: int = 8192
    quantization: str | None = None
    """``fp8``: linear layers are quantised while they are loaded."""


def total_memory(device: Device) -> Fraction:
    """Bytes that PyTorch reports: the driver's, less what the driver keeps."""
    if device.visible_memory is None:
        return Fraction(device.memory)
    return device.visible_memory - HIDDEN_FROM_DRIVER


def non_torch(tp: int, last: bool = True) -> Fraction:
    """Bytes outside of PyTorch on each GPU. ``last``: whether its stage has the sampler."""
    if tp == 1 and not last:
        return NON_TORCH_EARLIER * GIB
    return NON_TORCH[min((size for size in NON_TORCH if size >= tp), default=max(NON_TORCH))] * GIB


# --- weights ---------------------------------------------------------------------------------------------------------


def loaded_bytes(held: Held, weights: list[Weight], share: Share) -> dict[str, Fraction]:
    """Bytes after loading, by part: weights, rotary tables, copies for latent attention, and the allocator's rests."""
    tensors: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
    copies = Fraction(0)
    for weight in weights:
        own = weight.stored * share(weight)
        parent, _, name = weight.path.rpartition(".")
        tensors[parent, f"{FUSED.get(name, name)}.{weight.name}"] += own
        if name == "kv_b_proj":
            # Decoding multiplies by its two halves one after the other, each in a layout of its own.
            copies += weight.bytes * share(weight)
    return {
        "weights": sum(tensors.values(), Fraction(0)),
        "rotary_tables": Fraction(rotary_bytes(held)),
        "latent_copies": copies,
        "allocator": Fraction(sum(map(rest_of, tensors.values()))),
    }


def rest_of(size: Fraction) -> int:
    """Bytes that PyTorch's allocator gives beyond the size, because so small a rest is not split off."""
    if size < SMALL_SEGMENT:
        return 0
    rest = -math.ceil(size) % SEGMENT
    return rest if rest <= SMALL else 0


def rotary_bytes(held: Held) -> int:
    """Cosines and sines of every position: one table for each kind of rotation, none for a model without."""
    config = held.config
    stated = config.get("rope_parameters") or {}
    if not stated:
        return 0
    kinds = [kind for kind in stated.values() if isinstance(kind, Mapping)] or [stated]
    positions = int(config.get("max_position_embeddings") or 0)
    latent = config.get("kv_lora_rank") is not None
    heads = config.get("num_attention_heads") or 1
    width = config.get("qk_rope_head_dim") if latent else config.get("head_dim")
    width = width or int(config.get("hidden_size") or 0) // heads
    # The kernel of latent attention takes its table in float32.
    size = 4 if latent else held.element_size
    return sum(int(_rotated(kind, positions) * width * kind.get("partial_rotary_factor", 1)) * size for kind in kinds)


def _rotated(kind: Mapping[str, object], positions: int) -> int:
    """Positions of a table: scaled ones are worked out ahead."""
    factor = kind.get("factor")
    if kind.get("rope_type") in ("linear", "dynamic") and isinstance(factor, int | float):
        return int(positions * factor)
    original = kind.get("original_max_position_embeddings")
    if kind.get("rope_type") == "yarn" and isinstance(factor, int | float) and isinstance(original, int):
        return int(original * factor)
    return positions


# --- activations -----------------------------------------------------------------------------------------------------


def activation_parts(
    held: Held, device: Device, settings: Settings, tp: int, live: Callable[[], Live | None], last: bool = True
) -> dict[str, dict[str, Fraction]]:
    """Live bytes at the two moments that may be the peak of the profile run, by part: the layers, and the sampler.

    ``live`` is the peak of one call at the chunk, from the model's own runs. ``last``: this GPU has the sampler.
    """
    tokens, size = settings.max_num_batched_tokens, held.element_size
    hidden = Fraction(int(held.config["hidden_size"]) * size)
    mixture = mixture_bytes(held, tokens, tp)
    images = {"images": image_bytes(held, tokens)} if held.vision is not None else {}
    common = {"libraries": Fraction(LIBRARIES), "expert_workspaces": mixture, **images}
    layers = {**common, "layers": _layers(held, tokens, tp, live)}
    if not last:
        # What goes to the next stage: the hidden states and the residual.
        return {"layers": {**layers, "next_stage": 2 * tokens * hidden}}
    rows = min(settings.max_num_seqs, tokens)
    vocabulary = -(-int(held.config["vocab_size"]) // VOCABULARY) * VOCABULARY
    sampler = {
        **common,
        "hidden_states": (tokens + rows) * hidden,
        # In the model's dtype, in float32, as probabilities, and the noise that they are divided by.
        "logits": Fraction(rows * vocabulary * (size + 3 * 4)),
        # One row of the vocabulary for each multiprocessor, in which top-k and top-p are found.
        "top_p_rows": Fraction(device.sms * vocabulary * 4),
    }
    return {"layers": layers, "sampler": sampler}


def _layers(held: Held, tokens: int, tp: int, live: Callable[[], Live | None]) -> Fraction:
    """The peak inside of layers. An engine runs experts and latent attention in another way than the class does."""
    size, config = held.element_size, held.config
    hidden = int(config["hidden_size"])
    latent = Fraction(0)
    if config.get("kv_lora_rank") is not None:
        width = int(config.get("qk_nope_head_dim") or 0) + int(config.get("v_head_dim") or 0)
        latent = Fraction(LATENT_WORKSPACE * -(-int(config["num_attention_heads"]) // tp) * width * size)
    if not has_experts(held):
        found = live()
        if found is not None:
            return max(Fraction(found.bytes), latent + 3 * tokens * hidden * size)
    inner = -(-int(config.get("intermediate_size") or hidden) // tp)
    return max(Fraction(tokens * (3 * hidden + 3 * inner) * size), latent + 3 * tokens * hidden * size)


def has_experts(held: Held) -> bool:
    """Whether the model has stacks of experts' weights."""
    return any(is_experts(weight.path) and len(weight.shape) > 2 for weight in held.weights)


def mixture_bytes(held: Held, tokens: int, tp: int) -> Fraction:
    """The two workspaces of the fused experts, which stay allocated: a row for each token and chosen expert."""
    chosen = next((held.config[name] for name in CHOSEN if isinstance(held.config.get(name), int)), None)
    if chosen is None or not has_experts(held):
        return Fraction(0)
    hidden = int(held.config["hidden_size"])
    inner = int(next(held.config[name] for name in INNER if isinstance(held.config.get(name), int)))
    inner = -(-inner // tp)
    widths = max(inner, hidden) + max(2 * inner, hidden)
    return Fraction(tokens * chosen * widths * held.element_size)


CHOSEN = ("num_experts_per_tok", "top_k_experts", "moe_topk", "num_experts_per_token")
INNER = ("moe_intermediate_size", "intermediate_size")


def image_bytes(held: Held, tokens: int) -> Fraction:
    """Pixels of as many images as the budget of tokens has, and what the encoder makes of them."""
    vision = held.vision or {}
    patch = int(_one(vision.get("patch_size")) or 14)
    side = _one(vision.get("image_size"))
    merge = int(vision.get("spatial_merge_size") or 1)
    if side is None:
        count, of_each = tokens, 1
        side = patch * merge
    else:
        ratio = Fraction(str(vision.get("pixel_shuffle_ratio") or 1)) ** 2
        of_each = int(vision.get("mm_tokens_per_image") or (int(side) // (patch * merge)) ** 2 * ratio)
        count = max(1, tokens // max(1, of_each))
    pixels = count * 3 * int(side) ** 2
    return Fraction((pixels + count * of_each * int(held.config["hidden_size"])) * held.element_size)


def _one(value: object) -> int | None:
    value = value[0] if isinstance(value, list | tuple) and value else value
    return value if isinstance(value, int) else None
