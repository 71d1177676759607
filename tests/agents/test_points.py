"""Points and calls as text: sets with names, shapes in the sizes that give them."""

from __future__ import annotations

import pytest

from lmp.agents.facts import CalledClass, misfits
from lmp.agents.points import CallAt, InputAt, PointSets, calls_text, points_text, ranges


def call(number: int, batch: int, new: int, cached: int = 0, **more: object) -> CallAt:
    inputs = more.pop("inputs", (InputAt("x", "bfloat16", (batch, new, 8)),))
    runtime = {"batch_size": batch, "seq_len": new, "cache_len": cached}
    return CallAt(number, "prefill", runtime, inputs=inputs, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("points", "text"), [([], ""), ([3], "3"), ([1, 2, 3, 7], "1-3, 7"), ([9, 1, 2, 11, 12], "1-2, 9, 11-12")]
)
def test_ranges(points: list[int], text: str) -> None:
    assert ranges(points) == text


def test_sets_have_names_in_their_order() -> None:
    sets = PointSets([1, 2, 3, 4])
    assert [sets.name(p) for p in ([1, 2], [2, 3], [2, 1], [4], [1, 2, 3, 4])] == [
        "A",
        "B",
        "A",
        "point 4",
        "all points",
    ]
    assert str(sets) == "A = 1-2; B = 2-3"
    many = PointSets(range(100))
    names = [many.name([n, n + 1]) for n in range(30)]
    assert names[25:28] == ["Z", "A1", "B1"]
    assert len(set(names)) == 30


def test_points_say_what_differs_of_what_is_read_once() -> None:
    other = {"config.width": 16, "config.vocab": 9}
    calls = [call(1, 3, 11), call(2, 2, 9, changed=other), call(2, 2, 9, changed=other), call(3, 1, 4, changed=other)]
    assert list(points_text(calls, {"config.width"})) == [
        "1. prefill (3, 11, 0)",
        "2. prefill (2, 9, 0); config.width=16",
        "3. prefill (1, 4, 0); as at 2",
    ]


def test_shapes_are_written_in_the_sizes_that_give_them() -> None:
    def at(number: int, batch: int, new: int, cached: int, width: int) -> CallAt:
        mask = InputAt("mask", "bool", (batch, 1, new, new + cached), "broadcast along [0]")
        odd = InputAt("odd", "int64", (new * 2 + number,))
        hidden = InputAt("x", "bfloat16", (batch, new, width))
        sizes = {"config.width": width, "config.heads": 4}
        return call(number, batch, new, cached, sizes=sizes, inputs=(hidden, mask, odd, InputAt("gate", "None")))

    calls = [at(1, 3, 11, 0, 8), at(2, 4, 1, 13, 16)]
    [line] = calls_text(calls, PointSets([1, 2]), {"config.width", "config.heads"})
    assert line == (
        "At all points: x bfloat16 [batch_size, seq_len, width]; "
        "mask bool [batch_size, 1, seq_len, seq_len + cache_len] (broadcast along [0]); "
        "odd int64 [23 or 4]; None: gate"  # 2 * 11 + 1, 2 * 1 + 2
    )


def test_calls_of_different_kinds_are_entries_of_their_own() -> None:
    gated = (InputAt("x", "bfloat16", (2, 9, 8)), InputAt("gate", "float32", (2, 9)), InputAt("m", "None"))
    plain = (InputAt("x", "bfloat16", (3, 11, 8)), InputAt("gate", "None"), InputAt("m", "None"))
    calls = [call(1, 3, 11, inputs=plain, times=4), call(2, 2, 9, inputs=gated)]
    assert list(calls_text(calls, PointSets([1, 2]), ())) == [
        "At point 1, up to 4 calls alike: x bfloat16 [batch_size, seq_len, 8]; None: gate",
        "At point 2: x bfloat16 [batch_size, seq_len, 8]; gate float32 [batch_size, seq_len]",
        "In all calls: m None",
    ]


def test_sizes_that_are_many_are_counted() -> None:
    calls = [call(n, 2, 3, inputs=(InputAt("x", "int64", (n * 10,)),)) for n in range(1, 7)]
    [line] = calls_text(calls, PointSets(range(1, 7)), ())
    assert line == "At all points: x int64 [one of 6 sizes]"


def test_where_a_reference_does_not_fit_is_said() -> None:
    norm = CalledClass("a.Norm", {}, takes={"x": ["{batch_size}"]}, dtype="bfloat16")
    gated = call(1, 2, 3, inputs=(InputAt("x", "float32", (2,)), InputAt("gate", "bfloat16", (2,))))
    assert misfits(norm, [gated]) == [
        "x is float32, and its analysis is for bfloat16",
        "it is called with gate, which its analysis has not",
    ]
    assert misfits(norm, [call(1, 2, 3, inputs=(InputAt("x", "bfloat16", (2,)), InputAt("gate", "None")))]) == []
    assert misfits(CalledClass("a.Norm", {}, missing="none"), [gated]) == []
