"""Launches as polynomials: solved from made-up lists, refused where they are none, and the regimes of formulas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmp.predict.rows import Gemm
from lmp.predict.serve.regimes import Sizes, regimes_of
from lmp.predict.serve.structure import TERMS, Form, Formed, solved
from lmp.predict.serve.times import Side, Times
from lmp.records import ModelAnalysis

RESULTS = Path(__file__).parents[3] / "analysis_results"
SAMPLES: list[Sizes] = [(b, q, c) for b in (2, 3, 7) for q in (5, 11, 130) for c in (4, 60, 1000)]
ODD = (("dtype", "bfloat16"),)


def form(words: tuple[tuple[str, object], ...] = ODD, names: tuple[str, ...] = ("m",)) -> Form:
    return Form(Gemm, (words,), names, 1, "here")


def polynomial(coefficients: list[int], call: Sizes) -> int:
    b, q, c = call
    return sum(k * b**i * q**j * c**n for k, (i, j, n) in zip(coefficients, TERMS, strict=True))


@given(st.lists(st.integers(0, 10**9), min_size=len(TERMS), max_size=len(TERMS)))
def test_polynomials_are_found_exactly(coefficients: list[int]) -> None:
    found = solved(SAMPLES, lambda call: [(form(), (polynomial(coefficients, call),))])
    assert found is not None
    calls = [(4, 9, 77), (256, 2048, 100_000), (2, 5, 4)]
    for (size,), call in zip(found.sizes(np.array(calls))[0].tolist(), calls, strict=True):
        # Floating point holds sums up to 2**53 whole.
        assert size == pytest.approx(polynomial(coefficients, call), rel=1e-12)


def test_what_is_no_polynomial_is_refused() -> None:
    assert solved(SAMPLES, lambda call: [(form(), (min(call[2], 100),))]) is None
    assert solved(SAMPLES, lambda call: [(form(), (call[0] ** 3,))]) is None


def test_lists_that_differ_in_more_than_numbers_are_refused() -> None:
    def launches(call: Sizes) -> list[Formed]:
        return [(form((("dtype", "fp8" if call[0] > 2 else "bfloat16"),)), (1,))]

    assert solved(SAMPLES, launches) is None
    assert solved(SAMPLES, lambda call: [(form(), (1,))] * call[0]) is None


def test_too_few_samples_are_refused() -> None:
    assert solved(SAMPLES[:5], lambda call: [(form(), (call[0],))]) is None


def test_sizes_that_never_change_are_constants() -> None:
    samples: list[Sizes] = [(b, 1, c) for b in (2, 5, 9) for c in (10, 30, 700)]
    found = solved(samples, lambda call: [(form(), (call[0] * (call[2] + call[1]),))])
    assert found is not None
    # Batch and cached tokens alone: 1, c, b, b c.
    assert len(found.terms) == 4
    assert found.sizes(np.array([(16, 1, 2048)]))[0].tolist() == [[16 * 2049]]


def test_a_window_is_a_regime() -> None:
    (folder,) = RESULTS.glob("*GptOssForCausalLM*")
    model = ModelAnalysis.model_validate_json((folder / "model_analysis.json").read_text())
    sizes = {"batch_size": 3, "seq_len": 5, "cache_len": 7, "w_bytes": 2, "a_bytes": 2, "kv_bytes": 2}
    regimes = regimes_of(model, {**model.values, **sizes})
    # The window is 128: a cache of 2,000 and one of 9,000 tokens are beyond it, one of 40 is not.
    short, long, longer = regimes.of(np.array([(16, 1, 40), (16, 1, 2000), (16, 1, 9000)]))
    assert short != long
    assert long == longer
    # A prompt, one sequence alone and an empty cache are other forms.
    assert len({long, *regimes.of(np.array([(16, 700, 2000), (1, 1, 2000), (16, 700, 0)]))}) == 4


def times(us: list[float], shared: dict[str, list[float]], alone: list[float]) -> Times:
    side = Side(np.array(alone) ** 2, {name: np.array(part) for name, part in shared.items()})
    return Times(np.array(us), np.array(us) * 0.1, side, side, {"a/x": np.array(us)})


def test_errors_of_one_family_add_up_before_they_are_squared() -> None:
    both = times([100.0], {"a": [3.0]}, [4.0]) + times([50.0], {"a": [5.0], "b": [6.0]}, [0.0])
    # (3 + 5)^2 + 6^2 + 4^2 = 116.
    assert both.totals() == [pytest.approx((150, 150 - 116**0.5, 150 + 116**0.5))]
    # Twice as often: twice the width.
    assert (both * 2.0).totals() == [pytest.approx((300, 300 - 2 * 116**0.5, 300 + 2 * 116**0.5))]


def test_no_sum_is_below_its_floor() -> None:
    wide = times([100.0], {"a": [99.0]}, [0.0])
    # 100 - 99 = 1 is below a tenth of 100.
    assert wide.low.tolist() == [10.0]


def test_groups_are_sums_of_their_steps() -> None:
    steps = times([1.0, 2.0, 4.0], {"a": [1.0, 1.0, 1.0]}, [0.0, 0.0, 3.0])
    found = steps.grouped(np.array([1, 0, 1]), 2)
    assert found.us.tolist() == [2.0, 5.0]
    # Steps 0 and 2: (1 + 1)^2 + 3^2 = 13.
    assert found.above.width.tolist() == pytest.approx([1.0, 13**0.5])
    assert steps.picked(np.array([2, 0])).us.tolist() == [4.0, 1.0]


def test_a_stated_time_has_no_interval() -> None:
    stated: Any = times([10.0], {}, [2.0]).plus_us(5.0)
    assert stated.totals() == [(15.0, 13.0, 17.0)]
    assert stated.shares(0) == {"a/x": 10 / 15, "overhead/stated": 5 / 15}
