"""Nothing imports torch before it must: it takes two seconds, and most commands never need it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SLOW = ("torch", "transformers", "sympy", "claude_agent_sdk")

PROBE = """
import json, sys
sys.argv = ["lmp", *sys.argv[1:]]
try:
    {body}
except SystemExit as end:
    code = end.code or 0
names = {{name if name.startswith("lmp.cli.") else name.partition(".")[0] for name in sys.modules}}
print("IMPORTED", json.dumps([code, sorted(names)]), file=sys.stderr)
"""


def imported(*arguments: str, body: str = "from lmp.cli.main import run; run()", cwd: Path = ROOT) -> set[str]:
    """Top-level packages, and files of lmp.cli, that are loaded when the command ends; it has to end well."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", PROBE.format(body=body), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, check=False)
    marked = [line for line in done.stderr.splitlines() if line.startswith("IMPORTED ")]
    assert marked, done.stderr
    code, names = json.loads(marked[-1].removeprefix("IMPORTED "))
    assert code == 0, done.stderr
    return set(names)


def slow(names: set[str]) -> set[str]:
    return names & set(SLOW)


def test_the_probe_sees_an_import() -> None:
    assert slow(imported(body="import torch; code = 0")) >= {"torch"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("analyze-module", "--help"),
        ("schema",),
        ("schema", "module_analysis"),
        ("schema", "--json"),
        ("catalogue",),
    ],
)
def test_commands_that_need_no_module(arguments: tuple[str, ...]) -> None:
    assert slow(imported(*arguments)) == set()


def test_help_imports_neither_records_nor_rich_tables() -> None:
    assert imported("--help") & {"pydantic", "jsonschema", "numpy", "rich"} == set()


def of_cli(names: set[str]) -> set[str]:
    return {name for name in names if name.startswith("lmp.cli.")}


def test_help_imports_no_file_of_a_command() -> None:
    assert of_cli(imported("--help")) == {"lmp.cli.main", "lmp.cli.output", "lmp.cli.typed"}


def test_a_command_imports_no_other_commands_file() -> None:
    common = {"lmp.cli.main", "lmp.cli.output", "lmp.cli.typed", "lmp.cli.options"}
    assert of_cli(imported("schema")) == {*common, "lmp.cli.project"}


def test_doctor() -> None:
    environment = "import lmp.cli.doctor as d; d.usable = lambda checks: True; from lmp.cli.main import run; run()"
    assert slow(imported("doctor", body=environment)) == set()


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, process: None) -> Path:
    """A folder in which torch.nn.Linear is analysed already: by the real engine, which imports torch."""
    if not (ROOT / "pytorch" / "torch").is_dir():
        pytest.skip("nothing is vendored here")
    folder = tmp_path_factory.mktemp("results")
    names = imported("analyze-module", "torch.nn.Linear", "--results", str(folder), "--quiet")
    assert "torch" in names
    return folder


@pytest.mark.parametrize(
    "arguments",
    [
        ("analyze-module", "torch.nn.Linear"),
        ("analyze-module", "torch.nn.Linear", "--json"),
        ("expand", "torch.nn.Linear"),
        ("expand", "torch.nn.modules.linear.Linear", "--json"),
        ("evaluate", "torch.nn.Linear", "--set", "batch_size=2,seq_len=16,in_features=8,out_features=32,bias=0"),
        ("diff", "torch.nn.Linear", "torch.nn.modules.linear.Linear"),
    ],
)
def test_commands_on_a_stored_result(results: Path, arguments: tuple[str, ...]) -> None:
    assert slow(imported(*arguments, "--results", str(results))) == set()


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_a_card_of_a_stored_model_needs_no_torch(process: None, command: str) -> None:
    """Weights, cache and activations are told from the formulas of the analysis that git has."""
    if not (ROOT / "pytorch" / "torch").is_dir():
        pytest.skip("nothing is vendored here")
    call = ("--phase", "decode", "-b", "16", "-c", "8k", "--device", "h100-sxm", "--tp", "2", "--quiet")
    results = ("--results", str(ROOT / "analysis_results"))
    assert slow(imported(command, "meta-llama/Meta-Llama-3.1-8B", *call, *results)) == set()


def test_a_result_of_the_project_is_used_outside_of_it(results: Path, tmp_path: Path) -> None:
    """The installed packages are the pinned ones: their files have the names and hashes of the vendored ones."""
    point = ("--set", "batch_size=2,seq_len=16,in_features=8,out_features=32,bias=0")
    names = imported("evaluate", "torch.nn.Linear", *point, "--results", str(results), cwd=tmp_path)
    assert slow(names) == set()
    assert list(tmp_path.iterdir()) == []
