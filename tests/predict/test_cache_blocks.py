"""Bytes of the cache by kind of layer, and the blocks of an engine. Expected values are from logged runs of vLLM."""

from __future__ import annotations

from fractions import Fraction

import pytest
from holdings import held, kept

from lmp.predict.cache_blocks import KvKind, blocks_of, kv_kinds

GIB = 2**30


def kind(layers: int, token: int, window: int | None = None, name: str = "", state: int = 0) -> KvKind:
    named = name or ("window" if window else "attention")
    return KvKind(named, layers, 1, Fraction(token), window, state)


@pytest.mark.parametrize(
    ("kinds", "layers_paid", "gib", "tokens", "concurrency"),
    [
        # Llama-3.1 8B: 32 layers of 2 * 8 * 128 * 2 = 4,096 bytes a token.
        ([kind(32, 4096)], 32, 58.11, 476016, 58.11),
        # Gemma-2 27B: 23 of 46 layers have a window of 4,096.
        ([kind(23, 8192), kind(23, 8192, 4096)], 46, 20.59, 58672, 7.16),
        # Gemma-3 4B: 5 full layers, and 29 with a window of 1,024 that cost as 30: 34 layers as 35.
        ([kind(5, 4096), kind(29, 4096, 1024)], 35, 62.51, 468144, 57.05),
        # Llama-4 Scout on 4 GPUs: 12 full layers, 36 in chunks of 8,192, 2 KV heads each.
        ([kind(12, 1024), kind(36, 1024, 8192, "chunk")], 48, 16.75, 365968, 44.68),
        # DeepSeek-V2-Lite: 27 latents of 576 * 2 bytes.
        ([kind(27, 1152, name="latent")], 27, 43.61, 1505552, 183.78),
    ],
)
def test_blocks_are_those_that_an_engine_logged(
    kinds: list[KvKind], layers_paid: int, gib: float, tokens: int, concurrency: float
) -> None:
    blocks = blocks_of(kinds, 8192, 8192)
    assert blocks is not None
    assert blocks.token_bytes == layers_paid * kinds[0].token_bytes
    count = blocks.count(Fraction(str(gib)) * GIB)
    # The log rounds to 0.01 GiB: half of that is 0.03 % of 16.75 GiB.
    assert count // blocks.groups * blocks.tokens == pytest.approx(tokens, rel=5e-4)
    assert count / blocks.request == pytest.approx(concurrency, rel=5e-4, abs=0.01)


def test_layers_of_gemma_3_27b_cost_70_for_62() -> None:
    blocks = blocks_of([kind(10, 4096), kind(52, 4096, 1024)], 8192, 8192)
    assert blocks is not None
    assert blocks.token_bytes == 70 * 4096


def test_a_recurrent_state_takes_one_block_whatever_the_length() -> None:
    # A state of 1 MiB; 16 tokens of attention are 64 KiB, so a block has 256 tokens. 3 layers of states and 1 full one.
    kinds = [kind(1, 4096), kind(3, 0, name="recurrent", state=2**20)]
    short, long = blocks_of(kinds, 256, 8192), blocks_of(kinds, 512, 8192)
    assert short is not None
    assert long is not None
    assert short.tokens == 256
    assert (short.request, long.request) == (1 + 3, 2 + 3)
    assert short.block_bytes == 2**20


def test_a_model_that_keeps_nothing_has_no_blocks() -> None:
    assert blocks_of([], 8192, 8192) is None


def test_a_window_is_kept_and_no_more() -> None:
    # 2 layers of 10 bytes a token: one keeps all, one the last 100.
    assert kind(2, 10).bytes(1000) == 2 * 10 * 1000
    assert kind(2, 10, window=100).bytes(1000) == 2 * 10 * 100
    assert kind(2, 0, name="recurrent", state=7).bytes(1000) == 14


def test_kinds_of_a_model_on_several_gpus() -> None:
    # 16 elements of 2 KV heads: on 4 GPUs one head each, 8 elements of 1 byte.
    (found,) = kv_kinds(held(), 4, Fraction(1))
    assert (found.kind, found.layers, found.heads, found.token_bytes) == ("attention", 2, 1, 8)


def test_a_latent_is_whole_on_every_gpu() -> None:
    config = {**held().config, "kv_lora_rank": 512, "qk_rope_head_dim": 64}
    (found,) = kv_kinds(held(config=config, kept=(kept(range(2), heads=16, elements=5120),)), 8, Fraction(2))
    assert (found.kind, found.token_bytes) == ("latent", 1152)


def test_states_are_divided() -> None:
    (found,) = kv_kinds(held(kept=(kept(range(3), heads=0, elements=0, state=1000),)), 4, Fraction(2))
    assert (found.kind, found.layers, found.state_bytes) == ("recurrent", 3, 250)
