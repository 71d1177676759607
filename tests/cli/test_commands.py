"""What each command asks of the pipeline, and what it prints."""

from __future__ import annotations

import json
import re
from pathlib import Path

import analyses
import pytest
from analyses import LINEAR, MLP
from fakes import FakePipeline, Lmp
from jsonschema import Draft202012Validator
from rich.console import Console

from lmp.analyze import modules
from lmp.analyze import session as pipeline
from lmp.errors import TraceFailed
from lmp.records import Finding, Verification
from lmp.store.schemas import schema


def test_analyze_prints_the_requested_and_names_the_rest(lmp: Lmp, fake: FakePipeline) -> None:
    result = lmp("analyze-module", MLP)
    assert result.exit_code == 0
    assert fake.asked == [MLP]
    assert "modeling_llama.py:160-176  forward()" in result.stdout
    assert "engine: trace (auto: the settings ask for no agents)" in result.stdout
    assert "verified at 5 points" in result.stdout
    # The code of line 175 stands once; its three calls and two operators under it.
    assert result.stdout.count("down_proj = self.down_proj(") == 1
    assert result.stdout.count("Linear(batch_size={batch_size}, seq_len={seq_len}") == 3
    assert "free lines        176" in result.stdout
    assert f"analysed too, because the above refer to them:\n  {LINEAR}  verified\n" in result.stdout


def test_analyze_reports_progress_as_lines_on_stderr(lmp: Lmp, fake: FakePipeline) -> None:
    result = lmp("analyze-module", MLP)
    assert result.stderr == "".join(f"{MLP}: {stage}\n" for stage in ("reading", "tracing", "verifying", "stored"))
    assert lmp("analyze-module", MLP, "--quiet").stderr == ""


def test_analyze_json_is_a_list_of_what_was_requested(lmp: Lmp, fake: FakePipeline) -> None:
    result = lmp("analyze-module", MLP, "--json")
    (only,) = json.loads(result.stdout)
    assert only["class_name"] == MLP
    Draft202012Validator(schema("module_analysis")).validate(only)


def test_several_classes_and_both_forms(lmp: Lmp, fake: FakePipeline) -> None:
    lmp("analyze-module", MLP, "--module", LINEAR, "--module", MLP)
    assert fake.asked == [MLP, LINEAR]


def test_options_reach_the_pipeline(lmp: Lmp, fake: FakePipeline) -> None:
    arguments = ["--results", "out", "--transformers", "t", "--pytorch", "p", "--config", "c.json", "--attn", "eager"]
    own = ["--inputs", "x: float[2]", "--init", "n=3", "--path", "here", "--path", "there"]
    lmp("analyze-module", MLP, *arguments, *own, "--dtype", "float32", "--fresh", "--engine", "trace")
    assert fake.options is not None
    found = vars(fake.options)
    assert found == {
        "atlas": None,
        "results": Path("out"),
        "transformers": Path("t"),
        "pytorch": Path("p"),
        "config_file": Path("c.json"),
        "attention": "eager",
        "dtype": "float32",
        "fresh": True,
        "engine": "trace",
        "why_engine": "",
        "model_id": None,
        "inputs": "x: float[2]",
        "init": "n=3",
        "paths": (Path("here"), Path("there")),
    }
    assert type(found["attention"]) is type(found["dtype"]) is str


def test_the_class_is_the_configs_where_none_is_given(
    lmp: Lmp, fake: FakePipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "class_of_config", lambda options: MLP if options.model_id else LINEAR)
    assert lmp("analyze-module", "--model-id", "org/name").exit_code == 0
    assert fake.asked == [MLP]
    assert lmp("verify", "--config", "c.json").exit_code == 0
    assert fake.asked == [LINEAR]
    assert lmp("evaluate", "--model-id", "org/name", "--batch-size", "2", "--seq-len", "16").exit_code == 0
    assert fake.asked == [MLP]


def test_results_are_the_projects_from_any_folder_of_it(
    lmp: Lmp, fake: FakePipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vendor.lock").write_text('{"trees": {}}')
    (tmp_path / "notes").mkdir()
    monkeypatch.chdir(tmp_path / "notes")
    lmp("analyze-module", MLP)
    assert fake.options is not None
    assert fake.options.results == tmp_path / "analysis_results"


def test_a_failed_analysis_ends_with_4(lmp: Lmp, fake: FakePipeline) -> None:
    finding = Finding(line=175, quantity="read", point="seq_len=3", claimed="10", counted="12")
    failed = analyses.mlp(verification=Verification(status="failed", points=5, findings=[finding]))
    fake.analyses[MLP] = failed
    result = lmp("analyze-module", MLP, "--quiet")
    assert result.exit_code == 4
    assert "FAILED: 1 difference from execution" in result.stdout
    assert result.stderr == (
        f"error: the formulas do not agree with execution: {MLP}\n"
        "do not use them; `lmp verify CLASS` says where they differ\n"
    )
    result = lmp("verify", MLP, "--quiet")
    assert result.exit_code == 4
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[1] == ["LlamaMLP", "FAILED", "5", "1", "not", "by", "phase"]
    assert lines[-3:] == [
        ["line", "175", "read", "at", "seq_len=3"], ["formula", "says", "10"], ["executed", "12"]
    ]  # fmt: skip


def test_verify(lmp: Lmp, fake: FakePipeline) -> None:
    result = lmp("verify", MLP)
    assert result.exit_code == 0
    head, row = result.stdout.splitlines()
    assert head.split() == ["class", "status", "points", "differences", "phases"]
    assert row.split() == ["LlamaMLP", "verified", "5", "0", "not", "by", "phase"]
    verbose = lmp("verify", MLP, "--verbose").stdout
    assert f"\n{MLP}\n  matmul_flops equal FlopCounterMode\n" in verbose
    assert "module_analysis.json\n" in verbose
    found = json.loads(lmp("verify", "--module", MLP, "--json").stdout)
    assert found["class_name"] == MLP
    assert found["verification"]["status"] == "verified"


def test_verify_several_classes_in_one_table(lmp: Lmp, fake: FakePipeline) -> None:
    findings = [
        Finding(line=n, quantity="read", point="seq_len=3", claimed=str(n), counted=str(n + 1)) for n in range(7)
    ]
    unverified = Verification(status="unverified", points=2, phases=["prefill", "decode"], reason="[no] decode ran")
    fake.analyses[MLP] = analyses.mlp(verification=unverified)
    fake.analyses[LINEAR] = analyses.linear(verification=Verification(status="failed", points=4, findings=findings))
    result = lmp("verify", MLP, "--module", LINEAR, "--quiet")
    assert result.exit_code == 4
    assert fake.asked == [MLP, LINEAR]
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert [line.split() for line in lines[1:3]] == [
        ["LlamaMLP", "UNVERIFIED", "2", "0", "prefill,", "decode"],
        ["Linear", "FAILED", "4", "7", "not", "by", "phase"],
    ]
    assert "  UNVERIFIED: [no] decode ran" in lines
    assert "  2 more differences: --verbose shows them" in lines  # 7, of which 5 are shown
    assert lmp("verify", MLP, LINEAR, "--verbose").stdout.count("formula says") == 7
    found = json.loads(lmp("verify", MLP, LINEAR, "--json", "--quiet").stdout)
    assert [one["class_name"] for one in found] == [MLP, LINEAR]


@pytest.mark.parametrize("width", [20, 40, 80, 120])
def test_verdicts_fit_the_terminal(lmp: Lmp, fake: FakePipeline, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    finding = Finding(line=175, quantity="read", point="seq_len=3", claimed="1,234,567,890", counted="1,234,567,891")
    failed = Verification(status="failed", points=1234, findings=[finding])
    fake.analyses[MLP] = analyses.mlp(verification=failed)
    monkeypatch.setattr("lmp.cli.tables.console", lambda: Console(width=width, highlight=False))
    text = lmp("verify", MLP, LINEAR, "--quiet").stdout
    lines = [line for line in text.splitlines() if line != MLP]  # a path stays whole, to be copied
    assert max(map(len, lines)) <= width
    words = re.split(r"[\s,]+(?=\D)|\s", text)
    for whole in ("LlamaMLP", "FAILED", "verified", "1,234", "1,234,567,890", "1,234,567,891"):
        assert whole in words


def test_an_error_at_one_class_does_not_hide_the_verdicts_before(
    lmp: Lmp, fake: FakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(class_paths, options, progress):  # type: ignore[no-untyped-def]
        yield from fake.verify_modules([MLP], options, progress)
        raise TraceFailed("Linear does not run\ngive other inputs")

    monkeypatch.setattr(modules, "verify_modules", broken)
    result = lmp("verify", MLP, LINEAR, "--quiet")
    assert result.exit_code == TraceFailed("").exit_code
    assert "LlamaMLP  verified" in result.stdout
    assert result.stderr == "error: Linear does not run\ngive other inputs\n"


def test_schema(lmp: Lmp, tmp_path: Path) -> None:
    names = ["module_analysis", "model_analysis", "module_draft", "hand_in", "zoo_entry", "zoo_summary"]
    names += ["evaluation", "difference", "capture", "inspection", "atlas_index", "atlas_facts", "atlas_held"]
    assert [line.split()[0] for line in lmp("schema").stdout.splitlines()] == names
    assert json.loads(lmp("schema", "module_analysis").stdout) == schema("module_analysis")
    assert list(json.loads(lmp("schema", "--json").stdout)) == names
    assert lmp("schema", "--write").exit_code == 0
    assert json.loads((tmp_path / "schemas" / "evaluation.schema.json").read_text()) == schema("evaluation")


def test_version(lmp: Lmp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: f"0.0 of {name}")
    assert lmp("--version").stdout == "lmp 0.0 of lmp\n"


def test_help_is_shown_without_a_command(lmp: Lmp) -> None:
    assert lmp().stderr == lmp("--help").stdout
    assert lmp().exit_code == 2
    for command in ("vendor", "analyze-module", "verify", "evaluate", "inspect", "catalogue", "doctor", "schema"):
        assert f"\n  {command} " in lmp("--help").stdout
        assert lmp(command, "--help").exit_code == 0
