"""The rules on models: formulas of stored analyses at tiny sizes."""

from __future__ import annotations

from kernel_lists import SERVING, TINY, evaluated
from lmp.predict.rewrite.rewriting import rewritten

LAYER = ["add_rms_norm", "matrix multiplication, 3 weights", "rotary embedding", "write of new tokens to the cache",
         "scaled dot product attention", "matrix multiplication", "add_rms_norm"]  # fmt: skip


def test_a_dense_model_in_decode() -> None:
    kernels, values = evaluated("LlamaForCausalLM", batch_size=2, seq_len=1, cache_len=9, **TINY)
    found = rewritten(kernels, SERVING, values)
    mlp = ["matrix multiplication, 2 weights", "gated activation", "matrix multiplication"]
    names = [launch.kernel.operation for launch in found.launches]
    assert names == ["row lookup", *LAYER, *mlp, "rms_norm", "matrix multiplication"]
    assert {launch.kernel.repeat for launch in found.launches[1:-2]} == {4}
    merged, attends = found.launches[2].kernel, found.launches[5].kernel
    assert merged.operands is not None
    # (4 + 2 * 2) heads of 16 columns.
    assert (merged.operands.m, merged.operands.n, merged.operands.k) == (2, 128, 64)
    # Keys and values of 10 tokens, 2 * (2 * 2 * 10 * 16) * 2 bytes, and queries, 2 * 4 * 16 * 2.
    assert attends.read == 2560 + 256


def test_a_dense_model_in_prefill_keeps_the_logits_of_the_last_token() -> None:
    kernels, values = evaluated("LlamaForCausalLM", batch_size=2, seq_len=8, cache_len=0, **TINY)
    found = rewritten(kernels, SERVING, values)
    # 2 * (16 - 2) rows * 1000 words * 64.
    assert found.saved == 2 * 14 * 1000 * 64
    assert "write of new tokens to the cache" in [launch.kernel.operation for launch in found.launches]
    assert "copy to contiguous memory" not in [launch.kernel.operation for launch in found.launches]


def test_a_mixture_of_experts_is_one_operator() -> None:
    sizes = {"moe_intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 2, "decoder_sparse_step": 1}
    kernels, values = evaluated("Qwen3MoeForCausalLM", batch_size=2, seq_len=1, cache_len=9, **TINY, **sizes)
    found = rewritten(kernels, SERVING, values)
    (one,) = [launch for launch in found.launches if launch.rule == "moe"]
    assert one.row == {"op": "moe", "dtype": "bfloat16", "tokens": 2, "hidden": 64, "inter": 32, "topk": 2,
                       "experts": 8, "gated": True}  # fmt: skip
    # 2 tokens * 2 experts, three matrices of 64 times 32.
    assert one.matmul_flops == 2 * 2 * 2 * 3 * 64 * 32
    # Weights of 2 * 2 experts of 8, 4 * 3 * 64 * 32 * 2 bytes; tokens and their scores: 2 * 64 * 2 and 2 * 8 * 2.
    assert one.kernel.read == 49152 + 256 + 32
    names = [launch.kernel.operation for launch in found.launches]
    # Queries and keys have norms of their own; the router's product stays by itself.
    layer = [*LAYER[:2], "rms_norm", "rms_norm", *LAYER[2:]]
    tail = ["matrix multiplication", "mixture of experts"]
    assert names == ["row lookup", *layer, *tail, "rms_norm", "matrix multiplication"]


def test_attention_with_sinks_and_windows_is_rewritten_too() -> None:
    kernels, values = evaluated("GptOssForCausalLM", batch_size=2, seq_len=1, cache_len=500)
    found = rewritten(kernels, SERVING, values)
    attends = [launch.kernel.operands for launch in found.launches if launch.kernel.operation == "attention"]
    # Of its two kinds of layers one sees a window of 128 tokens, the other all 501.
    assert [one.kv_len for one in attends if one is not None] == [128, 501]
    assert {(one.heads, one.kv_heads, one.head_dim) for one in attends if one is not None} == {(64, 8, 64)}
    eager = {launch.kernel.operation for launch in found.launches if launch.rule is None}
    assert eager == {"row lookup", "matrix multiplication"}
