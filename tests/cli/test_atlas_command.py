"""`lmp atlas`: its list, what build keeps and makes, what check says, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import made
import pytest
from fakes import Lmp

from lmp.atlas import making
from lmp.atlas.archive import Atlas
from lmp.atlas.making import Compared, Made, Target
from lmp.errors import first_line

TARGETS = [Target("org--Tiny", model_id="org/Tiny"), Target("org--Other", model_id="org/Other")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return made.atlas(tmp_path / "atlas", held_by=making.held_by()).folder


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(only: Any = ()) -> list[Target]:
        return [target for target in TARGETS if not only or target.model_id in only]

    monkeypatch.setattr(making, "targets", chosen)


def test_the_list(lmp: Lmp, folder: Path) -> None:
    shown = lmp("atlas", "--folder", str(folder))
    assert shown.exit_code == 0
    assert "org/Tiny" in shown.stdout
    assert "\n1 entry, 0.0 MB, in " in shown.stdout
    (entry,) = json.loads(lmp("atlas", "--folder", str(folder), "--json").stdout)["entries"]
    assert (entry["model_id"], entry["family"], entry["status"], entry["rules"]) == (
        "org/Tiny", "tiny", "verified", "current",
    )  # fmt: skip


def test_an_entry_of_other_rules_is_older(lmp: Lmp, tmp_path: Path) -> None:
    folder = made.atlas(tmp_path / "atlas", derived_by="0" * 64).folder
    assert "older" in lmp("atlas", "--folder", str(folder)).stdout


@pytest.mark.parametrize(
    "arguments",
    [("list", "3"), ("build", "3"), ("list", "--only", "x"), ("build", "--seed", "1"), ("check", "3", "--only", "x")],
)
def test_options_of_another_action(lmp: Lmp, folder: Path, arguments: tuple[str, ...]) -> None:
    done = lmp("atlas", *arguments, "--folder", str(folder))
    assert done.exit_code == 2
    assert len(done.stderr.splitlines()) == 2


def test_an_unknown_model(lmp: Lmp, folder: Path) -> None:
    done = lmp("atlas", "build", "--only", "org/None", "--folder", str(folder), "--quiet")
    assert done.exit_code == 2 or "vendor" in done.stderr


def test_a_folder_without_an_atlas(lmp: Lmp, tmp_path: Path) -> None:
    done = lmp("atlas", "--folder", str(tmp_path / "none"))
    assert (done.exit_code, done.stderr.count("\n")) == (4, 2)
    assert "index.json is not there" in done.stderr


@pytest.mark.usefixtures("known")
def test_build_keeps_what_is_current(lmp: Lmp, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def make(wanted: list[Target], options: object, jobs: int) -> Iterator[tuple[Target, Made | str]]:
        for target in wanted:
            asked.append(target.name)
            yield target, "unverified: no point was executed"

    monkeypatch.setattr(making, "_made", make)
    monkeypatch.setattr(making, "is_current", lambda atlas, target: target.name == "org--Tiny")
    done = lmp("atlas", "build", "--folder", str(folder), "--results", "r")
    assert done.exit_code == 0
    assert asked == ["org--Other"]
    assert "org/Tiny: current" in done.stderr
    assert "org/Other: left out: unverified: no point was executed" in done.stderr
    assert Atlas(folder).index.left_out == {"org/Other": "unverified: no point was executed"}
    assert "left out: org/Other: unverified" in lmp("atlas", "--folder", str(folder)).stdout


@pytest.mark.usefixtures("known")
def test_build_writes_what_was_made(lmp: Lmp, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    again = Made(made.model(), {}, made.FACTS, None)
    monkeypatch.setattr(making, "_made", lambda wanted, options, jobs: [(wanted[0], again)])
    monkeypatch.setattr(making, "is_current", lambda atlas, target: False)
    monkeypatch.setattr(making, "listed", lambda target, found: made.line(name=target.name, model_id=target.model_id))
    assert lmp("atlas", "build", "--only", "org/Other", "--folder", str(folder), "--results", "r").exit_code == 0
    entry = Atlas(folder).load(Atlas(folder).named("org/Other"))
    assert (entry.model, entry.held) == (made.model(), None)


def differing(monkeypatch: pytest.MonkeyPatch, differs: str | None) -> None:
    monkeypatch.setattr(making, "check", lambda atlas, wanted, options, jobs: [Compared("org/Tiny", differs)])


@pytest.mark.usefixtures("known")
def test_check_of_equal_entries(lmp: Lmp, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    differing(monkeypatch, None)
    done = lmp("atlas", "check", "1", "--folder", str(folder))
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (0, "1 of 1 entries are as made again")


@pytest.mark.usefixtures("known")
def test_check_of_an_entry_that_differs(lmp: Lmp, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    differing(monkeypatch, "model: totals.flops is '1', and '2' made again")
    done = lmp("atlas", "check", "--folder", str(folder), "--json")
    assert done.exit_code == 4
    assert json.loads(done.stdout) == [
        {"name": "org/Tiny", "differs": "model: totals.flops is '1', and '2' made again"}
    ]
    assert "error: 1 of 1 entries are not as made again: org/Tiny\n" in done.stderr


def test_what_differs_is_named(tmp_path: Path) -> None:
    entry = made.atlas(tmp_path).load(made.atlas(tmp_path).named("org/Tiny"))

    def difference(model: Any = None, facts: Any = None, held: Any = None) -> str | None:
        again = Made(model or made.model(), {}, facts or made.FACTS, held or made.held())
        return making._first_difference(entry, again)

    assert difference() is None
    # Other rules make other hashes, and that alone is no difference.
    assert difference(made.model(fingerprint={"derived_by": "1" * 64})) is None
    changed = made.model().totals.model_copy(update={"flops": "0"})
    assert str(difference(made.model(totals=changed))).startswith("model: totals.flops is '{num_hidden_layers}")
    assert difference(facts=made.FACTS.model_copy(update={"unread": []})) == (
        "facts: unread is ['model_type', 'made_by'], and [] made again"
    )
    assert str(difference(held=made.held().model_copy(update={"element_size": 4}))).startswith(
        "held: element_size is 2"
    )


def test_check_needs_an_empty_folder(folder: Path, tmp_path: Path) -> None:
    from lmp.analyze.session import Options
    from lmp.errors import UsageError

    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "x").write_text("")
    with pytest.raises(UsageError) as error:
        list(making.check(Atlas(folder), [], Options(results=tmp_path / "r"), 1))
    assert first_line(error.value).endswith("is not empty")
