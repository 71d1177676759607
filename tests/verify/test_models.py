"""Whole small models: totals equal torch's own counter, and operators are at the lines that ran them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch

from lmp.verify.counter import Counter, OperatorCount, count, flop_counter_total
from lmp.verify.operators import Traffic

CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2},
    "gpt2": {"n_embd": 64, "n_head": 4, "n_layer": 2},
    "mixtral": {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2},
    "deepseek_v3": {
        "hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 32, "num_attention_heads": 4,
        "num_key_value_heads": 4, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16,
        "v_head_dim": 12, "n_routed_experts": 16, "n_group": 4, "first_k_dense_replace": 1,
    },
    "bert": {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "is_decoder": True},
}  # fmt: skip


def tiny(name: str) -> Any:
    from transformers import CONFIG_MAPPING

    options = {"vocab_size": 101, "bos_token_id": 1, "eos_token_id": 2, **CONFIGS[name]}
    if name != "gpt2":
        options["num_hidden_layers"] = 2
    return CONFIG_MAPPING[name](**options)


def runner(model: Any, batch: int, new: int, cached: int) -> Callable[[AbstractContextManager[Any]], None]:
    def ids(length: int) -> torch.Tensor:
        return torch.empty((batch, length), dtype=torch.int64, device="meta")

    def run(observer: AbstractContextManager[Any]) -> None:
        with torch.no_grad():
            past = model(input_ids=ids(cached), use_cache=True).past_key_values if cached else None
            tokens = ids(new)
            with observer:
                model(input_ids=tokens, past_key_values=past, use_cache=True)

    return run


@pytest.mark.parametrize("point", [(2, 5, 0), (2, 5, 7), (2, 1, 7)], ids=["prefill", "chunked", "decode"])
@pytest.mark.parametrize("name", CONFIGS)
def test_matmul_flops_equal_torchs_flop_counter(name: str, point: tuple[int, int, int], meta_model: Any) -> None:
    model = meta_model(tiny(name))
    run = runner(model, *point)
    counter = Counter(model, torch.bfloat16)
    run(counter)
    assert counter.uncounted == []
    assert counter.matmul_flops == flop_counter_total(run) > 0
    assert counter.flops > counter.matmul_flops


def test_attention_of_a_whole_model_is_whole(meta_model: Any) -> None:
    model = meta_model(tiny("llama"))
    run = runner(model, 2, 5, 7)
    attention = [entry for entry in count(run, model) if entry.operator == "scaled_dot_product_attention"]
    # 2 layers: 2 * B 2 * Hq 4 * Sq 5 * Sk 12 * (16 + 16) = 30720; q 2*4*5*16, k and v 2*2*12*16 each (repeated to
    # 4 heads by repeat_kv, where the model does it); output 2*4*5*16
    assert [entry.flops for entry in attention] == [30720, 30720]
    assert {entry.write for entry in attention} == {Traffic(a=640)}


@pytest.mark.parametrize(("cached", "old", "new"), [(0, 0, 320), (7, 448, 768)])
def test_keys_and_values_are_of_the_cache(cached: int, old: int, new: int, meta_model: Any) -> None:
    model = meta_model(tiny("llama"))
    found = [c for c in count(runner(model, 2, 5, cached), model) if _file_of(c).endswith("cache_utils.py")]
    # Of each tensor B 2 * heads 2 * D 16: 64 * 7 cached elements and 64 * 5 new ones are read, all are written.
    # Keys and values of 2 layers. The new keys are activations until they are in the cache.
    assert [(c.operator, c.read, c.write) for c in found] == [
        ("aten.cat.default", Traffic(a=320, kv=old), Traffic(kv=new))
    ] * 4


def test_attention_reads_the_cache(meta_model: Any) -> None:
    model = meta_model(tiny("llama"))
    found = count(runner(model, 2, 1, 7), model)
    (attention, _) = (c for c in found if c.operator == "scaled_dot_product_attention")
    # q is [2, 4, 1, 16]. With one new token, keys and values [2, 2, 8, 16] are read as the cache holds them.
    assert attention.read == Traffic(a=128, kv=2 * 512)
    assert attention.write == Traffic(a=128)


def _file_of(count: OperatorCount) -> str:
    chain = count.segments[0].chain
    return chain[0].file if chain else ""


def test_operators_stand_at_the_lines_that_ran_them(meta_model: Any, line_of: Callable[..., int]) -> None:
    from transformers.models.llama import modeling_llama as llama

    model = meta_model(tiny("llama"))
    counts = count(runner(model, 2, 5, 0), model)

    def at(path: str, line: int) -> list[str]:
        return [
            entry.operator
            for entry in counts
            for segment in entry.segments
            if segment.call.path == path and segment.chain and segment.chain[0].line == line
        ]

    mlp = line_of(llama.LlamaMLP, "self.down_proj(self.act_fn(")
    # gate, silu, up, product, down
    assert at("model.layers.0.mlp", mlp) == [
        "aten.mm.default", "aten.silu.default", "aten.mm.default", "aten.mul.Tensor", "aten.mm.default",
    ]  # fmt: skip
    norm = "model.layers.1.input_layernorm"
    assert at(norm, line_of(llama.LlamaRMSNorm, "pow(2)")) == ["aten.pow.Tensor_Scalar", "aten.mean.dim"]
    assert at(norm, line_of(llama.LlamaRMSNorm, "torch.rsqrt")) == [
        "aten.add.Tensor", "aten.rsqrt.default", "aten.mul.Tensor",
    ]  # fmt: skip
    assert at(norm, line_of(llama.LlamaRMSNorm, "return self.weight")) == ["aten._to_copy.default", "aten.mul.Tensor"]
    # and each of them belongs to the line of every module above it
    product = next(e for e in counts if e.operator == "aten.mul.Tensor" and "mlp" in e.segments[0].call.path)
    assert [segment.call.class_path.rsplit(".", 1)[1] for segment in product.segments] == [
        "LlamaMLP", "LlamaDecoderLayer", "LlamaModel", "LlamaForCausalLM",
    ]  # fmt: skip


def test_a_helper_function_leads_back_to_forward(meta_model: Any, line_of: Callable[..., int]) -> None:
    from transformers.models.llama import modeling_llama as llama

    model = meta_model(tiny("llama"))
    counts = count(runner(model, 2, 5, 0), model)
    call = line_of(llama.LlamaAttention, "attention_interface(")
    attention = next(entry for entry in counts if entry.operator == "scaled_dot_product_attention")
    own = attention.segments[0]
    assert own.call.path == "model.layers.0.self_attn"
    assert own.chain[0].file.endswith("integrations/sdpa_attention.py")
    assert own.chain[-1].function == "forward"
    assert own.chain[-1].file.endswith("modeling_llama.py")
    assert call <= own.chain[-1].line <= call + 10


def test_real_tensors_count_the_same() -> None:
    from transformers.models.llama.configuration_llama import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaMLP

    totals = []
    for device in ("meta", "cpu"):
        config = LlamaConfig(hidden_size=16, intermediate_size=24, num_attention_heads=2)
        module = LlamaMLP(config).to(device, torch.bfloat16).eval()
        x = torch.empty(2, 3, 16, device=device, dtype=torch.bfloat16)
        counter = Counter(module, torch.bfloat16)
        with torch.no_grad(), counter:
            module(x)
        totals.append((counter.flops, counter.matmul_flops, counter.read, counter.write))
    assert totals[0] == totals[1]
    # 6 rows: 3 products of 2*6*16*24 = 13824; silu 4 and the product 1 for each of 6*24 = 144
    assert totals[0][:2] == (13824 + 5 * 144, 13824)
    # weights 3*16*24; inputs 96 + 96 (gate, up), silu 144, product 288, down 144; written 144 * 4 and 96
    assert totals[0][2:] == (Traffic(w=1152, a=768), Traffic(a=672))
