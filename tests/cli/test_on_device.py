"""``--device`` and what goes with it: the same names and errors on every command that has them."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from fakes import Lmp
from jsonschema import Draft202012Validator

from lmp.store.schemas import schema

pytestmark = pytest.mark.usefixtures("stored_llama")
CLASS = "transformers.models.llama.modeling_llama.LlamaForCausalLM"
CALL = ("--phase", "decode", "-b", "16", "-c", "8k")


def test_a_table_begins_with_the_card(lmp: Lmp) -> None:
    done = lmp("evaluate", CLASS, *CALL, "--device", "h100-sxm")
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[1].split() == [
        "device",
        "H100",
        "·",
        "KV",
        "cache",
        "131,072",
        "B",
        "a",
        "token",
        "of",
        "a",
        "sequence",
    ]
    assert lines[2].startswith("eager       ")
    assert any(line.startswith("vllm        ") for line in lines[3:5])
    assert "tokens/s" in done.stdout
    assert "fits" in done.stdout
    # The rest is as it is without a device.
    plain = lmp("evaluate", CLASS, *CALL).stdout
    assert plain.splitlines()[1:] == lines[lines.index(next(line for line in lines if line.startswith("call "))) :]


def test_json_has_the_card_and_is_of_its_schema(lmp: Lmp) -> None:
    found = json.loads(lmp("evaluate", CLASS, *CALL, "--device", "h100-sxm", "--json").stdout)
    Draft202012Validator(schema("evaluation")).validate(found)
    assert [run["engine"] for run in found["card"]["runs"]] == ["eager", "vllm"]
    assert "card" not in json.loads(lmp("evaluate", CLASS, *CALL, "--json").stdout)


def test_predict_has_the_same_card(lmp: Lmp) -> None:
    options = (*CALL, "--device", "h100-sxm", "--kv-dtype", "fp8", "--tp", "2", "--engine", "sglang", "--json")
    evaluated, predicted = (
        json.loads(lmp(command, CLASS, *options).stdout)["card"] for command in ("evaluate", "predict")
    )
    assert evaluated == predicted
    # An fp8 cache on two GPUs: keys and values of 4 heads of 128 in 32 layers, of one byte.
    assert evaluated["runs"][0]["memory"]["kv_a_token"] == 2 * 4 * 128 * 32


def test_one_gpu_says_what_it_holds_and_must_move(lmp: Lmp) -> None:
    out = lmp("evaluate", CLASS, *CALL, "--tp", "8").stdout
    # (8,030,261,248 - 65 * 4,096) / 8 + 65 * 4,096 parameters of 2 bytes are 2.008 GB; 16 * 8,193 * 16,384 bytes.
    assert "held        weights 2.008 GB · KV cache 2.148 GB after it · on each GPU" in out
    assert "compulsory  4.029 GB a step" in out
    assert "unknown" not in out


@pytest.mark.parametrize("command", ["evaluate", "predict"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--device", "h100-smx"), "there is no device 'h100-smx'\ndid you mean h100-sxm"),
        (("--device", ""), "there is no device ''"),
        (("--device", "h100-sxm", "--engine", "vlm"), "there is no profile of the engine 'vlm'\ndid you mean vllm"),
        (("--device", "h100-sxm", "--engine", "none.toml"), "none.toml cannot be read"),
        (("--device", "h100-sxm", "--tp", "3"), "--tp 3"),
        (("--device", "h100-sxm", "--tp", "0"), "'--tp': Input should be greater than or equal to 1"),
        (("--device", "h100-sxm", "--tp", "4", "--ep", "3"), "--ep 3 does not divide --tp 4"),
        (("--device", "a100-sxm", "--dtype", "fp8"), "a100-sxm has no fp8 matrix products"),
        (("--device", "h100-sxm", "--kv-dtype", "fp9"), "'fp9' is not one of"),
        (("--device", "h100-sxm", "--devices", "none.toml"), "none.toml cannot be read"),
        (("--device", "h100-sxm", "--calibration", "none"), "none has no calibration"),
    ],
)
def test_what_is_refused_is_refused_alike(lmp: Lmp, command: str, options: tuple[str, ...], message: str) -> None:
    done = lmp(command, CLASS, *CALL, *options)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert message in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--engine", "vllm"), "--engine vllm predicts on a device"),
        (("--engine", "agent"), "--engine agent is for analyze-module and expand only"),
        (("--device", "h100-sxm", "--format", "csv"), "--format csv has no place for the time of one call on a device"),
        (("--device", "h100-sxm", "--tp", "2", "-b", "1,2"), "batch_size has several values"),
        (("--device", "h100-sxm", "-b", "1:257"), "257 points are too many for times on a device, which take 256"),
    ],
)
def test_what_evaluate_refuses(lmp: Lmp, options: tuple[str, ...], message: str) -> None:
    done = lmp("evaluate", CLASS, "--phase", "decode", "-c", "8k", *(() if "-b" in options else ("-b", "16")), *options)
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 2


def test_the_engine_that_derives_is_still_taken(lmp: Lmp) -> None:
    assert lmp("evaluate", CLASS, *CALL, "--engine", "trace").exit_code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--engine", "vlm"), "there is no profile of the engine 'vlm'"),
        (("--device", "h100-smx"), "there is no device 'h100-smx'"),
        (("--tp", "4", "--ep", "3"), "--ep 3 does not divide --tp 4"),
        (("--all", "--tp", "2"), "--tp: not with --all"),
        ((".", "--tp", "2", "--engine", "vllm"), "--tp, --engine: for models only, not for a folder"),
    ],
)
def test_what_report_refuses(lmp: Lmp, options: tuple[str, ...], message: str) -> None:
    done = lmp("report", *(() if options[0] in ("--all", ".") else (CLASS,)), *options)
    assert done.exit_code == 2
    assert message in done.stderr


# --- sweeps ----------------------------------------------------------------------------------------------------------

SWEEP = ("--phase", "decode", "-c", "8k", "--device", "h100-sxm")
FIGURES = ("us", "us_low", "us_high", "tokens_per_s", "held", "fits")


def run_of(lmp: Lmp, batch: int, place: int) -> list[Any]:
    """What the card of one call says: the figures of a row."""
    found = json.loads(lmp("evaluate", CLASS, *SWEEP, "-b", str(batch), "--json").stdout)["card"]["runs"][place]
    step, rate, memory = found["step_us"], found["tokens_per_s"], found["memory"]
    time = [None] * 4 if step is None else [step["value"], step["low"], step["high"], rate["value"]]
    return [*time, memory["held"], memory["fits"]]


def test_each_point_of_a_sweep_has_the_times_of_its_own_card(lmp: Lmp) -> None:
    done = lmp("evaluate", CLASS, *SWEEP, "-b", "1,16,64", "--format", "json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["batch_size"] for row in rows] == [1, 16, 64]
    for place, engine in enumerate(("eager", "vllm")):
        for row in rows:
            assert [row[f"{engine}_{name}"] for name in FIGURES] == run_of(lmp, row["batch_size"], place)
    # 64 sequences of 8,193 tokens and 131,072 bytes are 68.7 GB beside 16.1 GB of weights.
    assert rows[2]["vllm_us"] is None
    assert rows[2]["vllm_fits"] is False
    assert done.stderr.count("warning: vllm: 1 of 3 points have no time: does not fit") == 1


def test_csv_of_a_sweep_on_a_device(lmp: Lmp) -> None:
    done = lmp("evaluate", CLASS, *SWEEP, "-b", "1,64", "--format", "csv")
    assert done.exit_code == 0, done.stderr
    first, last = csv.DictReader(io.StringIO(done.stdout))
    us, _, _, rate, held, _ = run_of(lmp, 1, 1)
    assert (float(first["vllm_us"]), float(first["vllm_tokens_per_s"]), int(first["vllm_held"])) == (us, rate, held)
    assert (first["vllm_fits"], last["vllm_us"], last["vllm_fits"]) == ("true", "", "false")


def test_parquet_of_a_sweep_on_a_device(lmp: Lmp) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    assert lmp("evaluate", CLASS, *SWEEP, "-b", "1,64", "--format", "parquet", "-o", "a.parquet").exit_code == 0
    table = parquet.read_table("a.parquet")
    assert table.column("vllm_us").to_pylist() == [run_of(lmp, 1, 1)[0], None]
    assert table.column("vllm_fits").to_pylist() == [True, False]
    assert {str(table.schema.field(f"eager_{name}").type) for name in FIGURES[:4]} == {"double"}


def test_the_table_of_a_sweep_has_times_as_text(lmp: Lmp) -> None:
    lines = lmp("evaluate", CLASS, *SWEEP, "-b", "16,64").stdout.splitlines()
    head = next(line for line in lines if line.startswith("batch_size"))
    assert head.split()[:9] == ["batch_size", "eager", "ms", "80", "%", "interval", "tokens/s", "vllm", "ms"]
    us, low, high, rate, _, _ = run_of(lmp, 16, 0)
    row, none = (next(line for line in lines if line.split()[:1] == [batch]) for batch in ("16", "64"))
    assert row.split()[1:6] == [f"{us / 1e3:,.3f}", f"{low / 1e3:,.3f}", "to", f"{high / 1e3:,.3f}", f"{rate:,.0f}"]
    assert none.split()[1:5] == ["no", "fit", "-", "-"]
    every = lmp("evaluate", CLASS, *SWEEP, "-b", "16,64", "--columns", "vllm_gib").stdout
    held = run_of(lmp, 16, 1)[4]
    assert f"{held / 2**30:,.2f}" in every
    markdown = lmp("evaluate", CLASS, *SWEEP, "-b", "16,64", "--format", "markdown").stdout
    assert f"| 16 | {us / 1e3:,.3f} | {low / 1e3:,.3f} to {high / 1e3:,.3f} | {rate:,.0f} |" in markdown


def test_a_sweep_over_two_sizes_has_the_card_of_each_pair(lmp: Lmp) -> None:
    sizes = ("--phase", "decode", "-b", "1,2", "-c", "1k,8k", "--device", "h100-sxm", "--engine", "trtllm")
    rows = [json.loads(line) for line in lmp("evaluate", CLASS, *sizes, "--json").stdout.splitlines()]
    at = ("--phase", "decode", "-b", "2", "-c", "1k", "--device", "h100-sxm", "--engine", "trtllm", "--json")
    one = json.loads(lmp("evaluate", CLASS, *at).stdout)["card"]["runs"][1]["step_us"]["value"]
    assert [(row["batch_size"], row["cache_len"]) for row in rows] == [(1, 1024), (1, 8192), (2, 1024), (2, 8192)]
    assert rows[2]["trtllm_us"] == one
    assert len({row["trtllm_us"] for row in rows}) == 4
