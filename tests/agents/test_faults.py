"""Whole commands with the real SDK and CLI, broken off in every way that is known: each run is resumed to its end."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from agents_bench import DUMMY_KEY, processes_of
from agents_service import MODEL, Entry, Failure, MessagesServer, Reply, Script, calls, says
from gate_classes import LINEAR

from lmp.agents.claude import ClaudeAgent
from lmp.agents.commands import carry_out, resumed, start
from lmp.agents.run import Limits, Run
from lmp.analyze.session import Options
from lmp.errors import AgentUnavailable, CapReached, LmpError, Refused, StorageError
from lmp.store import files

SUBMIT = "mcp__lmp__submit_analysis"
OVERLOADED = Failure(529, "overloaded_error", "busy")

pytestmark = pytest.mark.xdist_group("agents")


@dataclass(frozen=True)
class Fault:
    """What the service says until the run ends, and how it ends. ``makes`` gets a wrong draft's submission."""

    name: str
    makes: Callable[[Reply], list[Entry]]
    ends: type[BaseException] = AgentUnavailable
    limits: dict[str, Any] | None = None
    meanwhile: Callable[[Path, Script], None] | None = None
    """Happens to the client's process once the script was asked."""


def once_asked(number: int, do: Callable[[Path], None]) -> Callable[[Path, Script], None]:
    def meanwhile(folder: Path, script: Script) -> None:
        deadline = time.monotonic() + 60
        while len(script.requests) < number and time.monotonic() < deadline:
            time.sleep(0.02)
        do(folder)

    return meanwhile


def kill(number: signal.Signals) -> Callable[[Path], None]:
    def do(folder: Path) -> None:
        for process in processes_of(folder):
            os.kill(process, number)

    return do


SLOW = Reply([says("late")], waits=20.0)
LOOKS = Reply([calls("mcp__lmp__find_class", {"name": "Linear"})])
FORBIDDEN = Reply([calls("Read", {"file_path": "/etc/passwd"})])
DEAR = (100_000, 1_000)
"""Tokens in and out: $0.315."""

FAULTS = [
    Fault("a rate limit that stays", lambda wrong: [wrong, Failure(429, "rate_limit_error", "slow")]),
    Fault("an overload that stays", lambda wrong: [wrong, OVERLOADED]),
    Fault("an overload at once", lambda wrong: [OVERLOADED]),
    Fault("a refused request", lambda wrong: [wrong, Failure(400, "invalid_request_error", "no")]),
    Fault("an unknown model", lambda wrong: [Failure(404, "not_found_error", "model")]),
    Fault("a refused credential", lambda wrong: [Failure(401, "authentication_error", DUMMY_KEY)]),
    Fault("a forbidden credential", lambda wrong: [Failure(403, "permission_error", "no")]),
    Fault("an error of the service", lambda wrong: [wrong, Failure(500, "api_error", "oops")]),
    Fault("half a message", lambda wrong: [wrong, Reply([says("I begin" * 20)], breaks_off=True)]),
    Fault("half a first message", lambda wrong: [Reply([says("I begin" * 20)], breaks_off=True)]),
    Fault("half a submission", lambda wrong: [Reply(wrong.blocks, breaks_off=True)]),
    Fault("prose only", lambda wrong: [Reply([says("It costs 5.")])]),
    Fault("prose after a refusal", lambda wrong: [wrong, Reply([says("I cannot do better.")])], Refused),
    Fault("no JSON", lambda wrong: [Reply([calls(SUBMIT, '{"draft": ')])], CapReached, {"max_turns": 4}),
    Fault("forbidden calls", lambda wrong: [FORBIDDEN], CapReached, {"max_turns": 4}),
    Fault("the turn cap", lambda wrong: [wrong, LOOKS], CapReached, {"max_turns": 3}),
    Fault("the budget", lambda wrong: [Reply(wrong.blocks, DEAR)], CapReached, {"max_budget_usd": 0.3}),
    Fault("the timeout", lambda wrong: [wrong, SLOW], CapReached, {"timeout": 6.0}),
    Fault("a killed CLI", lambda wrong: [wrong, SLOW], meanwhile=once_asked(2, kill(signal.SIGKILL))),
    Fault("a CLI killed at once", lambda wrong: [SLOW], meanwhile=once_asked(1, kill(signal.SIGKILL))),
    Fault("a terminated CLI", lambda wrong: [wrong, SLOW], meanwhile=once_asked(2, kill(signal.SIGTERM))),
]


def claude(run: Run) -> ClaudeAgent:
    return ClaudeAgent(run.client_folder, model=MODEL, retries=1)


@pytest.fixture
def own(tmp_path: Path, transformers_tree: Path) -> Options:
    return Options(results=tmp_path / "results", engine="agent")


@pytest.fixture
def wrong(draft: Callable[[str], dict[str, Any]]) -> Reply:
    found = draft(LINEAR)
    found["kernels"][0]["flops"] = "7"
    return Reply([calls(SUBMIT, {"draft": found})])


def resumed_to_the_end(own: Options, service: MessagesServer, right: dict[str, Any], **changed: Any) -> Script:
    service.scripts.clear()
    script = service.plays(Reply([calls(SUBMIT, {"draft": right})]))
    run, kept = resumed(own.results, None, {"max_turns": 60, "max_budget_usd": 50.0, "timeout": 120.0, **changed})
    done = carry_out(run, kept, lambda name, stage: None, claude)
    assert done.outcomes[0].analysis.verification.status == "verified"
    assert script.used_up
    return script


def nothing_leaked(folder: Path) -> None:
    """No secret, and no place outside of the roots but those that are the run's own."""
    for path in folder.rglob("*"):
        if path.is_file():
            text = path.read_text(errors="replace")
            assert DUMMY_KEY[-12:] not in text, path
            assert "root:x:0" not in text, path


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_run_that_is_broken_off_is_resumed(
    own: Options, service: MessagesServer, draft: Any, wrong: Reply, fault: Fault
) -> None:
    """`no_process_left` looks for what it leaves."""
    script = service.plays(*fault.makes(wrong), repeats_last=True)
    run = start("analyze-module", [LINEAR], own, Limits(**{"max_turns": 12, **(fault.limits or {})}))
    if fault.meanwhile is not None:
        threading.Thread(target=fault.meanwhile, args=(own.results, script), daemon=True).start()
    with pytest.raises(fault.ends) as raised:
        carry_out(run, own, lambda name, stage: None, claude)
    assert isinstance(raised.value, LmpError)
    assert DUMMY_KEY not in str(raised.value)
    assert processes_of(own.results) == {}
    assert not (own.results / LINEAR / "module_analysis.json").exists()
    assert json.loads((run.folder / "run.json").read_text())["status"] == "failed"
    resumed_to_the_end(own, service, draft(LINEAR))
    nothing_leaked(own.results)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_during_a_resume(
    own: Options, service: MessagesServer, draft: Any, wrong: Reply, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    service.plays(wrong, LOOKS, repeats_last=True)
    run = start("analyze-module", [LINEAR], own, Limits(max_turns=2))
    with pytest.raises(CapReached):
        carry_out(run, own, lambda name, stage: None, claude)
    service.scripts.clear()
    asked = service.plays(wrong, repeats_last=True)

    def no_space(*given: Any) -> None:
        if asked.requests:  # it fills up once the agent is at work
            raise OSError(28, "No space left on device")
        return real(*given)  # type: ignore[no-any-return]

    real = getattr(files.os, call)
    monkeypatch.setattr(files.os, call, no_space)
    again, kept = resumed(own.results, None, {"max_turns": 20})
    with pytest.raises(StorageError, match="the disk is full"):
        carry_out(again, kept, lambda name, stage: None, claude)
    monkeypatch.setattr(files.os, call, real)
    assert processes_of(own.results) == {}
    script = resumed_to_the_end(own, service, draft(LINEAR))
    # It is the conversation of before.
    assert "find_class" in json.dumps(script.requests[0]["messages"])
