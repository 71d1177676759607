"""`lmp review`, on files written here and on a report with numbers of the small model."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from fakes import Lmp

from lmp.link.numbers import ModelNumbers
from lmp.link.values import values_for
from lmp.report.document.amounts import Claim, Term
from lmp.report.document.ledger import Entry, Ledger
from lmp.report.folder import ledger_text
from lmp.store.results import Store

sys.path.insert(0, str(Path(__file__).parents[1] / "store"))

import small_models as small

TEXT = "# Analysis\n\nIt takes 13.06 kFLOP.\n"
"""13,056 FLOPs, by the arithmetic of small_models.py."""


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """A report on the small model with one number, its ledger, and the model in the store."""
    folder = tmp_path / "reports"
    (folder / "implementations").mkdir(parents=True)
    (folder / "assets").mkdir()
    file = folder / "implementations/small-analysis.md"
    file.write_text(TEXT)
    claim = Claim(expression="{a}", terms={"a": Term(point="p", quantity="flops")})
    ledger = Ledger(
        kind="model",
        subject=small.ROOT,
        points={"p": values_for(ModelNumbers(small.model()).model, small.POINT)},
        numbers=[Entry(section="Analysis", text="13.06 kFLOP", unit="FLOP", claim=claim)],
    )
    (folder / "assets/small-numbers.json").write_text(ledger_text(ledger))
    Store(tmp_path / "analysis_results").save_model(small.model())
    return file


def review(lmp: Lmp, file: Path, *more: str) -> tuple[int, str, str]:
    results = str(file.parents[2] / "analysis_results")
    done = lmp("review", str(file), "--results", results, *more)
    return done.exit_code, done.stdout, done.stderr


def test_a_report_that_holds(lmp: Lmp, report: Path) -> None:
    code, out, _ = review(lmp, report)
    assert (code, out) == (0, f"{report}: ok; 0 pointers opened, 1 number checked\n")


def test_a_number_that_was_changed_in_the_text(lmp: Lmp, report: Path) -> None:
    report.write_text(TEXT.replace("13.06", "13.07"))
    code, out, error = review(lmp, report)
    assert code == 4
    assert f"{report}:3: number: 13.07 kFLOP is no number of the results that this section states" in out
    assert error == "error: 1 finding\n"


def test_results_that_have_changed(lmp: Lmp, report: Path) -> None:
    model = small.model()
    other = model.model_copy(
        update={"kernels": [small.basic(10, "7", "0", "0")], "totals": model.totals.model_copy(update={"flops": "7"})}
    )
    Store(report.parents[2] / "analysis_results").save_model(other)
    code, out, _ = review(lmp, report)
    assert code == 4
    assert "number: 13.06 kFLOP is 7 FLOP in the results" in out


def test_without_results_it_says_what_was_not_held(lmp: Lmp, report: Path, tmp_path: Path) -> None:
    done = lmp("review", str(report), "--results", str(tmp_path / "empty"))
    assert done.exit_code == 0
    assert f"there is no model of {small.ROOT} in empty/" in done.stdout


def test_as_json(lmp: Lmp, report: Path) -> None:
    _, out, _ = review(lmp, report, "--json")
    assert json.loads(out) == [{"file": str(report), "findings": [], "pointers": 0, "numbers": 1, "notes": []}]


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"\xff\xfe\x00", "is no UTF-8 text"), (None, "cannot be read: No such file or directory")],
)
def test_what_cannot_be_read(lmp: Lmp, tmp_path: Path, content: bytes | None, message: str) -> None:
    file = tmp_path / "x.md"
    if content is not None:
        file.write_bytes(content)
    done = lmp("review", str(file))
    assert done.exit_code == 2
    assert message in done.stderr


DEEP = "[" * 100_000


@pytest.mark.parametrize("content", [b"{}", b"\xff", DEEP.encode(), b'{"kind": "model", "subject": 3}', b"{" * 9])
def test_a_list_of_numbers_that_is_none(lmp: Lmp, report: Path, content: bytes) -> None:
    (report.parents[1] / "assets/small-numbers.json").write_bytes(content)
    code, out, error = review(lmp, report)
    assert (code, error) == (4, "error: 1 finding\n")
    assert f"{report}:1: number: {report.parents[1]}/assets/small-numbers.json is no list of numbers of lmp's" in out


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"device": "nonsense"}, "there is no device 'nonsense'"),
        ({"batch_size": -1}, "batch_size is set to -1"),
        ({"batch_size": None}, "batch_size has no value"),
        ({"hidden_size": 9}, "point p has the value 9 for hidden_size, the results have 8"),
        ({"more": 9}, "point p has the value 9 for more, the results have none"),
    ],
)
def test_a_list_of_numbers_that_was_changed(lmp: Lmp, report: Path, change: dict[str, object], why: str) -> None:
    file = report.parents[1] / "assets/small-numbers.json"
    ledger = json.loads(file.read_text())
    if "device" in change:
        ledger |= change
    else:
        values = {**ledger["points"]["p"], **change}
        ledger["points"]["p"] = {name: value for name, value in values.items() if value is not None}
    file.write_text(json.dumps(ledger))
    code, out, _ = review(lmp, report)
    assert code == 4
    assert f"{report}:1: number: {file}: " in out
    assert why in out


def test_points_that_no_number_is_of_are_not_worked_out(lmp: Lmp, report: Path) -> None:
    file = report.parents[1] / "assets/small-numbers.json"
    ledger = json.loads(file.read_text())
    ledger["points"] |= {f"p{n}": {"batch_size": -1} for n in range(3000)}
    file.write_text(json.dumps(ledger))
    assert review(lmp, report)[0] == 0

    entry = ledger["numbers"][0]
    for n in range(100):
        claim = {"expression": "{a}", "terms": {"a": {"point": f"q{n}", "quantity": "flops"}}}
        ledger["points"][f"q{n}"] = ledger["points"]["p"]
        ledger["numbers"].append({**entry, "claim": claim})
    file.write_text(json.dumps(ledger))
    assert "numbers of 101 points, at most 64 are worked out" in review(lmp, report)[1]


def test_one_file_that_is_wrong_does_not_hide_the_others(lmp: Lmp, report: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.md"
    wrong.write_text("about {repo_name}\n")
    done = lmp("review", str(tmp_path / "gone.md"), str(wrong), str(report), "--results", str(tmp_path / "none"))
    assert done.exit_code == 4
    assert "gone.md cannot be read" in done.stderr
    assert f"{wrong}:1: placeholder: {{repo_name}}" in done.stdout
    assert f"{report}: ok" in done.stdout
    done = lmp("review", str(tmp_path / "gone.md"), str(report), "--results", str(tmp_path / "none"))
    assert done.exit_code == 2


def test_what_is_no_regular_file_is_not_waited_for(lmp: Lmp, report: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.md")
    (tmp_path / "loop.md").symlink_to("loop.md")
    (tmp_path / "zero.md").symlink_to("/dev/zero")
    for name in ("pipe.md", "zero.md", "loop.md", "/dev/zero", "."):
        done = lmp("review", str(tmp_path / name))
        assert (done.exit_code, "cannot be read: " in done.stderr) == (2, True), name
    file = report.parents[1] / "assets/small-numbers.json"
    file.unlink()
    os.mkfifo(file)
    assert "is no list of numbers" in review(lmp, report)[1]


def test_a_link_to_a_report_and_a_mark_at_its_beginning(lmp: Lmp, report: Path, tmp_path: Path) -> None:
    report.write_bytes(b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n").encode())
    link = tmp_path / "link.md"
    link.symlink_to(report)
    done = lmp("review", str(link), "--results", str(tmp_path / "analysis_results"))
    assert (done.exit_code, done.stdout) == (0, f"{link}: ok; 0 pointers opened, 1 number checked\n")


def test_pointers_are_looked_for_where_it_is_said(lmp: Lmp, tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo/a.py").write_text("def f():\n    pass\n")
    file = tmp_path / "x.md"
    file.write_text("`a.py:1` (`f`)\n")
    assert lmp("review", str(file), "--root", str(tmp_path / "repo")).exit_code == 0
    (tmp_path / "other").mkdir()
    done = lmp("review", str(file), "--root", str(tmp_path / "other"))
    assert (done.exit_code, "there is no such file" in done.stdout) == (4, True)
    assert lmp("review", str(file), "--root", str(tmp_path / "gone")).exit_code == 2


def test_packages_of_ones_own_are_found_as_reports_name_them(lmp: Lmp, tmp_path: Path) -> None:
    """``own/own.py`` is the file own.py of the package own; ``own/own/a.py`` that of a folder."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here/own.py").write_text("class A:\n    pass\n")
    file = tmp_path / "x.md"
    file.write_text("`own/own.py:1` (`A`)\n")
    assert lmp("review", str(file)).exit_code == 4
    assert lmp("review", str(file), "--path", str(tmp_path / "here")).exit_code == 0


def test_what_the_results_are_not_sure_of_is_said(lmp: Lmp, report: Path) -> None:
    model = small.model()
    parts = {name: part.model_copy(update={"status": "failed"}) for name, part in model.parts.items()}
    Store(report.parents[2] / "analysis_results").save_model(model.model_copy(update={"parts": parts}))
    code, out, _ = review(lmp, report)
    assert code == 0
    assert f"the results: the formulas of {small.ROOT} are NOT in agreement with execution" in out


def test_results_that_cannot_be_read_are_said(lmp: Lmp, report: Path) -> None:
    (file,) = (report.parents[2] / "analysis_results").glob("*/model_analysis.json")
    file.write_text("{")
    code, out, _ = review(lmp, report)
    assert code == 0
    assert "numbers were held against the list written with the report alone: " in out
    assert "is not valid JSON" in out
