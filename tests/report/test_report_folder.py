"""Files of a report on disk: all of them change, or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmp.records import Review
from lmp.report.document.ledger import Ledger
from lmp.report.folder import REPOSITORIES, Report, ledger_file, write_report, write_together

TEXT = "# x\n\nIt has 32 layers, at `a.py:3`.\n"


def test_all_change_or_none(tmp_path: Path) -> None:
    old, blocked = tmp_path / "old.md", tmp_path / "file"
    old.write_text("old")
    blocked.write_text("no folder")
    with pytest.raises(OSError, match=r"Not a directory|File exists"):
        write_together({old: b"new", blocked / "x.md": b"new"})
    with pytest.raises(OSError, match=r"Not a directory|File exists"):
        write_together({blocked / "x.md": b"new", old: b"new"})
    assert old.read_text() == "old"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["file", "old.md"]


def test_only_what_changed_is_written(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "deep/other"
    assert write_together({one: b"1", other: b"2"}) == [one, other]
    before = one.stat().st_mtime_ns
    assert write_together({one: b"1", other: b"3"}) == [other]
    assert one.stat().st_mtime_ns == before
    assert other.read_bytes() == b"3"


def test_the_digits_of_a_report_are_kept_with_its_numbers(tmp_path: Path) -> None:
    report = Report("x", REPOSITORIES, TEXT, Ledger(kind="repository", subject="x"))
    write_report(tmp_path, report, Review(file=report.file, pointers=0, numbers=0))
    kept = Ledger.model_validate_json(ledger_file(tmp_path / report.file).read_bytes())
    assert [line.partition(" ")[2] for line in kept.lines] == ["", "32 a.py:3"]
