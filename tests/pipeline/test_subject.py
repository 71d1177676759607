"""What is taken through the gate is used as long as it is true, and never lost when something else takes its place."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lmp.agents.gate import Gate
from lmp.errors import Missing, NotFound
from lmp.pipeline.model import expand_model
from lmp.pipeline.module import Options, analyze_modules
from lmp.pipeline.subject import ClassSubject, HandInSession

LINEAR, NORM = "torch.nn.modules.linear.Linear", "transformers.models.llama.modeling_llama.LlamaRMSNorm"
MLP = "transformers.models.llama.modeling_llama.LlamaMLP"


def quiet(name: str, stage: str) -> None:
    pass


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, transformers_tree: Path) -> Path:
    folder = tmp_path_factory.mktemp("made")
    analyze_modules([LINEAR], Options(results=folder), quiet)
    return folder


def handed_in(made: Path, results: Path, engine: str = "agent") -> Options:
    """A results folder that holds Linear as somebody handed it in."""
    session = HandInSession(Options(results=results), quiet)
    draft = json.loads((made / LINEAR / "module_analysis.json").read_text())
    found = Gate(ClassSubject(session, LINEAR, engine)).check(draft).analysis
    assert found is not None
    session.store.save(found)
    return session.options


def engine_of(options: Options, name: str = "module_analysis.json") -> str:
    return str(json.loads((options.results / LINEAR / name).read_text())["engine"])


def test_it_is_used_like_lmps_own(made: Path, tmp_path: Path) -> None:
    options = handed_in(made, tmp_path)
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
    options = handed_in(made, tmp_path)
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
    options = handed_in(made, tmp_path, "submitted")
    analyze_modules([LINEAR], replace(options, fresh=True), quiet)
    assert engine_of(options, "module_analysis.json.submitted") == "submitted"


def test_nothing_is_made_on_the_way(made: Path, tmp_path: Path) -> None:
    session = HandInSession(Options(results=made), quiet)
    assert session.lookup("torch.nn.Linear").class_name == LINEAR
    with pytest.raises(Missing) as error:
        session.lookup(NORM)
    assert error.value.classes == (NORM,)
    with pytest.raises(NotFound) as nothing:
        session.lookup("torch.nn.Lineer")
    assert not isinstance(nothing.value, Missing)
    # A class that refers to one without an analysis has no use either.
    alone = HandInSession(Options(results=tmp_path), quiet)
    outcomes: Any = analyze_modules([MLP], Options(results=tmp_path), quiet)
    assert len(outcomes) == 3
    (tmp_path / LINEAR / "module_analysis.json").unlink()
    with pytest.raises(Missing) as error:
        alone.lookup(MLP)
    assert error.value.classes == (LINEAR,)
