"""One screen: host time, bounds, shares, memory, and what would help, with the arithmetic beside."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lmp.errors import UsageError
from lmp.predict.charts import plottable
from lmp.predict.devices import device_named
from lmp.predict.eager import CallTime, Timed
from lmp.predict.prediction import Prediction, Predictor, total
from lmp.predict.quantising import narrowed
from lmp.predict.rewrite.profiles import profile_named
from lmp.predict.screen.asking import Answer, Ask, Subject, answer, asked_for
from lmp.predict.screen.changes import changes
from lmp.predict.screen.dearest import dearest
from lmp.predict.screen.plots import Axes, draw, over_sizes, sizes_of
from lmp.predict.screen.room import room
from lmp.predict.screen.whole import Wanted, whole
from lmp.predict.screen.writing import as_json
from lmp.records import ModelAnalysis

sys.path.append(str(Path(__file__).parents[1]))
from holdings import held

from kernel_lists import product

H100 = device_named("h100-sxm")
RESULTS = Path(__file__).parents[3] / "analysis_results"
EAGER = profile_named("transformers-eager")
PREDICTOR = Predictor()


def time(us: float, bound: str = "memory") -> Prediction:
    return Prediction(us, us, us, us / 2, bound, "calibrated", "id", 2.0, (), "gemm", "kernel", 0.0)


@pytest.fixture(scope="module")
def llama() -> Subject:
    (file,) = RESULTS.glob("*.LlamaForCausalLM@*/model_analysis.json")
    return Subject(ModelAnalysis.model_validate_json(file.read_text(encoding="utf-8")))


def made_up(llama: Subject, launches: int, us: float) -> Answer:
    """So many launches of one kernel of so many microseconds."""
    now = answer(llama, asked_for(H100, SIZES, None, (None, None)), PREDICTOR)
    operators = (Timed(product("p", "", 4, 8, 8, repeat=launches), time(us)),)
    whole = total([operators[0].time], [launches])
    return replace(now, call=CallTime(operators, whole, launches), profile=EAGER)


SIZES = {"batch_size": 2, "seq_len": 1, "cache_len": 64}


def test_a_step_takes_as_long_as_its_launches_where_kernels_are_small(llama: Subject) -> None:
    # 100 launches of 22.5 us are 2,250 us, of kernels that take 200 us together.
    found = made_up(llama, 100, 2.0)
    assert found.us[0] == pytest.approx(2250)
    assert found.bound == "launch"
    assert found.us[1:] == pytest.approx((1020, 2750))  # 100 times 10.2, and 27.5
    # 2 new tokens in 2,250 us.
    assert found.tokens_per_s[0] == pytest.approx(2e6 / 2250)


def test_kernels_that_take_longer_hide_their_launches(llama: Subject) -> None:
    found = made_up(llama, 100, 50.0)
    assert found.us[0] == pytest.approx(5000)
    assert found.bound == "memory"


def test_graphs_hide_the_launches_of_an_engine(llama: Subject) -> None:
    found = answer(llama, asked_for(H100, SIZES, "vllm", (None, None)), PREDICTOR)
    assert found.host == (0, 0, 0)
    assert found.us == found.call.whole


def test_the_dearest_kernels_stand_for_all_time_and_have_lines(llama: Subject) -> None:
    found = answer(llama, asked_for(H100, SIZES, "vllm", (None, None)), PREDICTOR)
    every = dearest(found, 10**6)
    assert sum(one.share for one in every) == pytest.approx(1)
    assert sum(one.runs for one in every) == found.call.launches
    assert [one.us for one in every] == sorted((one.us for one in every), reverse=True)
    attention = next(one for one in every if "attention" in one.operation)
    # The write of the new tokens and the attention come of two cats of the cache and of sdpa.
    assert len(attention.lines) > 1
    assert dearest(found, 3) == every[:3]


def test_changes_are_ordered_by_gain_and_say_what_to_type(llama: Subject) -> None:
    now = answer(llama, asked_for(H100, SIZES, None, (None, None)), PREDICTOR)
    found = changes(llama, now, PREDICTOR)
    gains = [one.gain for one in found if one.gain is not None]
    assert gains == sorted(gains, reverse=True)
    options = {one.what: one for one in found}
    assert options["a serving engine"].option == "--engine vllm"
    assert options["fp8 cache"].option == "--kv-dtype fp8"
    # Each is the prediction that its option gives: twice the batch is 4 sequences.
    twice = answer(llama, asked_for(H100, {**SIZES, "batch_size": 4}, None, (None, None)), PREDICTOR)
    assert options["twice the batch"].us == twice.us
    assert options["twice the batch"].gain == pytest.approx(twice.tokens_per_s[0] / now.tokens_per_s[0])
    fp8 = answer(llama, asked_for(H100, SIZES, None, ("fp8", "bf16")), PREDICTOR)
    assert options["fp8 weights and products"].us == fp8.us


def test_a_change_that_cannot_be_had_says_why(llama: Subject) -> None:
    a100 = device_named("a100-sxm")
    now = answer(llama, asked_for(a100, SIZES, "vllm", (None, None)), PREDICTOR)
    found = {one.what: one for one in changes(llama, now, PREDICTOR, lambda ask: "no room")}
    assert found["fp8 weights and products"].reason == "a100-sxm has no fp8 products"
    assert found["twice the batch"].reason == "no room"
    assert found["twice the batch"].us is None


# --- memory ----------------------------------------------------------------------------------------------------------


def ask(**given: int) -> Ask:
    return Ask(H100, {"batch_size": 2, "seq_len": 1, "cache_len": 63, **given})


def test_memory_held_is_the_sum_of_its_parts() -> None:
    found = room(held(), ask())
    # 2 layers of 16 elements of 2 bytes, 64 tokens with the new one, 2 sequences: 2 * 16 * 2 * 64 * 2 = 8,192 bytes.
    assert found.cache == 8192
    # One call of 2 sequences of 1 token: 2 * (100 + 1) bytes; 0.25 GiB of reserve.
    assert found.held == found.weights + 8192 + 2 * 101 + 2**30 // 4
    assert found.each == 8192 // 2 + 101
    assert found.free == found.total - found.held
    assert found.fits


def test_narrower_weights_leave_embeddings_and_logits_as_they_are() -> None:
    wide, narrow = room(held(), ask()), room(held(), ask(w_bytes=1))
    # Of each layer 16*8 + 8*8 + 8*8 + 8*16 + 16*8 + 8*16 = 640 elements are matrices, and the embedding of 64*8 = 512
    # counts as one here: 2 * 640 + 512 bytes less.
    assert wide.weights - narrow.weights == 2 * 640 + 512
    assert narrowed(held(), 2) == held()


def test_a_model_that_does_not_fit_is_refused_unless_forced(llama: Subject) -> None:
    small = replace(H100, memory=10**8, visible_memory=None)
    wanted = replace(asked_for(H100, SIZES, None, (None, None)), device=small)
    with pytest.raises(UsageError, match=r"one h100-sxm has 0\.1 GiB for it: it does not fit") as told:
        whole(llama, wanted, PREDICTOR, held(), Wanted())
    assert "--force" in str(told.value)
    # 0.25 GiB of reserve, weights and activations leave no room in 0.1 GiB; in 0.252 GiB some of 64 sequences fit.
    close = replace(H100, memory=270_600_000, visible_memory=None)
    many = replace(asked_for(H100, {**SIZES, "batch_size": 4096}, None, (None, None)), device=close)
    assert room(held(), many).largest_batch
    assert any("largest batch at this length" in told for told in whole(llama, many, PREDICTOR, held()).warnings)
    forced = whole(llama, wanted, PREDICTOR, held(), Wanted(changes=False, force=True))
    assert any("does not fit" in warning for warning in forced.warnings)


def test_json_has_what_the_screen_has(llama: Subject) -> None:
    wanted = asked_for(H100, SIZES, "vllm", (None, None))
    found = as_json(whole(llama, wanted, PREDICTOR, held(), Wanted()), "vllm")
    assert found["step_us"][0] == found["us"]  # type: ignore[index]
    assert found["memory"]["fits"] is True  # type: ignore[index]
    assert found["bounded_by"] in ("memory", "latency", "compute")
    assert {one["what"] for one in found["next"]} >= {"fp8 cache", "twice the batch"}  # type: ignore[attr-defined]


# --- plots -----------------------------------------------------------------------------------------------------------


def test_batches_of_a_plot(llama: Subject) -> None:
    now = answer(llama, asked_for(H100, {**SIZES, "batch_size": 3}, "vllm", (None, None)), PREDICTOR)
    # Doubling up to 8 * 3 = 24, with 3 and 24 themselves; memory for 20 ends it there.
    assert sizes_of(now) == [1, 2, 3, 4, 8, 16, 24]
    assert sizes_of(now, most=20) == [1, 2, 3, 4, 8, 16, 20]


def test_a_plot_is_a_picture(llama: Subject, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    now = answer(llama, asked_for(H100, SIZES, "vllm", (None, None)), PREDICTOR)
    found = over_sizes(llama, now, PREDICTOR, "batch_size", [1, 2, 4])
    file = plottable(tmp_path / "a.svg")
    draw(found, now, Axes(), "Llama", file)
    text = file.read_text()
    assert text.startswith("<?xml")
    with pytest.raises(UsageError, match="has no ending of a picture"):
        plottable(tmp_path / "a.jpeg2")


def test_unknown_words_are_refused() -> None:
    with pytest.raises(UsageError, match="there is no dtype 'fp9'"):
        asked_for(H100, SIZES, None, ("fp9", None))
    with pytest.raises(UsageError, match="there is no profile of the engine 'vlm'"):
        asked_for(H100, SIZES, "vlm", (None, None))
