"""``lmp predict --serve`` and ``predict-serving``: what options say, and what is refused before a model is read."""

from __future__ import annotations

import json

import pytest
from fakes import Lmp
from typer.testing import CliRunner

from lmp.cli.main import app
from lmp.cli.serving import Load

SERVE = ("predict", "Qwen/Qwen3-8B", "--serve", "--device", "h100-sxm", "--engine", "vllm")
LOAD = ("--concurrency", "8", "--isl", "1k", "--osl", "128")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*SERVE, "--isl", "1k", "--osl", "8"), "--serve needs --concurrency"),
        ((*SERVE, "--concurrency", "0", "--isl", "1k", "--osl", "8"), "--concurrency 0: 0 is below 1"),
        ((*SERVE, *LOAD, "--phase", "decode"), "--phase is of one call"),
        ((*SERVE, *LOAD, "-b", "4"), "-b is of one call"),
        ((*SERVE, *LOAD, "--explain"), "--explain is of one call"),
        ((*SERVE, *LOAD, "--acceptance", "0.5"), "give speculative_tokens too"),
        ((*SERVE, *LOAD, "--prefix", "1"), "prefix: Input should be less than 1"),
        ((*SERVE, *LOAD, "--dtype", "int4"), "--dtype int4 is not served"),
        ((*SERVE, *LOAD, "--max-num-batched-tokens", "1k,2k"), "--max-num-batched-tokens has several values"),
        ((*SERVE[:-2], *LOAD), "--serve needs the engine"),
        (("predict", "--serve", "--device", "h100-sxm", "--engine", "vllm", *LOAD), "which model?"),
        (("predict", "Qwen/Qwen3-8B", "--device", "h100-sxm", "--isl", "1k"), "--isl is of requests"),
        (("predict", "Qwen/Qwen3-8B", "--device", "h100-sxm", "--stream", "wave"), "--stream is of requests"),
        ((*SERVE, "--concurrency", "1:2000000", "--isl", "1k", "--osl", "8"), "give at most 1,000,000"),
        ((*SERVE, "--concurrency", "1:2000", "--isl", "1:2000", "--osl", "8"), "more than 1,000,000 combinations"),
    ],
)
def test_usage_errors(lmp: Lmp, arguments: tuple[str, ...], message: str) -> None:
    done = lmp(*arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stdout == ""


def test_each_combination_is_a_workload() -> None:
    load = Load("1:4:*2", "1k,2k", "64", None, 0.5, None, None, None, "4k")
    rows = load.rows()
    # 1, 2 and 4 requests at each of two prompts.
    assert [(row["isl"], row["concurrency"]) for row in rows] == [(i, c) for i in (1024, 2048) for c in (1, 2, 4)]
    assert {row["osl"] for row in rows} == {64}
    assert {row["max_num_batched_tokens"] for row in rows} == {4096}
    assert {row["prefix"] for row in rows} == {0.5}


def test_lines_that_need_no_model_are_answered() -> None:
    rows = [{"id": "a", "model": "x", "device": "h100-sxm", "isl": 1, "osl": 1, "concurrency": 1}, {"id": 7}]
    done = CliRunner().invoke(app, ["predict-serving", "--json"], input="\n".join(map(json.dumps, rows)) + "\n\n{\n")
    assert done.exit_code == 0
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["id"] for row in found] == ["a", 7, None]
    assert all("error" in row for row in found)
