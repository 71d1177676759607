"""Bytes of a model's parameters on each GPU under tensor parallelism: by the class's own plan, else in even parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from lmp.observe.held import Held, KeptLayer, Weight

Share = Callable[[Weight], Fraction]

DIVIDED = frozenset(
    {
        "colwise",
        "colwise_gather_output",
        "colwise_rep",
        "embedding_rowwise",
        "packed_colwise",
        "packed_rowwise",
        "rowwise",
        "rowwise_split_input",
        "grouped_gemm",
    }
)
"""Styles of transformers' plans that give each GPU a part of the weight."""
ROWS = frozenset({"rowwise", "rowwise_split_input"})
"""Styles that divide the inputs: a bias is added once, so each GPU has it whole."""
KV = ("k_proj", "v_proj")
ENGINE_PLAN: Mapping[str, str] = {
    **dict.fromkeys(
        ("q_proj", "k_proj", "v_proj", "qkv_proj", "qkv", "wqkv", "query_key_value", "q_b_proj", "kv_b_proj",
         "gate_proj", "up_proj", "gate_up_proj", "fc1", "w1", "w3", "c_fc", "in_proj", "in_proj_qkv", "in_proj_qkvz",
         "in_proj_z", "in_proj_b", "in_proj_a", "in_proj_ba", "linear_1", "embed_tokens", "lm_head", "conv1d"),
        "colwise",
    ),
    **dict.fromkeys(("o_proj", "out_proj", "down_proj", "fc2", "w2", "c_proj", "linear_2"), "rowwise"),
}  # fmt: skip
"""Name of a module -> how serving engines divide it: heads and inner sizes, and the vocabulary."""


def whole(_: Weight) -> Fraction:
    """The share on a single GPU."""
    return Fraction(1)


def share_by_plan(held: Held, tp: int) -> tuple[Share, str]:
    """The part of a weight on each GPU by the class's own plan, else even; and which of the two, in words."""
    if tp == 1:
        return whole, "one GPU"
    if not held.plan:
        return lambda _: Fraction(1, tp), "even: the class has no plan"
    heads = _kv_rows(held.kept)
    return lambda weight: _share(weight, _style(held.plan, weight), tp, heads), "the class's own plan"


def share_by_engine(held: Held, tp: int) -> Share:
    """The part of a weight on each GPU as serving engines divide it: the class's plan and the usual layers."""
    if tp == 1:
        return whole
    heads = _kv_rows(held.kept)

    def share(weight: Weight) -> Fraction:
        *_, parent, name = ("", *weight.path.split("."))
        usual = "packed_colwise" if name == "experts" else ENGINE_PLAN.get(name)
        # Some towers wrap each linear layer in a module.
        usual = ENGINE_PLAN.get(parent) if usual is None and name == "linear" else usual
        return _share(weight, usual or _style(held.plan, weight), tp, heads)

    return share


def kv_heads_on_one(heads: int, tp: int) -> int:
    """KV heads of each GPU: each has at least one, so that some are held more than once."""
    return max(1, -(-heads // tp))


def _kv_rows(kept: Sequence[KeptLayer]) -> dict[int, int]:
    """Rows of a key projection -> KV heads."""
    return {layer.elements // 2: layer.heads for layer in kept if layer.heads}


def _style(plan: Mapping[str, str], weight: Weight) -> str | None:
    path = re.sub(r"\.\d+(?=\.|$)", ".*", weight.path)
    return plan.get(f"{path}.{weight.name}", plan.get(path))


def _share(weight: Weight, style: str | None, tp: int, heads: Mapping[int, int]) -> Fraction:
    if style not in DIVIDED or (style in ROWS and weight.name == "bias"):
        return Fraction(1)
    if weight.path.rpartition(".")[2] in KV and weight.shape[0] in heads:
        count = heads[weight.shape[0]]
        return Fraction(kv_heads_on_one(count, tp), count)
    return Fraction(1, tp)
