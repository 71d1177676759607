"""The guard alone: what it lets through, and that it refuses whatever it does not know."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmp.agents.guard import Guard


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "sub").mkdir(parents=True)
    (root / "a.py").write_text("")
    (tmp_path / "tree-beside").mkdir()
    return root


@pytest.fixture
def guard(root: Path) -> Guard:
    return Guard([root], ["submit_analysis"])


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("Read", {"file_path": "{root}/a.py", "offset": 3, "limit": 2}),
        ("Read", {"file_path": "{root}/not-there.py"}),
        ("Read", {"file_path": "{root}/sub/../a.py"}),
        ("Grep", {"pattern": "../etc|/etc", "path": "{root}", "glob": "**/*.{{py,pyi}}", "-n": True, "-A": 3}),
        ("Grep", {"pattern": "x", "path": "{root}/sub", "glob": "!test_*"}),
        ("Glob", {"pattern": "**/modeling_*.py", "path": "{root}"}),
        ("Glob", {"pattern": "a..b/*", "path": "{root}"}),
        ("mcp__lmp__submit_analysis", {"anything": "/etc/passwd"}),
    ],
)
def test_allowed(guard: Guard, root: Path, tool: str, given: dict[str, object]) -> None:
    filled = {key: value.format(root=root) if isinstance(value, str) else value for key, value in given.items()}
    assert guard.refusal(tool, filled, "/") is None


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("Read", {}),
        ("Read", {"file_path": ""}),
        ("Read", {"file_path": None}),
        ("Read", {"file_path": ["/etc/passwd"]}),
        ("Read", {"file_path": "{root}/a\0.py"}),
        ("Read", {"file_path": "{root}/\ud800"}),
        ("Read", {"file_path": "{root}-beside/a.py"}),
        ("Read", {"file_path": "{root}/a.py", "path": "/etc/passwd"}),
        ("Read", {"file_path": "{root}/a.py", "follow": True}),
        ("Grep", {"pattern": "x", "path": "{root}", "glob": "/etc/*"}),
        ("Grep", {"pattern": "x", "path": "{root}", "glob": "!/etc/*"}),
        ("Grep", {"pattern": "x", "path": "{root}", "glob": "{{/etc/*,x}}"}),
        ("Grep", {"pattern": "x", "path": "{root}", "glob": "{{x,/etc/*}}"}),
        ("Grep", {"pattern": "x", "path": "{root}", "glob": ["*.py"]}),
        ("Glob", {"pattern": "~/*", "path": "{root}"}),
        ("Glob", {"pattern": "sub/../../*", "path": "{root}"}),
        ("Glob", {"pattern": "..", "path": "{root}"}),
        ("Glob", {"pattern": "*", "path": "../.."}),
        ("mcp__other__submit_analysis", {}),
        ("submit_analysis", {}),
        ("Bash", {"command": "ls"}),
        ("", {}),
    ],
)
def test_refused(guard: Guard, root: Path, tool: str, given: dict[str, object]) -> None:
    filled = {key: value.format(root=root) if isinstance(value, str) else value for key, value in given.items()}
    assert guard.refusal(tool, filled, "/")


def test_links_are_followed_before_they_are_judged(guard: Guard, root: Path, tmp_path: Path) -> None:
    (root / "out").symlink_to(tmp_path)
    (root / "in").symlink_to(root / "sub")
    (root / "loop").symlink_to(root / "loop")
    assert guard.refusal("Read", {"file_path": f"{root}/out/x"}, "/")
    assert guard.refusal("Read", {"file_path": f"{root}/loop/x"}, "/")
    assert guard.refusal("Read", {"file_path": f"{root}/in/x"}, "/") is None


def test_a_root_that_is_a_link_is_where_it_leads_to(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    guard = Guard([tmp_path / "link"], [])
    assert guard.refusal("Read", {"file_path": f"{tmp_path}/link/a.py"}, "/") is None
    assert guard.refusal("Read", {"file_path": f"{root}/a.py"}, "/") is None


def test_relative_paths_are_those_of_the_working_folder(guard: Guard, root: Path, tmp_path: Path) -> None:
    assert guard.refusal("Read", {"file_path": "tree/a.py"}, str(tmp_path)) is None
    assert guard.refusal("Read", {"file_path": "a.py"}, str(tmp_path))


def test_without_roots_nothing_is_read() -> None:
    assert Guard([], []).refusal("Read", {"file_path": "/etc/passwd"}, "/")
