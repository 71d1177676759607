"""`lmp memory` and `lmp predict`: what they refuse, and what they print."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from analyses import mlp
from fakes import FakePipeline, Lmp

from lmp.records import Verification

sys.path.append(str(Path(__file__).parents[1] / "predict"))
from holdings import held

CONFIG = str(Path(__file__).parents[1] / "data" / "configs" / "small-llama.json")


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The small model of plain numbers in place of one that is built."""
    from lmp.observe import holding

    monkeypatch.setattr(holding, "hold", lambda path, options, dtype: held())


@pytest.mark.parametrize("command", ["memory", "predict"])
def test_an_unknown_device_is_refused_with_the_nearest(lmp: Lmp, command: str) -> None:
    result = lmp(command, CONFIG, "--device", "h100sxm", "-b", "1")
    assert result.exit_code == 2
    assert "there is no device 'h100sxm'" in result.stderr
    assert "h100-sxm" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--engine", "vlm"], "no memory profile of the engine 'vlm'"),
        (["-b", "0"], "--batch-size 0 is not one whole number"),
        (["-c", "1,2"], "--cache-len 1,2 is not one whole number"),
        (["--engine", "vllm", "--max-model-len", "-5"], "max"),
        (["--gpu-memory-utilization", "1.5", "--engine", "vllm"], "less than or equal to 1"),
        (["--gpu-memory-utilization", "nan", "--engine", "vllm"], "less than or equal to 1"),
        (["--kv-dtype", "fp9"], "fp9"),
        (["--max-num-seqs", "8"], "--max-num-seqs is of a serving engine"),
        (["--tp", "0"], "greater than or equal to 1"),
    ],
)
def test_bad_values_are_refused(lmp: Lmp, model: None, arguments: list[str], told: str) -> None:
    result = lmp("memory", CONFIG, "--device", "h100-sxm", *arguments)
    assert result.exit_code == 2
    assert told in result.stderr
    assert "Traceback" not in result.stderr


def test_fp8_is_refused_on_a_device_without_it(lmp: Lmp, model: None) -> None:
    result = lmp("memory", CONFIG, "--device", "a100-sxm", "--engine", "vllm", "--quantization", "fp8")
    assert result.exit_code == 2
    assert "a100-sxm has no fp8 matrix products" in result.stderr
    result = lmp("predict", CONFIG, "--device", "a100-sxm", "--dtype", "fp8", "-b", "1", "-s", "1")
    assert result.exit_code == 2
    assert "a100-sxm has no fp8 matrix products" in result.stderr


def test_memory_says_what_fits(lmp: Lmp, model: None) -> None:
    result = lmp("memory", CONFIG, "--device", "h100-sxm", "-b", "2", "-c", "2k")
    assert result.exit_code == 0
    assert "fits: 2 sequences of 2,048 tokens; largest batch at 2,048 tokens: " in result.stdout
    assert "KV cache: 2 layers of attention, 2 KV heads, 32 bytes a token each" in result.stdout
    assert "2,048 tokens are more than the 1,024 positions of the model" in result.stderr


def test_memory_of_an_engine_as_json(lmp: Lmp, model: None) -> None:
    result = lmp("memory", CONFIG, "--device", "h100-sxm", "--engine", "vllm", "--kv-dtype", "fp8", "--json")
    found = json.loads(result.stdout)
    # 2 layers of 16 elements of 1 byte.
    assert found["kv_bytes_per_token"] == 32
    assert found["fits"] is True


def test_sequences_of_an_engine_have_its_longest_length(lmp: Lmp, model: None) -> None:
    arguments = ("memory", CONFIG, "--device", "h100-sxm", "--engine", "vllm", "--max-model-len", "1k", "--json")
    room = json.loads(lmp(*arguments).stdout)
    # A request of 1,024 tokens: 64 blocks of 16 tokens in one group of 2 layers.
    most = int(room["max_concurrency"])
    assert most == room["kv_tokens"] // 1024 > 1
    for batch, fits in ((most, True), (most + 1, False)):
        result = lmp(*arguments, "-b", str(batch))
        found = json.loads(result.stdout)
        assert (result.exit_code, found["fits"], found["largest_batch"]) == (0, fits, most)
    table = lmp(*arguments[:-1], "-b", str(most + 1))
    assert f"does NOT fit: {most + 1:,} sequences of 1,024 tokens" in " ".join(table.stdout.split())


def test_a_tp_that_does_not_divide_the_heads_is_refused(lmp: Lmp, model: None) -> None:
    result = lmp("memory", CONFIG, "--device", "h100-sxm", "--tp", "3")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-2:] == [
        "error: --tp 3 does not divide the 4 attention heads", "allowed are 1, 2, 4",
    ]  # fmt: skip


def test_a_dtype_word_narrows_what_quantising_replaces(lmp: Lmp, model: None) -> None:
    def found(*more: str) -> dict[str, float]:
        made: dict[str, float] = json.loads(lmp("memory", CONFIG, "--device", "h100-sxm", "--json", *more).stdout)
        return made

    plain, words = found(), [found("--dtype", word) for word in ("w8a16", "fp8")]
    for narrow, cache in zip(words, (64 * 2, 64), strict=True):
        # 640 elements of each of 2 layers, and the embedding of 512, which is linear in this model: a byte less each.
        assert plain["weights_gib"] - narrow["weights_gib"] == pytest.approx((2 * 640 + 512) / 2**30)
        # 2 layers of 16 elements; the cache of fp8 has one byte, that of w8a16 two.
        assert narrow["kv_bytes_per_token"] == cache / 2
    twice = lmp("memory", CONFIG, "--device", "h100-sxm", "--engine", "vllm", "--quantization", "fp8", "--dtype", "fp8")
    assert (twice.exit_code, "both say how weights are stored" in twice.stderr) == (2, True)
    older = lmp("memory", CONFIG, "--device", "a100-sxm", "--dtype", "fp8")
    assert (older.exit_code, "a100-sxm has no fp8 matrix products" in older.stderr) == (2, True)


def test_predict_times_every_operator(lmp: Lmp, fake: FakePipeline) -> None:
    arguments = [mlp().class_name, "--device", "h100-sxm", "-b", "1", "-s", "16", "--json"]
    result = lmp("predict", *arguments)
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["host_time"] == "not included"
    assert found["low_us"] <= found["us"] <= found["high_us"]
    assert found["us"] == pytest.approx(sum(one["total_us"] for one in found["operators"]), rel=1e-3)
    assert {one["provenance"] for one in found["operators"]} == set(found["provenance"])


def test_predict_names_what_is_not_verified_and_what_has_no_rule(lmp: Lmp, fake: FakePipeline) -> None:
    unverified = Verification(status="unverified", reason="no time")
    name = mlp().class_name
    fake.analyses[name] = mlp(verification=unverified, uncounted=["aten::frob"])
    arguments = ["predict", name, "--device", "h100-sxm", "-b", "1", "-s", "16"]
    result = lmp(*arguments)
    assert result.exit_code == 0, result.stderr
    assert f"warning: the formulas of {name} are unverified" in result.stderr
    assert "operators without a rule, whose cost is missing: aten::frob" in result.stderr
    told = json.loads(lmp(*arguments, "--json").stdout)["warnings"]
    assert any("aten::frob" in warning for warning in told)


def test_predict_takes_one_point(lmp: Lmp) -> None:
    result = lmp("predict", CONFIG, "--device", "h100-sxm", "-b", "1,2", "-s", "16")
    assert result.exit_code == 2
    assert "batch_size has several values" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--explain"], "--explain is of an engine"),
        (["--overhead-us", "5"], "--overhead-us is of an engine"),
        (["--engine", "vlm"], "did you mean vllm"),
    ],
)
def test_options_of_an_engine_are_refused_without_one(lmp: Lmp, arguments: list[str], told: str) -> None:
    result = lmp("predict", CONFIG, "--device", "h100-sxm", *arguments)
    assert result.exit_code == 2
    assert told in result.stderr


def test_a_step_of_an_engine_is_explained(lmp: Lmp, fake: FakePipeline) -> None:
    arguments = ["predict", mlp().class_name, "--device", "h100-sxm", "-b", "1", "-s", "16", "--engine", "vllm"]
    result = lmp(*arguments, "--explain", "--overhead-us", "250")
    assert result.exit_code == 0, result.stderr
    assert "250 us of a step overhead" in result.stdout
    assert "as it is" in result.stdout
    # The stored analyses of these tests state no operands: no rule can hold, and nothing may vanish.
    assert "rules: none held" in result.stdout
    found = json.loads(lmp(*arguments, "--json").stdout)
    assert found["profile"] == "vllm"
    flops = found["matmul_flops"]
    assert flops["launched"] == flops["eager"] - flops["saved"] > 0
    assert found["step_us"][0] == found["us"]


def test_the_screen_says_what_bounds_and_what_would_help(lmp: Lmp, fake: FakePipeline) -> None:
    arguments = ["predict", mlp().class_name, "--device", "h100-sxm", "-b", "1", "-s", "16"]
    result = lmp(*arguments)
    assert result.exit_code == 0, result.stderr
    for told in ("80 % interval", "tokens/s", "bound: ", "dearest kernels", "what would help most next"):
        assert told in result.stdout
    assert "memory: not known: the class is a part of a model" in result.stdout
    assert "host time of a launch is that of another host" in result.stderr
    # One kernel of the table is a launch: with 1,000 us each the host bounds the call.
    found = json.loads(lmp(*arguments, "--engine", "transformers-eager", "--launch-us", "1000", "--json").stdout)
    assert found["bounded_by"] == "launch"
    assert found["step_us"][0] == 1000 * found["launches"]
    assert "what would help" not in lmp(*arguments, "--no-next").stdout


def test_a_plot_has_the_ending_of_a_picture(lmp: Lmp) -> None:
    result = lmp("predict", CONFIG, "--device", "h100-sxm", "-b", "1", "-s", "1", "--plot", "a.txt")
    assert result.exit_code == 2
    assert "--plot a.txt has no ending of a picture" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--gpus", "0"], "greater than or equal to 1"),
        (["--gpus", "8", "--tpot", "30"], "--tpot 30 is not a time above 0"),
        (["--gpus", "8", "--ttft", "-1s"], "--ttft -1s is not a time above 0"),
        (["--gpus", "8", "--isl", "0"], "--isl 0 is not one whole number"),
        (["--gpus", "8", "--device", "h100smx"], "there is no device 'h100smx'"),
        (["--gpus", "8", "--engine", "vlm"], "did you mean vllm"),
        (["--gpus", "8", "--device", "a100-sxm", "--dtype", "fp8"], "a100-sxm has no fp8 matrix products"),
    ],
)
def test_plans_that_cannot_be_made(lmp: Lmp, arguments: list[str], told: str) -> None:
    given = {
        "--device": "h100-sxm",
        "--isl": "4k",
        "--osl": "512",
        **dict(zip(arguments[::2], arguments[1::2], strict=True)),
    }
    result = lmp("plan", CONFIG, *(word for pair in given.items() for word in pair))
    assert result.exit_code == 2
    assert told in result.stderr
    assert "Traceback" not in result.stderr


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of 10 ms for the weights, divided by tp, and 1 ms for each request; a prefill of 50 ms."""
    from lmp.predict.plan import serving
    from lmp.predict.plan.layouts import Layout
    from lmp.predict.plan.options import Reply

    def serve(layout: Layout, batches: list[int]) -> list[Reply]:
        times = [10_000 / layout.tp + 1000 * batch for batch in batches]
        return [Reply((t, t, t), (5e4,) * 3, (b * 1e6 / t,) * 3) for b, t in zip(batches, times, strict=True)]

    monkeypatch.setattr(serving, "server", lambda *given: serve)


PLAN = ["plan", mlp().class_name, "--device", "h100-sxm", "--gpus", "2", "--isl", "512", "--osl", "256"]


def test_a_plan_prints_the_best_the_front_and_why(
    lmp: Lmp, fake: FakePipeline, model: None, made_up: None, tmp_path: Path
) -> None:
    result = lmp(*PLAN, "--tpot", "20ms")
    assert result.exit_code == 0, result.stderr
    # 10 + 10 requests are 20 ms: 10 / 20 ms is 500 tokens/s on each GPU, 50 for each user, 1,000 in all.
    told = "best: 2 x tp 1, batch 10 each: 500 tokens/s per GPU, 50.0 per user, 1,000 in all"
    assert told in result.stdout
    assert "batch 12 has a TPOT of 22.00 ms" in result.stdout
    assert "front" in result.stdout
    found = json.loads(lmp(*PLAN, "--tpot", "20ms", "--json", "--plot", str(tmp_path / "a.svg")).stdout)
    assert found["best"]["tokens_per_s_per_gpu"] == 500
    assert found["gpus"] == 2
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")


def test_an_engine_without_steps_is_refused(lmp: Lmp, fake: FakePipeline, model: None) -> None:
    result = lmp(*PLAN, "--engine", "transformers-eager")
    assert result.exit_code == 2
    assert "transformers-eager launches kernels one by one" in result.stderr


def test_limits_that_nothing_keeps_to_name_the_nearest(
    lmp: Lmp, fake: FakePipeline, model: None, made_up: None
) -> None:
    result = lmp(*PLAN, "--tpot", "1ms", "--json")
    assert result.exit_code == 2
    assert result.stdout == ""
    # tp 2: 10 / 2 + 1 = 6 ms.
    assert "--tpot 1ms is below the least, 6.00 ms" in result.stderr
    assert "the nearest is 1 x tp 2 at batch 1: TPOT 6.00 ms, TTFT 50.0 ms" in result.stderr
