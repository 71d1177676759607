"""Configs that are made consistent: general rules, each on a default of transformers that needs it."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lmp.errors import InconsistentDefault


@pytest.fixture
def mended(transformers_tree: Path) -> Callable[[str, str], tuple[Any, tuple[str, ...]]]:
    from lmp.workload.config_repair import consistent
    from lmp.workload.load import quiet_warnings

    def mend(model: str, name: str) -> tuple[Any, tuple[str, ...]]:
        module = importlib.import_module(f"transformers.models.{model}.modeling_{model}")
        with quiet_warnings():
            return consistent(getattr(module, name))

    return mend


def test_nothing_is_changed_where_the_model_runs(mended: Any) -> None:
    config, told = mended("llama", "LlamaForCausalLM")
    assert told == ()
    assert config.to_dict() == type(config)().to_dict()


def test_an_absent_size_follows_from_others(mended: Any) -> None:
    config, told = mended("ministral", "MinistralForCausalLM")
    assert told == ("head_dim = hidden_size / num_heads = 128 (was None)",)  # 4096 / 32
    assert config.head_dim == 128


def test_only_what_it_takes_is_changed(mended: Any) -> None:
    # The model makes its key/value heads from None; head_dim it has.
    _, told = mended("nemotron", "NemotronForCausalLM")
    assert told == ("num_key_value_heads = num_heads = 48 (was None)",)


def test_a_list_of_layers_has_every_kind_that_the_source_names(mended: Any) -> None:
    config, (told,) = mended("lfm2_moe", "Lfm2MoeForCausalLM")
    assert told.startswith("layer_types = conv, full_attention in turn (was None")
    assert config.layer_types[:4] == ["conv", "full_attention"] * 2
    assert len(config.layer_types) == config.num_hidden_layers


def test_rotary_parameters_by_kind_of_layer(mended: Any) -> None:
    config, _ = mended("cohere_compass", "CohereCompassForCausalLM")
    assert config.rope_parameters["full_attention"]["rope_theta"] == 10_000.0


def test_a_size_is_rounded_up_to_what_the_operator_takes(mended: Any) -> None:
    # Rows of the grouped product are multiples of 16 bytes: 8 elements of bfloat16. 1408 = 176 * 8 > 1407.
    config, told = mended("deepseek_v2", "DeepseekV2ForCausalLM")
    assert config.moe_intermediate_size == 1408
    assert any(t.startswith("moe_intermediate_size = 1408 (was 1407: modeling_deepseek_v2.py:") for t in told)


def test_sections_of_rotary_positions_make_up_all_of_them(mended: Any) -> None:
    # The source's own sections 8 + 12 + 12 = 32 are those of half a head; a head of 128 has 64 frequencies: twice each.
    config, (told,) = mended("glm4v", "Glm4vTextModel")
    assert config.rope_parameters["mrope_section"] == [16, 24, 24]
    assert told.startswith("rope_parameters.mrope_section = [16, 24, 24] (was left out")


def test_ids_that_are_compared_with_nothing_are_the_first_token(mended: Any, default_family: None) -> None:
    config, told = mended("instructblip", "InstructBlipModel")
    assert config.image_token_id == 0
    assert any(text.startswith("image_token_") and text.endswith("(was None; the first token)") for text in told)


def test_what_no_rule_mends_is_said_with_its_line(mended: Any) -> None:
    with pytest.raises(InconsistentDefault, match=r"producing a cache.*configuration_gemma4_unified\.py:\d+"):
        mended("gemma4_unified_assistant", "Gemma4UnifiedAssistantForCausalLM")


def test_the_config_can_be_written_and_read_again(mended: Any) -> None:
    config, _ = mended("dots1", "Dots1ForCausalLM")
    again = type(config).from_dict(config.to_dict())
    assert (again.n_routed_experts, again.num_experts_per_tok) == (8, 2)
