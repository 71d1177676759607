"""The command line, the real SDK and the real CLI against a scripted service: both stages, Ctrl-C, resume."""

from __future__ import annotations

import json
import signal
import threading
import time
from typing import Any

import pytest
from agents_command import ROOT, Lmp
from agents_service import MODEL, MessagesServer, Reply, calls, says

from lmp.records import Draft
from shared_results import Analysed

MLP = "transformers.models.llama.modeling_llama.LlamaMLP"
LINEAR = "torch.nn.modules.linear.Linear"
SILU = "transformers.activations.SiLUActivation"

pytestmark = pytest.mark.xdist_group("agents")


@pytest.fixture(scope="module")
def drafts(analysed: Analysed) -> dict[str, dict[str, Any]]:
    """The trace engine's analyses of LlamaMLP and what it calls, cut down to what is handed in."""
    wholes = {name: analysis.model_dump(mode="json") for name, analysis in analysed(MLP).items()}
    return {name: {field: whole[field] for field in Draft.model_fields} for name, whole in wholes.items()}


def submission(draft: dict[str, Any]) -> Reply:
    return Reply([calls("mcp__lmp__submit_analysis", {"draft": draft})])


def test_llama_mlp_by_both_stages(lmp: Lmp, service: MessagesServer, drafts: dict[str, Any]) -> None:
    opened = json.loads(json.dumps(drafts[MLP]))
    at = next(i for i, kernel in enumerate(opened["kernels"]) if SILU in kernel["flops"])
    reference = opened["kernels"][at]["flops"]
    bound = dict(part.strip().split("=", 1) for part in reference[reference.index("(") + 1 : -1].split(","))
    opened["kernels"][at] |= {
        "flops": "${{self.act_fn}}()",
        "memory_access": {"read": "${{self.act_fn}}()", "write": "${{self.act_fn}}()"},
    }
    binding = {"class_name": MLP, "kernel": at, "target": SILU, "bindings": bound}
    service.plays(Reply([calls("mcp__lmp__submit_bindings", {"bindings": [binding]})]), marker="You close the open")
    for name, draft in ((LINEAR, drafts[LINEAR]), (SILU, drafts[SILU]), (MLP, opened)):
        service.plays(submission(draft), marker=f"Analyse `{name}`.")
    code, out, err = lmp("expand", MLP, "--engine", "agent", "--json", "--agent-model", MODEL)
    assert code == 0, err
    model = json.loads(out)
    assert model["verification"]["status"] == "verified"
    assert {name: part["status"] for name, part in model["parts"].items()} == dict.fromkeys(drafts, "verified")
    assert all(script.used_up for script in service.scripts)
    assert "verified by" in err
    assert {entry["stage"] for entry in model["provenance"]} == {"module-analyzer", "reference-expander"}
    assert all(entry["sdk_version"] and entry["cli_version"] for entry in model["provenance"])
    assert not list(lmp.results.glob(".runs/*/client"))


def test_a_dry_run_and_a_missing_credential_send_nothing(lmp: Lmp, service: MessagesServer) -> None:
    code, out, err = lmp("analyze-module", LINEAR, "--engine", "agent", "--dry-run")
    assert (code, service.headers) == (0, []), err
    assert f"1. {LINEAR}" in out
    assert "Nothing was sent, nothing was spent." in out
    del lmp.environment["ANTHROPIC_API_KEY"]
    code, out, err = lmp("analyze-module", LINEAR, "--engine", "agent")
    assert (code, service.headers) == (5, []), err
    assert err.startswith("error: no credential for the agent is set\nset ANTHROPIC_API_KEY")
    assert not list(lmp.results.glob(".runs/*"))


def test_ctrl_c_keeps_everything_and_resume_goes_on(lmp: Lmp, service: MessagesServer, drafts: dict[str, Any]) -> None:
    asked = threading.Event()
    service.plays(
        Reply([calls("mcp__lmp__find_class", {"name": LINEAR})]),
        Reply([says("never said")], gate=asked),
        submission(drafts[LINEAR]),
    )
    process = lmp.start("analyze-module", LINEAR, "--engine", "agent", "--agent-model", MODEL)
    deadline = time.monotonic() + 60
    while len(service.scripts[0].requests) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=600)
    asked.set()
    assert process.returncode == 130, err
    run = next(lmp.results.glob(".runs/*")).name
    assert f"`lmp resume {run} --results {lmp.results}` continues from here" in err
    assert f"transcript: {lmp.results / '.runs' / run / 'transcript.jsonl'}" in err
    assert not (lmp.results / LINEAR / "module_analysis.json").exists()
    assert json.loads((lmp.results / ".runs" / run / "run.json").read_text())["status"] == "interrupted"
    code, out, err = lmp("resume", "--json")
    assert code == 0, err
    [analysis] = json.loads(out)
    assert analysis["verification"]["status"] == "verified"
    # The conversation was gone on with: what was said before is in the last request.
    assert "find_class" in json.dumps(service.scripts[0].requests[-1]["messages"])
    events = [line["event"] for line in lmp.transcript()]
    assert events.count("begins") == 2
    assert [line["number"] for line in lmp.transcript()] == list(range(1, len(events) + 1))


def test_each_kind_of_mistake_comes_back_as_a_finding(lmp: Lmp, service: MessagesServer) -> None:
    """One conversation: every hand-in has another mistake, and the agent is told which before the next."""
    name = "transformers.models.llama.modeling_llama.LlamaRMSNorm"
    right = json.loads((ROOT / "tests" / "data" / "submissions" / "LlamaRMSNorm.json").read_text())
    wrong_line, missing, undeclared, wrong_flops = (json.loads(json.dumps(right)) for _ in range(4))
    wrong_line["kernels"][0]["line"] += 400
    del missing["kernels"][0]
    undeclared["kernels"][0]["flops"] = "{batch_size} * {width}"
    wrong_flops["kernels"][0]["flops"] = "3 * {batch_size} * {seq_len} * {hidden_size}"
    script = service.plays(
        *map(submission, (wrong_line, missing, undeclared)),
        Reply([calls("mcp__lmp__submit_analysis", '{"draft": {"class_name": ')]),
        Reply([says("It costs about 5 FLOPs an element.")]),
        *map(submission, (wrong_flops, right)),
    )
    _, told, _ = lmp("prompt", name, "--json")
    code, out, err = lmp("analyze-module", name, "--engine", "agent", "--json", "--agent-model", MODEL)
    assert code == 0, err
    assert script.used_up
    # What `lmp prompt` prints is what was sent, to the letter.
    sent = script.requests[0]
    assert json.loads(told)["system"] in [block["text"] for block in sent["system"]]
    assert json.loads(told)["prompt"] in [block["text"] for block in sent["messages"][0]["content"]]
    [analysis] = json.loads(out)
    assert (analysis["engine"], analysis["verification"]["status"]) == ("agent", "verified")
    assert analysis["provenance"][0]["prompt_sha256"] == json.loads(told)["sha256"]
    # What does not arrive as JSON is no hand-in: five were.
    assert (analysis["provenance"][0]["rounds"], analysis["provenance"][0]["turns"]) == (5, 7)
    submitted = [line["findings"] for line in lmp.transcript() if line["event"] == "handed in"]
    rules = [{finding["rule"] for finding in findings} for findings in submitted]
    assert "line" in rules[0]
    assert "coverage" in rules[1]
    assert rules[2:] == [{"variable"}, {"numbers"}, set()]
    told = json.dumps(script.requests[-1]["messages"])
    assert "[variable]" in told
    assert "Only what is given to the tool submit_analysis counts" in told


def test_an_agent_that_finds_no_source_stops_with_a_page(lmp: Lmp, service: MessagesServer) -> None:
    said = {"looked_for": "the registry ACT2CLS", "where": "src/transformers/activations.py", "found": "no such name"}
    service.plays(Reply([calls("mcp__lmp__source_not_found", said)]))
    code, _, err = lmp("analyze-module", LINEAR, "--engine", "agent", "--agent-model", MODEL)
    assert code == 3, err
    page = (lmp.results / "SCRATCHPAD.md").read_text()
    assert "| the registry ACT2CLS | src/transformers/activations.py | no such name |" in page
    assert not (lmp.results / LINEAR).exists()
