"""Plans on made-up step times: what divides, what fits, the front, the best, and what is said where nothing is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmp.errors import UsageError
from lmp.predict.devices import device_named
from lmp.predict.plan.layouts import Layout, Sizes, layouts, sizes_of
from lmp.predict.plan.limits import Limits, microseconds
from lmp.predict.plan.options import Fit, Option, Reply, batches, best, front, nearest, options
from lmp.predict.plan.planning import Fleet, Requests, fit_of, planned
from lmp.predict.plan.writing import as_json

sys.path.append(str(Path(__file__).parents[1]))
from holdings import held, weight

H100 = device_named("h100-sxm")
DENSE = Sizes(heads=4, layers=2, experts=0)


def reply(tpot: float, rate: float, ttft: float = 1000.0) -> Reply:
    return Reply((tpot, tpot * 0.9, tpot * 1.2), (ttft, ttft, ttft), (rate, rate, rate))


def option(tp: int, batch: int, tpot: float, rate: float, ttft: float = 1000.0, gpus: int = 8) -> Option:
    layout = Layout(tp, replicas=gpus // tp)
    return Option(layout, batch, Fit(layout, batch, Fraction(1), Fraction(2), Fraction(1)), reply(tpot, rate, ttft))


def made_up(layout: Layout, sizes: Sequence[int]) -> list[Reply]:
    """A step of 10 ms for the weights, divided by tp, and 1 ms for each request."""
    found = []
    for batch in sizes:
        tpot = 10_000 / layout.tp + 1000 * batch
        found.append(reply(tpot, batch * 1e6 / tpot, 50_000 / layout.tp))
    return found


# --- layouts ---------------------------------------------------------------------------------------------------------


def test_every_layout_uses_all_gpus_and_divides() -> None:
    # 12 heads: 1, 2 and 4 GPUs of the divisors of 8; two layers: 1 or 2 stages; 8 / (tp * pp) replicas.
    found = layouts(8, Sizes(heads=12, layers=2, experts=0))
    assert {(one.tp, one.pp, one.replicas) for one in found} == {
        (1, 1, 8), (1, 2, 4), (2, 1, 4), (2, 2, 2), (4, 1, 2), (4, 2, 1),
    }  # fmt: skip
    assert {one.ep for one in found} == {1}


def test_experts_are_divided_over_the_group_where_they_divide() -> None:
    # 6 experts over 2 GPUs: 3 each; over 4 GPUs they do not divide.
    found = layouts(4, Sizes(heads=4, layers=1, experts=6))
    assert {(one.tp, one.ep) for one in found} == {(1, 1), (2, 1), (2, 2), (4, 1)}


@given(gpus=st.integers(1, 64), heads=st.integers(1, 64), layers=st.integers(1, 64), experts=st.integers(0, 64))
def test_layouts_divide(gpus: int, heads: int, layers: int, experts: int) -> None:
    found = layouts(gpus, Sizes(heads, layers, experts))
    assert len(set(found)) == len(found) > 0
    for one in found:
        assert one.tp * one.pp * one.replicas == gpus
        assert heads % one.tp == 0
        assert one.pp <= layers
        assert one.ep in (1, one.tp)
        assert one.ep == 1 or experts % one.ep == 0


def test_sizes_come_from_the_config_and_the_experts() -> None:
    assert sizes_of(held()) == DENSE
    stack = weight("model.layers.0.mlp.experts", 6, 8, 16, name="gate_up_proj")
    assert sizes_of(held(weights=(*held().weights, stack))).experts == 6


# --- options ---------------------------------------------------------------------------------------------------------


def test_batches_grow_by_a_quarter_of_a_power_of_two_and_end_at_the_largest() -> None:
    assert batches(0) == []
    assert batches(1) == [1]
    # 4, 5, 6, 7 quarters of 4, of 8 and of 16.
    assert batches(27) == [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 27]
    assert batches(10**6)[-1] == 1024


def test_figures_of_an_option() -> None:
    # 20 ms a token: 50 tokens/s per user; 800 tokens/s of a replica on 4 GPUs: 200 per GPU, 1600 on 8 GPUs.
    one = option(4, 16, 20_000, 800)
    assert (one.per_user, one.per_gpu, one.tokens_per_s) == (50.0, 200.0, 1600.0)


def test_the_front_has_what_no_other_one_beats() -> None:
    fast, dear, beaten, large = option(8, 1, 5000, 200), option(4, 4, 10_000, 400), option(2, 4, 12_000, 100), None
    large = option(1, 16, 20_000, 800)
    # Per user 200, 100, 83, 50; per GPU 25, 100, 50, 800: the third has less of both than the second.
    assert front([large, beaten, dear, fast]) == [fast, dear, large]


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=1, max_size=20))
def test_nothing_on_the_front_is_beaten_and_all_else_is(points: list[tuple[int, int]]) -> None:
    every = [option(1, 1, 1000 * tpot, rate) for tpot, rate in points]
    kept = front(every)
    spots = {(one.per_user, one.per_gpu) for one in every}
    for user, gpu in spots:
        beaten = any(u >= user and g >= gpu and (u, g) != (user, gpu) for u, g in spots)
        assert beaten != any((one.per_user, one.per_gpu) == (user, gpu) for one in kept)


def test_the_best_is_the_most_tokens_within_the_limits() -> None:
    slow, fast = option(1, 16, 40_000, 800), option(2, 8, 20_000, 900)
    assert best([slow, fast], Limits()) == slow  # 800 per GPU for 450
    assert best([slow, fast], Limits(tpot=30_000)) == fast
    assert best([slow, fast], Limits(tpot=30_000, ttft=500)) is None
    # TPOT 20 ms is 2 times 10 ms, 40 ms is 4 times.
    assert nearest([slow, fast], Limits(tpot=10_000)) == fast


def test_only_what_fits_is_predicted() -> None:
    fits = [Fit(Layout(tp), most, Fraction(1), Fraction(2), Fraction(1)) for tp, most in ((1, 0), (2, 3))]
    asked: list[int] = []

    def serve(layout: Layout, sizes: Sequence[int]) -> list[Reply]:
        asked.append(layout.tp)
        return made_up(layout, sizes)

    found, considered = options(fits, serve)
    assert [(one.layout.tp, one.batch) for one in found] == [(2, 1), (2, 2), (2, 3)]
    assert asked == [2]
    assert considered.refused == {}


def test_a_layout_that_does_not_divide_is_named() -> None:
    def serve(layout: Layout, sizes: Sequence[int]) -> list[Reply]:
        if layout.tp == 2:
            raise UsageError("--tp 2 does not divide the 3 parts\nallowed are 1, 3")
        return made_up(layout, sizes)

    found = planned(held(), small(), Requests(512, 256), serve, Limits())
    assert {one.layout.tp for one in found.found} == {1}
    assert "1 x tp 2 does not divide: --tp 2 does not divide the 3 parts" in found.reasons


# --- plans -----------------------------------------------------------------------------------------------------------


def small(gpus: int = 2, memory: int | None = None) -> Fleet:
    return Fleet(H100 if memory is None else replace(H100, memory=memory, visible_memory=None), gpus)


def test_a_plan_takes_the_largest_batch_within_the_limit_and_says_why() -> None:
    found = planned(held(), small(), Requests(512, 256), made_up, Limits(tpot=20_000))
    # tp 1: 10 + B <= 20 ms holds for B = 10, 10 / 20 ms = 500 tokens/s per GPU; tp 2: 5 + 14 = 19 ms, 14 / 19 ms / 2
    # GPUs = 368. B = 12 and 16 take 22 and 21 ms. Two stages are tried as well, of one time: 10 / 20 ms / 2 GPUs = 250.
    assert (found.chosen.layout, found.chosen.batch) == (Layout(1, replicas=2), 10)
    assert found.chosen.per_gpu == pytest.approx(500)
    assert "batch 12 has a TPOT of 22.00 ms" in found.reasons
    assert "1 x tp 2 has 368 tokens/s per GPU, -26 %, at batch 14" in found.reasons
    assert all(one.meets(found.limits) for one in found.front)
    assert found.front[0].per_user >= found.front[-1].per_user


def test_limits_that_contradict_each_other_name_the_nearest() -> None:
    # The least TPOT is 5 + 1 = 6 ms, of tp 2 at batch 1; the least TTFT is 25 ms.
    with pytest.raises(UsageError, match=r"--tpot 1ms is below the least, 6\.00 ms") as told:
        planned(held(), small(), Requests(512, 256), made_up, Limits(tpot=1000))
    assert "the nearest is 1 x tp 2 at batch 1: TPOT 6.00 ms, TTFT 25.0 ms" in str(told.value)
    with pytest.raises(UsageError, match=r"--ttft 1ms is below the least, 25\.00 ms"):
        planned(held(), small(), Requests(512, 256), made_up, Limits(tpot=30_000, ttft=1000))


def test_a_model_that_does_not_fit_says_what_it_takes() -> None:
    with pytest.raises(UsageError, match="no layout on 2 x h100-sxm fits") as told:
        planned(held(), small(memory=10**6), Requests(512, 256), made_up, Limits())
    assert "give more --gpus" in str(told.value)


def test_memory_of_a_layout_counts_whole_requests() -> None:
    one, two = (fit_of(held(), small(), Requests(512, 256), Layout(tp)) for tp in (1, 2))
    assert two.weights < one.weights
    # 2 layers of 16 elements of 2 bytes, blocks of 16 tokens: 768 tokens are 48 blocks of 16 * 64 = 1,024 bytes.
    assert one.most == one.free // (48 * 1024)


def test_a_plan_of_one_batch_tries_no_other() -> None:
    found = planned(held(), small(), Requests(512, 256, 5), made_up, Limits())
    assert {one.batch for one in found.found} == {5}
    # tp 1: 10 + 5 = 15 ms, 5 / 15 ms = 333 tokens/s per GPU; tp 2: 5 + 5 = 10 ms, 5 / 10 ms / 2 = 250.
    assert (found.chosen.layout, found.chosen.per_gpu) == (Layout(1, replicas=2), pytest.approx(1000 / 3))
    with pytest.raises(UsageError, match="no layout holds 1,099,511,627,776 requests of 768 tokens in a replica"):
        planned(held(), small(), Requests(512, 256, 2**40), made_up, Limits())


def test_a_plan_as_json_has_every_option() -> None:
    found = planned(held(), small(), Requests(512, 256), made_up, Limits(tpot=20_000))
    made = as_json(found)
    assert made["limits"] == {"tpot_ms": 20.0, "ttft_ms": None}
    assert len(made["options"]) == len(found.found)  # type: ignore[arg-type]
    assert made["best"]["tpot_ms"] == [20.0, 18.0, 24.0]  # type: ignore[index]


@pytest.mark.parametrize(("text", "us"), [("30ms", 30_000), ("1s", 1e6), ("0.5 ms", 500), ("250us", 250)])
def test_times_have_units(text: str, us: float) -> None:
    assert microseconds(text, "--tpot") == us


@pytest.mark.parametrize("text", ["30", "0ms", "-1s", "fast", "1e3ms", ""])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a time above 0"):
        microseconds(text, "--tpot")
