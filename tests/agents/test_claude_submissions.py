"""The real SDK and CLI, a scripted service: conversations that end as they should."""

from __future__ import annotations

import json

import pytest
from agents_service import MODEL, MessagesServer, Reply, calls, says

from lmp.agents.base import Answer, Caps, Tool
from lmp.agents.environment import cli_path
from lmp.errors import CapReached

SUBMIT = "mcp__lmp__submit_analysis"


def test_a_right_answer_at_once(bench, service: MessagesServer) -> None:
    script = service.plays(Reply([says("easy"), calls(SUBMIT, {"flops": 42})]))

    ended = bench.run()

    assert ended.how == "over"
    assert script.used_up  # and so the model was not asked once more after the hand-in was taken
    assert (ended.turns, ended.models, ended.said, ended.denials) == (1, (MODEL,), "easy", 0)
    # 100 tokens in at $3 a million, 20 out at $15 a million: 0.0003 + 0.0003
    assert ended.cost_usd == pytest.approx(0.0006)
    assert ended.cli_version == (cli_path().parent / "claude.version").read_text().split()[0]
    assert [e["event"] for e in bench.events] == ["prompt", "started", "turn", "text", "tool", "answer", "result"]
    lines = [json.loads(line) for line in bench.transcript().splitlines()]
    assert [line["number"] for line in lines] == list(range(1, 8))
    assert {(line["class"], line["stage"]) for line in lines} == {("modeling_toy.Toy", "module-analyzer")}
    assert lines[0]["system"] == "You analyse modules."
    assert lines[4]["input"] == {"flops": 42}


def test_refused_then_corrected_in_the_same_conversation(bench, service: MessagesServer) -> None:
    script = service.plays(Reply([calls(SUBMIT, {"flops": 41})]), Reply([calls(SUBMIT, {"flops": 42})]))

    ended = bench.run()

    assert (ended.how, ended.turns, script.used_up) == ("over", 2, True)
    refusal = script.requests[1]["messages"][-1]["content"][0]
    assert refusal["is_error"] is True
    assert "41 is not what was counted, 42" in refusal["content"]
    assert [e["refused"] for e in bench.of("answer")] == [True, False]


def test_prose_instead_of_a_hand_in_is_answered_and_then_ends(bench, service: MessagesServer) -> None:
    script = service.plays(Reply([says("It is 42.")]), Reply([says("As I said: 42.")]))
    following = iter(["Hand it in with submit_analysis.", None])

    ended = bench.run(bench.task(next_message=lambda: next(following)))

    assert (ended.how, ended.turns, ended.said) == ("ended", 2, "As I said: 42.")
    assert script.used_up
    assert "Hand it in with submit_analysis." in json.dumps(script.requests[1]["messages"][-1])
    # cumulative over the conversation: twice 0.0006
    assert ended.cost_usd == pytest.approx(0.0012)


def test_arguments_that_are_no_json_or_no_object(bench, service: MessagesServer) -> None:
    wrong = ('{"flops": ', "[42]", '"42"', "null")
    script = service.plays(*(Reply([calls(SUBMIT, text)]) for text in wrong), Reply([calls(SUBMIT, {"flops": 42})]))

    assert bench.run().how == "over"
    assert "could not be parsed as JSON" in json.dumps(script.requests[1]["messages"][-1])
    assert len(bench.desk.got) == 1
    assert [e["refused"] for e in bench.of("answer")] == [True] * 4 + [False]


def test_arguments_that_are_not_valid_are_refused_with_their_places(bench, service: MessagesServer) -> None:
    wrong = {"kind": "modul", "lines": [1, "two"]}
    script = service.plays(Reply([calls(SUBMIT, wrong)]), Reply([calls(SUBMIT, {"flops": 42})]))

    assert bench.run().how == "over"
    said = script.requests[1]["messages"][-1]["content"][0]["content"]
    assert "flops: Field required" in said
    assert "kind: Input should be 'module' or 'model', not \"modul\"" in said
    assert 'lines.1: Input should be a valid integer, unable to parse string as an integer, not "two"' in said


def test_a_tool_that_fails_ends_the_run_with_its_traceback(bench, service: MessagesServer) -> None:
    async def broken(_given: object) -> Answer:
        raise ZeroDivisionError("a bug of ours")

    tool = Tool("submit_analysis", "Hand in.", bench.desk.tool().arguments, broken)
    service.plays(Reply([calls(SUBMIT, {"flops": 42})]), repeats_last=True)

    with pytest.raises(ZeroDivisionError, match="a bug of ours") as raised:
        bench.run(bench.task(tools=[tool]))
    assert any(entry.name == "broken" for entry in raised.traceback)
    assert bench.events[-1]["event"] == "broken_off"


def test_a_long_answer_of_a_tool_arrives_whole(bench, service: MessagesServer) -> None:
    async def long(_given: object) -> Answer:
        return Answer("x" * 149_000 + " the end")

    tool = Tool("submit_analysis", "Hand in.", bench.desk.tool().arguments, long)
    script = service.plays(Reply([calls(SUBMIT, {"flops": 1})]), Reply([says("done")]))

    assert bench.run(bench.task(tools=[tool])).how == "ended"
    assert "x" * 149_000 + " the end" in json.dumps(script.requests[1]["messages"][-1])


def test_the_turn_cap_ends_an_agent_that_never_stops(bench, service: MessagesServer) -> None:
    script = service.plays(Reply([calls(SUBMIT, {"flops": 1})]), repeats_last=True)

    ended = bench.run(bench.task(caps=Caps(max_turns=3, timeout=600.0)))

    assert (ended.how, ended.turns, len(script.requests)) == ("turns", 3, 3)


def test_the_turn_cap_holds_over_follow_ups(bench, service: MessagesServer) -> None:
    service.plays(Reply([says("hm")]), Reply([calls(SUBMIT, {"flops": 1})]), repeats_last=True)

    ended = bench.run(bench.task(caps=Caps(max_turns=3, timeout=600.0), next_message=lambda: "go on"))

    assert (ended.how, ended.turns) == ("turns", 3)


def test_the_turn_cap_holds_where_only_follow_ups_are_said(bench, service: MessagesServer) -> None:
    script = service.plays(Reply([says("hm")]), repeats_last=True)

    ended = bench.run(bench.task(caps=Caps(max_turns=3, timeout=600.0), next_message=lambda: "go on"))

    assert (ended.how, ended.turns, len(script.requests)) == ("turns", 3, 3)


@pytest.mark.parametrize("caps", [Caps(max_turns=0), Caps(budget_usd=0.0)])
def test_a_cap_of_nothing_is_not_no_cap(bench, service: MessagesServer, caps: Caps) -> None:
    with pytest.raises(CapReached, match=r"no turn or no money is left for modeling_toy.Toy"):
        bench.run(bench.task(caps=caps))
    assert service.headers == []


def test_the_budget_cap(bench, service: MessagesServer) -> None:
    # 100,000 tokens in and 1,000 out are $0.30 + $0.015 an answer: the second passes $0.50
    script = service.plays(Reply([calls(SUBMIT, {"flops": 1})], tokens=(100_000, 1_000)), repeats_last=True)

    ended = bench.run(bench.task(caps=Caps(budget_usd=0.5, timeout=600.0)))

    assert (ended.how, len(script.requests)) == ("budget", 2)
    assert ended.cost_usd == pytest.approx(0.63)
