"""Assumptions of a draft on the sizes of a call: intervals, phases and multiples are taken, lists of points are not."""

from __future__ import annotations

import pytest

from lmp.agents.gate.assumptions import isolated

VALUES = {"sliding_window": 300, "max_position_embeddings": 777}


@pytest.mark.parametrize(
    "assumption",
    [
        "{seq_len} <= 512",
        "{seq_len} >= 2",
        "{seq_len} == 1",
        "{cache_len} == 0",
        "{cache_len} == 0 or {seq_len} == 1",
        "{seq_len} % 64 == 0",
        "{seq_len} <= {sliding_window}",
        "{seq_len} + {cache_len} <= {max_position_embeddings}",
        "{seq_len} // 64 == 2",
        "{seq_len} == {cache_len}",
        "{hidden_size} == 64",
        "{a_bytes} != 4",
    ],
)
def test_an_interval(assumption: str) -> None:
    assert list(isolated([assumption], VALUES)) == []


@pytest.mark.parametrize(
    ("assumption", "name", "left"),
    [
        ("{seq_len} == 13 or {seq_len} == 29", "seq_len", "13, 29"),
        ("{seq_len} == 4096", "seq_len", "4096"),
        ("{batch_size} == 6 and {seq_len} < 100", "batch_size", "6"),
        ("{seq_len} == {sliding_window}", "seq_len", "300"),
        ("({seq_len} - 5) * ({seq_len} - 8) == 0", "seq_len", "5, 8"),
        ("{cache_len} == 21 and {seq_len} == 1", "cache_len", "21"),
    ],
)
def test_a_list_of_points(assumption: str, name: str, left: str) -> None:
    (finding,) = isolated(["{a_bytes} != 4", assumption], VALUES)
    assert f"it leaves {name} single values ({left})" in finding.message
