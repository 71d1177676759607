"""Two stages of agents over the pipeline, on scripted answers: what is made, in which order, and what ends it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scripted import MODEL, End, Say, ScriptedAgent, Step, Use

from lmp.agents.base import Ended, Event, Task
from lmp.agents.commands import Done, carry_out, dry_run, resumed, start
from lmp.agents.run import Limits
from lmp.analyze.session import Options
from lmp.errors import AgentUnavailable, CapReached, NotFound, Refused
from lmp.formula import parse, references
from lmp.records import Draft
from lmp.store import fingerprint as fingerprints
from shared_results import Analysed, copied

MLP = "transformers.models.llama.modeling_llama.LlamaMLP"
LINEAR = "torch.nn.modules.linear.Linear"
SILU = "transformers.activations.SiLUActivation"


@pytest.fixture(scope="session")
def drafts(analysed: Analysed) -> Callable[[str], dict[str, Any]]:
    """What a class's draft would be: that part of the trace engine's verified analysis. Each call gives a copy."""

    def draft(class_path: str) -> dict[str, Any]:
        whole = next(iter(analysed(class_path).values())).model_dump(mode="json")
        return {name: whole[name] for name in Draft.model_fields}

    return draft


@pytest.fixture
def options(tmp_path: Path, transformers_tree: Path) -> Options:
    return Options(results=tmp_path / "results", engine="agent")


def submit(draft: dict[str, Any]) -> Use:
    return Use("submit_analysis", {"draft": draft})


def run(
    options: Options,
    scripts: dict[str, list[Step]],
    classes: Sequence[str] = (LINEAR,),
    command: str = "analyze-module",
    **limits: Any,
) -> tuple[Done, ScriptedAgent]:
    agent = ScriptedAgent(scripts)
    begun = start(command, classes, options, Limits(**limits))
    return carry_out(begun, options, lambda name, stage: None, lambda run: agent), agent


def stored(options: Options) -> list[str]:
    return sorted(file.parent.name for file in options.results.glob("*/module_analysis.json"))


def test_llama_mlp_from_nothing_to_a_verified_model(drafts: Any, options: Options) -> None:
    opened = drafts(MLP)
    at = next(i for i, kernel in enumerate(opened["kernels"]) if "SiLU" in kernel["flops"])
    kernel = opened["kernels"][at]
    for costs in (kernel, kernel["memory_access"]):
        for name in costs.keys() & {"flops", "read", "write"}:
            costs[name] = "${{self.act_fn}}()"
    bindings = {"batch_size": "{batch_size}", "seq_len": "{seq_len}", "hidden_size": "{intermediate_size}"}
    binding = {"class_name": MLP, "kernel": at, "target": SILU, "bindings": bindings}
    done, agent = run(
        options,
        {
            "module-analyzer Linear": [submit(drafts(LINEAR))],
            "module-analyzer LlamaMLP": [submit(opened)],
            "module-analyzer SiLUActivation": [submit(drafts(SILU))],
            "reference-expander LlamaMLP": [
                Use("open_places", {}),
                Use("class_parameters", {"class_path": SILU}),
                Use("submit_bindings", {"bindings": [binding]}),
            ],
        },
        [MLP],
        "expand",
    )
    model = done.linked.model
    assert model.verification.status == "verified"
    assert {name: part.status for name, part in model.parts.items()} == dict.fromkeys([MLP, LINEAR, SILU], "verified")
    assert stored(options) == sorted([MLP, LINEAR, SILU])
    # SiLU turned up when the expander asked for it: its conversation was broken off and gone on with.
    assert [task.name for task in agent.tasks] == [LINEAR, MLP, MLP, SILU, MLP]
    assert [step.stage for step in done.linked.model.provenance] == ["module-analyzer", "reference-expander"]
    expanded = model.provenance[1]
    assert (expanded.models, expanded.turns, expanded.rounds) == ([MODEL], 3, 1)
    assert expanded.cost_usd == pytest.approx(0.75)  # three turns of a quarter


@pytest.mark.parametrize(
    ("wrong", "finding"),
    [
        ({"repeat": 2}, "[numbers]"),
        ({"repeat": 0}, "[numbers]"),
        (
            {"bindings": {"batch_size": "{batch_size}", "seq_len": "{seq_len}", "hidden_size": "{hidden_size}"}},
            "[numbers]",
        ),
        ({"target": "transformers.models.llama.configuration_llama.LlamaConfig"}, "is not a torch.nn.Module"),
    ],
)
def test_a_wrong_binding_comes_back_as_findings(wrong: Any, finding: str, drafts: Any, options: Options) -> None:
    opened = drafts(MLP)
    at = next(i for i, kernel in enumerate(opened["kernels"]) if "SiLU" in kernel["flops"])
    open_reference = "${{self.act_fn}}()"
    opened["kernels"][at] |= {
        "flops": open_reference,
        "memory_access": {"read": open_reference, "write": open_reference},
    }
    bindings = {"batch_size": "{batch_size}", "seq_len": "{seq_len}", "hidden_size": "{intermediate_size}"}
    right = {"class_name": MLP, "kernel": at, "target": SILU, "bindings": bindings}
    run(options, {"module-analyzer SiLUActivation": [submit(drafts(SILU))]}, [SILU])
    done, agent = run(
        options,
        {
            "module-analyzer Linear": [submit(drafts(LINEAR))],
            "module-analyzer LlamaMLP": [submit(opened)],
            "reference-expander LlamaMLP": [
                Use("submit_bindings", {"bindings": [right | wrong]}),
                Use("submit_bindings", {"bindings": [right]}),
            ],
        },
        [MLP],
        "expand",
    )
    assert done.linked.model.verification.status == "verified"
    refused = [answer for answer in agent.answers["reference-expander LlamaMLP"] if answer.refused]
    assert [finding in answer.text for answer in refused] == [True]


def test_what_was_accepted_is_stored_though_the_client_dies_after_it(drafts: Any, options: Options) -> None:
    class Dying(ScriptedAgent):
        async def carry_out(self, task: Task, on_event: Callable[[Event], None]) -> Ended:
            await super().carry_out(task, on_event)
            raise AgentUnavailable("the agent's process was killed (SIGKILL)\nrun again")

    agent = Dying({"module-analyzer Linear": [submit(drafts(LINEAR))]})
    begun = start("analyze-module", [LINEAR], options, Limits())
    done = carry_out(begun, options, lambda name, stage: None, lambda run: agent)
    assert done.outcomes[0].analysis.verification.status == "verified"
    found = done.outcomes[0].analysis.provenance[0]
    assert (found.turns, found.sdk_version) == (1, None)  # the turn was counted; the client said nothing of itself
    assert stored(options) == [LINEAR]


def test_wrong_then_corrected_from_the_findings(drafts: Any, options: Options) -> None:
    right, wrong = drafts(LINEAR), drafts(LINEAR)
    wrong["kernels"][0]["flops"] = f"2 * ({wrong['kernels'][0]['flops']})"
    done, agent = run(options, {"module-analyzer Linear": [submit(wrong), submit(right)]})
    first, second = agent.answers["module-analyzer Linear"]
    assert first.refused
    assert "[numbers] line" in first.text
    assert not second.refused
    analysis = done.outcomes[0].analysis
    assert (analysis.engine, analysis.verification.status) == ("agent", "verified")
    assert analysis.provenance[0].rounds == 2
    assert not (options.results / LINEAR / "draft.json").exists()


def test_the_same_finding_three_times_ends_it_and_keeps_the_draft(drafts: Any, options: Options) -> None:
    wrong = drafts(LINEAR)
    wrong["kernels"][0]["flops"] = "7"
    with pytest.raises(Refused, match="the same finding 3 times"):
        run(options, {"module-analyzer Linear": [submit(wrong)] * 5})
    assert stored(options) == []
    assert json.loads((options.results / LINEAR / "draft.json").read_text())["kernels"][0]["flops"] == "7"
    findings = json.loads((options.results / LINEAR / "findings.json").read_text())
    assert findings["findings"][0]["rule"] == "numbers"


def test_rounds_are_bounded(drafts: Any, options: Options) -> None:
    def wrong(number: int) -> Use:
        draft = drafts(LINEAR)
        draft["kernels"][0]["flops"] = str(number)
        return submit(draft)

    with pytest.raises(Refused, match="2 submissions were refused"):
        run(options, {"module-analyzer Linear": [wrong(1), wrong(2), wrong(3)]}, max_rounds=2)


def test_prose_is_no_submission(options: Options) -> None:
    with pytest.raises(AgentUnavailable, match="without a submission"):
        run(options, {"module-analyzer Linear": [Say("2 * M * K * N")] * 9})


def test_the_agent_says_that_the_source_is_not_there(options: Options) -> None:
    said = {"looked_for": "class Linear", "where": "torch/nn", "found": "nothing"}
    with pytest.raises(NotFound) as caught:
        run(options, {"module-analyzer Linear": [Use("source_not_found", said)]})
    assert [(s.looked_for, s.where, s.found) for s in caught.value.searched] == [
        ("class Linear", "torch/nn", "nothing")
    ]


def test_turns_and_dollars_are_of_the_whole_command(drafts: Any, options: Options) -> None:
    asks = [Use("find_class", {"name": LINEAR})] * 50
    with pytest.raises(CapReached, match="--max-turns"):
        run(options, {"module-analyzer Linear": list(asks)}, max_turns=4)
    with pytest.raises(CapReached, match="--max-budget-usd"):
        run(options, {"module-analyzer Linear": [*asks[:4], End("budget"), *asks]}, max_budget_usd=1.0)


def test_a_run_that_came_to_its_cap_is_gone_on_with(drafts: Any, options: Options) -> None:
    asks = [Use("find_class", {"name": LINEAR})] * 4
    with pytest.raises(CapReached, match="all 4 turns"):
        run(options, {"module-analyzer Linear": list(asks)}, max_turns=4)
    again, kept = resumed(options.results, None, {"max_turns": 10})
    agent = ScriptedAgent({"module-analyzer Linear": [submit(drafts(LINEAR))]})
    done = carry_out(again, kept, lambda name, stage: None, lambda run: agent)
    assert agent.tasks[0].session == "session of module-analyzer Linear"
    assert done.summary.turns == 5  # four before, one now
    assert done.outcomes[0].analysis.verification.status == "verified"


def test_a_conversation_that_is_lost_is_begun_anew(drafts: Any, options: Options) -> None:
    with pytest.raises(CapReached):
        run(options, {"module-analyzer Linear": [Use("find_class", {"name": LINEAR})] * 2}, max_turns=2)
    agent = ScriptedAgent(
        {"module-analyzer Linear": [submit(drafts(LINEAR))]}, gone=("session of module-analyzer Linear",)
    )
    again, kept = resumed(options.results, None, {"max_turns": 10})
    carry_out(again, kept, lambda name, stage: None, lambda run: agent)
    assert [task.session for task in agent.tasks] == [None]
    assert "Analyse `torch.nn.modules.linear.Linear`." in agent.tasks[0].prompt
    assert stored(options) == [LINEAR]


def test_several_at_once_within_the_limit(drafts: Any, options: Options) -> None:
    names = ["Linear", "Embedding", "LayerNorm"]
    paths = [LINEAR, "torch.nn.modules.sparse.Embedding", "torch.nn.modules.normalization.LayerNorm"]
    scripts: dict[str, list[Step]] = {
        f"module-analyzer {name}": [submit(drafts(path))] for name, path in zip(names, paths, strict=True)
    }
    agent = ScriptedAgent(scripts, pause=0.05)
    begun = start("analyze-module", paths, options, Limits(concurrency=2))
    done = carry_out(begun, options, lambda name, stage: None, lambda run: agent)
    assert agent.most_at_once == 2
    assert dict(done.summary.stored) == dict.fromkeys(paths, "verified")


def test_others_are_finished_where_one_fails(drafts: Any, options: Options) -> None:
    embedding = "torch.nn.modules.sparse.Embedding"
    scripts: dict[str, list[Step]] = {
        "module-analyzer Linear": [Say("no")] * 5,
        "module-analyzer Embedding": [submit(drafts(embedding))],
    }
    scripts["module-analyzer Linear"] = [submit({"class_name": LINEAR})] * 4
    with pytest.raises(Refused):
        run(options, scripts, [LINEAR, embedding])
    assert stored(options) == [embedding]


def test_a_dry_run_shows_the_plan_and_stores_nothing(options: Options) -> None:
    found = dry_run([MLP], options, Limits())
    assert [(planned.name, planned.after) for planned in found.planned] == [(LINEAR, ()), (MLP, (LINEAR,))]
    assert all(size > 1000 for size in found.prompt_characters.values())
    assert not options.results.exists()


def test_what_is_stored_is_not_made_again(drafts: Any, options: Options) -> None:
    run(options, {"module-analyzer Linear": [submit(drafts(LINEAR))]})
    done, agent = run(options, {})
    assert agent.tasks == []
    assert done.outcomes[0].reused
    done, agent = run(replace(options, fresh=True), {"module-analyzer Linear": [submit(drafts(LINEAR))]})
    assert len(agent.tasks) == 1


def test_what_only_another_judge_has_not_seen_costs_no_turn(
    drafts: Any, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts: dict[str, list[Step]] = {
        "module-analyzer Linear": [submit(drafts(LINEAR))],
        "module-analyzer SiLUActivation": [submit(drafts(SILU))],
        "module-analyzer LlamaMLP": [submit(drafts(MLP))],
    }
    run(options, scripts, [LINEAR, SILU, MLP])
    monkeypatch.setattr(fingerprints, "judged_by", lambda: "other rules")
    files = {name: options.results / name / "module_analysis.json" for name in (LINEAR, SILU, MLP)}
    before = {name: file.read_bytes() for name, file in files.items()}
    # What is planned is told without executing anything.
    assert dry_run([MLP], options, Limits()).planned == ()
    assert {name: file.read_bytes() for name, file in files.items()} == before
    done, agent = run(options, {}, [MLP])
    assert agent.tasks == []
    assert [(o.analysis.engine, o.analysis.verification.status) for o in done.outcomes] == [("agent", "verified")]
    fresh = {name: json.loads(file.read_text())["fingerprint"]["judged_by"] for name, file in files.items()}
    assert fresh == dict.fromkeys(files, "other rules")


def test_what_waits_for_a_class_is_judged_again_when_that_is_there(
    drafts: Any, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linear does not hold any more and is made by an agent; what refers to it does hold, and is not."""
    scripts: dict[str, list[Step]] = {
        "module-analyzer Linear": [submit(drafts(LINEAR))],
        "module-analyzer SiLUActivation": [submit(drafts(SILU))],
        "module-analyzer LlamaMLP": [submit(drafts(MLP))],
    }
    run(options, scripts, [LINEAR, SILU, MLP])
    file = options.results / LINEAR / "module_analysis.json"
    data = json.loads(file.read_text())
    # All formulas are right, and none is said to be of a matrix product: the matmul FLOPs are too few.
    kernels = [{**kernel, "category": "elementwise"} for kernel in data["kernels"]]
    file.write_text(json.dumps({**data, "kernels": kernels}))
    monkeypatch.setattr(fingerprints, "judged_by", lambda: "other rules")
    done, agent = run(options, {"module-analyzer Linear": [submit(drafts(LINEAR))]}, [MLP])
    assert [task.name for task in agent.tasks] == [LINEAR]
    assert {o.analysis.class_name: o.reused for o in done.outcomes} == {MLP: True, LINEAR: False}
    assert file.with_name("module_analysis.json.agent").is_file()


@pytest.mark.parametrize(
    ("name", "attributes", "repeat"),
    [
        # rows in an expert, and a router that takes its tokens flat
        ("transformers.models.mixtral.modeling_mixtral.MixtralSparseMoeBlock", ("gate", "experts"), None),
        # a ModuleList: one class, as often as the config says
        ("transformers.models.llama.modeling_llama.LlamaModel", ("layers",), "{num_hidden_layers}"),
    ],
)
def test_the_expander_says_rows_and_repeats(
    name: str, attributes: tuple[str, ...], repeat: str | None, drafts: Any, analysed: Analysed, options: Options
) -> None:
    right = drafts(name)
    opened = json.loads(json.dumps(right))
    bindings = []
    for index, kernel in enumerate(right["kernels"]):
        attribute = (kernel["path"] or "").partition(".")[0]
        if attribute in attributes:
            [ref] = references(parse(kernel["flops"]))
            bound = {variable: str(formula) for variable, formula in ref.bindings}
            bindings.append({"class_name": name, "kernel": index, "target": ref.target, "bindings": bound})
            bindings[-1] |= {"repeat": repeat} if repeat else {}
            reference = f"${{{{self.{attribute}}}}}()"
            costs = {"flops": reference, "memory_access": {"read": reference, "write": reference}}
            opened["kernels"][index] |= {**costs, "repeat": 1}
    assert len(bindings) == len(attributes)
    short = name.rpartition(".")[2]
    # What it calls is stored already; it itself is written anew.
    copied({part: found for part, found in analysed(name).items() if part != name}, options.results)
    wrong = [{**bindings[0], "repeat": 3}, *bindings[1:]]
    done, agent = run(
        options,
        {
            f"module-analyzer {short}": [submit(opened)],
            f"reference-expander {short}": [
                Use("submit_bindings", {"bindings": wrong}),
                Use("submit_bindings", {"bindings": bindings}),
            ],
        },
        [name],
        "expand",
    )
    first, second = agent.answers[f"reference-expander {short}"]
    assert (first.refused, second.refused) == (True, False)
    assert "[numbers]" in first.text
    assert done.linked.model.verification.status == "verified"
