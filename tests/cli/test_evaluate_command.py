"""`lmp evaluate`: what it asks of the pipeline, what it prints, and what it refuses."""

from __future__ import annotations

import ast
import csv
import io
import json
from pathlib import Path

import analyses
import pytest
from analyses import LINEAR, MLP
from fakes import FakePipeline, Lmp
from jsonschema import Draft202012Validator
from pyarrow import parquet
from typer.testing import Result

from lmp.cli.evaluate import FormatName
from lmp.records import ModuleAnalysis, Quantization, Verification
from lmp.report.formats import FORMATS
from lmp.store.schemas import schema

POINT = ("--batch-size", "2", "--seq-len", "16")


def with_parameter(name: str, path: str) -> ModuleAnalysis:
    mlp = analyses.mlp()
    return mlp.model_copy(update={"parameters": {**mlp.parameters, name: path}})


def refused(result: Result) -> str:
    assert result.exit_code == 2
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 2
    return result.stderr


def values(result: Result) -> dict[str, int]:
    assert result.exit_code == 0, result.stderr
    found: dict[str, int] = json.loads(result.stdout)["values"]
    return found


# --- json and table --------------------------------------------------------------------------------------------------


def test_json_is_the_contracts(lmp: Lmp, fake: FakePipeline) -> None:
    result = lmp("evaluate", MLP, "--set", "batch_size=2,seq_len=16", "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    Draft202012Validator(schema("evaluation")).validate(found)
    # 3 * 2*2*16*8*32 for the Linears, 5 * 2*16*32 for activation and product: see tests/expand
    assert found["totals"]["flops"] == 54_272
    assert set(found["totals"]) == {"flops", "matmul_flops", "read", "write", "compulsory", "parameters_count"}
    assert found["values"] == {
        **{"batch_size": 2, "seq_len": 16, "cache_len": 0, "w_bytes": 2, "a_bytes": 2, "kv_bytes": 2},
        **{"hidden_size": 8, "intermediate_size": 32},
    }
    keys = ["path", "class_name", "line", "operation", "category", "repeat", "flops", "read", "write"]
    keys += ["id", "inputs_from", "operands"]
    assert list(found["kernels"][0]) == keys
    assert lmp("evaluate", MLP, *POINT, "--format", "json").stdout == result.stdout


def test_table(lmp: Lmp, fake: FakePipeline) -> None:
    fake.analyses = {a.class_name: a for a in (analyses.layer(), analyses.mlp(), analyses.linear())}
    out = lmp("evaluate", analyses.LAYER, *POINT, "--exact").stdout
    row = next(line for line in out.splitlines() if "gate_proj" in line)
    # 3 * 16,384 of 2*16*8 + 3 * 54,272 = 163,072 FLOPs are 30.1%; 3 * 1,024 and 3 * 2,048 bytes; 49,152 / 9,216 = 5.33;
    # 30.1% of 8 blocks are 2. The column of matmul FLOPs has no room
    costs = ["49,152", "9,216", "3,072", "6,144", "5.33"]
    assert row.replace("*", "").split() == ["gate_proj", "Linear", "1", "30.1%", "██", *costs]
    assert "FLOPs             163,072" in out
    assert "FLOPs per byte       2.72" in out  # 163,072 / (33,280 + 26,624) = 2.722
    assert "matrix product modeling_llama.py:134" in out
    assert "matrix product" not in lmp("evaluate", analyses.LAYER, *POINT, "--no-kernels").stdout
    assert "gate_proj" not in lmp("evaluate", analyses.LAYER, *POINT, "--depth", "1").stdout


def test_kernels_without_a_cost_are_only_counted(lmp: Lmp, fake: FakePipeline) -> None:
    kernels = [*analyses.linear().kernels, analyses.kernel(134, "0", "0", "0", operation="bias addition")]
    fake.analyses[LINEAR] = analyses.linear(kernels=kernels)
    arguments = ("evaluate", LINEAR, *POINT, "--set", "in_features=8,out_features=32")
    out = lmp(*arguments).stdout
    assert "bias addition" not in out
    assert "1 operator costs nothing at these values and is not shown" in out
    assert len(json.loads(lmp(*arguments, "--json").stdout)["kernels"]) == 2


def test_warnings_stand_on_stderr_and_in_the_table(
    lmp: Lmp, fake: FakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    unverified = Verification(status="unverified", reason="no time")
    fake.analyses[MLP] = analyses.mlp(
        verification=unverified, assumptions=["{seq_len} < {hidden_size}"], uncounted=["aten::frob"]
    )
    result = lmp("evaluate", MLP, *POINT)
    assert result.exit_code == 0
    assert "UNVERIFIED" in result.stdout
    assert result.stderr == (
        f"warning: the formulas of {MLP} are unverified\n"
        f"warning: {MLP} has operators without a rule, whose cost is missing: aten::frob\n"
        "warning: assumption {seq_len} < {hidden_size} of LlamaMLP does not hold (hidden_size = 8, seq_len = 16): "
        "the formulas were derived for where it does\n"
    )
    assert " ".join(result.stdout.split()).count("warning: ") == 3
    # Where both streams go to one place, the warnings of the table are not repeated there.
    monkeypatch.setattr("lmp.cli.evaluate.is_one_stream", lambda: True)
    assert lmp("evaluate", MLP, *POINT).stderr == ""
    assert lmp("evaluate", MLP, "-b", "1,2", "-s", "16").stderr == ""
    assert lmp("evaluate", MLP, *POINT, "--json").stderr.count("warning: ") == 3
    found = json.loads(lmp("evaluate", MLP, *POINT, "--json").stdout)
    assert found["verification"] == "unverified"
    assert found["violated_assumptions"][0]["assumption"] == "{seq_len} < {hidden_size}"


# --- phases and dtypes -----------------------------------------------------------------------------------------------


def test_phases(lmp: Lmp, fake: FakePipeline) -> None:
    fake.analyses[MLP] = with_parameter("cache_len", "inputs.cache.shape[1]")
    prefill = values(lmp("evaluate", MLP, "--phase", "prefill", *POINT, "--json"))
    assert (prefill["seq_len"], prefill["cache_len"]) == (16, 0)
    decode = values(lmp("evaluate", MLP, "--phase", "decode", "--batch-size", "2", "--cache-len", "9", "--json"))
    assert (decode["seq_len"], decode["cache_len"]) == (1, 9)
    chunked = values(lmp("evaluate", MLP, *POINT, "--cache-len", "9", "--json"))
    assert (chunked["seq_len"], chunked["cache_len"]) == (16, 9)
    assert values(lmp("evaluate", MLP, "--phase", "decode", "--set", "seq_len=1,batch_size=1,cache_len=3", "--json"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--phase decode --batch-size 1 --seq-len 5 --cache-len 3", "--phase decode has one new token"),
        ("--phase decode --batch-size 1", "--phase decode needs the tokens that the cache holds"),
        ("--phase decode --batch-size 1 --cache-len 0:4", "--phase decode needs the tokens that the cache holds"),
        ("--phase prefill --batch-size 1 --seq-len 5 --cache-len 3", "--phase prefill starts with an empty cache"),
        ("--phase prefill --batch-size 1", "--phase prefill needs the tokens of a prompt"),
        ("--phase prefill --seq-len 4", "batch_size has no value"),
        ("--batch-size 2", "seq_len has no value"),
        ("--batch-size 2 --set batch_size=3 --seq-len 1", "batch_size is set twice: by --batch-size 2 and by --set"),
        ("--dtype float32 --set w_bytes=2 --batch-size 1 --seq-len 1", "w_bytes is set twice: to 4 by --dtype float32"),
        ("--json --format csv --batch-size 1 --seq-len 1", "two formats are given: --json and --format csv"),
        ("--format parquet --batch-size 1 --seq-len 1", "--format parquet is binary"),
        ("--format folded --batch-size 1,2 --seq-len 1", "--format folded takes one value for each name"),
        ("--format python --batch-size 1,2", "--format python takes one value for each name"),
        ("--batch-size 1:1000 --seq-len 1:1000000", "a sweep of 1,000,000,000 points"),
        ("--batch-size 1:20 --seq-len 1 --max-points 19", "a sweep of 20 points"),
        ("--batch-size x --seq-len 1", "batch_size is set to 'x', which is not a whole number"),
        ("--format xml", "Invalid value for '--format'"),
    ],
)
def test_what_is_refused(lmp: Lmp, fake: FakePipeline, arguments: str, message: str) -> None:
    assert message in refused(lmp("evaluate", MLP, "--quiet", *arguments.split()))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("-b 1,2 -s 16 --tp 2", "batch_size has several values, and with --tp the formulas are those of one call"),
        ("-b 2 -s 16 --tp 4 --ep 3", "--ep 3 does not divide --tp 4\nallowed are 1, 2, 4"),
        ("-b 2 -s 16 --ep 2", "--ep 2 does not divide --tp 1\nallowed are 1"),
        ("-b 2 -s 16 --tp 2 --ep 2", "--ep 2: the model has no experts\nleave it out"),
    ],
)
def test_gpus_that_are_refused(lmp: Lmp, fake: FakePipeline, arguments: str, message: str) -> None:
    assert message in refused(lmp("evaluate", MLP, *arguments.split()))


def test_the_same_value_twice_is_fine(lmp: Lmp, fake: FakePipeline) -> None:
    found = values(lmp("evaluate", MLP, *POINT, "--set", "batch_size=2,w_bytes=4", "--dtype", "float32", "--json"))
    assert found["w_bytes"] == 4


@pytest.mark.parametrize(
    ("dtype", "sizes"),
    [
        ("float32", (4, 4, 4)),
        ("bfloat16", (2, 2, 2)),
        ("bf16", (2, 2, 2)),
        ("float16", (2, 2, 2)),
        ("float8", (1, 1, 1)),
        ("fp8", (1, 1, 1)),
        ("w8a16", (1, 2, 2)),
        ("int4", (0.5, 2, 2)),
        ("w4a8", (0.5, 1, 1)),
        ("mxfp4", (0.53125, 2, 2)),  # 4/8 + 8 / (8 * 32)
        ("nvfp4", (0.5625, 2, 2)),  # 4/8 + 8 / (8 * 16)
        ("nf4", (0.5625, 2, 2)),  # 4/8 + 32 / (8 * 64)
    ],
)
def test_dtypes(lmp: Lmp, fake: FakePipeline, dtype: str, sizes: tuple[float, float, float]) -> None:
    found = values(lmp("evaluate", MLP, *POINT, "--dtype", dtype, "--json"))
    assert (found["w_bytes"], found["a_bytes"], found["kv_bytes"]) == sizes
    assert fake.options is not None
    assert fake.options.dtype == "bfloat16"  # what the analysis is of, whatever the numbers are for


def test_a_quantised_checkpoint(lmp: Lmp, fake: FakePipeline) -> None:
    fake.quantization = Quantization(config={"quant_method": "fp8", "weight_block_size": [8, 8]}, whole=True)
    plain = json.loads(lmp("evaluate", MLP, *POINT, "--set", "w_bytes=2", "--json").stdout)
    assert (plain["quantization"], plain["totals"]["read"]) == (None, 10_752)  # see tests/expand
    # A layer that the class itself calls may be the model's output, and stays.
    found = json.loads(lmp("evaluate", MLP, *POINT, "--json").stdout)
    assert (found["quantization"], found["totals"]["read"]) == (None, 10_752)
    assert "converts no module" in found["warnings"][0]
    fake.quantization = fake.quantization.model_copy(
        update={"config": {**fake.quantization.config, "modules_to_not_convert": ["down_proj"]}}
    )
    found = json.loads(lmp("evaluate", MLP, *POINT, "--json").stdout)
    # gate and up: 8 * 32 weights of 1 byte in place of 2, and 4 blocks of 8 * 8 with a float32
    assert (found["quantization"], found["warnings"]) == ("fp8", [])
    assert found["totals"]["read"] == 10_752 - 2 * 256 + 2 * 16
    assert json.loads(lmp("evaluate", MLP, *POINT, "--dtype", "bf16", "--json").stdout)["quantization"] is None
    text = " ".join(lmp("evaluate", MLP, *POINT).stdout.split())
    # 768 weights at 2 bytes; 512 of them at 1 byte, and 8 scales of 4 bytes
    assert "weights 1.056 kB (768 parameters as the checkpoint has them, fp8)" in text
    rows = [
        json.loads(line) for line in lmp("evaluate", MLP, *POINT, "--set", "a_bytes=1,2", "--json").stdout.splitlines()
    ]
    assert rows[1]["read"] == found["totals"]["read"]


def test_a_quantisation_that_is_not_known_is_said(lmp: Lmp, fake: FakePipeline) -> None:
    fake.quantization = Quantization(config={"quant_method": "<b>x"}, whole=True)
    result = lmp("evaluate", MLP, *POINT)
    assert result.exit_code == 0
    assert "warning: the quantization method '<b>x' is not known" in result.stderr
    assert "is not known" in result.stdout
    (warning,) = json.loads(lmp("evaluate", MLP, *POINT, "--json").stdout)["warnings"]
    assert warning.endswith("its weights are evaluated at w_bytes")


def test_a_dtype_of_the_cache(lmp: Lmp, fake: FakePipeline) -> None:
    def sizes(*given: str) -> tuple[float, float, float]:
        found = values(lmp("evaluate", MLP, *POINT, *given, "--json"))
        return found["w_bytes"], found["a_bytes"], found["kv_bytes"]

    assert sizes("--kv-dtype", "fp8") == (2, 2, 1)
    assert sizes("--dtype", "fp8", "--kv-dtype", "bf16") == (1, 1, 2)
    assert sizes("--dtype", "fp8", "--set", "kv_bytes=0.5") == (1, 1, 0.5)
    assert sizes("--kv-dtype", "mxfp4") == (2, 2, 0.53125)
    told = refused(lmp("evaluate", MLP, *POINT, "--kv-dtype", "fp8", "--set", "kv_bytes=2", "--quiet"))
    assert "kv_bytes is set twice: to 1 by --kv-dtype fp8 and by --set" in told
    assert "Invalid value for '--kv-dtype'" in refused(lmp("evaluate", MLP, *POINT, "--kv-dtype", "w8a16"))


def test_a_cache_of_its_own_element_size(lmp: Lmp, fake: FakePipeline) -> None:
    access = {"read": "8 * {kv_bytes} + {a_bytes}", "write": "{kv_bytes}"}
    fake.analyses[MLP] = analyses.mlp(kernels=[analyses.kernel(7, "1", **access)])

    def found(*given: str) -> tuple[int, int, int]:
        record = json.loads(lmp("evaluate", MLP, *POINT, *given, "--json").stdout)
        return record["values"]["kv_bytes"], record["totals"]["read"], record["totals"]["write"]

    assert found() == (2, 18, 2)  # as activations: 8 * 2 + 2
    assert found("--dtype", "float8") == (1, 9, 1)
    assert found("--set", "a_bytes=4") == (4, 36, 4)
    assert found("--set", "kv_bytes=1") == (1, 10, 1)


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ("0", "w_bytes is set to 0, but an element takes more than 0 bytes"),
        ("-1", "w_bytes is set to -1, but an element takes more than 0 bytes"),
        ("1/0", "w_bytes is set to '1/0': '1/0' divides by 0"),
        ("nan", "w_bytes is set to 'nan': 'nan' is not a number"),
        ("inf", "w_bytes is set to 'inf': 'inf' is not a number"),
        ("0.5:2", "w_bytes is set to '0.5', which is not a whole number"),
    ],
)
def test_bytes_that_no_element_has(lmp: Lmp, fake: FakePipeline, size: str, message: str) -> None:
    told = refused(lmp("evaluate", MLP, *POINT, "--quiet", "--set", f"w_bytes={size}"))
    assert message in told
    assert len(told.splitlines()) <= 2


def test_bytes_that_are_fractions(lmp: Lmp, fake: FakePipeline) -> None:
    fake.analyses[MLP] = analyses.mlp(kernels=[analyses.kernel(7, "1", "33 * {w_bytes}", "{a_bytes}")])
    found = json.loads(lmp("evaluate", MLP, *POINT, "--set", "w_bytes=17/32,a_bytes=0.1", "--json").stdout)
    # 33 * 17/32 = 17.53125; no double is 1/10
    assert (found["totals"]["read"], found["totals"]["write"]) == (17.53125, "1/10")
    lines = lmp("evaluate", MLP, *POINT, "--set", "w_bytes=0.5,1,17/32", "--json").stdout.splitlines()
    assert [json.loads(line)["read"] for line in lines] == [16.5, 33, 17.53125]
    assert "hidden_size is set to 0.5\n" not in refused(lmp("evaluate", MLP, *POINT, "--set", "hidden_size=0.5"))


def test_a_class_without_a_cache_says_so(lmp: Lmp, fake: FakePipeline) -> None:
    result = lmp("evaluate", MLP, *POINT, "--cache-len", "5")
    assert result.stderr == "warning: LlamaMLP has no cache: cache_len = 5 changes nothing\n"
    assert "LlamaMLP has no cache" in result.stdout
    fake.analyses[MLP] = with_parameter("cache_len", "inputs.cache.shape[1]")
    assert lmp("evaluate", MLP, *POINT, "--cache-len", "5").stderr == ""


# --- sweeps ----------------------------------------------------------------------------------------------------------


def test_a_sweep(lmp: Lmp, fake: FakePipeline) -> None:
    fake.analyses[MLP] = analyses.mlp(assumptions=["{seq_len} < {hidden_size}"])
    result = lmp("evaluate", MLP, "--batch-size", "1,2", "--seq-len", "4:16:*2", "--format", "csv")
    found = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [(row["batch_size"], row["seq_len"]) for row in found] == [(b, s) for b in "12" for s in ("4", "8", "16")]
    assert found[-1]["flops"] == "54272"
    assert [row["assumptions_hold"] for row in found] == ["true", "false", "false"] * 2
    assert result.stderr == (
        "warning: assumption {seq_len} < {hidden_size} does not hold at 4 of 6 points: "
        "the formulas were derived for where it does\n"
    )
    lines = lmp("evaluate", MLP, "--set", "batch_size=1,2,seq_len=4:16:*2", "--json").stdout.splitlines()
    assert [json.loads(line)["flops"] for line in lines] == [int(row["flops"]) for row in found]
    assert "6 points" in lmp("evaluate", MLP, "--set", "batch_size=1,2,seq_len=4:16:*2").stdout


def test_a_point_without_a_value_is_named(lmp: Lmp, fake: FakePipeline, tmp_path: Path) -> None:
    kernels = [analyses.kernel(7, "{seq_len} // ({batch_size} - 3)", "1", "1")]
    fake.analyses[MLP] = analyses.mlp(kernels=kernels)
    arguments = ("evaluate", MLP, "--batch-size", "1:5", "--seq-len", "2", "--format", "csv", "--quiet")
    result = lmp(*arguments, "--output", "rows.csv")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {MLP}: division by zero in ")
    assert "at batch_size=3" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["vendor.lock"]  # the two rows before it are not left behind


# --- formats and files -----------------------------------------------------------------------------------------------


def test_the_formats_are_those_of_the_registry() -> None:
    assert [str(name) for name in FormatName] == list(FORMATS)


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "parquet"])
def test_a_file_holds_what_stdout_would(lmp: Lmp, fake: FakePipeline, tmp_path: Path, name: str) -> None:
    printed = lmp("evaluate", MLP, *POINT, "--format", name).stdout
    result = lmp("evaluate", MLP, *POINT, "--format", name, "--output", f"out/{name}.txt")
    assert (result.stdout, result.stderr) == ("", f"wrote out/{name}.txt\n")
    assert (tmp_path / "out" / f"{name}.txt").read_text(encoding="utf-8") == printed
    assert printed


def test_a_parquet_file(lmp: Lmp, fake: FakePipeline, tmp_path: Path) -> None:
    lmp("evaluate", MLP, "--batch-size", "1:4", "--seq-len", "16", "--format", "parquet", "-o", "rows.parquet")
    assert parquet.read_table(tmp_path / "rows.parquet").column("flops").to_pylist()[1] == 54_272
    assert {file.name for file in tmp_path.iterdir()} == {"vendor.lock", "rows.parquet"}


def test_a_file_that_cannot_be_written(lmp: Lmp, fake: FakePipeline, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    message = refused(lmp("evaluate", MLP, *POINT, "--output", "file/out.txt", "--quiet"))
    assert "file is a file, not a folder" in message
    assert (tmp_path / "file").read_text() == "kept"


def test_a_python_function_needs_no_sizes(lmp: Lmp, fake: FakePipeline) -> None:
    result = lmp("evaluate", MLP, "--format", "python", "--set", "hidden_size=64", "--dtype", "w8a16")
    assert result.exit_code == 0
    *_, function = (node for node in ast.parse(result.stdout).body if isinstance(node, ast.FunctionDef))
    signature = ast.unparse(function.args)
    assert signature == (
        "batch_size, seq_len, cache_len=0, hidden_size=64, intermediate_size=32, w_bytes=1, a_bytes=2, kv_bytes=2"
    )


def test_weights_of_a_flame_graph(lmp: Lmp, fake: FakePipeline) -> None:
    def total(*weight: str) -> int:
        lines = lmp("evaluate", MLP, *POINT, "--format", "folded", *weight).stdout.splitlines()
        return sum(int(line.rpartition(" ")[2]) for line in lines)

    assert total() == 54_272
    assert total("--weight", "bytes") == 19_456  # 10,752 + 8,704: see tests/expand


def test_each_operator(lmp: Lmp, fake: FakePipeline) -> None:
    fake.analyses = {a.class_name: a for a in (analyses.layer(), analyses.mlp(), analyses.linear())}
    out = lmp("evaluate", analyses.LAYER, *POINT, "--each", "operator", "--top", "1", "--exact").stdout
    # Three layers of one gate projection: 3 * 2 * 2 * 16 * 8 * 32 FLOPs.
    assert "49,152" in out
    assert "more operators: --top" in out


def test_each_operator_is_a_table(lmp: Lmp, fake: FakePipeline) -> None:
    result = lmp("evaluate", MLP, *POINT, "--each", "operator", "--json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--each is for the table" in result.stderr


@pytest.mark.parametrize("each", ["line", "category", "module"])
def test_other_flat_lists(lmp: Lmp, fake: FakePipeline, each: str) -> None:
    result = lmp("evaluate", MLP, *POINT, "--each", each, "--top", "1")
    assert result.exit_code == 0, result.stderr
    assert "--top" in result.stdout


def test_columns_and_values(lmp: Lmp, fake: FakePipeline) -> None:
    assert "hidden_size = 8" not in lmp("evaluate", MLP, *POINT).stdout
    assert "hidden_size = 8, intermediate_size = 32" in lmp("evaluate", MLP, *POINT, "--values").stdout
    out = lmp("evaluate", MLP, *POINT, "--columns", "intensity, flops").stdout
    head = next(line for line in out.splitlines() if line.startswith("module"))
    assert head.split() == ["module", "FLOPs", "FLOPs/byte"]
    assert "has no column 'x'" in refused(lmp("evaluate", MLP, *POINT, "--columns", "x", "--quiet"))
    told = refused(lmp("evaluate", MLP, *POINT, "--columns", "all", "--each", "line", "--quiet"))
    assert "--columns does not go with --each line" in told
    assert "--columns is for the table" in refused(lmp("evaluate", MLP, *POINT, "--columns", "all", "--json"))
    assert "--values is for the table" in refused(lmp("evaluate", MLP, *POINT, "--values", "--format", "csv"))
