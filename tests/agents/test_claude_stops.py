"""The real SDK and CLI with an agent that does not get on: what is still asked after the third equal finding."""

from __future__ import annotations

from typing import Any

import pytest
from agents_command import Lmp
from agents_service import MODEL, MessagesServer, Reply, calls, says

from lmp.agents.conversation import Conversation

SUBMIT, CHECK = "mcp__lmp__submit_analysis", "mcp__lmp__check_draft"
LINEAR = "torch.nn.modules.linear.Linear"
WRONG = Reply([calls(SUBMIT, {"flops": 7})])
EQUAL = 3

pytestmark = pytest.mark.xdist_group("agents")


def hopeless(bench: Any) -> Any:
    """A task that is over after three refusals."""
    return bench.task(is_over=lambda: len(bench.desk.got) >= EQUAL)


def test_nothing_is_asked_after_a_refusal_that_ends_the_work(bench, service: MessagesServer) -> None:
    script = service.plays(WRONG, repeats_last=True)

    ended = bench.run(hopeless(bench))

    assert (ended.how, len(script.requests)) == ("over", EQUAL)
    # To lmp the last one was a refusal too.
    assert [e["refused"] for e in bench.of("answer")] == [True] * EQUAL
    assert ended.denials == 0


def test_a_call_after_the_end_is_not_made(bench, service: MessagesServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Should the CLI go on all the same, as after an error, the hook before the next call ends it."""
    monkeypatch.setattr(Conversation, "ends", lambda self, answer: False)
    script = service.plays(WRONG, repeats_last=True)

    ended = bench.run(hopeless(bench))

    assert (ended.how, len(bench.desk.got), ended.denials) == ("over", EQUAL, 0)
    assert len(script.requests) <= EQUAL + 2


def test_prose_after_the_end_is_not_answered(bench, service: MessagesServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Conversation, "ends", lambda self, answer: False)
    script = service.plays(WRONG, WRONG, WRONG, Reply([says("I give up")]), repeats_last=True)

    ended = bench.run(hopeless(bench))

    assert ended.how in ("over", "ended")
    assert len(script.requests) <= EQUAL + 2


def test_two_calls_in_one_answer(bench, service: MessagesServer) -> None:
    """The second one of an answer whose first one ends the work."""
    twice = Reply([calls(SUBMIT, {"flops": 7}), calls(SUBMIT, {"flops": 8})])
    script = service.plays(twice, repeats_last=True)

    assert bench.run(hopeless(bench)).how == "over"
    assert len(script.requests) <= 2


@pytest.mark.parametrize("tool", [SUBMIT, CHECK])
def test_the_third_equal_finding_ends_the_command(lmp: Lmp, service: MessagesServer, draft: Any, tool: str) -> None:
    wrong = draft(LINEAR)
    wrong["kernels"][0]["flops"] = "7"
    script = service.plays(Reply([calls(tool, {"draft": wrong})]), repeats_last=True)
    code, _, err = lmp("analyze-module", LINEAR, "--engine", "agent", "--agent-model", MODEL)
    assert code == 4, err
    assert "the same finding 3 times" in err
    assert len(script.requests) == EQUAL
    if tool == CHECK:
        assert "Linear: check 3 of 8: line 134:" in err
    asked = len(script.requests)
    code, _, err = lmp("resume")
    assert (code, len(script.requests)) == (4, asked), err
    assert "start the command again for a new conversation" in err
