"""Many predictions are as each alone; a grid is exact at its points; memory as formulas is that of `room`."""

from __future__ import annotations

import functools
from fractions import Fraction
from pathlib import Path

import pytest

from kernel_lists import stored_model
from lmp.errors import LmpError
from lmp.formula import Number
from lmp.formula.evaluate import exact
from lmp.observe.held import Held
from lmp.predict.devices import device_named
from lmp.predict.holding import held_by_formulas, with_every_logits
from lmp.predict.prediction import Predictor
from lmp.predict.screen.asking import Answer, Ask, Subject, answer, asked_for
from lmp.predict.screen.grid import Axes, Way, between, tables
from lmp.predict.screen.many import answers
from lmp.predict.screen.room import room
from lmp.predict.screen.room_table import RoomTable, room_table
from lmp.predict.shard.parallel import Parallel

RESULTS = Path(__file__).parents[2] / "analysis_results"
H100, A100 = device_named("h100-sxm"), device_named("a100-sxm")


def subject_of(name: str) -> Subject:
    return Subject(stored_model(name))


@pytest.fixture(scope="module")
def llama() -> Subject:
    return subject_of("LlamaForCausalLM")


def decode(batch: int, cache: int) -> dict[str, Number]:
    return {"batch_size": batch, "seq_len": 1, "cache_len": cache}


def test_many_are_as_each_alone(llama: Subject) -> None:
    asks = [
        asked_for(device, decode(batch, 2048), engine, (word, None), Parallel(tp))
        for word in (None, "fp8")
        for batch in (1, 8)
        for tp in (1, 4)
        for engine in (None, "vllm", "trtllm")
        for device in (H100, device_named("b200-sxm"))
    ]
    predictor = Predictor()
    for ask, found in zip(asks, answers(llama, asks, predictor), strict=True):
        alone = answer(llama, ask, predictor)
        assert isinstance(found, Answer)
        assert (found.us, found.bound, found.tokens_per_s) == (alone.us, alone.bound, alone.tokens_per_s)


def test_an_error_stands_in_the_place_of_its_call(llama: Subject) -> None:
    def ask(batch: int, tp: int) -> Ask:
        return asked_for(H100, decode(batch, 2048), "vllm", (None, None), Parallel(tp))

    found = answers(llama, [ask(1, 1), ask(1, 3), ask(2, 1)], Predictor())
    assert [isinstance(one, LmpError) for one in found] == [False, True, False]
    assert "--tp 3 does not divide" in str(found[1])


def test_an_operator_beyond_all_rows_is_an_error_and_no_traceback() -> None:
    # DeepSeek-V3 copies keys and values of 128 heads a token: 256 * 131,072 * 128 * 256 are more than 2 ** 40.
    ask = asked_for(H100, decode(256, 131_072), None, (None, None))
    (found,) = answers(subject_of("DeepseekV3ForCausalLM"), [ask], Predictor())
    assert isinstance(found, LmpError)


AXES = Axes("decode", (1, 4), (1024, 2048))


def test_a_table_has_its_points_and_what_lies_between_them(llama: Subject) -> None:
    predictor = Predictor()
    (found,) = tables(llama, [Way(H100, "vllm")], [AXES], predictor, {})

    def alone(batch: int, cache: int) -> float:
        return answer(llama, asked_for(H100, decode(batch, cache), "vllm", (None, None)), predictor).us[0]

    assert AXES.points == ((1, 1024), (1, 2048), (4, 1024), (4, 2048))
    assert [us[0] for us in found.us if us is not None] == [alone(*point) for point in AXES.points]
    assert AXES.centres == ((2, 1536),)
    # A third of the way from batch 1 to 4, half of the way from 1,024 to 2,048.
    guess = (alone(1, 1024) + alone(1, 2048)) / 2 * 2 / 3 + (alone(4, 1024) + alone(4, 2048)) / 2 / 3
    assert found.missed == (pytest.approx(abs(guess / alone(2, 1536) - 1)),)


def test_a_value_between_four() -> None:
    values = {(1, 1024): 10.0, (1, 2048): 20.0, (4, 1024): 40.0, (4, 2048): 50.0}
    # Half of the way in length: 15 and 45; a third in batch: 15 + 30 / 3 = 25.
    assert between(AXES, values, (2, 1536)) == pytest.approx(25)
    assert between(AXES, values, (4, 1024)) == 40
    assert between(AXES, values, (5, 1024)) is None
    assert between(AXES, values, (1, 1000)) is None


def test_a_device_without_the_dtype_is_a_reason(llama: Subject) -> None:
    (found,) = tables(llama, [Way(A100, "vllm", word="fp8")], [AXES], Predictor(), {})
    assert found.reason == "a100-sxm has no fp8 matrix products"
    assert set(found.us) == {None}


# --- memory ----------------------------------------------------------------------------------------------------------

LENGTHS = (1, 512, 2048)
CALLS = (decode(1, 8191), decode(16, 8192), decode(64, 100_000), {"batch_size": 2, "seq_len": 2048, "cache_len": 0})


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "GptOssForCausalLM", "DeepseekV3ForCausalLM"])
def test_memory_by_formulas_is_that_of_room(name: str) -> None:
    """Full attention, windows in groups of blocks, and latents; eager and with an engine's own allocations."""
    subject = subject_of(name)

    @functools.cache
    def held(tp: int) -> Held | str:
        return held_by_formulas(subject, {}, tp)

    table = room_table(held, [H100, A100], [1, 2], LENGTHS, (1, 4), lambda one: with_every_logits(one, subject, {}))
    assert isinstance(table, RoomTable)
    assert [of.tp for of in table.gpus] == [1, 4]
    for device in (H100, A100):
        for of in table.gpus:
            own = held(of.tp)
            assert isinstance(own, Held)
            for given in CALLS:
                for width, engine in ((None, None), (None, "vllm"), (1, None), (1, "vllm")):
                    sizes = given if width is None else {**given, "w_bytes": width}
                    ask = asked_for(device, sizes, engine, (None, None), Parallel(of.tp))
                    expected = room(own, ask, subject)
                    at = {**given, "kv_bytes": 2}
                    weights = of.weights["" if width is None else str(width)][engine is not None]
                    alive = of.serving[device.name] if engine else of.activations[LENGTHS.index(int(given["seq_len"]))]
                    alive *= 1 if engine else int(given["batch_size"])
                    held_bytes = weights + alive + of.reserve + Fraction(exact(of.cache, at))
                    assert held_bytes == expected.held
                    assert exact(of.token, at) == expected.kv_token
                    if engine:
                        left = table.totals[device.name] * table.utilization - weights - alive - of.reserve
                        assert of.block is not None
                        assert of.request is not None
                        blocks = max(left, Fraction(0)) // Fraction(exact(of.block, at))
                        assert blocks // exact(of.request, at) == expected.largest_batch


def test_a_tp_that_does_not_divide_is_left_out(llama: Subject) -> None:
    table = room_table(lambda tp: held_by_formulas(llama, {}, tp), [H100], [2], (1,), (1, 3))
    assert isinstance(table, RoomTable)
    assert [of.tp for of in table.gpus] == [1]
    assert room_table(lambda tp: "nobody knows", [H100], [2], (1,)) == "nobody knows"
