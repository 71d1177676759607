"""SCRATCHPAD.md."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from synthetic import write

from lmp.errors import NotFound, Search, StorageError
from lmp.source.scratchpad import write_scratchpad

ERROR = NotFound(
    "transformers.a has no class B\ndid you mean A?",
    [Search("class B", "/x/a.py", "1 classes; closest: A"), Search("B | C", "/x/b.py", "not\nthere")],
)


def test_says_what_where_why_and_what_next(tmp_path: Path) -> None:
    path = write_scratchpad(tmp_path / "results", "transformers.a.B", ERROR)
    assert path == tmp_path / "results" / "SCRATCHPAD.md"
    assert path.read_text() == (
        "# Not found: `transformers.a.B`\n\n"
        "The analysis stopped here. Nothing was assumed in place of the source that is missing.\n\n"
        "## What was looked for, and where\n\n"
        "| looked for | where | found |\n| --- | --- | --- |\n"
        "| class B | /x/a.py | 1 classes; closest: A |\n"
        "| B \\| C | /x/b.py | not there |\n\n"
        "## Why it stopped\n\ntransformers.a has no class B\n\n"
        "## What to do next\n\ndid you mean A?\n\n"
        "When that is done, run the same command again: it starts from `transformers.a.B`.\n"
    )


def test_nothing_searched(tmp_path: Path) -> None:
    text = write_scratchpad(tmp_path, "a.B", NotFound("gone")).read_text()
    assert "No file was searched." in text
    assert "Check the class path `a.B` and run again." in text


def test_older_page_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "SCRATCHPAD.md", "old")

    def fail(*args: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        with pytest.raises(StorageError, match="No space left on device"):
            write_scratchpad(tmp_path, "a.B", ERROR)
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("SCRATCHPAD.md", "old")]
    write_scratchpad(tmp_path, "a.B", ERROR)
    assert [p.name for p in tmp_path.iterdir()] == ["SCRATCHPAD.md"]


def test_folder_that_cannot_be_made(tmp_path: Path) -> None:
    write(tmp_path / "file", "")
    with pytest.raises(StorageError, match="cannot write"):
        write_scratchpad(tmp_path / "file" / "results", "a.B", ERROR)
