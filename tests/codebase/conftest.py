"""A repository made of the texts that a test gives."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from lmp.codebase.facts import RepoFacts, Selection
from lmp.codebase.reading import read_repository

Read = Callable[..., RepoFacts]


def silent(done: int, total: int, file: str) -> None:
    """A progress bar that is not looked at."""


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """``read({"a.py": "text"})`` writes the files and reads the folder; the text's common indentation is taken away."""

    def reading(files: dict[str, str], **selection: object) -> RepoFacts:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text), "utf-8")
        return read_repository(tmp_path, Selection(**selection), silent)  # type: ignore[arg-type]

    return reading


@pytest.fixture
def one(read: Read) -> Callable[[str], RepoFacts]:
    """Reads one Python file."""
    return lambda text: read({"a.py": text})
