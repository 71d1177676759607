"""What `lmp report` refuses, and what it does with a small code base that is written here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fakes import Lmp

CODE = '''"""A tiny engine."""

import os

LIMIT = int(os.environ.get("TINY_LIMIT", "8"))


class Scheduler:
    """Decides which requests run next."""

    def schedule(self, queue):
        return queue[:LIMIT]


class Engine:
    """Runs a model step by step."""

    def generate(self, prompt):
        scheduler = Scheduler()
        while prompt:
            batch = scheduler.schedule(prompt)
            prompt = self.step(batch)

    def step(self, batch):
        return batch[1:]
'''


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "engine.py").write_text(CODE)
    return folder


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no class is given"),
        (["a.B", "--model", "a.C"], "two models are given"),
        (["a.B", "--include", "x"], "--include: for the folder of a code base only"),
        (["a.B", "--update"], "--update: for the folder of a code base only"),
        (["tiny", "--device", "H100"], "--device: for models only"),
        (["tiny", "--at", "decode:1:2k"], "--at: for models only"),
        (["--all", "--at", "decode:1:2k"], "--at: not with --all"),
        (["a.B", "--at", "decode:16"], "--at decode:16: not a point"),
        (["tiny", "--set", "a=1", "--inputs", "x"], "--set, --inputs: for models only"),
        (["tiny", "--format", "html"], "--format html is for models, not for a code base"),
        (["--all", "--exclude", "x"], "--exclude: not with --all"),
        (["--all", "a.B"], "--all reports on everything"),
        (["a.B", "--device", "h1000"], "there is no device 'h1000'\ndid you mean h100 or h100-80gb or h200?"),
        (["a.B", "--device", "zzz"], "there is no device 'zzz'\nthe names are a100-sxm"),
        (["a.B", "--max-turns", "3"], "--max-turns: for agents only"),
        (["./nowhere"], "nowhere is no folder"),
        (["a.B", "--reports", "tiny/engine.py"], "is a file, not a folder"),
        (["tiny/"], "has no code"),
    ],
)
def test_what_cannot_be_carried_out_as_it_is_made(lmp: Lmp, repo: Path, arguments: list[str], message: str) -> None:
    if message == "has no code":
        (repo / "engine.py").unlink()
    done = lmp("report", *arguments)
    assert (done.exit_code, message in done.stderr) == (2, True), done.stderr
    assert len(done.stderr.strip().splitlines()) <= 3
    assert not (repo.parent / "reports").exists()


def test_a_file_is_no_class_path(lmp: Lmp, repo: Path) -> None:
    (repo.parent / "notes.md").write_text("# Notes\n")
    done = lmp("report", "notes.md")
    assert (done.exit_code, "notes.md is neither a config.json nor a .py file" in done.stderr) == (2, True), done.stderr


def test_a_code_base(lmp: Lmp, repo: Path, tmp_path: Path) -> None:
    done = lmp("report", "tiny", "--reports", "out")
    assert done.exit_code == 0, done.stderr
    file = tmp_path / "out/repositories/tiny-analysis.md"
    text = file.read_text()
    # The lines are those of CODE, counted from 1.
    assert "`engine.py:5`" in text  # the read of TINY_LIMIT
    assert "`engine.py:8` (`Scheduler`)" in text
    assert "TINY_LIMIT" in text
    assert lmp("review", str(file), "--root", "tiny").exit_code == 0

    before = file.stat().st_mtime_ns
    again = lmp("report", "tiny", "--reports", "out")
    assert "unchanged:" in again.stderr
    assert file.stat().st_mtime_ns == before


def test_what_has_moved_is_said(lmp: Lmp, repo: Path) -> None:
    lmp("report", "tiny", "--reports", "out", "--quiet")
    (repo / "engine.py").write_text("# one\n" * 20 + CODE)
    done = lmp("report", "tiny", "--reports", "out", "--update")
    assert done.exit_code == 0, done.stderr
    # Scheduler was at 8, and 20 lines stand before it now.
    assert "engine.py:8" in done.stderr
    assert "engine.py:28" in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written(lmp: Lmp, repo: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir(mode=0o500)
    assert lmp("report", "tiny", "--reports", "out").exit_code == 2
