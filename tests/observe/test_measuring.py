"""What is measured in runs of the engine's own workload: one layer of each kind stands for those that are like it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
import torch

from lmp.workload.failures import blame

pytestmark = pytest.mark.usefixtures("transformers_tree")

SIZES = {"vocab_size": 64, "hidden_size": 32, "num_attention_heads": 4, "max_position_embeddings": 4096}


def measured(model_class: type[Any], config: Any) -> Any:
    import copy

    from lmp.observe.measuring import Measured
    from lmp.workload.model import build_model

    model = build_model(model_class, copy.deepcopy(config), torch.bfloat16)
    return Measured(model, config, torch.bfloat16)


def hybrid() -> Any:
    """Six layers: attention over a window in four, over all in the second and the fifth."""
    from transformers import GptOssConfig, GptOssForCausalLM

    kinds = ["sliding_attention", "full_attention", "sliding_attention"] * 2
    config = GptOssConfig(
        **SIZES, num_hidden_layers=6, num_key_value_heads=2, head_dim=8, intermediate_size=24, num_local_experts=8,
        num_experts_per_tok=2, layer_types=kinds, sliding_window=300,
    )  # fmt: skip
    return measured(GptOssForCausalLM, config)


def test_what_is_measured_of_one_layer_counts_for_those_like_it() -> None:
    found = hybrid()
    cache = found.cache()
    # A token takes 2 (keys and values) * 2 heads * 8 * 2 bytes = 64 in a layer: in six up to the window, which keeps
    # 299 tokens of the past, in two beyond it.
    assert [(s.to_tokens, s.bytes_per_token, s.constant_bytes) for s in cache.segments] == [
        (299, 6 * 64, 0),
        (None, 2 * 64, 4 * 64 * 299),
    ]
    assert cache.of is None
    # Two layers were run, of the six.
    (workload,) = found._workloads.values()
    assert len(workload.build(workload.defaults).model.layers) == 2
    assert workload.full_layers == {"num_hidden_layers": 6}


def test_experts_of_every_layer_are_shared_out_whichever_were_run() -> None:
    shares, why = hybrid().expert_shares()
    assert why is None
    names = ("gate_up_proj", "gate_up_proj_bias", "down_proj", "down_proj_bias")
    # One token of 2 out of 8 experts
    expected = {f"model.layers.{i}.mlp.experts.{name}": Fraction(2, 8) for i in range(6) for name in names}
    assert shares == expected


def test_a_model_that_asks_for_values_is_not_measured() -> None:
    """What is measured must not rest on an answer: which experts a token uses would be one."""
    from transformers import BartConfig, BartForCausalLM

    config = BartConfig(
        vocab_size=64, d_model=32, decoder_layers=2, decoder_attention_heads=4, decoder_ffn_dim=48,
        is_encoder_decoder=False, is_decoder=True,
    )  # fmt: skip
    found = measured(BartForCausalLM, config)
    # Its mask asks whether any token is masked out; a tensor without data has no answer.
    reason = "it cannot be run on the meta device with token ids: Tensor.item() cannot be called on meta tensors"
    assert found.cache().reason == reason
    assert found.expert_shares() == ({}, reason)


def test_a_model_of_pictures_says_what_it_is_called_with() -> None:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, image_size=16, patch_size=8
    )
    found = measured(ViTModel, config)
    assert found.expert_shares()[1] == (
        "it cannot be run on the meta device with token ids: it is called with pixel_values"
    )
    assert found.cache().reason == "its forward() returns no cache"


def test_a_mistake_of_lmps_own_is_no_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    found = hybrid()
    monkeypatch.setattr("lmp.observe.measuring._bytes_in", None)  # called as a function by lmp's own hook
    with pytest.raises(TypeError) as caught:
        found.cache()
    assert blame(caught.value) == "lmp"
