"""README.md and docs/ show what the commands print, and git keeps the results that lmp makes."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import ModuleType

import pytest

from lmp.source.trees import find_trees
from project_scripts import program

ROOT = Path(__file__).parents[1]


@pytest.fixture
def pages() -> ModuleType:
    """scripts/readme.py: it runs what the pages show."""
    return program("scripts/readme.py")


@pytest.fixture
def default_family() -> ModuleType:
    """scripts/stored_results.py: it expands whole models."""
    return program("scripts/stored_results.py")


def needs_sources() -> None:
    trees = find_trees(ROOT)
    if trees.transformers is None or trees.pytorch is None:
        pytest.skip("nothing is vendored: run `lmp vendor`")


def test_the_pages_show_what_the_commands_print(pages: ModuleType) -> None:
    """One test, so that its commands share their analyses."""
    needs_sources()
    with tempfile.TemporaryDirectory(prefix="lmp-", dir="/tmp") as folder:
        found = pages.differences(pages.Commands(Path(folder)))
    assert found == [], "run `.venv/bin/python scripts/readme.py`"


def test_git_keeps_the_results_that_lmp_makes(default_family: ModuleType) -> None:
    needs_sources()
    assert default_family.differences() == [], "run `.venv/bin/python scripts/stored_results.py`"
