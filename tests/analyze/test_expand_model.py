"""Whole models: classes analysed, analyses taken unchanged, stored results, and refusals.

Most of it runs on hand-written analyses in a project without sources; those tests must not need torch.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "store"))

from analyses import LAYER, LINEAR, MLP, call, layer, linear, mlp

from evaluation import evaluate_analysis
from lmp.analyze.models import ModelOutcome, expand_model
from lmp.analyze.modules import verify_module
from lmp.analyze.session import Options
from lmp.errors import InvalidAnalysis, NotFound, VerificationFailed
from lmp.formula import evaluate
from lmp.records import ConfigOrigin, ModuleAnalysis, Verification
from lmp.source.scratchpad import scratchpad_text
from lmp.store import fingerprint as fingerprints
from lmp.store.results import Store

LLAMA_MLP = MLP
BY_HAND = {"engine": "by hand", "verification": Verification(status="unverified", reason="by hand")}


def expand(class_path: str, options: Options) -> ModelOutcome:
    return expand_model(class_path, options, lambda name, stage: None)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project: nothing is vendored, so nothing can be located or traced."""
    (tmp_path / "vendor.lock").write_text('{"trees": {}}')
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def options(project: Path) -> Options:
    return Options(results=project / "results")


def put(options: Options, *found: ModuleAnalysis) -> None:
    for analysis in found:
        Store(options.results).save(analysis.model_copy(update=BY_HAND))


# --- analyses of others ----------------------------------------------------------------------------------------------


def test_analyses_written_by_hand_are_linked(options: Options) -> None:
    put(options, layer(), mlp(), linear())
    outcome = expand(LAYER, options)
    assert outcome.file == options.results / LAYER / "model_analysis.json"
    assert (outcome.reused, outcome.made) == (False, ())
    values = {"batch_size": 2, "seq_len": 16, "w_bytes": 2, "a_bytes": 2, **outcome.model.values}
    # The add of 2*16*8 and three MLPs of 54,272: see tests/link/test_evaluation.py
    assert evaluate(outcome.model.totals.flops, values) == 256 + 3 * 54_272
    assert outcome.model.verification.status == "unverified"
    assert outcome.warnings == (
        f"not every part is verified: {LAYER} (unverified), {MLP} (unverified), {LINEAR} (unverified)",
    )
    assert Store(options.results).load_model(LAYER) == outcome.model


def test_what_others_wrote_is_never_changed(options: Options) -> None:
    put(options, layer(), mlp(), linear())
    files = sorted(options.results.glob("*/module_analysis.json"))
    # Not in lmp's layout: the bytes of the file belong to its owner.
    for file in files:
        file.write_text(json.dumps(json.loads(file.read_text())))
    before = [file.read_bytes() for file in files]
    first = expand(LAYER, replace(options, fresh=True))
    assert [file.read_bytes() for file in files] == before
    assert not first.reused
    assert expand(LAYER, options).reused


def test_a_model_is_linked_again_when_an_analysis_changes(options: Options) -> None:
    put(options, layer(), mlp(), linear())
    assert not expand(LAYER, options).reused
    assert expand(LAYER, options).reused
    put(options, linear(assumptions=["{in_features} > 1"]))
    changed = expand(LAYER, options)
    assert not changed.reused
    assert "{hidden_size} > 1" in changed.model.assumptions
    assert not expand(LAYER, replace(options, dtype="float32")).reused
    assert not expand(LAYER, replace(options, dtype="float32", attention="eager")).reused
    assert expand(LAYER, replace(options, dtype="float32", attention="eager")).reused


def test_a_model_is_linked_again_when_lmp_links_otherwise(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    put(options, linear())
    expand(LINEAR, options)
    monkeypatch.setattr(fingerprints, "LINKING", ("formula",))
    assert not expand(LINEAR, options).reused


def test_a_part_that_is_gone_makes_the_model_untrue(options: Options) -> None:
    put(options, mlp(), linear())
    expand(MLP, options)
    (options.results / LINEAR / "module_analysis.json").unlink()
    with pytest.raises(NotFound, match=r"^transformers\.models\.llama\.modeling_llama\.LlamaMLP > gate_proj: "):
        expand(MLP, options)


def test_a_class_that_is_nowhere(options: Options) -> None:
    put(options, layer(), mlp())
    with pytest.raises(NotFound) as caught:
        expand(LAYER, options)
    assert caught.value.exit_code == 3
    assert str(caught.value).startswith(f"{LAYER} > mlp > gate_proj: the pytorch sources are not in ")
    page = scratchpad_text(LAYER, caught.value)
    assert f"an analysis of {LINEAR}" in page
    assert str(options.results / LINEAR / "module_analysis.json") in page
    assert not (options.results / LAYER / "model_analysis.json").exists()


def test_a_class_of_a_package_that_is_not_there(options: Options) -> None:
    put(options, mlp(kernels=[call(1, "${{mine.blocks.Block}}()", path="block")]))
    with pytest.raises(NotFound, match=r"LlamaMLP > block: no source tree holds a package 'mine'"):
        expand(MLP, options)


def test_a_reference_to_what_is_no_class_path(options: Options) -> None:
    long = "a." * 200 + "b"
    put(options, mlp(kernels=[call(1, f"${{{{{long}}}}}()", path="block")]))
    with pytest.raises(InvalidAnalysis, match=r"LlamaMLP > block: .* too long for the name of a folder"):
        expand(MLP, options)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda text: text[: len(text) // 2], "is not valid JSON"),
        (lambda text: text.replace('"schema_version": 1', '"schema_version": 0'), "was written by an older lmp"),
        (lambda text: text.replace('"schema_version": 1', '"schema_version": 2'), "was written by a newer lmp"),
        (lambda text: text.replace('"flops":', '"flop":', 1), "is not a valid analysis: kernels[0]"),
        (lambda text: text.replace(LINEAR, LINEAR + "x", 1), "is an analysis of another class"),
    ],
)
def test_an_analysis_in_the_middle_that_cannot_be_read(options: Options, spoil: Any, message: str) -> None:
    put(options, layer(), mlp(), linear())
    file = options.results / LINEAR / "module_analysis.json"
    spoilt = spoil(file.read_text())
    file.write_text(spoilt)
    with pytest.raises(InvalidAnalysis) as caught:
        expand(LAYER, options)
    assert str(caught.value).startswith(f"{LAYER} > mlp > gate_proj: {file} {message}")
    assert len(str(caught.value).splitlines()) == 2
    assert file.read_text() == spoilt
    assert not (options.results / LAYER / "model_analysis.json").exists()


def test_analyses_in_a_circle(options: Options) -> None:
    around = call(134, f"${{{{{MLP}}}}}(batch_size=1, seq_len=1, hidden_size=1, intermediate_size=1)", path="back")
    put(options, layer(), mlp(), linear(kernels=[around]))
    with pytest.raises(InvalidAnalysis, match="the references run in a circle: LlamaMLP > Linear > LlamaMLP"):
        expand(LAYER, options)


def test_a_model_file_that_cannot_be_read_is_kept_aside(options: Options) -> None:
    put(options, linear())
    file = expand(LINEAR, options).file
    file.write_text("{")
    outcome = expand(LINEAR, options)
    assert not outcome.reused
    assert outcome.warnings[0].startswith(f"{file} is not valid JSON")
    assert outcome.warnings[0].endswith("; made again, and the file kept beside it")
    assert file.with_name("model_analysis.json.invalid").read_text() == "{"
    assert expand(LINEAR, options).reused


def test_each_config_has_its_own(project: Path, options: Options) -> None:
    (project / "big.json").write_text("{}")
    at_big = replace(options, config_file=project / "big.json")
    put(options, mlp(), linear(), mlp(config=ConfigOrigin(name="big", origin="big.json"), values={"hidden_size": 99}))
    assert expand(MLP, options).model.values["hidden_size"] == 8
    outcome = expand(MLP, at_big)
    assert outcome.file.parent.name == f"{MLP}@big"
    assert outcome.model.values == {"hidden_size": 99}
    assert expand(MLP, options).reused
    assert expand(MLP, at_big).reused


def test_formulas_of_another_version_are_not_verified_here(project: Path, options: Options) -> None:
    package = project / "transformers" / "src" / "transformers"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('__version__ = "5.24.0"\n')
    for analysis in (mlp(engine="by hand"), linear(engine="by hand")):
        Store(options.results).save(analysis)
    outcome = expand(LLAMA_MLP, options)
    # Both are analyses of transformers 5.23.0.
    assert outcome.model.verification.status == "unverified"
    assert outcome.warnings == (
        f"{MLP} is of transformers 5.23.0, the sources here are 5.24.0",
        f"{LINEAR} is of transformers 5.23.0, the sources here are 5.24.0",
    )
    assert expand(LLAMA_MLP, options).warnings == outcome.warnings
    (package / "__init__.py").write_text('__version__ = "5.23.0"\n')
    assert expand(LLAMA_MLP, options).model.verification.status == "verified"


# --- lmp's own -------------------------------------------------------------------------------------------------------


def test_what_is_missing_is_analysed(shared_options: Options, tmp_path: Path) -> None:
    options = replace(shared_options, results=tmp_path)
    outcome = expand("torch.nn.Linear", options)
    assert outcome.made == (LINEAR,)
    assert outcome.model.class_name == LINEAR
    assert outcome.model.verification.status == "verified"
    assert expand("torch.nn.Linear", options).reused  # by its alias
    assert expand(LINEAR, options).reused


def test_a_module_with_modules_in_it(shared_options: Options) -> None:
    outcome = expand(LLAMA_MLP, shared_options)
    assert [k.path for k in outcome.model.kernels if k.path] == ["gate_proj", "act_fn", "up_proj", "down_proj"]
    assert outcome.model.verification.status == "verified"
    values = {"batch_size": 3, "seq_len": 5, "w_bytes": 2, "a_bytes": 2, "hidden_size": 64, "intermediate_size": 96}
    # three matrices of 64 x 96, 2 FLOPs per multiply-add, for 15 tokens
    assert evaluate(outcome.model.totals.matmul_flops, values) == 3 * 2 * 64 * 96 * 15
    assert evaluate(outcome.model.totals.parameters_count or "", values) == 3 * 64 * 96
    store = Store(shared_options.results)
    loaded: dict[str, Any] = {name: store.load(name) for name in outcome.model.parts}
    given = {n: v for n, v in values.items() if n not in ("w_bytes", "a_bytes")}
    numbers = evaluate_analysis(loaded[LLAMA_MLP], loaded.__getitem__, given)
    for name in ("flops", "matmul_flops", "read", "write", "parameters_count"):
        assert evaluate(getattr(outcome.model.totals, name), values) == getattr(numbers.totals, name)
    again = expand(LLAMA_MLP, shared_options)
    assert (again.reused, again.made, again.model) == (True, (), outcome.model)


def test_an_own_analysis_that_is_no_longer_true_is_made_again(shared_options: Options, tmp_path: Path) -> None:
    options = replace(shared_options, results=tmp_path)
    file = expand(LINEAR, options).file.with_name("module_analysis.json")
    data = json.loads(file.read_text())
    file.write_text(json.dumps({**data, "fingerprint": {**data["fingerprint"], "derived_by": "0" * 64}}))
    outcome = expand(LINEAR, options)
    assert (outcome.reused, outcome.made) == (False, (LINEAR,))
    assert json.loads(file.read_text()) == data


def test_a_model_is_linked_again_from_parts_that_are_judged_again(
    shared_options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = replace(shared_options, results=tmp_path)
    before = expand(LLAMA_MLP, options)
    monkeypatch.setattr(fingerprints, "judged_by", lambda: "other rules")
    said: list[tuple[str, str]] = []
    again = expand_model(LLAMA_MLP, options, lambda name, stage: said.append((name, stage)))
    # No formula is derived: three classes are judged, the model's own after its callees, then it is linked.
    assert (again.reused, again.made) == (False, ())
    assert [stage for _, stage in said] == ["verifying", "verifying", "verifying", "linking", "stored"]
    assert said[2] == (LLAMA_MLP, "verifying")
    assert (again.model.kernels, again.model.totals) == (before.model.kernels, before.model.totals)
    assert again.model.verification.status == "verified"
    assert again.model.fingerprint["judged_by"] == "other rules"
    assert expand(LLAMA_MLP, options).reused


def test_a_model_says_no_better_of_itself_than_of_its_parts(
    shared_options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = replace(shared_options, results=tmp_path)
    right = expand(LLAMA_MLP, options)
    file = right.file.parents[1] / LINEAR / "module_analysis.json"
    data = json.loads(file.read_text())
    # All formulas are right, but no kernel has the category of a matrix product: matmul FLOPs are too few.
    kernels = [{**kernel, "category": "elementwise"} for kernel in data["kernels"]]
    file.write_text(json.dumps({**data, "kernels": kernels}))
    assert verify_module(LINEAR, options).analysis.verification.status == "failed"
    failed = expand(LLAMA_MLP, options)
    assert (failed.model.verification.status, failed.model.parts[LINEAR].status) == ("failed", "failed")
    # Under another judge the part is derived again, and so are the analyses that refer to it.
    monkeypatch.setattr(fingerprints, "judged_by", lambda: "other rules")
    again = expand(LLAMA_MLP, options)
    assert set(again.made) >= {LINEAR}
    assert (again.model.verification.status, again.model.totals) == ("verified", right.model.totals)


def test_own_and_others_analyses_together(shared_options: Options, tmp_path: Path) -> None:
    options = replace(shared_options, results=tmp_path)
    expand(LINEAR, options)
    own = Store(tmp_path).load(LINEAR)
    assert own is not None
    file = Store(tmp_path).save(own.model_copy(update=BY_HAND))
    before = file.read_bytes()
    outcome = expand(LLAMA_MLP, options)
    assert set(outcome.made) == {LLAMA_MLP, "transformers.activations.SiLUActivation"}
    assert file.read_bytes() == before
    assert outcome.model.parts[LINEAR].status == "unverified"
    assert outcome.warnings == (f"not every part is verified: {LINEAR} (unverified)",)


def test_a_wrong_analysis_of_others_is_found_where_its_caller_is_made(shared_options: Options, tmp_path: Path) -> None:
    options = replace(shared_options, results=tmp_path)
    expand(LINEAR, options)
    own = Store(tmp_path).load(LINEAR)
    assert own is not None
    wrong = [k.model_copy(update={"flops": "1"}) for k in own.kernels]
    Store(tmp_path).save(own.model_copy(update={**BY_HAND, "kernels": wrong}))
    with pytest.raises(VerificationFailed, match=f"\ncheck the analyses by others that it may refer to: {LINEAR}$"):
        expand(LLAMA_MLP, options)
