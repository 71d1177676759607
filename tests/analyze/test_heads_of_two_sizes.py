"""Layers of two kinds whose heads have two sizes: figures of whole models are those of execution."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evaluation import evaluate_analysis
from executed import executed_model
from lmp.analyze.modules import load_for_evaluation
from lmp.analyze.session import Options

CLASS = "transformers.models.gemma4.modeling_gemma4.Gemma4ForCausalLM"

GEMMA: dict[str, Any] = {
    "model_type": "gemma4_text", "vocab_size": 331, "hidden_size": 88, "intermediate_size": 104,
    "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 20, "global_head_dim": 44, "sliding_window": 19,
    "num_hidden_layers": 3, "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
    "vocab_size_per_layer_input": 173, "hidden_size_per_layer_input": 12, "max_position_embeddings": 2048,
}  # fmt: skip

EXPERTS: dict[str, Any] = {
    "attention_k_eq_v": True, "num_global_key_value_heads": 1, "hidden_size_per_layer_input": 0,
    "enable_moe_block": True, "num_experts": 10, "top_k_experts": 3, "moe_intermediate_size": 24,
}  # fmt: skip
"""Full layers with one head for keys and values together, and experts beside each MLP. Their sizes are multiples of 8,
which PyTorch asks for."""


@pytest.mark.parametrize(
    "changed", [pytest.param({}, id="dense", marks=pytest.mark.long), pytest.param(EXPERTS, id="experts")]
)
def test_heads_of_two_sizes(
    changed: dict[str, Any], default_family: None, tmp_path: Path, transformers_tree: Path
) -> None:
    content = {**GEMMA, **changed}
    file = tmp_path / "tiny.json"
    file.write_text(json.dumps(content))
    options = Options(results=tmp_path, config_file=file)
    analysis, lookup = load_for_evaluation(CLASS, options, lambda c, s: None)
    assert analysis.verification.status == "verified"
    for batch, new, cached in ((3, 14, 0), (1, 57, 0), (2, 1, 45), (2, 1, 9), (1, 6, 30)):
        sizes = {"batch_size": batch, "seq_len": new, "cache_len": cached}
        got = evaluate_analysis(analysis, lookup, sizes).totals
        assert (got.flops, got.read, got.write) == executed_model(CLASS, content, **sizes), sizes
