"""What one command reuses, makes again, and refuses."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lmp.analyze.modules import analyze_modules, verify_module
from lmp.analyze.session import Options, Outcome
from lmp.errors import InvalidAnalysis, StorageError, UsageError
from lmp.store import fingerprint as fingerprints
from lmp.trace.engine import TraceEngine

NAME = "transformers.models.llama.modeling_llama.LlamaRMSNorm"
MLP = "transformers.models.llama.modeling_llama.LlamaMLP"
SILU = "transformers.activations.SiLUActivation"
LINEAR = "torch.nn.modules.linear.Linear"
IDENTITY = "torch.nn.Identity"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory, transformers_tree: Any) -> Path:
    folder = tmp_path_factory.mktemp("results")
    run([NAME, MLP, IDENTITY], Options(results=folder))
    return folder


@pytest.fixture
def options(stored: Path, tmp_path: Path) -> Options:
    shutil.copytree(stored, tmp_path / "results")
    return Options(results=tmp_path / "results")


def run(names: list[str], options: Options) -> list[Outcome]:
    return analyze_modules(names, options, lambda name, stage: None)


def edit(options: Options, name: str = NAME, **changes: Any) -> Path:
    file = options.results / name / "module_analysis.json"
    file.write_text(json.dumps({**read(options, name), **changes}))
    return file


def read(options: Options, name: str = NAME) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((options.results / name / "module_analysis.json").read_text())
    return found


def test_a_true_result_is_reused(options: Options) -> None:
    assert [o.reused for o in run([NAME], options)] == [True]


def test_fresh_makes_it_again(options: Options) -> None:
    assert [o.reused for o in run([NAME], replace(options, fresh=True))] == [False]


def test_a_result_of_other_rules_is_made_again(options: Options) -> None:
    right = read(options)
    edit(options, fingerprint={**right["fingerprint"], "derived_by": "0" * 64})
    assert [o.reused for o in run([NAME], options)] == [False]
    assert read(options) == right


def test_a_result_in_the_form_of_an_older_lmp_is_made_again(options: Options) -> None:
    """An older result: its fingerprint had one key for all of lmp's rules, and it had no `inlined`."""
    right = read(options)
    files = {key: digest for key, digest in right["fingerprint"].items() if "/" in key}
    assert files
    edit(options, fingerprint={"lmp": right["fingerprint"]["derived_by"], **files})
    file = options.results / NAME / "module_analysis.json"
    file.write_text(json.dumps({key: value for key, value in read(options).items() if key != "inlined"}))
    assert [o.reused for o in run([NAME], options)] == [False]
    assert read(options) == right


# --- another judge ---------------------------------------------------------------------------------------------------


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge's sources differ from those at the time of storing."""
    monkeypatch.setattr(fingerprints, "judged_by", lambda: "other rules")


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> None:
        raise AssertionError("nothing is to be derived")

    monkeypatch.setattr(TraceEngine, "__init__", refuse)


def stages(names: list[str], options: Options) -> tuple[list[Outcome], list[tuple[str, str]]]:
    said: list[tuple[str, str]] = []
    outcomes = analyze_modules(names, options, lambda name, stage: said.append((name, stage)))
    return outcomes, [entry for entry in said if entry[1] != "reading"]


def test_another_judge_judges_again_and_nothing_is_derived(options: Options, judge: None, no_engine: None) -> None:
    before = read(options)
    outcomes, said = stages([NAME], options)
    assert [o.reused for o in outcomes] == [True]
    assert said == [(NAME, "verifying")]
    assert outcomes[0].analysis.verification.status == "verified"
    assert read(options) == {**before, "fingerprint": {**before["fingerprint"], "judged_by": "other rules"}}
    # Only once: the result is now from this judge.
    assert stages([NAME], options)[1] == []


def test_what_a_module_refers_to_is_judged_before_it(options: Options, judge: None, no_engine: None) -> None:
    outcomes, said = stages([MLP], options)
    assert [o.analysis.class_name for o in outcomes] == [MLP]
    assert {name for name, stage in said if stage == "verifying"} == {LINEAR, SILU, MLP}
    assert said[-1] == (MLP, "verifying")
    assert {read(options, name)["fingerprint"]["judged_by"] for name in (LINEAR, SILU, MLP)} == {"other rules"}


def one_more(options: Options, name: str) -> list[dict[str, Any]]:
    """The kernels of a stored result, with one FLOP too many in the first one."""
    first, *rest = read(options, name)["kernels"]
    return [{**first, "flops": f"1 + {first['flops']}"}, *rest]


@pytest.mark.parametrize("name", [NAME, LINEAR])
def test_what_the_judge_refuses_now_is_derived_again(
    options: Options, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = read(options, name)
    edit(options, name, kernels=one_more(options, name))
    # A result is trusted as long as its judge is unchanged.
    assert stages([name], options)[1] == []
    monkeypatch.setattr(fingerprints, "judged_by", lambda: "other rules")
    outcomes, said = stages([name], options)
    assert [o.reused for o in outcomes if o.requested] == [False]
    assert [stage for _, stage in said] == ["verifying", "tracing", "verifying", "stored"]
    assert read(options, name) == {**right, "fingerprint": {**right["fingerprint"], "judged_by": "other rules"}}


def test_a_part_that_the_judge_refuses_takes_its_caller_along(options: Options, judge: None) -> None:
    right = {name: read(options, name) for name in (MLP, LINEAR)}
    edit(options, LINEAR, kernels=one_more(options, LINEAR))
    outcomes = run([MLP], options)
    assert all(o.analysis.verification.status == "verified" for o in outcomes)
    assert {name: read(options, name)["kernels"] for name in right} == {n: r["kernels"] for n, r in right.items()}


def test_fresh_derives_whatever_the_judge_would_say(options: Options, judge: None) -> None:
    assert [stage for _, stage in stages([NAME], replace(options, fresh=True))[1]] == ["tracing", "verifying", "stored"]


def test_what_no_judge_can_execute_is_derived_again(options: Options, judge: None) -> None:
    """For example, its model no longer exists: a derivation finds the existing one."""
    right = read(options, MLP)
    edit(options, MLP, within="transformers.models.llama.modeling_llama.LlamaModelOfOld")
    assert [o.reused for o in run([MLP], options) if o.requested] == [False]
    assert read(options, MLP)["within"] == right["within"]


def test_verify_judges_what_is_stored_once_and_derives_nothing(options: Options, judge: None, no_engine: None) -> None:
    assert verify_module(NAME, options).analysis.verification.status == "verified"
    assert read(options)["fingerprint"]["judged_by"] == "other rules"
    edit(options, kernels=one_more(options, NAME), fingerprint={**read(options)["fingerprint"], "judged_by": "0" * 64})
    assert verify_module(NAME, options).analysis.verification.status == "failed"


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
    data = read(options)
    # The square of each element with one product too many.
    kernels = [{**k, "flops": f"2 * ({k['flops']})"} if k["operation"] == "power" else k for k in data["kernels"]]
    edit(options, kernels=kernels)
    found = verify_module(NAME, options).analysis
    assert found.verification.status == "failed"
    line = next(k["line"] for k in kernels if k["operation"] == "power")
    assert {(f.line, f.quantity) for f in found.verification.findings} >= {(line, "flops")}


def test_the_agent_engine_is_refused(options: Options) -> None:
    with pytest.raises(UsageError, match="agents run analyze-module and expand"):
        run([NAME], replace(options, engine="agent"))


def test_a_file_in_place_of_the_results(tmp_path: Path) -> None:
    place = tmp_path / "results"
    place.write_text("mine")
    with pytest.raises(StorageError):
        run([IDENTITY], Options(results=place))
    assert place.read_text() == "mine"


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "is not JSON"), ("[1]", "does not hold a JSON object"), ('{"model_type": "gpt2"}', "model_type 'gpt2'")],
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
