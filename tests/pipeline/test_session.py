"""What one command reuses, what it makes again, and what it refuses."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lmp.errors import InvalidAnalysis, StorageError, UsageError
from lmp.pipeline.module import Options, Outcome, analyze_modules, verify_module

NAME = "transformers.models.llama.modeling_llama.LlamaRMSNorm"
IDENTITY = "torch.nn.Identity"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory, transformers_tree: Any) -> Path:
    folder = tmp_path_factory.mktemp("results")
    run([NAME, IDENTITY], Options(results=folder))
    return folder


@pytest.fixture
def options(stored: Path, tmp_path: Path) -> Options:
    shutil.copytree(stored, tmp_path / "results")
    return Options(results=tmp_path / "results")


def run(names: list[str], options: Options) -> list[Outcome]:
    return analyze_modules(names, options, lambda name, stage: None)


def edit(options: Options, **changes: Any) -> Path:
    file = options.results / NAME / "module_analysis.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    return file


def test_a_true_result_is_reused(options: Options) -> None:
    assert [o.reused for o in run([NAME], options)] == [True]


def test_fresh_makes_it_again(options: Options) -> None:
    assert [o.reused for o in run([NAME], replace(options, fresh=True))] == [False]


def test_a_result_of_other_rules_is_made_again(options: Options) -> None:
    file = edit(options, fingerprint={"lmp": "0" * 64, "src/transformers/activations.py": "0" * 64})
    assert [o.reused for o in run([NAME], options)] == [False]
    assert json.loads(file.read_text())["fingerprint"]["lmp"] != "0" * 64


def test_another_dtype_is_another_analysis(options: Options) -> None:
    found = run([IDENTITY], replace(options, dtype="float32"))
    assert [o.reused for o in found] == [False]
    assert found[0].analysis.dtype == "float32"


@pytest.mark.parametrize("content", ["{", '{"schema_version": 0}', "[]"])
def test_a_result_that_cannot_be_read_is_not_overwritten(options: Options, content: str) -> None:
    file = options.results / NAME / "module_analysis.json"
    file.write_text(content)
    with pytest.raises(InvalidAnalysis, match=r"module_analysis\.json"):
        run([NAME], options)
    assert file.read_text() == content
    run([NAME], replace(options, fresh=True))
    assert file.with_name("module_analysis.json.invalid").read_text() == content


def test_a_wrong_formula_is_found(options: Options) -> None:
    data = json.loads((options.results / NAME / "module_analysis.json").read_text())
    # The square of each element: one product more than there is.
    kernels = [{**k, "flops": f"2 * ({k['flops']})"} if k["operation"] == "power" else k for k in data["kernels"]]
    edit(options, kernels=kernels)
    found = verify_module(NAME, options).analysis
    assert found.verification.status == "failed"
    line = next(k["line"] for k in kernels if k["operation"] == "power")
    assert {(f.line, f.quantity) for f in found.verification.findings} >= {(line, "flops")}


def test_the_agent_engine_is_refused(options: Options) -> None:
    with pytest.raises(UsageError, match="agents work for analyze-module and expand"):
        run([NAME], replace(options, engine="agent"))


def test_a_file_in_place_of_the_results(tmp_path: Path) -> None:
    place = tmp_path / "results"
    place.write_text("mine")
    with pytest.raises(StorageError):
        run([IDENTITY], Options(results=place))
    assert place.read_text() == "mine"


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "is not JSON"), ("[1]", "holds no JSON object"), ('{"model_type": "gpt2"}', "model_type 'gpt2'")],
)
def test_configs_that_cannot_be_used(tmp_path: Path, transformers_tree: Any, content: str, message: str) -> None:
    file = tmp_path / "mine.json"
    file.write_text(content)
    options = Options(results=tmp_path / "results", config_file=file)
    with pytest.raises(UsageError, match=message):
        run(["transformers.models.llama.modeling_llama.LlamaMLP"], options)


def test_a_config_has_a_folder_of_its_own(tmp_path: Path, transformers_tree: Any) -> None:
    file = tmp_path / "small.json"
    file.write_text('{"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4}')
    found = run(["transformers.models.llama.modeling_llama.LlamaMLP"], Options(tmp_path / "results", config_file=file))
    mine = next(o for o in found if o.requested)
    assert mine.file.parent.name == "transformers.models.llama.modeling_llama.LlamaMLP@small"
    assert mine.analysis.values == {"hidden_size": 64, "intermediate_size": 96}
    assert mine.analysis.config.sha256
