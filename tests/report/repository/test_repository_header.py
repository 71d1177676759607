"""Commit and address, from git's own files and from package metadata."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_repository import read, written

from lmp.report.document.markdown import to_markdown
from lmp.report.document.parts import Document
from lmp.report.repository.code_base import CodeBase
from lmp.report.repository.header import address, commit
from lmp.report.repository.readme import quotes

SHA, OTHER = "0123456789abcdef0123456789abcdef01234567", "f" * 40


def _said(root: Path) -> tuple[str, str]:
    base = CodeBase(read(root), root)
    lines = to_markdown(Document("x", [("Commit", commit(base)), ("Repo", address(base))], [])).split("\n")
    return lines[2].removeprefix("**Commit:** ").strip(), lines[3].removeprefix("**Repo:** ").strip()


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({".git/HEAD": f"{SHA}\n"}, f"`{SHA}`"),
        ({".git/HEAD": "ref: refs/heads/main\n", ".git/refs/heads/main": f"{SHA}\n"}, f"`{SHA}`"),
        (
            {
                ".git/HEAD": "ref: refs/heads/x\n",
                ".git/packed-refs": f"# pack\n{OTHER} refs/heads/y\n{SHA} refs/heads/x\n",
            },
            f"`{SHA}`",
        ),
        (
            {
                ".git": "gitdir: ../main/.git/worktrees/w\n",
                "../main/.git/worktrees/w/HEAD": "ref: refs/heads/w\n",
                "../main/.git/worktrees/w/commondir": "../..\n",
                "../main/.git/refs/heads/w": f"{SHA}\n",
            },
            f"`{SHA}`",
        ),
        ({".git/HEAD": "ref: ../../secret\n", "../secret": f"{SHA}\n"}, "none (not a git checkout)"),
        ({".git/HEAD": "ref: refs/heads/none\n"}, "none (not a git checkout)"),
        ({}, "none (not a git checkout)"),
    ],
)
def test_commit(tmp_path: Path, files: dict[str, str], expected: str) -> None:
    root = written(tmp_path / "repo", {"a.py": "x = 1\n", **files})
    assert _said(root)[0] == expected


def test_version_of_a_package(tmp_path: Path) -> None:
    metadata = (
        "Metadata-Version: 2.4\nName: x\nVersion: 1.2.3\nProject-URL: Repository, https://example.org/x\n\nText\n"
    )
    root = written(tmp_path / "x-1.2.3", {"x/a.py": "y = 1\n", "x-1.2.3.dist-info/METADATA": metadata})
    said, where = _said(root)
    # Version is the third line of METADATA, the address the fourth.
    assert said == "none (not a git checkout); version `1.2.3` at `x-1.2.3.dist-info/METADATA:3` (`Version`)"
    assert where == "`https://example.org/x` (`x-1.2.3.dist-info/METADATA:4`)"


def test_no_credential_of_a_remote_is_shown(tmp_path: Path) -> None:
    config = '[core]\n\tbare = false\n[remote "origin"]\n\turl = https://someone:hidden@example.org/team/x.git\n'
    root = written(tmp_path / "x", {"a.py": "y = 1\n", ".git/HEAD": SHA, ".git/config": config})
    assert _said(root)[1] == "`https://example.org/team/x.git`"


def test_a_summary_that_setup_does_not_state_is_no_purpose(tmp_path: Path) -> None:
    files = {
        "PKG-INFO": "Metadata-Version: 2.1\nName: net\nSummary: UNKNOWN\n",
        "README.md": "# net\n\nIt draws the tokens of small models with kernels of its own.\n",
    }
    base = CodeBase(read(written(tmp_path, files)), tmp_path)
    assert [each.text for each in quotes(base)] == ["It draws the tokens of small models with kernels of its own."]
