"""Configs that ended with a traceback: each is analysed, and its figures are those of execution."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evaluation import evaluate_analysis
from executed import executed_model
from lmp.analyze.modules import load_for_evaluation
from lmp.analyze.session import Options

FALCON: dict[str, Any] = {
    "model_type": "falcon", "vocab_size": 211, "hidden_size": 96, "num_attention_heads": 4, "num_kv_heads": 2,
    "num_hidden_layers": 2, "alibi": False, "multi_query": True, "parallel_attn": True, "bias": False,
    "new_decoder_architecture": True, "num_ln_in_parallel_attn": 2,
}  # fmt: skip
"""Its forward() has no branch for 3 norms: lmp tries that value, and the source leaves a variable unbound."""

MINIMAX: dict[str, Any] = {
    "model_type": "minimax_m3_vl_text", "vocab_size": 307, "hidden_size": 72, "intermediate_size": 56,
    "dense_intermediate_size": 88, "shared_intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "rotary_dim": 8, "num_experts_per_tok": 2, "num_local_experts": 6,
    "index_n_heads": 2, "index_head_dim": 16, "index_block_size": 32, "index_topk_blocks": 3,
    "max_position_embeddings": 2048, "mlp_layer_types": ["dense", "sparse"],
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
}  # fmt: skip
"""The base class of its file takes one of two configs."""


@pytest.mark.parametrize(
    ("family", "name", "content"),
    [
        ("falcon", "FalconForCausalLM", FALCON),
        pytest.param("minimax_m3_vl", "MiniMaxM3VLForCausalLM", MINIMAX, marks=pytest.mark.long),
    ],
)
def test_it_is_analysed(
    family: str, name: str, content: dict[str, Any], default_family: None, tmp_path: Path, transformers_tree: Path
) -> None:
    class_path = f"transformers.models.{family}.modeling_{family}.{name}"
    file = tmp_path / "tiny.json"
    file.write_text(json.dumps(content))
    options = Options(results=tmp_path, config_file=file)
    analysis, lookup = load_for_evaluation(class_path, options, lambda c, s: None)
    assert analysis.verification.status == "verified"
    for sizes in ({"batch_size": 3, "seq_len": 14}, {"batch_size": 2, "seq_len": 1, "cache_len": 45}):
        got = evaluate_analysis(analysis, lookup, sizes).totals
        assert (got.flops, got.read, got.write) == executed_model(class_path, content, **sizes)
