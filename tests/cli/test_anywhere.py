"""Commands outside a project: where results go, what is written where, and what the base package answers."""

from __future__ import annotations

import json
import os
from pathlib import Path

import analyses
import pytest
from analyses import LINEAR, MLP
from fakes import FakePipeline, Lmp

from lmp.analyze import models
from lmp.errors import NotFound, Search
from lmp.records import ConfigOrigin, ModuleAnalysis
from lmp.source import installed
from lmp.source.catalogue import catalogued
from lmp.store import fingerprint as fingerprints
from lmp.store.results import Store

POINT = ("--set", "batch_size=2,seq_len=16", "--json", "--quiet")


@pytest.fixture
def data(lmp: Lmp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's data folder of lmp; the current folder is empty and in no project."""
    (tmp_path / "vendor.lock").unlink()
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    monkeypatch.setattr("platformdirs.user_data_path", lambda name, appauthor: tmp_path / "data" / name)
    return tmp_path / "data" / "lmp"


@pytest.fixture
def base(data: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same without torch and transformers."""
    monkeypatch.setattr("lmp.source.trees.package_folder", lambda name: None)
    monkeypatch.setattr(installed, "package_folder", lambda name: None)
    monkeypatch.setattr(installed, "_said", set())
    return data


def stored(data: Path, *found: ModuleAnalysis) -> None:
    for analysis in found:
        Store(data / "analysis_results").save(analysis)


def with_sources(analysis: ModuleAnalysis, **fields: object) -> ModuleAnalysis:
    """As lmp makes it, from a file of transformers or torch that is not here."""
    file = analysis.source.file if analysis.class_name.startswith("transformers") else "torch/nn/modules/linear.py"
    made_from = {"derived_by": "of an earlier lmp", "judged_by": "of an earlier lmp", file: "0" * 64}
    return analysis.model_copy(update={"fingerprint": made_from, **fields})


# --- folders ---------------------------------------------------------------------------------------------------------


def test_results_go_to_the_users_folder_and_the_output_says_so(lmp: Lmp, fake: FakePipeline, data: Path) -> None:
    result = lmp("analyze-module", MLP)
    assert result.exit_code == 0
    assert result.stderr.startswith(f"results: {data / 'analysis_results'}\n")
    assert fake.options is not None
    assert fake.options.results == data / "analysis_results"
    assert "results:" not in lmp("analyze-module", MLP, "--quiet").stderr
    assert "results:" not in lmp("analyze-module", MLP, "--results", "mine").stderr
    assert fake.options.results == Path("mine")
    assert os.listdir() == []


def test_the_variable_names_a_folder(
    lmp: Lmp, fake: FakePipeline, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LMP_RESULTS", str(tmp_path / "by-variable"))
    assert "results:" not in lmp("analyze-module", MLP).stderr
    assert fake.options is not None
    assert fake.options.results == tmp_path / "by-variable"
    lmp("analyze-module", MLP, "--results", "mine")
    assert fake.options.results == Path("mine")


def test_the_scratchpad_stands_beside_the_results(lmp: Lmp, fake: FakePipeline, data: Path) -> None:
    fake.raises = NotFound("no such class\nlook closer", [Search("class X", "a.py", "3 classes")])
    page = data / "analysis_results" / "SCRATCHPAD.md"
    result = lmp("analyze-module", MLP, "--quiet")
    assert result.exit_code == 3
    assert result.stderr == f"error: no such class\nlook closer (what was looked for: {page})\n"
    assert page.exists()
    assert os.listdir() == []


def test_a_data_folder_that_cannot_be_written(lmp: Lmp, data: Path) -> None:
    data.parent.mkdir()
    data.write_text("a file in its place: root may write into any folder")
    found = {check["name"]: check for check in json.loads(lmp("doctor", "--json").stdout)["checks"]}
    assert found["results"]["ok"] is False
    assert found["results"]["found"] == f"{data} is a file, not a folder"
    assert found["results"]["mend"] == "give another folder with `--results`"


def test_doctor_says_which_sources_are_read(lmp: Lmp, data: Path) -> None:
    found = {check["name"]: check for check in json.loads(lmp("doctor", "--json").stdout)["checks"]}
    assert found["pytorch sources"]["ok"] is True
    assert found["pytorch sources"]["found"].startswith("torch 2.")
    assert found["torch"]["ok"] is True
    assert os.listdir() == []


# --- without torch and transformers ----------------------------------------------------------------------------------


def test_a_stored_result_is_evaluated_as_it_is(lmp: Lmp, base: Path, caplog: pytest.LogCaptureFixture) -> None:
    stored(base, with_sources(analyses.mlp()), with_sources(analyses.linear()))
    result = lmp("evaluate", MLP, *POINT)
    assert result.exit_code == 0, result.stderr
    # 2*16 rows; see tests/link/test_evaluation.py
    assert json.loads(result.stdout)["totals"]["flops"] == 54_272
    assert [record.getMessage() for record in caplog.records if record.name == "lmp"] == [
        "warning: not installed: transformers; results are used as stored, not compared with sources "
        "(pip install 'lmp[engine]')",
        "warning: not installed: torch; results are used as stored, not compared with sources "
        "(pip install 'lmp[engine]')",
    ]


def test_a_stored_result_at_other_options_is_not_used(lmp: Lmp, base: Path) -> None:
    stored(base, with_sources(analyses.mlp()), with_sources(analyses.linear()))
    assert lmp("evaluate", MLP, *POINT, "--attn", "eager").exit_code == 3


def test_a_models_id_finds_its_stored_class(lmp: Lmp, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without sources the class of a config is the stored one of its name: no file says where it is defined."""
    entry = catalogued("openai-community/gpt2")
    assert entry is not None
    name = f"transformers.models.gpt2.modeling_gpt2.{entry.architecture}"
    asked: list[str] = []

    def expand_model(class_path: str, *args: object, **more: object) -> None:
        asked.append(class_path)
        raise NotFound("enough")

    monkeypatch.setattr(models, "expand_model", expand_model)
    monkeypatch.setenv("HF_HOME", str(base / "no-cache"))
    monkeypatch.setattr("lmp.source.hub._ASKED_OFFLINE", True)
    config = ConfigOrigin(name="openai-community--gpt2", origin="catalogue", sha256="0" * 64)
    stored(base, with_sources(analyses.mlp(class_name=name, config=config)))
    lmp("evaluate", "--model-id", entry.id, *POINT)
    assert asked == [name]


@pytest.mark.parametrize("command", ["analyze-module", "evaluate", "verify", "expand"])
def test_what_needs_the_sources_says_what_to_install(lmp: Lmp, base: Path, command: str) -> None:
    result = lmp(command, LINEAR, "--quiet")
    assert result.exit_code == 3
    page = base / "analysis_results" / "SCRATCHPAD.md"
    assert result.stderr == (
        "error: torch is not installed: this command reads and runs its sources\n"
        f"install it: pip install 'lmp[engine]' (what was looked for: {page})\n"
    )


def test_an_import_that_fails_says_so_too(lmp: Lmp, fake: FakePipeline, base: Path) -> None:
    fake.raises = ModuleNotFoundError("No module named 'torch'", name="torch")
    result = lmp("analyze-module", MLP, "--quiet")
    assert result.exit_code == 3
    assert result.stderr == (
        "error: torch and transformers are not installed: this command reads and runs their sources\n"
        "install them: pip install 'lmp[engine]'\n"
    )
    fake.raises = ModuleNotFoundError("No module named 'other'", name="other")
    result = lmp("analyze-module", MLP, "--quiet")
    assert result.exit_code == 1
    assert "this is a bug in lmp" in result.stderr


def test_doctor_says_what_to_install(lmp: Lmp, base: Path) -> None:
    found = {check["name"]: check for check in json.loads(lmp("doctor", "--json").stdout)["checks"]}
    assert found["pytorch sources"]["ok"] is False
    assert found["pytorch sources"]["mend"] == "install it: pip install 'lmp[engine]'"


def test_a_report_is_reviewed_without_the_sources(lmp: Lmp, base: Path, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def f():\n    pass\n")
    report = tmp_path / "report.md"
    report.write_text(
        "`f` is at own.py:1 and `g` at transformers/src/transformers/x.py:3, and at pytorch/torch/y.py:9.\n"
    )
    found = json.loads(lmp("review", str(report), "--json").stdout)
    assert found[0]["findings"] == []
    assert found[0]["pointers"] == 1
    assert found[0]["notes"][0] == (
        "2 pointers were not opened: their sources are not installed (pip install 'lmp[engine]')"
    )


# --- results of two releases in one folder ---------------------------------------------------------------------------


def test_a_result_of_another_release_is_not_used(
    lmp: Lmp, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal files are not enough: what torch runs below them may differ."""
    from lmp.source.trees import Tree, Trees

    package_dir = tmp_path / "site" / "torch"
    package_dir.mkdir(parents=True)
    (package_dir / "a.py").write_text("")
    tree = Tree("pytorch", package_dir.parent, package_dir, "torch", "2.12.1", named="torch")
    trees = Trees(None, tree)
    monkeypatch.setattr(fingerprints, "_installed_torch", lambda: tree)
    made = analyses.linear(fingerprint=fingerprints.fingerprint([(tree, package_dir / "a.py")]))
    assert made.fingerprint["run_with.torch"] == "2.12.1"
    assert fingerprints.standing(made, trees) == "current"
    other = Tree("pytorch", package_dir.parent, package_dir, "torch", "2.13.0", named="torch")
    monkeypatch.setattr(fingerprints, "_installed_torch", lambda: other)
    assert fingerprints.standing(made, Trees(None, other)) == "derive again"


# --- shell completion ------------------------------------------------------------------------------------------------


def test_completion_offers_commands_and_their_options(lmp: Lmp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_LMP_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "lmp eval")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert lmp().stdout.split() == ["evaluate"]
    monkeypatch.setenv("COMP_WORDS", "lmp analyze-module --engi")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert lmp().stdout.split() == ["--engine"]
