"""``--device`` and what goes with it: the same names and errors on every command that has them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes import Lmp
from jsonschema import Draft202012Validator

from lmp.analyze import models
from lmp.analyze.models import ModelOutcome
from lmp.records import ModelAnalysis
from lmp.store.schemas import schema

CLASS = "transformers.models.llama.modeling_llama.LlamaForCausalLM"
(FILE,) = (Path(__file__).parents[2] / "analysis_results").glob("*.LlamaForCausalLM@*/model_analysis.json")
CALL = ("--phase", "decode", "-b", "16", "-c", "8k")


@pytest.fixture(autouse=True)
def stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Llama-3.1-8B, as it was expanded."""
    model = ModelAnalysis.model_validate_json(FILE.read_text(encoding="utf-8"))

    def expand(*_: object, **__: object) -> ModelOutcome:
        return ModelOutcome(model, FILE, True, (), {}.__getitem__)

    monkeypatch.setattr(models, "expand_model", expand)


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
        (("--device", "h100-sxm", "--format", "csv"), "--device is for the table and for --json, not for --format csv"),
        (("--device", "h100-sxm", "-b", "1,2"), "batch_size has several values"),
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
