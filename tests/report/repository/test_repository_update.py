"""Stale pointers of an earlier report, and what is kept between two reports."""

from __future__ import annotations

from pathlib import Path

from engine_files import FILES
from small_repository import line_of, read, reported, written

from lmp.report.repository.code_base import CodeBase
from lmp.report.repository.state import changes, load, state_of
from lmp.report.repository.update import stale


def test_nothing_is_stale_where_nothing_changed(tmp_path: Path) -> None:
    root = written(tmp_path / "nanoserve", FILES)
    report = reported(root)
    state = state_of(CodeBase(report.facts, root), report.text)
    assert stale(report.text, root, state) == []


def test_moved_and_gone(tmp_path: Path) -> None:
    root = written(
        tmp_path / "r", {"a.py": "def one():\n    pass\n\n\n\n\n\ndef two():\n    pass\n", "b.py": "x = 1\n"}
    )
    old = (
        "`a.py:1` (`one`) `a.py:8` (`two`) `b.py:1` (`x`) `c.py:4` (`three`) `a.py:9`\n"
        "| a | b |\n| - | - |\n| 1 | `a.py:1` (`one`) |\n"
    )
    # Five lines are put before one; two goes to b.py; x and c.py are gone; a.py has 7 lines then.
    written(root, {"a.py": "#\n#\n#\n#\n#\ndef one():\n    pass\n", "b.py": "def two():\n    pass\n"})
    assert [str(each) for each in stale(old, root)] == [
        "moved: a.py:1 (one) -> a.py:6: in the same file",
        "moved: a.py:8 (two) -> b.py:1: in another file",
        "gone: b.py:1 (x): the name is gone",
        "gone: c.py:4 (three): the file is gone",
        "gone: a.py:9: the file has 7 lines",
    ]


def test_a_line_without_a_symbol_is_found_by_its_text(tmp_path: Path) -> None:
    root = written(tmp_path / "r", {"a.py": "x = 1\ny = f(x)\n"})
    state = state_of(CodeBase(read(root), root), "see `a.py:2` and `a.py:1`")
    written(root, {"a.py": "\n\nz = 0\ny = f(x)\n"})
    assert [str(each) for each in stale("see `a.py:2` and `a.py:1`", root, state)] == [
        "moved: a.py:2 -> a.py:4: the same line in the same file",
        "gone: a.py:1: the line has changed",
    ]


def test_state_is_kept_and_tells_what_changed(tmp_path: Path) -> None:
    root = written(tmp_path / "nanoserve", FILES)
    facts = read(root)
    base = CodeBase(facts, root)
    path = tmp_path / "assets" / "nanoserve-state.json"
    state_of(base, "").save(path)
    state = load(path)
    assert state is not None
    assert state.signs == {file.sha256: base.signs[file.file] for file in base.code}

    written(root, {"nanoserve/sampler.py": "x = 1\n", "nanoserve/new.py": "y = 1\n"})
    (root / "README.md").unlink()
    again = CodeBase(read(root), root, state.signs)
    told = changes(state, again)
    assert (told.added, told.changed, told.removed) == (
        ("nanoserve/new.py",),
        ("nanoserve/sampler.py",),
        ("README.md",),
    )
    # 11 files were written; one is gone and one changed.
    assert told.unchanged == len(FILES) - 2
    assert again.signs["nanoserve/scheduler.py"] is state.signs[again.files["nanoserve/scheduler.py"].sha256]


def test_a_state_that_cannot_be_used_is_none(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    assert load(path) is None
    path.write_text("{")
    assert load(path) is None
    path.write_text('{"version": 999, "files": {}, "signs": {}, "lines": {}}')
    assert load(path) is None


def test_stale_names_the_definition_and_not_a_use(tmp_path: Path) -> None:
    root = written(tmp_path / "r", {"a.py": "f()\n\n\n\n\n\n\n\ndef f():\n    pass\n"})
    found = stale("`a.py:99` (`f`)", root)
    assert found[0].now == (f"a.py:{line_of(root, 'a.py', 'def f')}",)
