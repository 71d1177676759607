"""Attention over cached latents: small lists with the arithmetic beside, and DeepSeek-V3 at its own sizes."""

from __future__ import annotations

import pytest

from kernel_lists import SERVING, after, evaluated, kernel, launched, product
from lmp.link.records import EvaluatedKernel
from lmp.predict.rewrite.rewriting import rewritten

# 2 sequences, 4 heads; latents of rank 8; keys of 6 elements from the latent and 2 that all heads share; values of 5.


def latent_attention(q_len: int, cached: int, columns: int = 44, repeat: int = 1) -> list[EvaluatedKernel]:
    """As a class computes it: it caches latents, and makes the keys and values of all heads from all of them."""
    c, n = cached + q_len, 2 * q_len
    two = f"kv 2 1 {cached} 2, a 2 1 {q_len} 2 -> kv 2 1 {c} 2"
    found = [
        product("q", "x", n, 32, 16),
        product("l", "x", n, 10, 16),
        kernel("c", "cat", "copy", "cache l", f"kv 2 1 {cached} 8, a 2 1 {q_len} 8 -> kv 2 1 {c} 8"),
        kernel("d", "cat", "copy", "cache l", two),
        product("u", "c", 2 * c, columns, 8, line=7),
        kernel("e", "copy", "copy", "u", f"a 2 4 {c} 6 -> a 2 4 {c} 6"),
        kernel("f", "copy", "copy", "d e", f"kv 2 4 {c} 2 -> a 2 4 {c} 2"),
        kernel(
            "s", "sdpa", "attention", "q u e f", f"a 2 4 {q_len} 8, a 2 4 {c} 8, a 2 4 {c} 5 -> a 2 4 {q_len} 5",
            flops=2 * 2 * 4 * q_len * c * (8 + 5), batch=2, q_len=q_len, kv_len=c, heads=4, kv_heads=4, head_dim=8,
            v_head_dim=5, causal=0,
        ),
        product("o", "s", n, 16, 20),
    ]  # fmt: skip
    return [one.model_copy(update={"repeat": repeat}) for one in found]


def test_in_decode_the_product_of_the_cache_is_absorbed() -> None:
    found = after(latent_attention(1, 3), "mla_absorb")
    assert launched(found) == [
        (None, "mm"),
        (None, "mm"),
        ("mla_absorb", "write of new tokens to the cache"),
        ("mla_absorb", "queries to latents, each head"),
        ("mla_absorb", "attention over latents"),
        ("mla_absorb", "latents to outputs, each head"),
        (None, "mm"),
    ]
    _, _, written, pre, attends, post, _ = found.launches
    # New latents and shared parts of 2 tokens: 2 * (8 + 2) * 2 bytes.
    assert (written.kernel.read, written.kernel.write) == (40, 40)
    # 4 heads, 2 tokens, 6 to 8; 4 heads, 2 tokens, 8 to 5.
    assert (pre.matmul_flops, post.matmul_flops) == (2 * 4 * 2 * 6 * 8, 2 * 4 * 2 * 8 * 5)
    # Queries of 4 heads, 4 * 2 * 6 * 2 bytes, and the weight, 4 * 6 * 8 * 2.
    assert (pre.kernel.read, pre.kernel.write) == (96 + 384, 4 * 2 * 8 * 2)
    # 4 latents of 8 + 2 for each of 2 sequences, 160 bytes, whatever the heads; queries 2 * 4 * 10 * 2 bytes.
    assert (attends.kernel.read, attends.kernel.write) == (160 + 160, 2 * 4 * 8 * 2)
    assert attends.matmul_flops == 2 * 2 * 4 * 4 * (8 + 2 + 8)


@pytest.mark.parametrize(
    ("cached", "saved"),
    [
        # Up-projection 2 * 8 * 44 * 8 and attention 2 * 2 * 4 * 4 * 13, less 768 + 1152 + 640.
        (3, 5632 + 832 - 2560),
        # Nothing cached: 2 * 2 * 44 * 8 + 2 * 2 * 4 * 1 * 13, less 768 + 288 + 640. It does more than the class.
        (0, 1408 + 208 - 1696),
    ],
)
def test_what_absorption_saves_is_exact(cached: int, saved: int) -> None:
    found = after(latent_attention(1, cached, repeat=3), "mla_absorb")
    assert found.saved == 3 * saved
    assert found.matmul_flops == found.matmul_flops_before - 3 * saved


def test_a_narrow_cache_is_read_and_written_in_its_own_elements() -> None:
    found = after(latent_attention(1, 3), "mla_absorb", kv_bytes=1)
    _, _, written, _, attends, _, _ = found.launches
    assert (written.kernel.write, attends.kernel.read) == (20, 80 + 160)


def test_in_a_prompt_the_product_stays_and_keys_are_put_together() -> None:
    found = after(latent_attention(4, 0), "mla_absorb", "mla_prefill", seq_len=4)
    assert launched(found) == [
        (None, "mm"),
        (None, "mm"),
        ("mla_prefill", "write of new tokens to the cache"),
        (None, "mm"),
        ("mla_prefill", "keys of all heads, from two parts"),
        ("mla_prefill", "sdpa"),
        (None, "mm"),
    ]
    keys = found.launches[4].kernel
    # 8 tokens: 4 heads of 6 from the product and 2 that they share; 4 heads of 8 are written; 2 bytes each.
    assert (keys.read, keys.write) == (8 * (4 * 6 + 2) * 2, 8 * 4 * 8 * 2)
    assert found.saved == 0


def test_products_that_are_not_keys_and_values_of_all_heads_are_not_absorbed() -> None:
    # 40 columns are no 4 heads of 6 + 5.
    found = after(latent_attention(1, 3, columns=40), "mla_absorb", "mla_prefill")
    assert found.firings == ()


def test_only_new_tokens_are_written_to_a_cache_that_no_attention_reads() -> None:
    found = after([product("l", "x", 2, 8, 16), latent_attention(1, 3)[2], product("u", "c", 8, 40, 8)], "kv_append")
    (written,) = [launch.kernel for launch in found.launches if launch.rule == "kv_append"]
    # One latent of 8 elements for each of 2 sequences.
    assert (written.read, written.write) == (32, 32)


def test_deepseek_v3_at_its_own_sizes() -> None:
    kernels, values = evaluated("DeepseekV3ForCausalLM", batch_size=16, seq_len=1, cache_len=8191)
    found = rewritten(kernels, SERVING, values)
    # 61 layers: 2 * 16 sequences * 128 heads * (8191 tokens * 512 * 256 + 8192 * (256 - 1024)).
    assert found.saved == 61 * 2 * 16 * 128 * (8191 * 512 * 256 + 8192 * (256 - 1024))
    (row,) = {tuple(launch.row.items()) for launch in found.launches if launch.row and launch.row["op"] == "mla"}
    assert dict(row) == {"op": "mla", "phase": "decode", "kv_dtype": None, "batch": 16, "q_len": 1, "kv_len": 8192,
                         "heads": 128}  # fmt: skip
    attends = [launch.kernel for launch in found.launches if launch.kernel.operation == "attention over latents"]
    # A latent of 512 + 64 for each token, 2 bytes; queries of 128 heads in the same space.
    assert {one.read for one in attends} == {2 * 16 * (8192 + 128) * 576}
    eager = {launch.kernel.operation for launch in found.launches if launch.rule is None}
    assert "concatenation" not in eager
    assert "copy into a tensor" not in eager


def test_a_selection_of_tokens_leaves_less_to_attention() -> None:
    # Of 4 tokens each query sees 2, by a mask from their scores.
    *first, attends, last = latent_attention(1, 3)
    chosen = [
        kernel("t", "topk", "sort", "q", "f 2 1 4 -> f 2 1 2, i 2 1 2", flops=0),
        kernel("m", "scatter", "scatter", "t", "i 2 1 2 -> i 2 1 4", flops=0),
        kernel("n", "bitwise_not", "elementwise", "m", "i 2 1 4 -> i 2 1 4", flops=0),
    ]
    attends = attends.model_copy(update={"inputs_from": [*attends.inputs_from, "n"]})
    found = after([*first, *chosen, attends, last], "mla_absorb")
    assert ("mla_absorb", "attention over selected latents") in launched(found)
    assert [launch.kernel.operation for launch in found.launches if launch.rule is None] == ["mm", "mm", "topk", "mm"]
    # As without a selection, and 2 * 2 * 4 * (4 - 2) * (8 + 2 + 8) more.
    assert found.saved == 3904 + 576


def test_a_cache_of_a_class_of_its_own_is_appended_to() -> None:
    # The cat reads 48 elements that its maker, with 16, did not make: 2 sequences of 3 cached tokens.
    keys = kernel("c", "cat", "copy", "k", "a 2 3 8, a 2 1 8 -> a 2 4 8")
    found = after([product("k", "x", 2, 8, 16), keys], "kv_append")
    (written,) = [launch.kernel for launch in found.launches if launch.rule == "kv_append"]
    assert (written.read, written.write) == (32, 32)
    # Two parts of what one kernel made are no cache.
    parts = kernel("c", "cat", "copy", "k", "a 2 3 2, a 2 1 2 -> a 2 4 2")
    assert after([product("k", "x", 2, 8, 16), parts], "kv_append").firings == ()
