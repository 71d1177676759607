"""The answer card: figures against arithmetic, and each place that has no figure says why."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_lists import stored_model
from lmp.atlas.archive import PACKAGED, Atlas
from lmp.predict.devices import device_named
from lmp.predict.holding import PART_OF_A_MODEL, held_by_formulas
from lmp.predict.least import least_traffic
from lmp.predict.memory import memory
from lmp.predict.one_gpu import holds
from lmp.predict.prediction import Predictor
from lmp.predict.screen.asking import Subject, asked_for
from lmp.predict.screen.card import card
from lmp.predict.screen.records import Card
from lmp.predict.screen.room import asked_of, room
from lmp.predict.shard.parallel import ONE, Parallel
from lmp.report.formats.device_card import bound, device_lines

RESULTS = Path(__file__).parents[3] / "analysis_results"
PREDICTOR = Predictor()
LLAMA = {"batch_size": 16, "seq_len": 1, "cache_len": 8192}
PARAMETERS = 8_030_261_248
"""Of Llama-3.1-8B: 2 * 128256 * 4096 + 4096 + 32 * (2 * 4096 ** 2 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096)."""


def subject(name: str) -> Subject:
    return Subject(stored_model(name))


@pytest.fixture(scope="module")
def llama() -> Subject:
    return subject("LlamaForCausalLM")


def card_of(subject: Subject, device: str = "h100-sxm", engine: str | None = None, tp: int = 1, **sizes: int) -> Card:
    ask = asked_for(device_named(device), sizes, engine, (None, None), Parallel(tp))
    return card(subject, ask, PREDICTOR)


def text_of(found: Card) -> str:
    return "\n".join(" · ".join((line.label, *line.parts)) for line in device_lines(found)).replace("\u00a0", " ")


def test_eager_and_serving_stand_side_by_side_with_intervals(llama: Subject) -> None:
    found = card_of(llama, **LLAMA)
    assert [(run.engine, run.serving) for run in found.runs] == [("eager", False), ("vllm", True)]
    for run in found.runs:
        assert run.step_us is not None and run.tokens_per_s is not None  # noqa: PT018
        assert run.step_us.low < run.step_us.value < run.step_us.high
        # 16 new tokens a step.
        assert run.tokens_per_s.value == pytest.approx(16e6 / run.step_us.value, rel=1e-4)
        assert run.tokens_per_s.low == pytest.approx(16e6 / run.step_us.high, rel=1e-4)
    # It reads at least the weights but for the table, and the cache, once: 15.01 + 17.18 GB at 3.352 TB/s.
    assert found.runs[1].step_us is not None
    assert found.runs[1].step_us.low > (15.00998e9 + 17.17987e9) / 3.352e12 * 1e6


def test_memory_is_weights_and_cache_by_arithmetic(llama: Subject) -> None:
    eager = card_of(llama, **LLAMA).runs[0].memory
    assert eager is not None
    assert eager.weights == 2 * PARAMETERS
    # Keys and values, 8 heads of 128, 32 layers, 2 bytes.
    assert eager.kv_a_token == 2 * 8 * 128 * 32 * 2
    assert eager.kv == 16 * 8193 * 131_072
    assert eager.fits
    assert eager.held >= eager.weights + eager.kv


@pytest.mark.parametrize(("tp", "heads"), [(2, 4), (8, 1)])
def test_each_gpu_of_several_holds_its_part(llama: Subject, tp: int, heads: int) -> None:
    own = holds(llama, LLAMA, Parallel(tp))
    # Norms are whole on each: 65 of 4,096 elements.
    assert own.weights == 2 * ((PARAMETERS - 65 * 4096) / tp + 65 * 4096)
    assert own.cache == 16 * 8193 * 2 * heads * 128 * 32 * 2
    found = card_of(llama, tp=tp, **LLAMA)
    assert found.gpus == tp
    assert found.runs[0].memory is not None
    assert found.runs[0].memory.kv_a_token == 2 * heads * 128 * 32 * 2


@pytest.mark.parametrize(
    "name", ["LlamaForCausalLM", "Qwen3MoeForCausalLM", "GptOssForCausalLM", "DeepseekV3ForCausalLM"]
)
@pytest.mark.parametrize("sizes", [LLAMA, {"batch_size": 2, "seq_len": 512, "cache_len": 100}])
def test_the_least_traffic_from_operands_is_the_proven_one(name: str, sizes: dict[str, int]) -> None:
    found = subject(name)
    whole = found.kernels(sizes, found.plain.model.values | sizes | {"w_bytes": 2, "a_bytes": 2, "kv_bytes": 2}, ONE)
    values = whole.evaluation.values
    assert least_traffic(whole.kernels, values) == whole.evaluation.totals.compulsory


def test_one_gpu_of_two_moves_half_of_what_is_divided(llama: Subject) -> None:
    own = holds(llama, LLAMA, Parallel(2))
    # Of 32,196,051,328 bytes (docs of the whole model): half of matrices and cache. Whole on each GPU are norms (65 *
    # 4096 * 2), the 16 rows that are looked up, 16 indices, and the logits, which are gathered.
    whole = 65 * 4096 * 2 + 16 * 4096 * 2 + 16 * 8 + 16 * 128256 * 2
    assert own.compulsory is not None
    assert float(own.compulsory) == pytest.approx((32_196_051_328 - whole) / 2 + whole, rel=1e-6)


def test_what_does_not_fit_has_no_time_and_says_what_would(llama: Subject) -> None:
    # 64 sequences of 8k: 64 * 8193 * 131072 = 68.73 GB beside 16.06 GB, and 0.25 GiB reserved: 79.22 GiB.
    # Logits and hidden states of the new tokens: 64 * 2 * (128,256 + 4,096) = 17 MB or 0.02 GiB.
    found = card_of(llama, **{**LLAMA, "batch_size": 64})
    for run in found.runs:
        assert run.step_us is None
        assert run.reason is not None
        assert re.fullmatch(r"does not fit, [78]\d\.\d\d of 7\d\.\d\d GiB; --tp 2 or -b \d+ does", run.reason)
        assert run.memory is not None and not run.memory.fits  # noqa: PT018
    assert "no time: does not fit, 79.23 of 79.19 GiB" in text_of(found)
    forced = card(
        llama,
        asked_for(device_named("h100-sxm"), {**LLAMA, "batch_size": 64}, None, (None, None)),
        PREDICTOR,
        force=True,
    )
    assert forced.runs[0].step_us is not None
    assert "does NOT fit" in text_of(forced)


def test_what_does_not_divide_says_so_in_its_place(llama: Subject) -> None:
    found = card_of(llama, tp=3, **LLAMA)
    assert all(run.step_us is None for run in found.runs)
    # 8 KV heads, 32 heads, 14,336 and 128,256 columns: 3 divides none of the first three.
    assert str(found.runs[0].reason).startswith("--tp 3 ")
    assert "no time: --tp 3" in text_of(found)


def test_a_launch_bound_step_is_called_so(llama: Subject) -> None:
    # One sequence on a small cache on a fast device: kernels are over before the host has launched them.
    found = card_of(llama, "b200-sxm", **{**LLAMA, "batch_size": 1, "cache_len": 16})
    eager, serving = found.runs
    assert eager.bound == "launch"
    assert eager.host_us is not None and eager.kernels_us is not None  # noqa: PT018
    assert eager.host_us.value > eager.kernels_us.value
    assert bound(eager).startswith("launch-bound: the host takes ")
    assert serving.host_us is None
    assert not bound(serving).startswith("launch")


def test_a_part_of_a_model_has_a_time_and_no_memory(llama: Subject) -> None:
    part = replace(llama, model=llama.model.model_copy(update={"parameters": {}, "values": {}}))
    assert held_by_formulas(part, {}) == PART_OF_A_MODEL
    found = card(llama, asked_for(device_named("h100-sxm"), LLAMA, None, (None, None)), PREDICTOR, held=PART_OF_A_MODEL)
    assert found.runs[0].step_us is not None
    assert found.runs[0].memory is None
    assert text_of(found).splitlines()[0] == f"device · H100 · memory not known: {PART_OF_A_MODEL}"


def test_a_device_that_was_not_measured_says_so(llama: Subject) -> None:
    assert card_of(llama, **LLAMA).notes == []
    (note,) = card_of(llama, "mi300x", **LLAMA).notes
    assert note.startswith("most kernels of this call were not measured on mi300x")


def test_an_engine_stands_in_place_of_the_run_that_it_is_like(llama: Subject) -> None:
    def names(engine: str) -> list[str]:
        return [run.engine for run in card_of(llama, engine=engine, **LLAMA).runs]

    assert names("sglang") == ["eager", "sglang"]
    assert names("transformers-compiled") == ["transformers-compiled", "vllm"]


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        # layers, heads, elements of a token, window
        ("LlamaForCausalLM", [(32, 8, 2 * 8 * 128, None)]),
        ("Qwen3MoeForCausalLM", [(48, 4, 2 * 4 * 128, None)]),
        ("GptOssForCausalLM", [(12, 8, 2 * 8 * 64, 128), (12, 8, 2 * 8 * 64, None)]),
        # A latent of 512 and 64 rotated elements, in 3 dense and 58 sparse layers.
        ("DeepseekV3ForCausalLM", [(3, 1, 576, None), (58, 1, 576, None)]),
    ],
)
def test_what_layers_keep_is_told_from_operands(name: str, kept: list[tuple[object, ...]]) -> None:
    found = held_by_formulas(subject(name), {})
    assert not isinstance(found, str)
    assert [(len(one.indices), one.heads, one.elements, one.window) for one in found.kept] == kept


def test_activations_are_those_of_the_largest_moment(llama: Subject) -> None:
    found = held_by_formulas(llama, {})
    assert not isinstance(found, str)
    live = found.live(2048, {})
    assert not isinstance(live, str)
    # Where the gated product is made: three tensors of 14,336 and three of 4,096 elements a token, of 2 bytes; cosines
    # and sines of 128 each.
    assert live.bytes == pytest.approx(2048 * 2 * (3 * 14336 + 3 * 4096 + 2 * 128), rel=0.001)


def test_other_values_than_the_configs_are_counted(llama: Subject) -> None:
    half = held_by_formulas(llama, {"num_hidden_layers": 16})
    assert not isinstance(half, str)
    # Half of the layers: 16 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096) less.
    assert sum(weight.stored for weight in half.weights) == 2 * (PARAMETERS - 16 * 218_112_000)
    asked = asked_of(asked_for(device_named("h100-sxm"), LLAMA, None, (None, None)))
    assert memory(half, device_named("h100-sxm"), asked).fits


def test_a_call_without_an_engine_holds_the_activations_and_logits_of_all_its_sequences(llama: Subject) -> None:
    """At the end of a prefill: logits of 128,256 and hidden states of 4,096 elements a position, of 2 bytes."""
    held = held_by_formulas(llama, {})
    assert not isinstance(held, str)

    def held_at(batch: int) -> int:
        sizes = {"batch_size": batch, "seq_len": 2048, "cache_len": 0}
        return round(room(held, asked_for(device_named("h100-sxm"), sizes, None, (None, None)), llama).held)

    a_sequence = 2048 * 2 * (128_256 + 4_096) + 2048 * 32 * 2 * 8 * 128 * 2
    assert held_at(32) - held_at(1) == pytest.approx(31 * a_sequence, rel=0.001)
    # An engine's step has logits of as many rows as it has sequences, and of each chunk the same activations.
    sizes = {"batch_size": 32, "seq_len": 2048, "cache_len": 0}
    engine = asked_for(device_named("h100-sxm"), sizes, "vllm", (None, None))
    assert room(held, engine, llama) == room(held, engine)


def test_a_table_that_the_head_shares_is_read_once() -> None:
    """Qwen3-0.6B: 28 layers of 1,024, 16 heads and 8 KV heads of 128, inner 3,072, tied rows of 151,936."""
    entry = Atlas(PACKAGED).load(next(Atlas(PACKAGED).entries(name="Qwen--Qwen3-0.6B")))
    own = holds(Subject(entry.model), {"batch_size": 4, "seq_len": 1, "cache_len": 4096}, Parallel(2))
    matrices = 28 * (2 * 1024 * 2048 + 2 * 1024 * 1024 + 3 * 1024 * 3072) + 151_936 * 1024
    norms = 28 * (2 * 1024 + 2 * 128) + 1024
    cache = 4 * 4097 * 28 * 2 * 8 * 128 * 2
    # Matrices and cache are divided. Whole on each GPU are norms, 64 inverse frequencies of 4 bytes, four indices of 8
    # bytes, and the logits.
    assert own.compulsory == matrices * 2 // 2 + norms * 2 + 64 * 4 + cache // 2 + 4 * 8 + 4 * 151_936 * 2
