"""Analyses of the API are kept in a folder of these tests, not in the project's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lmp.records import ModelAnalysis

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True, scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The results folder where none is named: the variable counts in a project too."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("results")
        patch.setenv("LMP_RESULTS", str(folder))
        yield folder


@pytest.fixture(scope="session")
def llama() -> ModelAnalysis:
    """The analysis of Llama-3.1-8B that git keeps."""
    (file,) = (ROOT / "analysis_results").glob("*.LlamaForCausalLM@*/model_analysis.json")
    return ModelAnalysis.model_validate_json(file.read_text(encoding="utf-8"))
