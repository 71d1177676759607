"""Compositions of step times that are made up, with the arithmetic beside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from lmp.predict.rewrite.profiles import Profile
from lmp.predict.serve.compose import Served, served
from lmp.predict.serve.regimes import Sizes
from lmp.predict.serve.times import Side, Times
from lmp.predict.serve.workload import Workload


class MadeUp:
    """Steps of 1,000 us, 1 us for each new token in products, and 1 us for each 100 tokens seen in attention."""

    def __init__(self, schedule: str = "mixed", overhead_us: float = 0.0, logits: float = 0.0) -> None:
        self.profile = Profile.model_validate({"rules": [], "schedule": schedule, "overhead_us": overhead_us})
        self.logits = logits

    def times(self, calls: Sequence[Sizes], families: Iterable[str] = (), without: Iterable[str] = ()) -> Times:
        batch, new, cached = np.array(calls, dtype=float).reshape(-1, 3).T
        products, attention = 1000 + batch * new, batch * new * (new + cached) / 100
        us = attention if tuple(families) else products if tuple(without) else products + attention
        us = us + self.logits * batch * new
        # Every step errs by 10 % alone and by nothing together.
        side = Side((0.1 * us) ** 2)
        return Times(us, 0 * us, side, side, {"gemm/calibrated": us})

    def without(self, rule: str) -> MadeUp:
        assert rule == "last_token_logits"
        return MadeUp(self.profile.schedule, self.profile.overhead_us, logits=2.0)


def one(steps: MadeUp | None = None, room: float | None = None, **fields: Any) -> Served:
    work = Workload.model_validate({"isl": 100, "osl": 200, "concurrency": 4, **fields})
    (found,) = served(steps or MadeUp(), [work], None if room is None else [room])  # type: ignore[arg-type]
    return found


def test_a_steady_stream_waits_for_the_prompts_of_the_others() -> None:
    found = one()
    # Mean cache: 100 + 200 / 2 = 200. A decode of 4: 1,000 + 4 + 4 * 201 / 100 = 1,012.04 us.
    assert found.decode[0] == pytest.approx(1012.04)
    # A prompt of 100: 1,000 + 100 + 100 * 100 / 100 = 1,200 us.
    assert found.prefill[0] == pytest.approx(1200)
    # 1,012.04 + 3 * 1,200 / 200 = 1,030.04.
    assert found.tpot[0] == pytest.approx(1030.04)
    # 4 answers of 200 tokens: 200 decodes and 4 prompts. 800 / (200 * 1,012.04 + 4 * 1,200) us = 3,860.9 a second.
    assert found.tokens_per_s[0] == pytest.approx(800 / (200 * 1012.04e-6 + 4 * 1200e-6))
    assert found.requests_per_s == pytest.approx(found.tokens_per_s[0] / 200)


def test_one_wave_waits_for_none() -> None:
    found = one(stream="wave")
    assert found.tpot[0] == pytest.approx(1012.04)
    # Its prompts are computed all the same.
    assert found.tokens_per_s[0] == pytest.approx(one().tokens_per_s[0])


def test_errors_of_steps_add_in_quadrature_as_often_as_they_run() -> None:
    us, low, high = one().tpot
    # 10 % of 1,012.04 and of 18 us: sqrt(101.204^2 + 1.8^2) = 101.22.
    assert us - low == pytest.approx(101.22, abs=0.001)
    assert high - us == pytest.approx(101.22, abs=0.001)


def test_prompts_in_chunks_with_a_part_in_the_cache() -> None:
    found = one(concurrency=1, prefix=0.2, max_num_batched_tokens=50)
    # Tokens 20 to 69 on 20: 1,000 + 50 + 50 * 70 / 100 = 1,085; 70 to 99 on 70: 1,000 + 30 + 30 * 100 / 100 = 1,060.
    assert found.prefill[0] == pytest.approx(2145)
    # Alone on the server, it waits for nobody: a decode is 1,000 + 1 + 201 / 100.
    assert found.tpot[0] == pytest.approx(1003.01)
    assert found.ttft == found.prefill
    # Under load nothing says what a queue adds.
    assert one().ttft is None


def test_a_prompt_that_is_wholly_cached_computes_its_last_token() -> None:
    assert Workload(isl=4, osl=2, concurrency=1, prefix=0.99).chunks() == [(1, 1, 3)]


def test_the_longest_step_of_a_mix_has_both_attentions() -> None:
    # 100 new tokens beside 3 others: 1,000 + 103; attention 100 * 100 / 100 of the prompt, 3 * 201 / 100 of the others.
    assert one().longest[0] == pytest.approx(1103 + 100 + 6.03)
    # Alone it is the prompt.
    assert one(concurrency=1).longest[0] == pytest.approx(1200)


def test_prompts_first_wait_for_the_steps_after_their_own() -> None:
    found = one(MadeUp("prefill_first"), concurrency=5, max_num_batched_tokens=200)
    # Two prompts a step: 2, 2 and 1. A step of two: 1,000 + 200 + 2 * 100 * 100 / 100 = 1,400; the last one 1,200.
    # Two wait for 1,400 + 1,200, two for 1,200, and the last one for nothing: (5,200 + 2,400) / 5 = 1,520.
    decode = 1000 + 5 + 5 * 201 / 100
    assert found.tpot[0] == pytest.approx(decode + 1520 / 200)
    # 5 * 200 tokens in 200 decodes and 1,400 + 1,400 + 1,200 us of prompts.
    assert found.tokens_per_s[0] == pytest.approx(1000 / (200 * decode + 4000) * 1e6)
    assert found.longest[0] == pytest.approx(1400)


def test_long_prompts_first_go_one_by_one() -> None:
    found = one(MadeUp("prefill_first"), concurrency=3, max_num_batched_tokens=50)
    # Each has two steps: 1,000 + 50 + 25, and 1,000 + 50 + 50 with 50 cached: 2,175. They wait for 2, 1 and 0 of them.
    decode = 1000 + 3 + 3 * 201 / 100
    assert found.tpot[0] == pytest.approx(decode + 2175 / 200)


def test_a_full_cache_limits_what_runs() -> None:
    found = one(concurrency=64, room=2.9)
    assert found.running == 2
    # As two in flight.
    assert found.tpot[0] == pytest.approx(one(concurrency=2).tpot[0])


def test_overhead_is_of_each_step() -> None:
    plain, slow = one(), one(MadeUp(overhead_us=500))
    # A decode and 3 / 200 of a prompt's step: 500 + 7.5.
    assert slow.tpot[0] - plain.tpot[0] == pytest.approx(507.5)
    assert slow.shares["overhead/stated"] == pytest.approx(507.5 / slow.tpot[0])


def test_speculation_divides_a_longer_step() -> None:
    found = one(concurrency=2, stream="wave", speculative_tokens=3, acceptance=0.5, draft_us=100)
    # 4 tokens each: 1,000 + 8 + 2 * 4 * 204 / 100 + logits of each, 2 * 8; and 100 us of the draft: 1,140.32.
    assert found.decode[0] == pytest.approx(1140.32)
    # (1 - 0.5^4) / (1 - 0.5) = 1.875 tokens a step.
    assert found.tpot[0] == pytest.approx(1140.32 / 1.875)


@pytest.mark.parametrize(("acceptance", "tokens"), [(0.0, 1.0), (1.0, 4.0), (0.5, 1.875)])
def test_expected_tokens_of_a_step(acceptance: float, tokens: float) -> None:
    work = Workload(isl=1, osl=2, concurrency=1, speculative_tokens=3, acceptance=acceptance)
    assert work.tokens_a_step == tokens


def test_workloads_are_answered_each_by_itself() -> None:
    works = [Workload(isl=isl, osl=64, concurrency=c) for isl, c in ((30, 1), (500, 8), (100, 3))]
    together = served(MadeUp(), works)  # type: ignore[arg-type]
    for work, found in zip(works, together, strict=True):
        (alone,) = served(MadeUp(), [work])  # type: ignore[arg-type]
        assert found.tpot == pytest.approx(alone.tpot)
        assert found.workload == work
    assert served(MadeUp(), []) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"concurrency": 0}, "greater than or equal to 1"),
        ({"osl": 1}, "greater than or equal to 2"),
        ({"isl": 0}, "greater than or equal to 1"),
        ({"prefix": 1.0}, "less than 1"),
        ({"stream": "burst"}, "'steady' or 'wave'"),
        ({"speculative_tokens": 2}, "need an acceptance"),
        ({"acceptance": 0.5}, "give speculative_tokens too"),
        ({"draft_us": 5.0}, "give speculative_tokens too"),
        ({"speculative_tokens": 2, "acceptance": 1.5}, "less than or equal to 1"),
        ({"concurency": 3}, "Extra inputs"),
    ],
)
def test_contradictions_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Workload.model_validate({"isl": 10, "osl": 10, "concurrency": 1, **fields})
