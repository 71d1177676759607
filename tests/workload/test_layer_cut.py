"""Which layers of a model are left: enough that it runs in every phase, in its own places where it takes that."""

from __future__ import annotations

import contextlib
import importlib
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def workload(transformers_tree: Path) -> Any:
    from lmp.workload.load import quiet_warnings
    from lmp.workload.model import ModelWorkload

    def make(model: str, name: str, **config: Any) -> Any:
        module = importlib.import_module(f"transformers.models.{model}.modeling_{model}")
        cls = getattr(module, name)
        with quiet_warnings():
            return ModelWorkload(cls, cls.config_class(**config))

    return make


def decodes(workload: Any) -> None:
    point = {**workload.hints, "batch_size": 2, "seq_len": 1, "cache_len": 5}
    workload.run(workload.build(point), point, contextlib.nullcontext())


def test_weights_that_layers_share_need_a_second_such_layer(workload: Any) -> None:
    # Hybrid layers are the third and the eighth: 3 + i for the first i with i % 6 == 4, counted from 1.
    found = workload("zamba", "ZambaForCausalLM")
    assert 8 <= found.hints["num_hidden_layers"] < 76
    assert not found.in_order
    decodes(found)


def test_places_that_follow_from_a_list_of_kinds_are_cut_with_it(workload: Any) -> None:
    # The first hybrid layer is the seventh: 1 + 5 recurrent ones before it.
    found = workload("zamba2", "Zamba2ForCausalLM")
    assert found.hints["num_hidden_layers"] == 7
    decodes(found)


def test_a_last_layer_of_its_own_kind_leaves_one_of_those_between(workload: Any) -> None:
    # RepMixer blocks are the first and the last of 12: two layers are both, the third is of the other kind.
    found = workload("sam3_lite_text", "Sam3LiteTextTextModel")
    assert found.hints["num_hidden_layers"] == 3
    kinds = [type(layer).__name__ for layer in found.build(found.hints).layers]
    assert kinds == ["Sam3LiteTextRepMixerBlock", "Sam3LiteTextTextEncoderLayer", "Sam3LiteTextRepMixerBlock"]


def test_a_count_under_two_names_is_cut_under_both(workload: Any) -> None:
    found = workload("xlstm", "xLSTMForCausalLM")
    assert found.hints["num_hidden_layers"] == 1
    assert "num_blocks" not in found.variables
    assert len(found.build({**found.hints, "num_hidden_layers": 3}).backbone.blocks) == 3


def test_layers_that_know_their_place_under_any_name_are_alike(workload: Any) -> None:
    # RWKV's first block normalises once more than the others; its number is called layer_id.
    assert workload("rwkv", "RwkvForCausalLM").hints["num_hidden_layers"] == 2


def test_codes_of_sound_are_one_sequence_a_code_book(workload: Any) -> None:
    found = workload("musicgen", "MusicgenForCausalLM")
    # Four code books: rows are batch * 4.
    assert found.called_with == {"input_ids": "[4 * {batch_size}, {seq_len}]"} or "num_codebooks" in str(
        found.called_with
    )
    decodes(found)


def test_a_model_that_finds_the_new_tokens_itself_is_given_all(workload: Any) -> None:
    found = workload("cpmant", "CpmAntForCausalLM")
    assert found.inputs.repeats
    decodes(found)


def test_a_phase_that_the_model_refuses_is_no_failure(workload: Any) -> None:
    from lmp.trace.runs import Runs
    from lmp.verify.points import CHUNKED, DECODE, held_out_points, phase_of

    found = workload("prophetnet", "ProphetNetForCausalLM")
    assert list(found.refused) == ["chunked prefill"]
    assert found.refused["chunked prefill"].text.startswith("AssertionError: At the moment `use_cache`")
    phases = {phase_of(point.values) for point in held_out_points(found)}
    assert CHUNKED not in phases
    assert DECODE in phases
    assert Runs(found, "").start_point()["cache_len"] == 0


def test_weights_of_the_old_constructor_are_of_the_models_dtype(workload: Any) -> None:
    import torch

    found = workload("xlnet", "XLNetLMHeadModel")
    attention = found.build(found.hints).transformer.layer[0].rel_attn
    assert (attention.q.dtype, attention.q.device.type) == (torch.bfloat16, "meta")
    assert torch.FloatTensor(2).dtype == torch.float32


def test_a_config_value_that_only_counts_rounds_of_a_long_loop_is_cut_like_layers(workload: Any) -> None:
    # Sinkhorn's loop runs hc_sinkhorn_iters - 1 times, and nothing else reads the number.
    found = workload("deepseek_v4", "DeepseekV4ForCausalLM", hc_sinkhorn_iters=20)
    assert found.full_layers["hc_sinkhorn_iters"] == 20
    assert found.hints["hc_sinkhorn_iters"] == 3
    # Every other size is a dimension of some tensor, or decides one.
    assert found.full_layers.keys() <= {"num_hidden_layers", "hc_sinkhorn_iters"}
    decodes(found)


def test_a_model_without_a_long_loop_keeps_its_values(workload: Any) -> None:
    found = workload("llama", "LlamaForCausalLM", num_hidden_layers=9)
    assert found.full_layers == {"num_hidden_layers": 9}
    assert found.hints["num_heads"] == 32
