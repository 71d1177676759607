"""Values of a raw text: which match, which part, several runs, cut output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lmp.errors import PostFault
from lmp.lab.config import Series, ValueRule
from lmp.lab.post import Stored, line_sums, sha256
from lmp.lab.records import Capture
from lmp.lab.values import pairs_of, values_of


def stored(text: str, **fields: Any) -> Stored:
    record = {
        "id": "one", "argv": ["x"], "argv_template": ["x"], "env": {}, "tool": "x", "tool_version": None,
        "kernel": "Linux", "cpu": "cpu", "cpus": 2, "threads": 2, "memory": 2**30, "gpu": None,
        "date": "2026-11-23T00:00:00Z", "load_before": [0, 0, 0], "load_after": [0, 0, 0], "exit_code": 0,
        "status": "ok", "message": "", "seconds": 1, "repeat": 1, "left_out": 0, "escaped": 0,
        "workload_sha256": {}, "redactions": {}, "output_sha256": sha256(text), "line_sums": line_sums(text),
    }  # fmt: skip
    return Stored(Capture.model_validate(record | fields), text, Path())


STEPS = "before 9 ms\n@@decode\nstep 3 ms\nstep 5 ms\nstep 4 ms\n@@end\nstep 100 ms\n"


@pytest.mark.parametrize(
    ("take", "value"),
    [("first", 3), ("last", 4), ("sum", 12), ("min", 3), ("max", 5), ("median", 4), ("count", 3)],
)
def test_each_way_to_take_a_value(take: Any, value: int) -> None:
    rule = ValueRule(pattern=r"^step (\d+) ms", take=take, after="@@decode", until="@@end")
    assert values_of(stored(STEPS), {"step": rule})["step"] == value


def test_without_bounds_all_lines_count() -> None:
    assert values_of(stored(STEPS), {"step": ValueRule(pattern=r"(\d+) ms", take="sum")})["step"] == 9 + 12 + 100


def test_several_runs_give_median_least_and_most() -> None:
    text = "@@run 1\nt 5\n@@run 2\nt 9\n@@run 3\nt 6\n"
    found = values_of(stored(text), {"t": ValueRule(pattern=r"t (\d+)")})
    assert found == {"t": 6, "t.min": 5, "t.max": 9}


def test_a_pattern_that_matches_nowhere_is_no_zero() -> None:
    with pytest.raises(PostFault, match="value t: no line matches"):
        values_of(stored("a\n"), {"t": ValueRule(pattern=r"t (\d+)", take="sum")})


def test_a_count_of_nothing_is_zero() -> None:
    assert values_of(stored("FFMA\n"), {"n": ValueRule(pattern="HMMA", take="count")})["n"] == 0


CUT = "t 1\nt 2\n@@cut 500 bytes left out\nt 3\n"


@pytest.mark.parametrize(("take", "value"), [("first", 1), ("last", 3)])
def test_what_a_cut_cannot_change_has_a_value(take: Any, value: int) -> None:
    assert values_of(stored(CUT), {"t": ValueRule(pattern=r"t (\d+)", take=take)})["t"] == value


@pytest.mark.parametrize("take", ["sum", "min", "max", "median", "count"])
def test_what_a_cut_may_change_has_none(take: Any) -> None:
    with pytest.raises(PostFault, match="the output was cut where"):
        values_of(stored(CUT), {"t": ValueRule(pattern=r"t (\d+)", take=take)})


def test_a_first_match_behind_the_cut_may_be_another() -> None:
    with pytest.raises(PostFault, match="the output was cut where first must look"):
        values_of(stored("a\n@@cut 5 bytes left out\nt 3\n"), {"t": ValueRule(pattern=r"t (\d+)")})


def test_pairs_of_a_series() -> None:
    series = Series(capture="one", pattern=r"^(\d+) KB (\d+) ns")
    assert pairs_of(stored("32 KB 1 ns\nx\n64 KB 4 ns\n"), series) == [[("32", 1), ("64", 4)]]
    with pytest.raises(PostFault, match="cut among the points"):
        pairs_of(stored("32 KB 1 ns\n@@cut 9 bytes left out\n64 KB 4 ns\n"), series)


# --- what was asked for: the command line, a program, a column -------------------------------------------------------

PROGRAM = "# steps\n#define TILE 64\nparser.add_argument('--steps', default=32)\n"


def text_of(name: str) -> str:
    return {"command": "OMP_NUM_THREADS=2 build/run --steps 16 naive 768", "run.py": PROGRAM}[name]


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ({"from": "command", "pattern": r"--steps (\d+)"}, 16),
        ({"from": "command", "pattern": r"OMP_NUM_THREADS=(\d+)"}, 2),
        ({"from": "command", "pattern": "build/run", "column": -1}, 768),
        ({"from": "run.py", "pattern": r"#define TILE (\d+)"}, 64),
        ({"from": "run.py", "pattern": "steps", "take": "count"}, 2),
        # The address column of `x/8xb`: 0x10 is 16; without its prefix the digits say 16 in base 16 alone.
        ({"pattern": "^0x", "column": 2}, 16),
        ({"pattern": r"/\*([0-9a-f]{4})\*/", "base": 16}, 16),
        ({"pattern": r"/\*([0-9a-f]{4})\*/"}, 10),
        ({"pattern": "^Anonymous", "column": 2}, 4096),
    ],
)
def test_values_of_other_texts_and_of_columns(rule: dict[str, Any], value: int) -> None:
    raw = "0x7f00:\t0x10\t0x20\n/*0010*/ LDG\nAnonymous:  4096 kB\n"
    # Two runs: what was asked for is the same in both.
    found = values_of(stored(f"@@run 1\n{raw}@@run 2\n{raw}"), {"n": ValueRule.model_validate(rule)}, text_of)
    assert found == {"n": value, "n.min": value, "n.max": value}


def test_a_column_that_a_line_does_not_have() -> None:
    rule = ValueRule(pattern="^t", column=3)
    with pytest.raises(PostFault, match="'t 1' has 2 columns, and no column 3"):
        values_of(stored("t 1\n"), {"n": rule})


def test_a_pattern_that_no_line_of_the_program_matches() -> None:
    rule = ValueRule.model_validate({"from": "run.py", "pattern": r"#define EDGE (\d+)"})
    with pytest.raises(PostFault, match=r"no line of run\.py matches"):
        values_of(stored("EDGE 1\n"), {"n": rule}, text_of)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"pattern": "t", "column": 0}, "columns are counted from 1"),
        ({"pattern": r"(\d+)", "column": 1}, "has a pattern without groups"),
        ({"pattern": "t", "column": 1, "take": "count"}, "does not count"),
        ({"pattern": "t"}, "has one group, this one has 0"),
    ],
)
def test_a_value_that_is_none(rule: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ValueRule.model_validate(rule)
