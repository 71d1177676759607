"""What `lmp report --all` finds in a results folder, and its index."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lmp.analyze.session import Options
from lmp.records import ConfigOrigin
from lmp.report import everything
from lmp.report.devices import device_named
from lmp.report.document.ledger import Ledger
from lmp.report.document.markdown import to_markdown
from lmp.report.everything import found_in, report_all
from lmp.report.folder import IMPLEMENTATIONS, Report
from lmp.report.index import Listed, index
from lmp.report.writing import Written
from lmp.store.results import Store

sys.path.insert(0, str(Path(__file__).parents[1] / "store"))

import analyses
import small_models as small


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A model, its Linear, an MLP that is in no model, and a file that is none."""
    store = Store(tmp_path / "results")
    store.save_model(small.model())
    store.save(analyses.linear())
    store.save(analyses.mlp())
    broken = tmp_path / "results/a.Broken/module_analysis.json"
    broken.parent.mkdir()
    broken.write_text("{ no json")
    return tmp_path / "results"


def test_a_part_of_a_model_stands_in_its_report(results: Path) -> None:
    found = found_in(results)
    assert [stored.name for stored in found.roots] == [small.ROOT, analyses.MLP]
    assert found.covered == {analyses.LINEAR: small.ROOT}
    assert list(found.unreadable) == ["a.Broken"]


def test_a_class_at_another_config_is_no_part_of_a_model(results: Path) -> None:
    other = analyses.mlp(config=ConfigOrigin(name="other", origin="other.json", sha256="1" * 64))
    Store(results).save(other)
    assert f"{analyses.MLP}@other" in [stored.name for stored in found_in(results).roots]


def test_a_module_that_another_one_calls_stands_in_its_report(tmp_path: Path) -> None:
    """Also before there is any model: a second run finds the same roots as the first."""
    store = Store(tmp_path)
    store.save(analyses.linear())
    store.save(analyses.mlp())
    found = found_in(tmp_path)
    assert [stored.name for stored in found.roots] == [analyses.MLP]
    assert found.covered == {analyses.LINEAR: analyses.MLP}


def test_a_result_in_the_folder_of_another_one_is_listed(results: Path) -> None:
    (results / analyses.MLP).rename(results / "a.Other")
    found = found_in(results)
    assert [stored.name for stored in found.roots] == [small.ROOT]
    assert found.unreadable["a.Other"] == f"it is of {analyses.MLP} at default, which is kept in {analyses.MLP}/"


def test_an_empty_folder_has_nothing(tmp_path: Path) -> None:
    assert found_in(tmp_path / "none").roots == ()


def test_the_index_leads_to_reports_and_says_why_there_is_none(results: Path, tmp_path: Path) -> None:
    found = found_in(results)
    listed = [Listed(found.roots[0], "implementations/a-analysis.md"), Listed(found.roots[1], why_not="it | broke")]
    text = to_markdown(index(tmp_path, listed, found))
    assert f"| [report](implementations/a-analysis.md) | `{small.ROOT}` | default | trace | verified |" in text
    assert f"| not made | `{analyses.MLP}` | default | trace | verified; it \\| broke |" in text
    assert f"| `{analyses.LINEAR}` | [{small.ROOT}](implementations/a-analysis.md) |" in text
    assert "| `a.Broken` |" in text


@pytest.fixture
def making(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stands in for making a report: what was made, by class."""
    made: list[str] = []

    class Facts:
        def __init__(self, class_path: str) -> None:
            self.class_path = class_path

    def gather(class_path: str, *rest: object) -> Facts:
        from lmp.errors import TraceFailed

        if class_path == analyses.MLP:
            raise TraceFailed("it cannot be run\nmore")
        if class_path == analyses.LINEAR:
            raise ValueError("it is wrong")
        return Facts(class_path)

    def write(folder: Path, facts: Facts) -> Written:
        made.append(facts.class_path)
        report = Report("a", IMPLEMENTATIONS, "# a\n", Ledger(kind="model", subject=facts.class_path))
        file = folder / report.file
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("# a\n\n![b](../assets/a-b.svg)\n")
        (folder / "assets").mkdir(exist_ok=True)
        (folder / "assets/a-b.svg").write_text("<svg/>")
        return Written(file, [file])

    monkeypatch.setattr("lmp.report.gathering.gather", gather)
    monkeypatch.setattr("lmp.report.model.write_model_report", write)
    return made


def test_unchanged_reports_are_not_made_again(results: Path, tmp_path: Path, making: list[str]) -> None:
    def run() -> list[Listed]:
        return report_all(tmp_path / "out", Options(results), lambda name, stage: None, device_named("H100"), False)

    first = run()
    assert [(one.stored.name, one.report, one.why_not) for one in first] == [
        (small.ROOT, "implementations/a-analysis.md", ""),
        (analyses.MLP, None, "it cannot be run"),
    ]
    assert making == [small.ROOT]
    before = (tmp_path / "out/implementations/a-analysis.md").stat().st_mtime_ns
    run()
    assert making == [small.ROOT]
    assert (tmp_path / "out/implementations/a-analysis.md").stat().st_mtime_ns == before

    (tmp_path / "out/implementations/a-analysis.md").write_text("changed by hand")
    run()
    assert making == [small.ROOT] * 2

    Store(results).save_model(small.model(assumptions=["{hidden_size} > 1"]))
    run()
    assert making == [small.ROOT] * 3

    (tmp_path / "out" / everything.STATE).write_text("[]")
    run()
    assert making == [small.ROOT] * 4

    (tmp_path / "out/assets/a-b.svg").unlink()
    run()
    assert making == [small.ROOT] * 5
    run()
    assert making == [small.ROOT] * 5


def test_a_bug_with_one_stops_no_other(tmp_path: Path, making: list[str]) -> None:
    store = Store(tmp_path / "results")
    store.save(analyses.linear())
    store.save_model(small.model(parts={small.ROOT: small.model().parts[small.ROOT]}))
    listed = report_all(
        tmp_path / "out", Options(tmp_path / "results"), lambda name, stage: None, device_named("H100"), False
    )
    assert {one.stored.name: one.why_not for one in listed} == {
        small.ROOT: "",
        analyses.LINEAR: "ValueError: it is wrong: this is a bug in lmp; "
        f"`lmp report {analyses.LINEAR} --debug` shows where",
    }
