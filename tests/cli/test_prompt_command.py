"""``lmp prompt``: the system prompt and the message as they would be sent, and nothing else on stdout."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from lmp.cli.main import app

PROJECT = Path(__file__).parents[2]
NORM = "transformers.models.llama.modeling_llama.LlamaRMSNorm"


def lmp_prompt(*arguments: str) -> Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(PROJECT)
        return CliRunner().invoke(app, ["prompt", *arguments])


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, transformers_tree: Path) -> str:
    return str(tmp_path_factory.mktemp("results"))


def test_what_is_printed_is_what_is_sent(results: str) -> None:
    printed = lmp_prompt(NORM, "--results", results)
    assert printed.exit_code == 0
    data = json.loads(lmp_prompt(NORM, "--results", results, "--json", "--quiet").stdout)
    head, _, message = printed.stdout.partition("\n\n===== message =====\n")
    assert head == f"===== system prompt =====\n{data['system'].rstrip()}"
    assert message == data["prompt"].rstrip() + "\n"
    sha256 = hashlib.sha256(f"{data['system']}\0{data['prompt']}".encode()).hexdigest()
    assert data["sha256"] == sha256
    assert f"sha256 of both: {sha256}" in printed.stderr
    assert {tool["name"] for tool in data["tools"]} >= {"submit_analysis", "check_draft", "source_not_found"}


def test_a_reader_without_tools_is_told_what_to_do(results: str) -> None:
    printed = lmp_prompt(NORM, "--results", results, "--quiet").stdout
    assert f"lmp submit {NORM} FILE" in printed
    assert "hidden_states = hidden_states.to(torch.float32)" in printed
    assert "<<" not in printed


def test_nothing_is_written(tmp_path: Path, transformers_tree: Path) -> None:
    """Linear, which the class calls, is analysed for the prompt, and nothing says that it is stored."""
    folder = tmp_path / "results"
    made = lmp_prompt(NORM.replace("RMSNorm", "MLP"), "--results", str(folder))
    assert "reference: ${{torch.nn.modules.linear.Linear}}(batch_size=" in made.stdout
    assert "torch.nn.modules.linear.Linear: verifying" in made.stderr
    assert "stored" not in made.stderr
    assert list(tmp_path.iterdir()) == []


def test_what_takes_too_long_is_left_to_its_own_command(
    results: str, transformers_tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmp.agents.unwritten.SECONDS", 0.0)
    monkeypatch.setattr("lmp.agents.unwritten.made_in_time.__defaults__", (0.0,))
    printed = lmp_prompt(NORM.replace("RMSNorm", "MLP"), "--results", f"{results}/none", "--quiet").stdout
    why = "making it takes longer than a prompt may: run `lmp analyze-module torch.nn.modules.linear.Linear` first"
    assert f"torch.nn.modules.linear.Linear\n  no analysis of it: {why}" in printed


def test_an_alias_is_sent_under_its_defining_path(results: str) -> None:
    data = json.loads(lmp_prompt("torch.nn.Dropout", "--results", results, "--json", "--quiet").stdout)
    assert "Analyse `torch.nn.modules.dropout.Dropout`." in data["prompt"]


def test_the_other_stage(results: str) -> None:
    nothing = lmp_prompt(NORM, "--stage", "expand", "--results", results)
    assert (nothing.exit_code, nothing.stdout) == (2, "")
    assert f"nothing is open in {NORM} or below it" in nothing.stderr
    file = Path(results) / NORM / "module_analysis.json"
    assert not file.exists()  # what was made for the prompt is stored nowhere
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(PROJECT)
        assert CliRunner().invoke(app, ["analyze-module", NORM, "--results", results, "--quiet"]).exit_code == 0
    whole = json.loads(file.read_text())
    reference = "${{self.scale}}(batch_size={batch_size})"
    costs = {"flops": reference, "memory_access": {"read": reference, "write": reference}}
    whole["kernels"].append({**whole["kernels"][-1], **costs, "kernel_type": "composite"})
    file.write_text(json.dumps({**whole, "engine": "by hand"}))
    data = json.loads(lmp_prompt(NORM, "--stage", "expand", "--results", results, "--json", "--quiet").stdout)
    assert data["stage"] == "expand"
    assert f"Close the open references below `{NORM}`. There are 1." in data["prompt"]
    assert f"written: {reference}, repeat 1" in data["prompt"]
    assert {tool["name"] for tool in data["tools"]} >= {"submit_bindings", "open_places"}


def test_a_class_that_is_not_there(results: str) -> None:
    failed = lmp_prompt("transformers.models.llama.modeling_llama.LlamaNorm", "--results", results)
    assert failed.exit_code != 0
    assert failed.stdout == ""
