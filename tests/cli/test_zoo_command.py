"""`lmp zoo` with an executor that makes up what became of families."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import Lmp
from typer.testing import Result

from lmp.cli.zoo_table import _why
from lmp.records import ZooEntry, ZooSummary
from synthetic_zoo import SyntheticExecutor, clone

Zoo = Callable[..., Result]


@pytest.fixture
def zoo(lmp: Lmp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Zoo:
    """Runs `lmp zoo` on the made-up families; what becomes of them is given by name."""
    tree = clone(tmp_path)

    def call(*arguments: str, **statuses: str) -> Result:
        monkeypatch.setattr("lmp.zoo.local.LocalProcesses", lambda count, limits: SyntheticExecutor(**statuses))
        return lmp("zoo", *arguments, "--transformers", str(tree), "--results", "results", "--reports", "out")

    return call


def test_summaries_are_written_in_three_forms(zoo: Zoo, tmp_path: Path) -> None:
    done = zoo("--task", "base", bee="error")
    assert done.exit_code == 0
    assert "base: 2 of 3 families verified" in done.stdout
    found = ZooSummary.model_validate_json((tmp_path / "out/zoo/base.json").read_text())
    assert (found.families, found.verified) == (3, 2)
    assert {file.name for file in (tmp_path / "out/zoo").iterdir()} == {"base.json", "base.md", "base.html"}


def test_json_is_alone_on_stdout(zoo: Zoo) -> None:
    (found,) = json.loads(zoo("--task", "base", "--json", "--quiet").stdout)
    assert [entry["family"] for entry in found["entries"]] == ["ant", "bee", "cat"]


def test_a_pattern_chooses(zoo: Zoo) -> None:
    done = zoo("b*", "--task", "base")
    assert "base: 1 of 1 families verified" in done.stdout
    assert "not run: 2 of the 3 families of base" in done.stdout


def test_a_list_runs_nothing(zoo: Zoo, tmp_path: Path) -> None:
    done = zoo("all", "--task", "base", "--list", ant="killed")
    assert done.stdout.splitlines() == ["base\tant\tAntModel", "base\tbee\tBeeModel", "base\tcat\tCatModel"]
    assert not (tmp_path / "out").exists()


def test_a_lost_family_ends_with_4(zoo: Zoo, tmp_path: Path) -> None:
    zoo("--task", "base", cat="error")
    before = tmp_path / "before.json"
    before.write_bytes((tmp_path / "out/zoo/base.json").read_bytes())
    same = zoo("--compare", str(before), "--fresh")
    assert same.exit_code == 0
    # Those that were verified then: cat was not.
    assert "2 of 2 families are as good as before" in same.stderr
    lost = zoo("--compare", str(before), "--fresh", ant="failed")
    assert lost.exit_code == 4
    assert "lost: ant: verified before, now failed" in lost.stderr


def test_a_reason_does_not_reach_the_terminal_as_it_is() -> None:
    entry = ZooEntry(family="bee", task="base", status="error", fingerprint="", cause="lmp", reason="a\n\x1b[2Jb")
    assert _why(entry) == r"lmp: a \x1b[2Jb"


def test_a_summary_can_be_shown(zoo: Zoo) -> None:
    zoo("--task", "base", bee="stopped")
    shown = zoo("--show", "out/zoo/base.json", "--quiet")
    assert "base: 2 of 3 families verified" in shown.stdout
    assert "not verified, by cause: 1 lmp" in shown.stdout
    assert "bee" not in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no families are named"),
        (["dog", "--task", "base"], "no family is named dog"),
        (["--compare", "none.json"], "none.json cannot be read"),
        (["--task", "base", "--scheduler", "tcp://127.0.0.1:1", "--jobs", "2"], "--jobs is for this machine"),
    ],
)
def test_what_cannot_be_used_ends_with_2(zoo: Zoo, arguments: list[str], message: str) -> None:
    done = zoo(*arguments)
    assert done.exit_code == 2
    assert message in done.stderr


def test_an_interrupted_run_ends_with_130_and_goes_on(zoo: Zoo, tmp_path: Path) -> None:
    assert zoo("--task", "base", cat="killed").exit_code == 130
    told = ZooSummary.model_validate_json((tmp_path / "out/zoo/base.json").read_text())
    assert (told.verified, told.not_run) == (2, ["cat"])
    done = zoo("--task", "base")
    assert "2 of 3 families are known (2 verified); 1 to do" in done.stderr
