"""Each bad input: its exit code, one or two lines, and nothing lost."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from analyses import LINEAR, MLP
from fakes import FakePipeline, Lmp

from lmp.errors import (
    AgentUnavailable,
    FormulaSyntaxError,
    InvalidAnalysis,
    LmpError,
    NotFound,
    Search,
    StorageError,
    TraceFailed,
    TreeChanged,
    UsageError,
)

QUIET = ("analyze-module", MLP, "--quiet")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("no\ndo this"), 2),
        (StorageError("no\ndo this"), 2),
        (FormulaSyntaxError("no", "a", 0), 2),
        (NotFound("no\ndo this"), 3),
        (TreeChanged("no\ndo this"), 3),
        (InvalidAnalysis("no\ndo this"), 4),
        (TraceFailed("no\ndo this"), 4),
        (AgentUnavailable("no\ndo this"), 5),
    ],
)
def test_every_error_has_its_exit_code(lmp: Lmp, fake: FakePipeline, error: LmpError, code: int) -> None:
    fake.raises = error
    result = lmp(*QUIET)
    assert result.exit_code == code
    assert result.stderr.startswith("error: no")
    assert "Traceback" not in result.output


def test_debug_shows_the_traceback_too(lmp: Lmp, fake: FakePipeline) -> None:
    fake.raises = InvalidAnalysis("no")
    result = lmp(*QUIET, "--debug")
    assert result.exit_code == 4
    assert "Traceback" in result.stderr
    assert result.stderr.endswith("error: no\n")


def test_a_bug_is_two_lines_and_its_traceback_one_option_away(lmp: Lmp, fake: FakePipeline) -> None:
    fake.raises = ZeroDivisionError("division by zero\nmore")
    result = lmp(*QUIET)
    assert result.exit_code == 1
    assert result.stderr == (
        "error: ZeroDivisionError: division by zero: this is a bug in lmp\n"
        "run again with --debug and report what it prints; no file is incomplete\n"
    )
    assert "Traceback" in lmp(*QUIET, "--debug").stderr


def test_ctrl_c(lmp: Lmp, fake: FakePipeline) -> None:
    fake.raises = KeyboardInterrupt()
    result = lmp(*QUIET)
    assert result.exit_code == 130
    assert result.stderr == "interrupted; finished work is stored, and no file is incomplete\n"


def test_the_agent_engine(lmp: Lmp, fake: FakePipeline) -> None:
    for command in ("analyze-module", "expand"):
        result = lmp(command, MLP, "--engine", "agent")
        assert result.exit_code == 5
        assert result.stderr.startswith("error: no credential for the agent is set\nset ANTHROPIC_API_KEY")
    for command in ("verify", "evaluate"):
        result = lmp(command, MLP, "--engine", "agent")
        assert result.exit_code == 2
        assert result.stderr.startswith("error: --engine agent is for analyze-module and expand only")
    result = lmp("analyze-module", MLP, "--max-turns", "3")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: --max-turns: for agents only\nadd --engine agent")


def test_a_model_id_and_a_file(lmp: Lmp) -> None:
    result = lmp(*QUIET, "--model-id", "meta-llama/Llama-3.1-8B", "--config", "mine.json")
    assert result.exit_code == 2
    assert result.stderr == (
        "error: two configs are given: mine.json and, with --model-id, meta-llama/Llama-3.1-8B\ngive one\n"
    )


def test_a_config_of_no_known_class_leaves_a_scratchpad(lmp: Lmp, tmp_path: Path) -> None:
    package = tmp_path / "transformers" / "src" / "transformers"
    (package / "models").mkdir(parents=True)
    (package / "__init__.py").write_text("__version__ = '7.0.0'\n")
    (tmp_path / "mine.json").write_text('{"architectures": ["NoSuchModel"]}')
    result = lmp("evaluate", "--config", "mine.json", "-b", "1", "-s", "1")
    assert result.exit_code == 3
    assert result.stderr.startswith("error: transformers 7.0.0 has no class NoSuchModel, which the config names\n")
    assert "NoSuchModel" in (tmp_path / "analysis_results" / "SCRATCHPAD.md").read_text()


@pytest.mark.parametrize("command", ["analyze-module", "verify", "evaluate"])
def test_no_class(lmp: Lmp, fake: FakePipeline, command: str) -> None:
    result = lmp(command)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: no class is given\nname one, as in ")


def test_two_classes_where_one_is_due(lmp: Lmp, fake: FakePipeline) -> None:
    result = lmp("evaluate", MLP, "--module", LINEAR)
    assert result.exit_code == 2
    assert result.stderr == f"error: two classes are given: {MLP} and, with --module, {LINEAR}\ngive one\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("evaluat",), "error: No such command 'evaluat'. Did you mean 'evaluate'?\nsee `lmp --help`\n"),
        (("verify", "--xyzzy"), "error: no such option --xyzzy\nsee `lmp verify --help`\n"),
        (
            ("verify", "a.B", "--engine", "magic"),
            "error: Invalid value for '--engine': 'magic' is not one of 'auto', 'trace', 'agent'\n"
            "see `lmp verify --help`\n",
        ),
    ],
)
def test_what_typer_refuses_takes_two_lines_too(lmp: Lmp, arguments: tuple[str, ...], expected: str) -> None:
    result = lmp(*arguments)
    assert result.exit_code == 2
    assert result.stderr.replace("`root ", "`lmp ").replace("`root", "`lmp") == expected


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("width=3", f"error: {MLP} has no parameter 'width'"),
        ("seq_len=long", "error: seq_len is set to 'long', which is not a whole number"),
        ("seq_len=-1", "error: seq_len is set to -1"),
        ("seq_len=0.5", "error: seq_len is set to '0.5', which is not a whole number"),
    ],
)
def test_settings_that_cannot_be(lmp: Lmp, fake: FakePipeline, setting: str, message: str) -> None:
    result = lmp("evaluate", MLP, "--quiet", "--set", "batch_size=1", "--set", setting)
    assert result.exit_code == 2
    assert result.stderr.startswith(message)
    assert result.stdout == ""


def test_evaluate_without_the_size_of_the_call(lmp: Lmp, fake: FakePipeline) -> None:
    result = lmp("evaluate", MLP, "--quiet")
    assert result.exit_code == 2
    assert result.stderr == (
        f"error: batch_size and seq_len have no value: {MLP} depends on them\ngive --batch-size 2 --seq-len 16\n"
    )


# --- source not found -------------------------------------------------------------------------------------------------


def test_not_found_writes_the_scratchpad(lmp: Lmp, fake: FakePipeline, tmp_path: Path) -> None:
    fake.raises = NotFound("no such class\nlook closer", [Search("class X", "a.py", "3 classes")])
    result = lmp(*QUIET)
    page = tmp_path / "analysis_results" / "SCRATCHPAD.md"
    assert result.exit_code == 3
    assert result.stderr == f"error: no such class\nlook closer (what was looked for: {page})\n"
    assert "| class X | a.py | 3 classes |" in page.read_text()
    assert f"# Not found: `{MLP}`" in page.read_text()


def test_not_found_where_nothing_can_be_written(lmp: Lmp, fake: FakePipeline, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    fake.raises = NotFound("no such class\nlook closer")
    result = lmp(*QUIET, "--results", "taken")
    assert result.exit_code == 3
    assert result.stderr.startswith("error: no such class\nlook closer")
    assert "cannot write taken/SCRATCHPAD.md" in result.stderr
    assert (tmp_path / "taken").read_text() == "mine"


def test_sources_that_are_missing(lmp: Lmp, tmp_path: Path) -> None:
    """Without a fake: the project is empty, so there is nothing to read."""
    result = lmp(*QUIET)
    assert result.exit_code == 3
    assert result.stderr.startswith("error: the transformers sources are not in ")
    assert "run `lmp vendor`" in result.stderr
    assert (tmp_path / "analysis_results" / "SCRATCHPAD.md").exists()


def test_a_class_path_that_tries_to_leave_the_results(lmp: Lmp, tmp_path: Path) -> None:
    missing, other = "error: there is no file {}\n", "error: {} is neither a config.json nor a .py file\n"
    for path, message in (
        ("../../x", missing),
        ("/etc/passwd", other),
        ("a/../b", missing),
        ("a b", "error: 'a b' is"),
    ):
        result = lmp("analyze-module", path, "--quiet")
        assert result.exit_code == 2
        assert result.stderr.startswith(message.format(path))
    assert [path.name for path in tmp_path.iterdir()] == ["vendor.lock"]


# --- stdout -----------------------------------------------------------------------------------------------------------


def test_a_reader_that_goes_away_is_no_error(lmp: Lmp, fake: FakePipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    monkeypatch.setattr("lmp.cli.analyze.write_json", broken)
    monkeypatch.setattr("lmp.cli.main._close_stdout", lambda: None)
    result = lmp(*QUIET, "--json")
    assert (result.exit_code, result.stderr) == (0, "")


def test_a_closed_pipe_is_quiet_in_a_real_process() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    command = [sys.executable, "-m", "lmp", "schema", "module_analysis"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, env=environment, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(("redirect", "code"), [(">&-", 0), (">/dev/full", 2)])
def test_an_output_that_takes_nothing(redirect: str, code: int) -> None:
    command = f"{sys.executable} -m lmp schema module_analysis {redirect}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert "bug" not in done.stderr
