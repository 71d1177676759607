"""Work that is refused ends in time, and a resume counts on: with a script for an agent, no process and no service."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gate_classes import LINEAR
from scripted import MODEL, ScriptedAgent, Step, Use

from lmp.agents.attempts import BEYOND, MOST_CHECKS, SAME
from lmp.agents.commands import Done, carry_out, resumed, start
from lmp.agents.run import EFFORT, Limits
from lmp.agents.run import MODEL as PINNED
from lmp.analyze.session import Options
from lmp.errors import CapReached, Refused, StorageError
from lmp.store import files

ROOT = Path(__file__).parents[2]
SCRIPT = "module-analyzer Linear"


@pytest.fixture
def own(tmp_path: Path, transformers_tree: Path) -> Options:
    return Options(results=tmp_path / "results", engine="agent")


@pytest.fixture
def wrong(draft: Callable[[str], dict[str, Any]]) -> Callable[[int], dict[str, Any]]:
    """A draft whose first kernel claims this many FLOPs."""

    def made(flops: int) -> dict[str, Any]:
        found = draft(LINEAR)
        found["kernels"][0]["flops"] = str(flops)
        return found

    return made


def submits(draft: dict[str, Any]) -> Use:
    return Use("submit_analysis", {"draft": draft})


def checks(draft: dict[str, Any]) -> Use:
    return Use("check_draft", {"draft": draft})


def begun(options: Options, steps: list[Step], **limits: Any) -> tuple[Done, ScriptedAgent]:
    agent = ScriptedAgent({SCRIPT: steps})
    run = start("analyze-module", [LINEAR], options, Limits(**limits))
    return carry_out(run, options, lambda name, stage: None, lambda run: agent), agent


def gone_on_with(options: Options, steps: list[Step], before: int = 0, **changed: Any) -> tuple[Done, ScriptedAgent]:
    """``before``: turns of the conversation in earlier commands, which its cost includes."""
    agent = ScriptedAgent({SCRIPT: steps}, _sessions={f"session of {SCRIPT}": before})
    run, kept = resumed(options.results, None, changed)
    return carry_out(run, kept, lambda name, stage: None, lambda run: agent), agent


def state(options: Options) -> dict[str, Any]:
    [file] = options.results.glob(".runs/*/run.json")
    found: dict[str, Any] = json.loads(file.read_text())
    return found


# --- checks ----------------------------------------------------------------------------------------------------------


def test_checks_are_limited_and_the_agent_is_told(own: Options, wrong: Any, draft: Any) -> None:
    steps: list[Step] = [*(checks(wrong(number)) for number in range(1, MOST_CHECKS + 2)), submits(draft(LINEAR))]
    done, agent = begun(own, steps)
    answers = agent.answers[SCRIPT]
    assert answers[0].text.endswith(f"This submitted nothing. You may check {MOST_CHECKS - 1} more times.")
    assert "No check is left" in answers[MOST_CHECKS - 1].text
    assert answers[MOST_CHECKS].text == f"All {MOST_CHECKS} checks are used. Submit the draft with submit_analysis."
    assert done.outcomes[0].analysis.verification.status == "verified"
    assert state(own)["tried"][SCRIPT.replace("Linear", LINEAR)]["checks"] == MOST_CHECKS


def test_an_agent_that_only_checks_is_stopped(own: Options, wrong: Any) -> None:
    steps: list[Step] = [checks(wrong(number)) for number in range(1, 60)]
    agent = ScriptedAgent({SCRIPT: steps})
    run = start("analyze-module", [LINEAR], own, Limits())
    with pytest.raises(Refused, match="more checks were asked for than the 8 allowed"):
        carry_out(run, own, lambda name, stage: None, lambda run: agent)
    assert len(agent.answers[SCRIPT]) == MOST_CHECKS + BEYOND


@pytest.mark.parametrize("kinds", [(checks,) * 3, (submits, checks, submits)], ids=["checks", "both"])
def test_findings_of_checks_and_submissions_count_together(own: Options, wrong: Any, kinds: Any) -> None:
    steps: list[Step] = [kind(wrong(7)) for kind in kinds] + [checks(wrong(7))] * 9
    agent = ScriptedAgent({SCRIPT: steps})
    run = start("analyze-module", [LINEAR], own, Limits())
    with pytest.raises(Refused, match=f"the same finding {SAME} times"):
        carry_out(run, own, lambda name, stage: None, lambda run: agent)
    assert len(agent.answers[SCRIPT]) == SAME


# --- over a resume ---------------------------------------------------------------------------------------------------


def test_equal_findings_count_over_a_resume(own: Options, wrong: Any) -> None:
    with pytest.raises(CapReached):
        begun(own, [submits(wrong(7))] * 2, max_turns=2)
    with pytest.raises(Refused, match=f"the same finding {SAME} times"):
        gone_on_with(own, [submits(wrong(7))] * 9, max_turns=50)
    found = state(own)["tried"][f"module-analyzer {LINEAR}"]
    assert (found["rounds"], found["turns"]) == (3, 3)


def test_rounds_count_over_a_resume(own: Options, wrong: Any) -> None:
    with pytest.raises(CapReached):
        begun(own, [submits(wrong(1)), submits(wrong(2))], max_turns=2, max_rounds=3)
    with pytest.raises(Refused, match="3 submissions were refused"):
        gone_on_with(own, [submits(wrong(number)) for number in range(3, 9)], max_turns=50)


def test_provenance_is_of_all_commands_of_a_run(own: Options, wrong: Any, draft: Any) -> None:
    with pytest.raises(CapReached):
        begun(own, [checks(wrong(1)), submits(wrong(2))], max_turns=2)
    done, _ = gone_on_with(own, [submits(draft(LINEAR))], before=2, max_turns=50)
    [found] = done.outcomes[0].analysis.provenance
    # two turns before, one after; a quarter of a dollar each
    assert (found.rounds, found.turns, found.models, found.cost_usd) == (2, 3, [MODEL], 0.75)
    assert found.seconds is not None


def test_time_is_not_known_where_lmp_was_killed(own: Options, wrong: Any, draft: Any) -> None:
    with pytest.raises(CapReached):
        begun(own, [submits(wrong(2))], max_turns=1)
    [file] = own.results.glob(".runs/*/run.json")
    killed = json.loads(file.read_text())
    killed["tried"][f"module-analyzer {LINEAR}"]["talking"] = True
    file.write_text(json.dumps(killed))
    done, _ = gone_on_with(own, [submits(draft(LINEAR))], max_turns=50)
    assert done.outcomes[0].analysis.provenance[0].seconds is None


def test_what_was_hopeless_is_not_paid_for_again(own: Options, wrong: Any) -> None:
    with pytest.raises(Refused):
        begun(own, [submits(wrong(7))] * 9)
    agent = ScriptedAgent({SCRIPT: [submits(wrong(7))] * 9})
    run, kept = resumed(own.results, None, {})
    with pytest.raises(Refused, match=r"the same finding 3 times.*\nstart the command again for a new conversation"):
        carry_out(run, kept, lambda name, stage: None, lambda run: agent)
    assert agent.tasks == []


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_during_a_resume_leaves_a_run_that_can_be_resumed(
    own: Options, wrong: Any, draft: Any, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    with pytest.raises(CapReached):
        begun(own, [submits(wrong(1))], max_turns=1)

    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, call, no_space)
    with pytest.raises(StorageError, match="the disk is full"):
        gone_on_with(own, [submits(wrong(2))], max_turns=50)
    monkeypatch.undo()
    before = state(own)["tried"][f"module-analyzer {LINEAR}"]
    assert before["rounds"] == 1  # the file of before, whole
    done, _ = gone_on_with(own, [submits(draft(LINEAR))], max_turns=50)
    assert done.outcomes[0].analysis.verification.status == "verified"


# --- settings and the first line -------------------------------------------------------------------------------------


def test_model_and_effort_are_pinned() -> None:
    caps = Limits()
    assert (caps.model, caps.effort) == (PINNED, EFFORT)
    # In the state of an older run there may be neither: the client chooses then.
    assert Limits.model_validate({"model": None}).model is None


def test_a_dry_run_shows_model_effort_and_caps(
    own: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from lmp.cli.agents import limits, show_dry_run
    from lmp.cli.options import Common

    settings = tmp_path / "settings.toml"
    settings.write_text('model = "claude-haiku-4-5"\neffort = "low"\nfallback_model = "claude-sonnet-4-6"\n')
    monkeypatch.setenv("LMP_SETTINGS", str(settings))
    show_dry_run([LINEAR], own, limits(Common()), as_json=False)
    out = capsys.readouterr().out
    assert "model: claude-haiku-4-5, effort low; claude-sonnet-4-6 while it is overloaded\n" in out
    assert "8 submissions and 8 checks per agent" in out
    show_dry_run([LINEAR], own, limits(Common(agent_effort="max")), as_json=True)
    caps = json.loads(capsys.readouterr().out)["limits"]
    assert (caps["model"], caps["effort"], caps["max_checks"]) == ("claude-haiku-4-5", "max", 8)


_FIRST_LINE = """
import sys
import lmp.cli.agents as agents
def note(text):
    print(text, *(name for name in ("torch", "transformers", "claude_agent_sdk", "numpy") if name in sys.modules))
    sys.exit(7)
agents.note = note
from lmp.cli.main import run
sys.argv = ["lmp", *sys.argv[1:]]
run()
"""


@pytest.mark.parametrize("arguments", [["analyze-module", LINEAR], ["expand", LINEAR]], ids=lambda a: a[0])
def test_the_first_line_waits_for_no_import_that_takes_long(
    arguments: list[str], process: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that takes seconds has been imported when the first line is printed: so it is there within one."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-dummy")
    command = [sys.executable, "-c", _FIRST_LINE, *arguments, "--engine", "agent", "--results", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout) == (7, f"  0:00  preparing agents: {arguments[0]} Linear\n"), done.stderr
