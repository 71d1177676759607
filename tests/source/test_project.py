"""What a project is, and where results and reports go in one and elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmp.source import project


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's data folder of lmp, as platformdirs names it."""
    folder = tmp_path / "data" / "lmp"
    monkeypatch.setattr("platformdirs.user_data_path", lambda name, appauthor: tmp_path / "data" / name)
    return folder


def test_a_project_is_a_folder_with_a_lock_or_below_one(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "a" / "transformers" / "src").mkdir(parents=True)
    assert project.project_root(inner) is None
    (tmp_path / project.LOCK_NAME).write_text("{}")
    assert project.project_root(inner) == tmp_path
    (tmp_path / "a" / project.LOCK_NAME).write_text("{}")
    assert project.project_root(inner) == tmp_path / "a"


def test_a_folder_called_as_the_lock_is_no_lock(tmp_path: Path) -> None:
    (tmp_path / project.LOCK_NAME).mkdir()
    assert project.project_root(tmp_path) is None


def test_folders(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert project.results_folder() == data / "analysis_results"
    assert project.reports_folder() == data / "reports"
    assert project.is_users_own(project.results_folder())
    (tmp_path / project.LOCK_NAME).write_text("{}")
    assert project.results_folder() == tmp_path / "analysis_results"
    assert project.reports_folder() == tmp_path / "reports"
    assert not project.is_users_own(project.results_folder())


def test_the_variable_comes_before_both(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LMP_RESULTS", "mine")
    assert project.results_folder() == Path("mine")
    (tmp_path / project.LOCK_NAME).write_text("{}")
    assert project.results_folder() == Path("mine")
    monkeypatch.setenv("LMP_RESULTS", "")
    assert project.results_folder() == tmp_path / "analysis_results"
