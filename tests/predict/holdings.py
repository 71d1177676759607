"""A small model as plain numbers: what `lmp.observe.holding` would find."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from lmp.observe.held import Held, KeptLayer, Live, Weight

LINEAR = "torch.nn.modules.linear.Linear"


def weight(path: str, *shape: int, name: str = "weight", size: int = 2) -> Weight:
    whole = size
    for length in shape:
        whole *= length
    return Weight(path, name, LINEAR, shape, size, Fraction(whole), len(shape) > 1)


def kept(layers: range, heads: int = 2, elements: int = 16, window: int | None = None, state: int = 0) -> KeptLayer:
    return KeptLayer(tuple(layers), heads, elements, window, 0, state)


def held(**changed: Any) -> Held:
    """Two layers of 8 hidden values with 4 heads of 4, 2 KV heads, 16 inner values, and 64 words."""
    weights = [weight("model.embed_tokens", 64, 8)]
    for layer in range(2):
        at = f"model.layers.{layer}"
        weights += [
            weight(f"{at}.self_attn.q_proj", 16, 8),
            weight(f"{at}.self_attn.k_proj", 8, 8),
            weight(f"{at}.self_attn.v_proj", 8, 8),
            weight(f"{at}.self_attn.o_proj", 8, 16),
            weight(f"{at}.self_attn.o_proj", 8, name="bias"),
            weight(f"{at}.mlp.up_proj", 16, 8),
            weight(f"{at}.mlp.down_proj", 8, 16),
            weight(f"{at}.norm", 8),
        ]
    weights += [weight("model.norm", 8), weight("lm_head", 64, 8)]
    config = {
        "hidden_size": 8, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 16,
        "vocab_size": 64, "max_position_embeddings": 1024, "head_dim": 4,
    }  # fmt: skip
    plan = {
        "model.layers.*.self_attn.q_proj": "colwise",
        "model.layers.*.self_attn.k_proj": "colwise",
        "model.layers.*.self_attn.v_proj": "colwise",
        "model.layers.*.self_attn.o_proj": "rowwise",
        "model.layers.*.mlp.up_proj": "colwise",
        "model.layers.*.mlp.down_proj": "rowwise",
    }
    made = Held(
        "a.Model", "bfloat16", 2, None, tuple(weights), (kept(range(2)),), None, "", plan, config, None, (), live,
    )  # fmt: skip
    return replace(made, **changed)


def live(tokens: int, sizes: Mapping[str, int]) -> Live | str:
    """100 bytes a token, and one for each pair of tokens, as eager attention has."""
    return Live(100 * tokens + tokens**2, "mul", ())
