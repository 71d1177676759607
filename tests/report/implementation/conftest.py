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


@pytest.fixture(scope="session")
def small_llama(transformers_tree: Path, tmp_path_factory: pytest.TempPathFactory) -> ModelFacts:
    folder = tmp_path_factory.mktemp("small-llama")
    config = folder / "small.json"
    config.write_text(json.dumps(CONFIG))
    options = Options(folder / "results", config_file=config)
    name = "transformers.models.llama.modeling_llama.LlamaForCausalLM"
    return gather(name, options, lambda *_: None, device_named("H100"))
