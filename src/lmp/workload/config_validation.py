"""Config validation: detects configs that contradict themselves but that transformers accepts.

It checks only attributes that configs have in common, under their standard names (after ``attribute_map``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

POSITIVE = frozenset(
    {
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "num_hidden_layers",
        "num_key_value_heads",
        "vocab_size",
    }
)
NOT_NEGATIVE = ("_dim", "_experts", "_heads", "_hidden_layers", "_intermediate_size", "_rank")
"""Endings of names that are sizes in every config. Other fields use negative numbers as markers."""

HEAD_SIZES = ("head_dim", "qk_head_dim", "qk_nope_head_dim", "attention_head_size", "kv_channels")
"""If one of these is set, ``hidden_size`` need not be a multiple of the number of heads."""

EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
CHOSEN = ("num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_k", "moe_topk", "moe_top_k")


def contradiction(config: Any, content: Mapping[str, Any]) -> str | None:
    """The first contradiction in ``content``, with fields and values, or None. ``config`` was made from it.

    A contradiction between a class's defaults does not count if the content sets none of them.
    """
    return next(_contradictions(config, content), None)


def _contradictions(config: Any, content: Mapping[str, Any], path: str = "") -> Iterator[str]:
    own_names = dict(getattr(config, "attribute_map", {}) or {})
    standard = {own: name for name, own in own_names.items()}
    stated = {standard.get(key, key): key for key in content}

    def value(name: str) -> int | None:
        found = None if differs(name) else getattr(config, name, None)
        return found if type(found) is int else None

    def differs(name: str) -> bool:
        """True for a size that differs between layers: the config refuses to give a single value."""
        try:
            getattr(config, name, None)
        except Exception:
            return True
        return False

    def shown(name: str) -> str:
        return f"{path}{stated.get(name, name)} = {value(name)}"

    for name, key in stated.items():
        found = content[key]
        if type(found) is not int:
            continue
        if name in POSITIVE and found <= 0:
            yield f"{path}{key} = {found}, which must be positive"
        if name.endswith(NOT_NEGATIVE) and found < 0:
            yield f"{path}{key} = {found}, which must not be negative"
    hidden, heads, shared = (value(n) for n in ("hidden_size", "num_attention_heads", "num_key_value_heads"))
    if hidden and heads and {"hidden_size", "num_attention_heads"} & set(stated) and hidden % heads:
        given = [
            value(n) or differs(n)
            for n in HEAD_SIZES
            if not (n == "head_dim" and n not in stated and value(n) == hidden // heads)
        ]
        if not any(given):
            yield f"{shown('hidden_size')} is not a multiple of {shown('num_attention_heads')}"
    if heads and shared and {"num_attention_heads", "num_key_value_heads"} & set(stated) and heads % shared:
        yield f"{shown('num_attention_heads')} is not a multiple of {shown('num_key_value_heads')}"
    for chosen in (n for n in CHOSEN if n in stated):
        for experts in (n for n in EXPERTS if n in stated):
            if (value(chosen) or 0) > (value(experts) or 0) > 0:
                yield f"{shown(chosen)} is more than {shown(experts)}"
    for key, part in content.items():
        if isinstance(part, Mapping) and hasattr(getattr(config, key, None), "model_type"):
            yield from _contradictions(getattr(config, key), part, f"{path}{key}.")
