"""`lmp doctor`: what is there, what is missing, and never a secret."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import pytest
from fakes import Lmp

from lmp.agents.environment import CREDENTIALS

SECRET = "sk-ant-very-secret"


def checks(lmp: Lmp, *arguments: str) -> dict[str, dict[str, object]]:
    return {check["name"]: check for check in json.loads(lmp("doctor", "--json", *arguments).stdout)["checks"]}


def test_in_an_empty_project_it_says_what_to_do(lmp: Lmp, tmp_path: Path) -> None:
    result = lmp("doctor")
    assert result.exit_code == 3
    assert "missing  transformers sources" in result.stdout
    assert "lmp vendor" in result.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["vendor.lock"]


def test_versions_are_those_installed(lmp: Lmp) -> None:
    found = checks(lmp)
    assert found["torch"]["found"] == metadata.version("torch")
    assert found["transformers"]["ok"] is True


def test_the_projects_own_trees_are_checked_by_hash(lmp: Lmp, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[2]
    if not (root / "pytorch" / "torch").is_dir():
        pytest.skip("nothing is vendored here")
    monkeypatch.chdir(root)
    result = lmp("doctor", "--json")
    assert result.exit_code == 0
    found = {check["name"]: check for check in json.loads(result.stdout)["checks"]}
    assert found["pytorch sources"]["found"].endswith("as vendor.lock says")


def test_a_package_that_is_missing(lmp: Lmp, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name == "torch":
            raise metadata.PackageNotFoundError(name)
        return "4.0.0"

    monkeypatch.setattr(metadata, "version", version)
    found = checks(lmp)
    assert found["torch"]["found"] == "not installed (the trace engine and the judge execute modules with it)"
    assert found["transformers"]["found"] == "4.0.0, but lmp needs 5.23"
    assert found["transformers"]["mend"] == "make setup, or: pip install -c constraints.txt transformers"


def test_a_results_folder_that_is_a_file(lmp: Lmp, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    found = checks(lmp, "--results", "taken")["results"]
    assert found["ok"] is False
    assert found["found"] == "taken is a file, not a folder"


def test_a_credential_is_named_and_never_shown(lmp: Lmp, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CREDENTIALS:
        monkeypatch.delenv(name, raising=False)
    assert checks(lmp)["credential"]["ok"] is False
    assert checks(lmp)["agent engine"]["found"] == "cannot run: see above"
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    found = checks(lmp)
    assert found["credential"]["found"] == "ANTHROPIC_API_KEY is set"
    assert found["agent engine"]["found"] == "can run"
    assert SECRET not in lmp("doctor").output + lmp("doctor", "--json").output


def test_auto_is_the_agent_only_where_the_settings_ask_for_it(
    lmp: Lmp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    monkeypatch.setenv("LMP_SETTINGS", str(tmp_path / "settings.toml"))
    assert checks(lmp)["settings"]["found"].endswith("--engine auto is trace")
    (tmp_path / "settings.toml").write_text('engine = "agent"\n')
    assert checks(lmp)["settings"]["found"].endswith("engine=agent; --engine auto is agent")
    (tmp_path / "settings.toml").write_text('engin = "agent"\n')
    assert "settings are: engine, model" in checks(lmp)["settings"]["mend"]
