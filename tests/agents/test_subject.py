"""What is taken through the gate is used as long as it is true, and never lost when something else takes its place."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lmp.agents.gate import Gate
from lmp.agents.subject import ClassSubject, _whole
from lmp.analyze.judging import seems_up_to_date, up_to_date
from lmp.analyze.models import expand_model
from lmp.analyze.modules import analyze_modules
from lmp.analyze.session import Options, Session
from lmp.errors import Missing, NotFound
from lmp.formula import parse
from lmp.formula.evaluate import exact
from lmp.records import Operands
from lmp.store import fingerprint as fingerprints
from lmp.store.results import Store

LINEAR, NORM = "torch.nn.modules.linear.Linear", "transformers.models.llama.modeling_llama.LlamaRMSNorm"
MLP = "transformers.models.llama.modeling_llama.LlamaMLP"


def quiet(name: str, stage: str) -> None:
    pass


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, transformers_tree: Path) -> Path:
    folder = tmp_path_factory.mktemp("made")
    analyze_modules([LINEAR], Options(results=folder), quiet)
    return folder


def submitted_linear(made: Path, results: Path, engine: str = "agent") -> Options:
    """A results folder that holds Linear as somebody handed it in."""
    session = Session(Options(results=results), quiet, takes_foreign=True)
    draft = json.loads((made / LINEAR / "module_analysis.json").read_text())
    found = Gate(ClassSubject(session, LINEAR, engine)).check(draft).analysis
    assert found is not None
    session.store.save(found)
    return session.options


def engine_of(options: Options, name: str = "module_analysis.json", of: str = LINEAR) -> str:
    return str(json.loads((options.results / of / name).read_text())["engine"])


def test_it_is_used_like_lmps_own(made: Path, tmp_path: Path) -> None:
    options = submitted_linear(made, tmp_path)
    (outcome,) = analyze_modules([LINEAR], options, quiet)
    assert (outcome.reused, outcome.analysis.engine) == (True, "agent")
    # References to it are bound as to lmp's own: its interface is known.
    outcomes = {o.analysis.class_name: o.analysis for o in analyze_modules([MLP], options, quiet)}
    assert outcomes[LINEAR].engine == "agent"
    calls = [k.flops for k in outcomes[MLP].kernels if k.kernel_type == "composite"]
    assert sum(LINEAR in text for text in calls) == 3
    model = expand_model(MLP, options, quiet)
    assert (model.made, model.model.verification.status) == ((), "verified")


def test_when_it_is_not_true_any_more_it_is_kept_beside(made: Path, tmp_path: Path) -> None:
    options = submitted_linear(made, tmp_path)
    file = options.results / LINEAR / "module_analysis.json"
    data = json.loads(file.read_text())
    data["fingerprint"]["torch/nn/modules/linear.py"] = "0" * 64
    file.write_text(json.dumps(data))
    said: list[str] = []
    (outcome,) = analyze_modules([LINEAR], options, lambda name, stage: said.append(stage))
    assert (outcome.reused, outcome.analysis.engine) == (False, "trace")
    assert "what others had made of it is kept as module_analysis.json.agent" in said
    assert (engine_of(options), engine_of(options, "module_analysis.json.agent")) == ("trace", "agent")


def test_fresh_keeps_it_beside_too(made: Path, tmp_path: Path) -> None:
    options = submitted_linear(made, tmp_path, "submitted")
    analyze_modules([LINEAR], replace(options, fresh=True), quiet)
    assert engine_of(options, "module_analysis.json.submitted") == "submitted"


# --- another judge ---------------------------------------------------------------------------------------------------


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Called, the judge's sources are others than when the results were stored."""
    return lambda: monkeypatch.setattr(fingerprints, "judged_by", lambda: "other rules")


def change(options: Options, **changes: Any) -> dict[str, Any]:
    """Edit the stored file of Linear; returns what it holds then."""
    file = options.results / LINEAR / "module_analysis.json"
    data: dict[str, Any] = {**json.loads(file.read_text()), **changes}
    file.write_text(json.dumps(data))
    return data


def test_another_judge_judges_it_again(made: Path, tmp_path: Path, judge: Callable[[], None]) -> None:
    options = submitted_linear(made, tmp_path)
    before = change(options)
    judge()
    said: list[str] = []
    (outcome,) = analyze_modules([LINEAR], options, lambda name, stage: said.append(stage))
    assert (outcome.reused, outcome.analysis.engine) == (True, "agent")
    assert outcome.analysis.verification.status == "verified"
    assert said == ["reading", "verifying"]
    assert change(options) == {**before, "fingerprint": {**before["fingerprint"], "judged_by": "other rules"}}


def test_what_the_judge_refuses_now_is_kept_beside(made: Path, tmp_path: Path, judge: Callable[[], None]) -> None:
    options = submitted_linear(made, tmp_path)
    first, *rest = change(options)["kernels"]
    wrong = change(options, kernels=[{**first, "flops": f"1 + {first['flops']}"}, *rest])
    # The judge that took it is believed.
    assert analyze_modules([LINEAR], options, quiet)[0].reused
    judge()
    said: list[str] = []
    (outcome,) = analyze_modules([LINEAR], options, lambda name, stage: said.append(stage))
    assert (outcome.reused, outcome.analysis.engine, outcome.analysis.verification.status) == (
        False, "trace", "verified",
    )  # fmt: skip
    assert "what others had made of it does not hold any more, and is kept as module_analysis.json.agent" in said
    assert json.loads((options.results / LINEAR / "module_analysis.json.agent").read_text()) == wrong


def test_it_is_kept_beside_though_an_agent_makes_the_next_one(
    made: Path, tmp_path: Path, judge: Callable[[], None]
) -> None:
    options = submitted_linear(made, tmp_path)
    first, *rest = change(options)["kernels"]
    change(options, kernels=[{**first, "flops": f"1 + {first['flops']}"}, *rest])
    judge()
    session = Session(options, quiet, takes_foreign=True)
    assert seems_up_to_date(LINEAR, session)  # nothing is executed yet
    assert up_to_date(LINEAR, session, session.lookup) is None
    assert not seems_up_to_date(LINEAR, session)
    # What an agent stores takes the place without a word: that of another agent is not in it any more.
    submitted_linear(made, tmp_path)
    assert (engine_of(options), engine_of(options, "module_analysis.json.agent")) == ("agent", "agent")


def test_a_file_of_an_older_lmp_is_judged_again(made: Path, tmp_path: Path) -> None:
    options = submitted_linear(made, tmp_path)
    files = {key: digest for key, digest in change(options)["fingerprint"].items() if key != "judged_by"}
    assert files
    right = change(options)
    change(options, fingerprint={"lmp.verify": "0" * 64, **files})
    said: list[str] = []
    (outcome,) = analyze_modules([LINEAR], options, lambda name, stage: said.append(stage))
    assert (outcome.reused, outcome.analysis.engine, said) == (True, "agent", ["reading", "verifying"])
    assert change(options) == right


def test_a_model_takes_it_as_it_is_judged_now(made: Path, tmp_path: Path, judge: Callable[[], None]) -> None:
    """The classes around it are lmp's own. It is judged again also where nothing that is stored refers to it."""
    options = submitted_linear(made, tmp_path)
    judge()
    model = expand_model(MLP, options, quiet)
    assert LINEAR not in model.made
    assert (engine_of(options), model.model.parts[LINEAR].status) == ("agent", "verified")


def test_what_it_refers_to_is_derived_again_for_it(
    made: Path, tmp_path: Path, judge: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """lmp cannot make again what was handed in: it makes what that refers to, and judges it with that."""
    options = Options(results=tmp_path)
    analyze_modules([MLP], options, quiet)
    file = tmp_path / MLP / "module_analysis.json"
    draft = json.loads(file.read_text())
    found = Gate(ClassSubject(Session(options, quiet, takes_foreign=True), MLP)).check(draft).analysis
    assert found is not None
    Store(tmp_path).save(found)
    judge()
    monkeypatch.setattr(fingerprints, "derived_by", lambda: "other rules")
    outcomes = analyze_modules([MLP], options, quiet)
    assert [(o.analysis.engine, o.reused) for o in outcomes if o.requested] == [("agent", True)]
    keys = change(options)["fingerprint"]
    assert (keys["derived_by"], keys["judged_by"]) == ("other rules", "other rules")
    # Where nothing is made on the way, it has to wait for that.
    monkeypatch.setattr(fingerprints, "derived_by", lambda: "yet other rules")
    monkeypatch.setattr(fingerprints, "judged_by", lambda: "yet other rules")
    session = Session(options, quiet, takes_foreign=True)
    assert up_to_date(MLP, session, session.lookup) is None
    assert engine_of(options, of=MLP) == "agent"


def test_nothing_is_made_on_the_way(made: Path, tmp_path: Path) -> None:
    session = Session(Options(results=made), quiet, takes_foreign=True)
    assert session.lookup("torch.nn.Linear").class_name == LINEAR
    with pytest.raises(Missing) as error:
        session.lookup(NORM)
    assert error.value.classes == (NORM,)
    with pytest.raises(NotFound) as nothing:
        session.lookup("torch.nn.Lineer")
    assert not isinstance(nothing.value, Missing)
    # A class that refers to one without an analysis has no use either.
    alone = Session(Options(results=tmp_path), quiet, takes_foreign=True)
    outcomes: Any = analyze_modules([MLP], Options(results=tmp_path), quiet)
    assert len(outcomes) == 3
    (tmp_path / LINEAR / "module_analysis.json").unlink()
    with pytest.raises(Missing) as error:
        alone.lookup(MLP)
    assert error.value.classes == (LINEAR,)


def test_operands_of_a_submission_have_whole_sizes() -> None:
    """lmp's own derivation may assume that one size divides the other; a submission need not assume it."""
    operand = {
        "name": "self",
        "shape": ["{batch_size}", "{hidden_size} / {num_heads}", 3],
        "width": "a",
        "role": "activation",
    }
    found = Operands.model_validate({"operator": "mul", "inputs": [operand], "outputs": [operand]}).with_sizes(_whole)
    # 4096 = 42 * 96 + 64
    shape = found.inputs[0].shape
    assert [exact(parse(str(size)), {"batch_size": 2, "hidden_size": 4096, "num_heads": 96}) for size in shape] == [
        2,
        42,
        3,
    ]
    assert found.outputs[0].shape == shape
