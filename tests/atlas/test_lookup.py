"""The order in which commands look: own results, the atlas, an analysis."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import made
import pytest
from analyses import analysis, kernel

from lmp.analyze import models as frozen
from lmp.analyze.session import Options
from lmp.atlas.archive import PACKAGED, Atlas
from lmp.atlas.asking import OFF, VARIABLE, AtlasOptions, atlas_folder, with_atlas
from lmp.atlas.matching import has_older_rules
from lmp.atlas.models import config_of, expand_model, take_over
from lmp.records import ConfigOrigin, ModuleAnalysis
from lmp.store.results import Store

DEFAULTS = ConfigOrigin(name="default", origin="the class's defaults")


class Analysed(Exception):
    """Raised in place of an analysis."""


def nothing(class_path: str, stage: str) -> None:
    """Progress that is not shown."""


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AtlasOptions:
    """Options with an atlas that has one class, at its default config; an analysis raises `Analysed`."""

    def analysed(*arguments: Any) -> None:
        raise Analysed

    monkeypatch.setattr(frozen, "expand_model", analysed)
    monkeypatch.chdir(tmp_path)
    made.atlas(tmp_path / "atlas", origin=DEFAULTS)
    return AtlasOptions(results=tmp_path / "results", atlas=tmp_path / "atlas")


def answers(options: Options) -> bool:
    try:
        outcome = expand_model(made.CLASS, options, nothing, keep=False)
    except Analysed:
        return False
    assert outcome.model == made.model(config=DEFAULTS)
    assert not options.results.joinpath(".locks").exists()
    return True


def own(options: Options, **more: Any) -> ModuleAnalysis:
    """An analysis of the class in the results folder."""
    found = analysis(made.CLASS, [kernel(1, "0", "0", "0")], {}, **more)
    Store(options.results).save(found)
    return found


def test_the_atlas_answers(options: AtlasOptions) -> None:
    assert answers(options)


@pytest.mark.parametrize(
    "changed",
    [
        {"atlas": None},
        {"fresh": True},
        {"attention": "eager"},
        {"dtype": "float32"},
    ],
)
def test_what_it_is_not_asked_for(options: AtlasOptions, changed: dict[str, Any]) -> None:
    assert not answers(replace(options, **changed))


def test_options_without_an_atlas(options: AtlasOptions) -> None:
    assert not answers(Options(results=options.results))
    assert answers(with_atlas(Options(results=options.results), options.atlas))


@pytest.mark.parametrize("engine", ["submitted", "agent", "by hand"])
def test_what_others_made_comes_first(options: AtlasOptions, engine: str) -> None:
    own(options, engine=engine)
    assert not answers(options)


def test_an_own_analysis_of_former_rules_does_not(options: AtlasOptions) -> None:
    own(options, fingerprint={"derived_by": "0" * 64, "judged_by": "0" * 64})
    outcome = expand_model(made.CLASS, options, nothing, keep=False)
    assert outcome.model == made.model(config=DEFAULTS)


def test_an_own_file_that_cannot_be_read_comes_first(options: AtlasOptions) -> None:
    own(options)
    Store(options.results).file(made.CLASS).write_text("{")
    assert not answers(options)


def test_sources_of_another_release(options: AtlasOptions) -> None:
    made.atlas(options.atlas or Path(), origin=DEFAULTS, distributions={"transformers": "4.0", "torch": "2.13.0"})
    assert not answers(options)


@pytest.mark.parametrize("file", ["torch/nn/modules/linear.py", "torch/no_such_file.py"])
def test_another_source_file(options: AtlasOptions, file: str, tmp_path: Path) -> None:
    found = Atlas(tmp_path / "atlas")
    fingerprint = {**made.model().fingerprint, file: "0" * 64}
    parts = made.parts(made.Made(made.model(fingerprint=fingerprint), {}, made.FACTS, made.held()))
    found.write(made.line(origin=DEFAULTS), parts)
    assert not answers(options)


def test_what_switches_it_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert atlas_folder() == PACKAGED
    assert atlas_folder(switched_off=True) is None
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert atlas_folder() == tmp_path
    monkeypatch.setenv(VARIABLE, OFF)
    assert atlas_folder() is None
    monkeypatch.delenv(VARIABLE)
    settings = tmp_path / "settings.toml"
    settings.write_text("atlas = false\n")
    monkeypatch.setenv("LMP_SETTINGS", str(settings))
    assert atlas_folder() is None


def test_an_entry_is_taken_over_where_an_analysis_would_store_the_same(tmp_path: Path, transformers_tree: Path) -> None:
    listed = Atlas(PACKAGED).named("Qwen/Qwen3-8B")
    plain = Options(results=tmp_path, model_id="Qwen/Qwen3-8B")
    take_over(listed.class_name, with_atlas(plain, PACKAGED), nothing)
    if has_older_rules(listed):
        assert list(tmp_path.iterdir()) == []
        return
    outcome = frozen.expand_model(listed.class_name, plain, nothing)
    assert (outcome.reused, outcome.made) == (True, ())
    assert outcome.model == Atlas(PACKAGED).load(listed).model


def test_a_config_is_told_from_a_result(tmp_path: Path) -> None:
    config = '{"model_type": "llama"}'
    for name, content in {
        "config.json": config, "own.json": config, "result.json": '{"schema_version": 1, "model_type": "llama"}',
        "broken.json": "{",
    }.items():  # fmt: skip
        (tmp_path / name).write_text(content)
    assert config_of(tmp_path) == config_of(tmp_path / "config.json") == tmp_path / "config.json"
    assert config_of(tmp_path / "own.json") == tmp_path / "own.json"
    for name in ("result.json", "broken.json", "nowhere.json", "x" * 300):
        assert config_of(tmp_path / name) is None
    (tmp_path / "model_analysis.json").write_text("{}")  # the folder of a result
    assert config_of(tmp_path) is None
