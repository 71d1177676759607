"""Events that the scripted service cannot bring about."""

from __future__ import annotations

from claude_agent_sdk import AssistantMessage, RateLimitEvent, SystemMessage, TextBlock
from claude_agent_sdk.types import RateLimitInfo

from lmp.agents.base import Event
from lmp.agents.conversation import Conversation
from lmp.errors import AgentUnavailable


def test_a_rate_limit_says_until_when(bench) -> None:
    events: list[Event] = []
    conversation = Conversation(bench.task(), events.append)
    for status in ("allowed", "rejected"):
        info = RateLimitInfo(status=status, resets_at=1_800_000_000, rate_limit_type="five_hour")
        conversation.heard(RateLimitEvent(info, "uuid", "session"))
    assert events == [{"event": "rate_limit", "status": "rejected", "until": 1_800_000_000, "window": "five_hour"}]


def test_one_answer_in_several_messages_is_one_turn(bench) -> None:
    conversation = Conversation(bench.task(), lambda _: None)
    for message, text in (("m1", "a"), ("m1", "b"), ("m2", "c")):
        conversation.heard(AssistantMessage([TextBlock(text)], "a-model", message_id=message))
    ended = conversation.ended("ended", None)
    assert (ended.turns, ended.models, ended.said, ended.cost_usd) == (2, ("a-model",), "c", None)


def test_tools_that_were_not_asked_for_end_the_run(bench) -> None:
    conversation = Conversation(bench.task(), lambda _: None)
    tools = [*conversation.tools, "Bash"]
    conversation.heard(SystemMessage("init", {"tools": tools, "session_id": "s", "cwd": "/", "model": "m"}))
    assert isinstance(conversation.failure, AgentUnavailable)
    assert "not those that were asked for: Bash" in str(conversation.failure)
