"""`lmp doctor`: what is there, what is missing, and never a secret."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import pytest
from fakes import Lmp

SECRET = "sk-ant-very-secret"


def checks(lmp: Lmp, *arguments: str) -> dict[str, dict[str, object]]:
    return {check["name"]: check for check in json.loads(lmp("doctor", "--json", *arguments).stdout)["checks"]}


def test_in_an_empty_project_it_says_what_to_do(lmp: Lmp, tmp_path: Path) -> None:
    result = lmp("doctor")
    assert result.exit_code == 3
    assert "missing  transformers sources" in result.stdout
    assert "lmp vendor" in result.stdout
    assert list(tmp_path.iterdir()) == []


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
    assert found["torch"]["found"] == "not installed (the trace engine and the judge execute with it)"
    assert found["transformers"]["found"] == "4.0.0, but lmp is made for 5.23"
    assert found["transformers"]["mend"] == "make setup, or: pip install -c constraints.txt transformers"


def test_a_results_folder_that_is_a_file(lmp: Lmp, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    found = checks(lmp, "--results", "taken")["results"]
    assert found["ok"] is False
    assert found["found"] == "taken is a file where a folder is due"


def test_credentials_are_yes_or_no(lmp: Lmp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    monkeypatch.delenv("CLAUDE_CODE_OAUTH_TOKEN", raising=False)
    found = checks(lmp)
    assert found["ANTHROPIC_API_KEY"]["found"] == "set"
    assert found["CLAUDE_CODE_OAUTH_TOKEN"]["found"] == "not set (the trace engine needs none)"
    assert SECRET not in lmp("doctor").output + lmp("doctor", "--json").output
