"""A config.json becomes the config of a model, or one line that says what is wrong with it."""

from __future__ import annotations

from typing import Any

import pytest

from lmp.errors import UsageError
from lmp.workload.load import load_class
from lmp.workload.parent_models import config_from

pytestmark = pytest.mark.usefixtures("transformers_tree")

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
    "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 3, "vocab_size": 101,
}  # fmt: skip
GPT_OSS = {
    "model_type": "gpt_oss", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "num_hidden_layers": 2, "num_local_experts": 8, "num_experts_per_tok": 2,
}  # fmt: skip


def of(name: str, content: dict[str, Any]) -> Any:
    family = content.get("family", "llama")
    return config_from(load_class(f"transformers.models.{family}.modeling_{family}.{name}"), content)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"num_attention_heads": 7}, "hidden size (64) is not a multiple of the number of attention heads (7)"),
        ({"num_attention_heads": 8, "num_key_value_heads": 3}, "num_attention_heads = 8 is not a multiple of num_key_"),
        ({"hidden_size": 0}, "hidden_size = 0, which must be positive"),
        ({"vocab_size": -5}, "vocab_size = -5, which must be positive"),
        ({"num_hidden_layers": -1}, "num_hidden_layers = -1, which must be positive"),
        ({"head_dim": -8}, "head_dim = -8, which must not be negative"),
        ({"hidden_size": "64"}, "'hidden_size' expected int, got str"),
        ({"hidden_size": 64.5}, "'hidden_size' expected int, got float"),
        ({"intermediate_size": True}, "'intermediate_size' expected int, got bool"),
        ({"num_attention_heads": None}, "'num_attention_heads' expected int, got NoneType"),
    ],
)
def test_contradictions(change: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError) as caught:
        of("LlamaMLP", {**LLAMA, **change})
    assert why in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 2


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            {"layer_types": ["full_attention"] * 3},
            "`num_hidden_layers` (2) must be equal to the number of `layer_types`",
        ),
        ({"layer_types": ["sideways", "full_attention"]}, "`layer_types` entries must be in"),
        ({"num_experts_per_tok": 9}, "num_experts_per_tok = 9 is more than num_local_experts = 8"),
    ],
)
def test_contradictions_of_layers_and_experts(change: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError) as caught:
        of("GptOssMLP", {"family": "gpt_oss", **GPT_OSS, **change})
    assert why in str(caught.value)


def test_heads_that_transformers_does_not_divide_by() -> None:
    """Mistral takes 66 // 4 = 16 for a head and says nothing: then 4 * 16 = 64 of 66 columns are used."""
    mistral = {**LLAMA, "family": "mistral", "model_type": "mistral", "hidden_size": 66}
    with pytest.raises(UsageError, match="hidden_size = 66 is not a multiple of num_attention_heads = 4"):
        of("MistralMLP", mistral)
    assert of("MistralMLP", {**mistral, "head_dim": 16}).head_dim == 16


def test_names_of_the_model_s_own() -> None:
    content = {"family": "gpt2", "model_type": "gpt2", "n_embd": 64, "n_head": 7}
    with pytest.raises(UsageError, match="n_embd = 64 is not a multiple of n_head = 7"):
        of("GPT2MLP", content)


def test_another_model_s_config() -> None:
    with pytest.raises(UsageError, match="the config is of model_type 'gpt_oss', but LlamaMLP belongs to llama"):
        of("LlamaMLP", GPT_OSS)


def test_a_model_type_of_its_own_for_known_classes() -> None:
    config = of("LlamaMLP", {**LLAMA, "model_type": "kimi"})
    assert (type(config).__name__, config.hidden_size) == ("LlamaConfig", 64)
    with pytest.raises(UsageError, match="model_type 'kimi'"):
        of("LlamaMLP", {**LLAMA, "model_type": "kimi", "architectures": ["GptOssForCausalLM"]})


def test_parts_of_a_multimodal_config() -> None:
    text = {"model_type": "llama4_text", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
    whole = {"family": "llama4", "model_type": "llama4", "text_config": text}
    assert type(of("Llama4ForConditionalGeneration", whole)).__name__ == "Llama4Config"
    config = of("Llama4TextModel", whole)
    assert (type(config).__name__, config.hidden_size) == ("Llama4TextConfig", 64)
    with pytest.raises(
        UsageError, match=r"text_config\.num_attention_heads = 4 is not a multiple of text_config\.num_key"
    ):
        of("Llama4ForConditionalGeneration", {**whole, "text_config": {**text, "num_key_value_heads": 3}})


def test_heads_whose_size_differs_between_layers() -> None:
    from transformers import Gemma4ForCausalLM

    # The config has no single head_dim, but it has one for each layer: 70 need not be a multiple of 4 heads.
    content = {
        "model_type": "gemma4_text", "hidden_size": 70, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 12, "global_head_dim": 20, "num_hidden_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"],
    }  # fmt: skip
    assert config_from(Gemma4ForCausalLM, content).hidden_size == 70
    with pytest.raises(UsageError, match="num_attention_heads = 4 is not a multiple of num_key_value_heads = 3"):
        config_from(Gemma4ForCausalLM, {**content, "num_key_value_heads": 3})
