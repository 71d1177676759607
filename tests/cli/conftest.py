"""The command line in an empty project."""

from __future__ import annotations

from pathlib import Path

import analyses
import pytest
from fakes import FakePipeline, Lmp
from typer.testing import CliRunner, Result

from lmp.analyze import models
from lmp.analyze import modules as pipeline
from lmp.analyze.models import ModelOutcome
from lmp.cli.main import app
from lmp.records import ModelAnalysis


@pytest.fixture
def lmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lmp:
    """Runs a command in an empty project."""
    (tmp_path / "vendor.lock").write_text('{"trees": {}}')
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(app, list(arguments))

    return call


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakePipeline:
    found = FakePipeline({a.class_name: a for a in (analyses.mlp(), analyses.linear())})
    for name in ("analyze_modules", "verify_modules"):
        monkeypatch.setattr(pipeline, name, getattr(found, name))
    monkeypatch.setattr(models, "expand_model", found.expand_model)
    return found


@pytest.fixture
def stored_llama(monkeypatch: pytest.MonkeyPatch) -> None:
    """Llama-3.1-8B, as it was expanded, in place of an expansion."""
    (file,) = (Path(__file__).parents[2] / "analysis_results").glob("*.LlamaForCausalLM@*/model_analysis.json")
    model = ModelAnalysis.model_validate_json(file.read_text(encoding="utf-8"))

    def expand(*_: object, **__: object) -> ModelOutcome:
        return ModelOutcome(model, file, True, (), {}.__getitem__)

    monkeypatch.setattr(models, "expand_model", expand)
