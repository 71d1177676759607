"""`lmp expand`: its options, its table, its JSON, its errors. On analyses written by hand, in an empty project."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from analyses import LAYER, LINEAR, MLP, kernel, layer, linear, mlp
from fakes import Lmp
from jsonschema import Draft202012Validator
from rich.console import Console

from lmp.records import ModuleAnalysis, Verification
from lmp.store.results import Store
from lmp.store.schemas import schema


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "analysis_results"
    save(folder, layer(), mlp(), linear())
    return folder


def save(folder: Path, *analyses: ModuleAnalysis) -> None:
    for analysis in analyses:
        Store(folder).save(analysis.model_copy(update={"engine": "by hand"}))


def test_the_figures_and_the_tree(lmp: Lmp, results: Path) -> None:
    result = lmp("expand", LAYER)
    assert result.exit_code == 0
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    # Of one token: an add of 8, and 3 MLPs of 3 matrix products of 2 * 8 * 32, an activation of 4 * 32, a product of 32
    flops = 8 + 3 * (3 * 2 * 8 * 32 + 4 * 32 + 32)
    assert flops == 5_096
    assert lines[:4] == [
        LAYER,
        "  transformers 5.23.0 · config: default · bfloat16",
        "  verified at 5 points, as are its 2 parts",
        "",
    ]
    assert lines[4:8] == [
        "parameters        unknown: the analysis does not say them at this config",
        "KV cache          none: no formula depends on cache_len",
        "one call          5.096 kFLOP a token at batch_size 1, seq_len 8,192",
        "",
    ]
    # An MLP has three matrices of 8 * 32 = 256; that of the layer is not in its analysis.
    assert lines[8:14] == [
        "parameters  module",
        "   unknown  (the model)  LlamaDecoderLayer",
        "       768    mlp  3 x LlamaMLP",
        "       256      gate_proj  Linear",
        "       256      up_proj  Linear",
        "       256      down_proj  Linear",
    ]
    assert lines[14] == "N x: N such modules; parameters there and below are those of one"
    assert f"stored in {results / LAYER / 'model_analysis.json'}" in lines
    assert lines[-1] == f"next: lmp evaluate {LAYER} -b 16 -s 512"
    assert "{" not in result.stdout
    assert "by hand" not in result.stderr
    assert result.stderr == f"{LAYER}: linking\n{LAYER}: stored\n"


def test_formulas_on_request(lmp: Lmp, results: Path) -> None:
    lines = [line.rstrip() for line in lmp("expand", LAYER, "--formulas").stdout.splitlines()]
    # 3 MLPs of three Linears at 2 FLOPs a multiply-add; 8 * 32 weights each at the config of the samples: 18 * 256
    assert "matmul FLOPs    18 * {batch_size} * {seq_len} * {hidden_size} * {intermediate_size}" in [
        line.strip() for line in lines
    ]
    assert "                  = 4608 * {batch_size} * {seq_len}" in lines
    assert "variables         batch_size = inputs.x.shape[0]" in lines
    assert "                  hidden_size = config.hidden_size = 8" in lines
    assert "   unknown  (the model)  LlamaDecoderLayer  1 kernel" in lines


def test_a_class_whose_sizes_are_not_known(lmp: Lmp, results: Path) -> None:
    text = lmp("expand", LINEAR).stdout
    assert "FLOPs             unknown: in_features, out_features have no values in the config" in text
    assert text.splitlines()[-1].endswith(" -b 16 -s 512 --set in_features=512 --set out_features=512")


def test_the_next_command_names_the_config(lmp: Lmp, results: Path, tmp_path: Path) -> None:
    from lmp.analyze.models import ModelOutcome
    from lmp.analyze.session import Options
    from lmp.cli.model_table import print_model
    from lmp.link.link import link

    parts = {one.class_name: one for one in (layer(), mlp(), linear())}
    outcome = ModelOutcome(link(layer(), parts.__getitem__), tmp_path, False, (), parts.__getitem__)
    out = Console(file=io.StringIO(), width=80, highlight=False)
    print_model(out, outcome, Options(results, config_file=Path("my config.json"), attention="eager"))
    last = out.file.getvalue().splitlines()[-1]  # type: ignore[attr-defined]
    assert last == f"next: lmp evaluate {LAYER} --config 'my config.json' --attn eager -b 16 -s 512"


def test_from_the_store(lmp: Lmp, results: Path) -> None:
    lmp("expand", LAYER)
    result = lmp("expand", LAYER)
    assert "from the store    nothing was analysed now" in result.stdout
    assert result.stderr == ""


def test_lines_down_to_a_depth(lmp: Lmp, results: Path) -> None:
    assert "kernel of line 320" not in lmp("expand", LAYER).stdout
    one = lmp("expand", LAYER, "--depth", "1").stdout
    assert "320  kernel of line 320" in one
    assert "flops {batch_size} * {seq_len} * {hidden_size}" in one
    assert "kernel of line 175" not in one
    two = lmp("expand", LAYER, "--depth", "2").stdout
    assert "kernel of line 175" in two
    assert "matrix product" not in two
    assert "matrix product" in lmp("expand", LAYER, "--depth", "3").stdout


@pytest.mark.parametrize("width", ["40", "80", "120"])
def test_no_line_is_wider_than_the_terminal(
    lmp: Lmp, results: Path, width: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmp.cli.tables.console", lambda: Console(width=int(width), highlight=False))
    long = " + ".join(f"{{seq_len}} ** {n} * {{batch_size}}" for n in range(2, 80))
    plain = layer()
    save(results, plain.model_copy(update={"kernels": [*plain.kernels, kernel(330, long, long, "0")]}))
    lines = lmp("expand", LAYER, "--depth", "3", "--formulas").stdout.splitlines()
    copied = ("stored in ", "next: ")  # what is copied stays whole
    assert max(len(line.rstrip()) for line in lines if not line.startswith(copied)) <= int(width)
    assert "characters, complete with --json" in " ".join(" ".join(lines).split())


def test_json_is_the_file(lmp: Lmp, results: Path) -> None:
    result = lmp("expand", LAYER, "--json", "--quiet")
    found = json.loads(result.stdout)
    Draft202012Validator(schema("model_analysis")).validate(found)
    assert result.stdout == (results / LAYER / "model_analysis.json").read_text()
    assert "${" not in result.stdout
    assert result.stderr == ""


def test_both_forms_and_the_alias_of_results(lmp: Lmp, results: Path, tmp_path: Path) -> None:
    elsewhere = results.rename(tmp_path / "elsewhere")
    for arguments in (
        (LINEAR, "--module-analysis", str(elsewhere)),
        ("--model", LINEAR, "--results", str(elsewhere)),
        (LINEAR, "--model", LINEAR, "--results", str(elsewhere), "--module-analysis", str(elsewhere)),
    ):
        assert lmp("expand", *arguments, "--quiet").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "error: no class is given\n"),
        ((LINEAR, "--model", MLP), f"error: two models are given: {LINEAR} and, with --model, {MLP}\ngive one\n"),
        ((LINEAR, "--results", "a", "--module-analysis", "b"), "error: two folders are given: --results a and"),
        ((LINEAR, "--depth", "-1"), "error: Invalid value for '--depth'"),
        (("not/a/class",), "error: there is no file not/a/class\n"),
    ],
)
def test_usage(lmp: Lmp, arguments: tuple[str, ...], message: str) -> None:
    result = lmp("expand", *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith(message)


def test_a_missing_class_leaves_a_scratchpad(lmp: Lmp, results: Path) -> None:
    (results / LINEAR / "module_analysis.json").unlink()
    result = lmp("expand", LAYER, "--quiet")
    assert result.exit_code == 3
    assert result.stderr.startswith(f"error: {LAYER} > mlp > gate_proj: the pytorch sources are not in ")
    page = (results / "SCRATCHPAD.md").read_text()
    assert f"an analysis of {LINEAR}" in page
    assert str(results / "SCRATCHPAD.md") in result.stderr


def test_what_is_not_verified_is_said(lmp: Lmp, results: Path) -> None:
    save(results, linear(verification=Verification(status="unverified", reason="-"), uncounted=["aten::frob"]))
    result = lmp("expand", LAYER)
    assert result.exit_code == 0
    assert f"UNVERIFIED: not every part is verified: {LINEAR} (unverified)" in result.stdout
    assert f"NOT VERIFIED      {LINEAR}: unverified" in result.stdout
    assert f"UNCOUNTED         {LINEAR}: aten::frob" in result.stdout
    assert "Linear (unverified)" in result.stdout
    assert f"warning: not every part is verified: {LINEAR} (unverified)\n" in result.stderr


def test_a_part_that_failed_ends_with_4(lmp: Lmp, results: Path) -> None:
    save(results, linear(verification=Verification(status="failed")))
    result = lmp("expand", LAYER, "--quiet")
    assert result.exit_code == 4
    assert f"error: the formulas do not agree with execution: {LINEAR}\n" in result.stderr


def test_an_analysis_that_does_not_fit_ends_with_4(lmp: Lmp, results: Path) -> None:
    save(results, linear(kernels=[kernel(134, "{rows}", "0", "0")]))
    result = lmp("expand", LAYER, "--quiet")
    assert result.exit_code == 4
    assert result.stderr.startswith(f"error: {LAYER} > mlp > gate_proj line 134: rows has no value")
    assert len(result.stderr.splitlines()) == 2


def test_other_peoples_text_is_no_markup(lmp: Lmp, results: Path) -> None:
    wild = kernel(3, "1", "0", "0", operation="[red]x[/nothing]", code="[/]")
    save(results, linear(kernels=[wild]))
    result = lmp("expand", LINEAR, "--depth", "1")
    assert result.exit_code == 0
    assert "[red]x[/nothing]" in result.stdout
