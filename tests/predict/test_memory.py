"""Memory of a model on each GPU, and what fits."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from holdings import held, kept, weight
from hypothesis import given
from hypothesis import strategies as st

from lmp.errors import UsageError
from lmp.observe.held import KeptLayer
from lmp.predict.devices import device_named
from lmp.predict.engines import GIB, Settings, rest_of, rotary_bytes, total_memory
from lmp.predict.memory import Asked, as_json, divides, memory
from lmp.predict.shard.stages import stage_layers

H100 = device_named("h100-sxm")
MIB = 2**20


def test_parts_add_up_without_an_engine() -> None:
    found = memory(held(), H100, Asked(batch_size=3, cache_len=10, chunk=5))
    stage = found.stage
    # 4,688 bytes: see test_sharding. 100 * 5 + 5 * 5 live bytes. 2 layers * 16 elements * 2 bytes * 3 * 10 tokens.
    assert stage.weight_bytes == 2 * (2 * (640 + 16) + 1032)
    assert stage.activation_bytes == 525
    assert stage.cache_bytes(3, 10) == 1920
    assert stage.reserve == Fraction("0.25") * GIB
    assert stage.available == total_memory(H100) - stage.weight_bytes - 525 - stage.reserve


def test_an_h100_has_what_the_logged_runs_had() -> None:
    assert float(total_memory(H100) / GIB) == pytest.approx(79.19, abs=0.005)


def test_the_largest_batch_fits_and_one_more_does_not() -> None:
    asked = Asked(cache_len=10**6)
    most = memory(held(), H100, asked).largest_batch
    assert most is not None
    assert memory(held(), H100, replace(asked, batch_size=most)).fits
    assert not memory(held(), H100, replace(asked, batch_size=most + 1)).fits


def test_the_largest_context_fits_and_is_at_most_the_positions() -> None:
    assert memory(held(), H100, Asked(batch_size=1)).largest_context == 1024
    many = 2_000_000
    most = memory(held(), H100, Asked(batch_size=many)).largest_context
    assert most is not None
    assert most < 1024
    assert memory(held(), H100, Asked(batch_size=many, cache_len=most)).fits
    assert not memory(held(), H100, Asked(batch_size=many, cache_len=most + 1)).fits


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_more_tokens_never_leave_more_room(batch: int, tokens: int) -> None:
    stage = memory(held(), H100, Asked()).stage
    assert stage.cache_bytes(batch, tokens) <= stage.cache_bytes(batch, tokens + 1)
    assert stage.cache_bytes(batch, tokens) <= stage.cache_bytes(batch + 1, tokens)


def test_the_smallest_group_is_the_first_that_fits() -> None:
    # 120 GiB of a matrix that the plan divides: 60 on each of 2 GPUs fit, as 4 heads allow 1, 2 and 4.
    large = weight("model.layers.0.mlp.up_proj", 60 * 2**20, 1024)
    model = held(weights=(*held().weights, large))
    found = memory(model, H100, Asked(batch_size=1, cache_len=10))
    assert (found.fits, found.smallest_tp) == (False, 2)


def test_what_no_group_holds_has_none() -> None:
    large = weight("not.divided", 200 * 2**20, 1024)
    assert memory(held(weights=(large,)), H100, Asked()).smallest_tp is None


def test_an_engine_extends_short_calls_without_scores_of_all_pairs() -> None:
    # 100 t + t^2 at 128 and 256: a slope of 100 + 384 a token from 100 * 256 + 256^2 on.
    settings = Settings(max_num_batched_tokens=8192, max_model_len=1024)
    found = memory(held(), H100, Asked(engine=settings)).stage
    assert found.activations["layers"]["layers"] == 25_600 + 65_536 + 484 * (8192 - 256)


def test_the_sampler_is_the_peak_of_a_small_model_with_many_words() -> None:
    config = {**held().config, "vocab_size": 128_256}
    found = memory(held(config=config), H100, Asked(engine=Settings(max_model_len=1024))).stage
    # 1,024 rows of 128,256 words, of 2 bytes and three times 4; 132 rows of 4 for top-p.
    assert found.peak == "sampler"
    assert found.activations["sampler"]["logits"] == 1024 * 128_256 * 14
    assert found.activations["sampler"]["top_p_rows"] == 132 * 128_256 * 4


def test_available_is_what_the_log_says_it_is() -> None:
    """Total times utilisation, less weights, activations and what PyTorch does not see."""
    share = Fraction("0.95")
    found = memory(held(), H100, Asked(tp=2, engine=Settings(share, max_model_len=1024))).stage
    rest = found.weight_bytes + found.activation_bytes + Fraction("2.07") * GIB
    assert found.available == total_memory(H100) * share - rest


@pytest.mark.parametrize(
    ("mib", "rest"),
    [
        (224, 0),  # a multiple of 2 MiB
        (259, 1),  # 260 are given, and 1 MiB is not split off
        (129.5, 0.5),
        (24.5, 0),  # 26 are given, and 1.5 MiB are split off
        (9.25, 0),  # below 10 MiB blocks share a segment
    ],
)
def test_rests_of_the_allocator(mib: float, rest: float) -> None:
    assert rest_of(Fraction(str(mib)) * MIB) == rest * MIB


@pytest.mark.parametrize(
    ("rope", "positions", "bytes_"),
    [
        ({}, 1024, 0),
        ({"rope_type": "default"}, 1024, 1024 * 4 * 2),
        ({"rope_type": "linear", "factor": 8.0}, 1024, 8192 * 4 * 2),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}, 1024, 2048 * 4 * 2),
        ({"full": {"rope_type": "linear", "factor": 8.0}, "window": {"rope_type": "default"}}, 1024, 9216 * 4 * 2),
        ({"rope_type": "default", "partial_rotary_factor": 0.5}, 1024, 1024 * 2 * 2),
    ],
)
def test_rotary_tables(rope: dict[str, object], positions: int, bytes_: int) -> None:
    config = {**held().config, "rope_parameters": rope, "max_position_embeddings": positions}
    assert rotary_bytes(held(config=config)) == bytes_


def test_fp8_while_loading_quantises_matrices_but_not_the_head() -> None:
    weights = [weight("model.layers.0.mlp.up_proj", 16, 8), weight("lm_head", 16, 8), weight("model.norm", 8)]
    plain, fp8 = (
        memory(held(weights=tuple(weights)), H100, Asked(engine=Settings(quantization=word, max_model_len=1024)))
        for word in (None, "fp8")
    )
    # 128 elements of the layer in one byte; the head's 128 and the norm's 8 in two.
    assert plain.stage.weights["weights"] == 2 * (128 + 128 + 8)
    assert fp8.stage.weights["weights"] == 128 + 2 * (128 + 8)


def test_fp8_is_refused_on_a_device_without_it() -> None:
    with pytest.raises(UsageError, match="a100-sxm has no fp8 matrix products"):
        memory(held(), device_named("a100-sxm"), Asked(engine=Settings(quantization="fp8")))


def test_lengths_beyond_the_positions_are_warned_of() -> None:
    found = memory(held(), H100, Asked(batch_size=1, cache_len=2000))
    assert found.warnings == ("2,000 tokens are more than the 1,024 positions of the model",)


def test_what_cannot_be_measured_is_said() -> None:
    found = memory(held(kept=(), reason="its forward() returns no cache", live=lambda t, s: "it raises"), H100, Asked())
    assert "its forward() returns no cache" in found.warnings[0]
    assert "it raises" in found.warnings[1]
    assert found.largest_context is None
    # 3 hidden and 3 inner values of a token.
    assert found.stage.activation_bytes == 8192 * (3 * 8 + 3 * 16) * 2


def test_a_cache_that_is_not_told_by_layers_is_whole_on_every_gpu() -> None:
    model = held(kept=(KeptLayer((0,), 0, 0, None, 48, 1000),))
    (kind,) = memory(model, H100, Asked(tp=2)).stage.kinds
    assert (kind.kind, kind.bytes(10)) == ("whole", 480 + 1000)


def test_an_engine_needs_the_sizes_of_its_sampler() -> None:
    config = {name: value for name, value in held().config.items() if name != "vocab_size"}
    with pytest.raises(UsageError, match="the config states no vocab_size"):
        memory(held(config=config), H100, Asked(engine=Settings()))


def test_stages_have_all_layers_once() -> None:
    assert [len(stage_layers(32, 4, n)) for n in range(4)] == [8, 8, 8, 8]
    for stages in range(1, 8):
        parts = [stage_layers(7, stages, n) for n in range(stages)]
        assert [layer for part in parts for layer in part] == list(range(7))


def test_the_embedding_is_on_the_first_stage_and_the_head_on_the_last() -> None:
    first, last = memory(held(), H100, Asked(pp=2)).stages
    # A layer has 656 elements, the embedding and the head 512 each, the last norm 8.
    assert (first.weight_bytes, last.weight_bytes) == (2 * (656 + 512), 2 * (656 + 512 + 8))
    with pytest.raises(UsageError, match="--pp 3 is more than the 2 layers"):
        memory(held(), H100, Asked(pp=3))


def test_json_has_the_names_that_others_call() -> None:
    model = held(kept=(kept(range(2)),))
    asked = Asked(engine=Settings(max_model_len=1024))
    made = as_json(model, H100, memory(model, H100, asked))
    names = {"weights_gib", "kv_bytes_per_token", "activation_gib", "non_torch_gib", "kv_gib", "kv_tokens",
             "max_concurrency", "fits"}  # fmt: skip
    assert names <= made.keys()
    assert made["kv_bytes_per_token"] == 2 * 16 * 2


@pytest.mark.parametrize(
    ("tp", "heads", "kept", "expected"),
    [
        (4, 24, 8, True),  # 6 heads and 2 KV heads each
        (3, 24, 8, False),  # 8 heads each, but 8 KV heads have no third part
        (24, 24, 8, True),  # each KV head on 3 GPUs
        (12, 24, 8, False),  # 12 GPUs cannot have 8 KV heads equally often
        (5, 24, None, False),
        (3, 24, None, True),
    ],
)
def test_a_tp_divides_heads_and_kv_heads(tp: int, heads: int, kept: int | None, expected: bool) -> None:
    assert divides(tp, heads, kept) is expected
