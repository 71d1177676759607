"""Many points: each is what `totals` gives there, in order, whatever the chunks."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import small_models as small

from lmp.errors import EvaluationError, UsageError
from lmp.link.numbers import ModelNumbers
from lmp.link.sweep import Chunk, plan
from lmp.link.values import Values, parse_axes, parse_values, values_for

COSTS = ("flops", "matmul_flops", "read", "write", "compulsory", "parameters_count")


def chunks(given: dict[str, Values], points: int = 100, **more: Any) -> list[Chunk]:
    numbers = ModelNumbers(small.model(**more))
    return list(plan(numbers.model, given).chunks(numbers, points))


def rows(found: list[Chunk], names: tuple[str, ...]) -> list[tuple[int, ...]]:
    return [row for c in found for row in zip(*({**c.values, **c.costs}[n].tolist() for n in names), strict=True)]


@pytest.mark.parametrize("points", [1, 2, 5, 7, 12, 1000])
def test_every_point_in_order(points: int) -> None:
    given: dict[str, Values] = {"batch_size": (1, 3), "seq_len": range(1, 8, 3), "cache_len": (0, 5), "w_bytes": (1,)}
    found = chunks(given, points)
    assert max(map(len, found)) <= points
    names = ("batch_size", "seq_len", "cache_len")
    numbers = ModelNumbers(small.model())
    expected = []
    for b, s, c in itertools.product(*(given[name] for name in names)):
        totals = numbers.totals(
            values_for(numbers.model, {"batch_size": b, "seq_len": s, "cache_len": c, "w_bytes": 1})
        )
        expected.append((b, s, c, *(getattr(totals, cost) for cost in COSTS)))
    assert rows(found, (*names, *COSTS)) == expected
    assert all(chunk.costs["flops"].dtype == np.int64 for chunk in found)


def test_numbers_beyond_64_bits_are_exact() -> None:
    found = chunks({"batch_size": (1, 2), "seq_len": (16,), "hidden_size": (8, 10**12)})
    # 3 * (2 * b * 16 * h * h + b * 16 * h)
    expected = [3 * (2 * b * 16 * h * h + b * 16 * h) for b in (1, 2) for h in (8, 10**12)]
    assert rows(found, ("flops",)) == [(flops,) for flops in expected]


def test_points_that_break_assumptions_are_marked() -> None:
    (chunk,) = chunks(
        {"batch_size": (1, 2), "seq_len": (4, 8, 16)}, assumptions=["{seq_len} <= 8", "{batch_size} * {seq_len} != 8"]
    )
    # 1*4 1*8 1*16 2*4 2*8 2*16: 16 is too long, 1*8 and 2*4 are 8
    assert chunk.holds.tolist() == [True, False, False, False, True, False]
    assert chunk.broken == {"{seq_len} <= 8": 2, "{batch_size} * {seq_len} != 8": 2}


def test_the_first_point_that_has_no_value_is_named() -> None:
    totals = small.model().totals.model_copy(update={"flops": "100 // ({seq_len} - 7) + {batch_size}"})
    with pytest.raises(EvaluationError) as caught:
        chunks({"batch_size": (1, 2, 3), "seq_len": range(1, 20)}, 1000, totals=totals)
    assert str(caught.value) == (
        f"{small.ROOT}: division by zero in 100 // ({{seq_len}} - 7) at batch_size=1, seq_len=7\n"
        "leave that point out, or set other values"
    )


def test_what_runs_less_than_no_times() -> None:
    kernels = [small.basic(3, "1", "0", "0", repeat="5 - {batch_size}")]
    with pytest.raises(EvaluationError, match="runs less than 0 times at batch_size=6, seq_len=1"):
        chunks({"batch_size": range(1, 9), "seq_len": (1, 2)}, kernels=kernels)


def test_a_billion_points_are_refused() -> None:
    with pytest.raises(UsageError) as caught:
        plan(small.model(), {"batch_size": range(1, 1001), "seq_len": range(1, 10**6 + 1)})
    assert str(caught.value) == (
        "a sweep of 1,000,000,000 points, 1,000 (batch_size) * 1,000,000 (seq_len), is more than the 10,000,000 that "
        "are allowed\nwiden a step, as in 1:1000:*2, or allow more with --max-points"
    )
    assert plan(small.model(), {"batch_size": range(1, 11), "seq_len": (1,)}, most=10).size == 10


def test_names_and_values_are_checked() -> None:
    def message(**given: Values) -> str:
        with pytest.raises(UsageError) as caught:
            plan(small.model(), given)
        return str(caught.value)

    assert "has no parameter 'sequence'" in message(batch_size=(1,), sequence=(1, 2))
    assert "seq_len has no value" in message(batch_size=(1, 2))
    assert message(batch_size=(2, 0), seq_len=(1,)) == "batch_size is set to 0\ngive whole numbers of at least 1"
    assert "at least 0" in message(batch_size=(1,), seq_len=(1,), cache_len=range(-1, 4))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("16", [16]),
        ("1,2,4", [1, 2, 4]),
        ("1:4", [1, 2, 3, 4]),
        ("1:4:+1", [1, 2, 3, 4]),
        ("8:30:8", [8, 16, 24]),
        ("8:32:8", [8, 16, 24, 32]),
        ("128:1024:*2", [128, 256, 512, 1024]),
        ("1:100:*10", [1, 10, 100]),
        ("3:20:*2", [3, 6, 12]),
        ("0:2,7", [0, 1, 2, 7]),
        ("5:5", [5]),
        ("1_000:3_000:1_000", [1000, 2000, 3000]),
    ],
)
def test_texts_of_several_values(text: str, values: list[int]) -> None:
    assert list(parse_values("seq_len", text)) == values
    assert list(parse_axes([f"seq_len={text}"])["seq_len"]) == values


def test_a_long_range_takes_no_memory() -> None:
    assert len(parse_values("x", "1:100000000000")) == 10**11
    with pytest.raises(UsageError, match="is set to 10,000,000,000,000,000 values"):
        parse_values("x", f"1:{10**16}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("4:1", "a range that ends before it begins"),
        ("1:4:0", "in steps of 0"),
        ("1:4:-1", "in steps of -1"),
        ("1:4:*1", "which never ends"),
        ("0:4:*2", "which never ends"),
        ("1:2:3:4", "which is not a range"),
        ("1:x", "set to 'x', which is not a whole number"),
        ("1,", "set to '', which is not a whole number"),
        (":5", "set to '', which is not a whole number"),
    ],
)
def test_texts_that_are_no_values(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_values("seq_len", text, "--seq-len ")
    assert message in str(caught.value)
    assert "--seq-len " in str(caught.value).splitlines()[1]


def test_commas_separate_settings_and_the_values_of_one() -> None:
    found = parse_axes(["batch_size=1,2,4,seq_len=1:3,8,x=5", "y=7"])
    assert {name: list(values) for name, values in found.items()} == {
        "batch_size": [1, 2, 4],
        "seq_len": [1, 2, 3, 8],
        "x": [5],
        "y": [7],
    }
    with pytest.raises(UsageError, match="x is set twice: to several values and to 3"):
        parse_axes(["x=1,2", "x=3"])
    assert len(parse_axes(["x=1:100000000000", "x=1:100000000000"])["x"]) == 10**11


def test_the_cache_has_the_width_of_activations_at_each_point() -> None:
    totals = small.model().totals.model_copy(update={"read": "{batch_size} * {kv_bytes} + {a_bytes}"})
    given: dict[str, Values] = {"batch_size": (1, 2), "seq_len": (1,), "a_bytes": (1, 4)}
    names = ("a_bytes", "kv_bytes", "read")
    # b * kv + a, with kv = a
    expected = [(1, 1, 2), (4, 4, 8), (1, 1, 3), (4, 4, 12)]
    assert rows(chunks(given, totals=totals), names) == expected
    # b * 1 + a
    given["kv_bytes"] = (1,)
    assert rows(chunks(given, totals=totals), names) == [(1, 1, 2), (4, 1, 5), (1, 1, 3), (4, 1, 6)]
