"""Facts of a small Llama: enough of a model for every section, small enough to work out by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lmp.pipeline.module import Options
from lmp.report.devices import device_named
from lmp.report.facts import ModelFacts
from lmp.report.gathering import gather

CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}


def facts_of(name: str, content: dict[str, object], folder: Path) -> ModelFacts:
    config = folder / "small.json"
    config.write_text(json.dumps(content))
    options = Options(folder / "results", config_file=config)
    return gather(name, options, lambda *_: None, device_named("H100"))


@pytest.fixture(scope="session")
def small_llama(transformers_tree: Path, tmp_path_factory: pytest.TempPathFactory) -> ModelFacts:
    name = "transformers.models.llama.modeling_llama.LlamaForCausalLM"
    return facts_of(name, CONFIG, tmp_path_factory.mktemp("small-llama"))


LATENT = {
    "model_type": "deepseek_v3",
    "architectures": ["DeepseekV3ForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 96,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 3,
    "first_k_dense_replace": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "n_routed_experts": 16,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 4,
    "topk_group": 2,
    "q_lora_rank": 24,
    "kv_lora_rank": 20,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "vocab_size": 1000,
    "max_position_embeddings": 65536,
    "tie_word_embeddings": False,
}


@pytest.fixture(scope="session")
def small_latent(transformers_tree: Path, tmp_path_factory: pytest.TempPathFactory) -> ModelFacts:
    """A cache that is expanded in every step, and experts: one dense layer and two with experts."""
    name = "transformers.models.deepseek_v3.modeling_deepseek_v3.DeepseekV3ForCausalLM"
    return facts_of(name, LATENT, tmp_path_factory.mktemp("small-latent"))


SMALL = {"small_llama", "small_latent", "small_mixture"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Small models take a minute to analyse: one test process does it, for all tests that ask for one."""
    for item in items:
        if SMALL & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.xdist_group("small models"))
