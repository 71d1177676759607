"""The real SDK and CLI where the service, the CLI or the user stops: what is said, kept and left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from agents_bench import DUMMY_KEY, Desk, as_in_a_terminal, processes_of
from agents_service import MODEL, Failure, MessagesServer, Reply, calls, says

from lmp.agents.base import Answer, Caps, Ended, Tool
from lmp.agents.ledger import Ledger
from lmp.errors import AgentUnavailable

SUBMIT = "mcp__lmp__submit_analysis"
RIGHT = Reply([calls(SUBMIT, {"flops": 42})])


def test_a_rate_limit_is_waited_for(bench, service: MessagesServer) -> None:
    script = service.plays(Failure(429, "rate_limit_error", "slow down"), RIGHT)

    assert bench.run().how == "over"
    assert script.used_up
    (retry,) = bench.of("retry")
    assert (retry["attempt"], retry["of"], retry["why"]) == (1, 1, "rate_limit (429)")


def test_an_overloaded_service_is_asked_again_then_the_fallback_model(bench, service: MessagesServer) -> None:
    busy = Failure(529, "overloaded_error", "busy")
    service.plays(busy, busy, busy, RIGHT)
    bench.options = {"fallback_model": "claude-haiku-4-5", "retries": 5}

    ended = bench.run()

    assert (ended.how, ended.models) == ("over", ("claude-haiku-4-5",))
    assert [e["why"] for e in bench.of("retry")] == ["overloaded (529)"] * 2
    assert [e["model"] for e in bench.of("fallback")] == ["claude-haiku-4-5"]


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (
            Failure(429, "rate_limit_error", "slow"),
            "the service's rate limit is reached, also after retries: API Error: Request rejected (429) · slow",
        ),
        (
            Failure(529, "overloaded_error", "busy"),
            "the service is not available, also after retries: API Error: 529 busy",
        ),
        (Failure(400, "invalid_request_error", "no"), "the agent stopped with an error: API Error: 400 no\n"),
        (Failure(404, "not_found_error", "model"), "the service does not know the model: There's an issue with"),
    ],
    ids=lambda value: str(value.status) if isinstance(value, Failure) else "",
)
def test_a_service_that_refuses(bench, service: MessagesServer, failure: Failure, said: str) -> None:
    service.plays(failure, repeats_last=True)

    with pytest.raises(AgentUnavailable) as raised:
        bench.run()
    message = str(raised.value)
    assert message.startswith(said)
    assert len(message.splitlines()) == 2
    assert raised.value.exit_code == 5
    assert bench.events[-1]["event"] == "broken_off"


def test_a_credential_that_is_refused_ends_at_once(bench, service: MessagesServer) -> None:
    script = service.plays(Failure(401, "authentication_error", f"invalid x-api-key {DUMMY_KEY}"), repeats_last=True)
    bench.options = {"retries": 8}

    with pytest.raises(AgentUnavailable, match=r"refused the credential in ANTHROPIC_API_KEY \(401\)") as raised:
        bench.run()
    assert DUMMY_KEY not in str(raised.value)
    assert len(script.requests) == 1  # where the CLI would have asked nine times


def test_no_credential(bench, service: MessagesServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    with pytest.raises(AgentUnavailable, match="no credential for the agent is set\nset ANTHROPIC_API_KEY"):
        bench.run()
    assert service.headers == []


def test_a_service_that_cannot_be_reached(bench) -> None:
    with pytest.raises(AgentUnavailable, match="continue with `lmp resume`"):
        bench.run()  # nothing listens at the address of `nothing_real`
    assert bench.of("retry")[0]["why"] == "connection lost"


def test_a_service_that_breaks_off_in_mid_stream(bench, service: MessagesServer) -> None:
    script = service.plays(Reply([says("I begin" * 20)], breaks_off=True), repeats_last=True)

    with pytest.raises(AgentUnavailable, match="the agent stopped with an error: API Error") as raised:
        bench.run()
    assert len(str(raised.value).splitlines()) == 2
    assert len(script.requests) > 1  # it was asked again


def test_a_service_that_breaks_off_once(bench, service: MessagesServer) -> None:
    service.plays(Reply([says("I begin" * 20)], breaks_off=True), RIGHT, repeats_last=True)
    assert bench.run(bench.task(caps=Caps(max_turns=4, timeout=600.0))).how == "over"


def test_a_cli_that_is_killed(bench, service: MessagesServer, tmp_path: Path) -> None:
    async def kill(_given: object) -> Answer:
        for process in processes_of(tmp_path):
            os.kill(process, signal.SIGKILL)
        return Answer("taken")

    service.plays(RIGHT)
    with pytest.raises(AgentUnavailable, match=r"the agent's process was killed \(SIGKILL\)"):
        bench.run(bench.task(tools=[Tool("submit_analysis", "Hand in.", bench.desk.tool().arguments, kill)]))
    last = bench.events[-1]
    assert (last["event"], last["cost_usd"], last["turns"]) == ("broken_off", None, 1)


def test_a_cli_that_is_missing(bench, service: MessagesServer, tmp_path: Path) -> None:
    bench.options = {"cli": tmp_path / "nothing-here" / "claude"}
    with pytest.raises(AgentUnavailable, match="No such file or directory"):
        bench.run()


def test_a_cli_that_says_why_it_ends(bench, service: MessagesServer, tmp_path: Path) -> None:
    broken = tmp_path / "broken-claude"
    broken.write_text(f"#!/bin/sh\necho 'first' >&2\necho 'no disk, key {DUMMY_KEY}\x1b[31m' >&2\nexit 3\n")
    broken.chmod(0o700)
    bench.options = {"cli": broken}

    with pytest.raises(AgentUnavailable) as raised:
        bench.run()
    said = "the agent's process ended with exit code 3: no disk, key [redacted]\\x1b[31m"
    assert str(raised.value).splitlines()[0] == said


def test_the_timeout_says_what_it_has_cost(bench, service: MessagesServer) -> None:
    service.plays(Reply([calls(SUBMIT, {"flops": 1})]), Reply([says("late")], waits=20.0))

    ended = bench.run(bench.task(caps=Caps(timeout=2.5)))

    assert (ended.how, ended.turns) == ("timeout", 1)
    assert ended.cost_usd == pytest.approx(0.0006)  # of the answer that came


def test_cancelled_then_resumed(bench, service: MessagesServer) -> None:
    first = service.plays(
        Reply([calls(SUBMIT, {"flops": 1})]), Reply([says("late")], waits=20.0), marker="Analyse Toy."
    )

    async def cancelled() -> None:
        running = asyncio.create_task(bench.carry_out())
        while len(first.requests) < 2:
            await asyncio.sleep(0.02)
        running.cancel()
        await running

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())

    (broken_off,) = bench.of("broken_off")
    session = broken_off["session"]
    assert broken_off["cost_usd"] == pytest.approx(0.0006)
    assert bench.agent().can_resume(session)

    service.scripts.clear()
    second = service.plays(RIGHT)
    bench.events.clear()
    ended = bench.run(bench.task(session=session, prompt="Go on."))

    assert (ended.how, ended.session, second.used_up) == ("over", session, True)
    told = json.dumps(second.requests[0]["messages"])
    assert "Analyse Toy." in told
    assert "not what was counted" in told
    assert "Go on." in told
    assert ended.cost_usd == pytest.approx(0.0012)  # both runs


def test_cancelled_twice_leaves_no_process_either(bench, service: MessagesServer) -> None:
    script = service.plays(Reply([says("late")], waits=20.0))

    async def cancelled() -> None:
        running = asyncio.create_task(bench.carry_out())
        while not script.requests:
            await asyncio.sleep(0.02)
        for _ in range(3):
            running.cancel()
            await asyncio.sleep(0.01)
        await running

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())


def test_a_conversation_that_is_not_there(bench, service: MessagesServer) -> None:
    missing = "11111111-1111-4111-8111-111111111111"
    assert not bench.agent().can_resume(missing)
    with pytest.raises(AgentUnavailable, match="the conversation to resume is not in this run's folder"):
        bench.run(bench.task(session=missing))


def test_two_agents_at_once_over_one_ledger(bench, service: MessagesServer, tmp_path: Path) -> None:
    # each waits until both were asked, so they do run at once
    both = threading.Barrier(2)

    class Meeting(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            both.wait(10)
            return True

    # 100,000 in and 1,000 out: $0.315 each
    for name in ("One", "Two"):
        reply = Reply([calls(SUBMIT, {"flops": 42})], tokens=(100_000, 1_000), gate=Meeting())
        service.plays(reply, marker=f"Analyse {name}.")
    agent = bench.agent()
    ledger = Ledger(tmp_path / "ledger.json", cap_usd=2.0)

    async def one(name: str, waiting: int) -> Ended:
        desk = Desk()
        share = ledger.grant(name, waiting)
        caps = Caps(timeout=600.0, budget_usd=share.usd)
        task = bench.task(
            name=name, prompt=f"Analyse {name}.", caps=caps, tools=[desk.tool()], is_over=lambda: desk.accepted
        )
        ended = await agent.carry_out(task, bench.events.append)
        ledger.settle(name, ended.session, ended.cost_usd, ended.turns)
        return ended

    async def together() -> list[Ended]:
        return await asyncio.gather(one("One", 2), one("Two", 1))

    ended = asyncio.run(together())

    assert [e.how for e in ended] == ["over", "over"]
    assert len({e.session for e in ended}) == 2
    assert ledger.spent == pytest.approx(0.63)
    assert Ledger(tmp_path / "ledger.json", cap_usd=2.0).left == pytest.approx(1.37)


def test_a_task_whose_share_was_too_small_goes_on_with_another(bench, service: MessagesServer, tmp_path: Path) -> None:
    service.plays(Reply([calls(SUBMIT, {"flops": 1})], tokens=(100_000, 1_000)), repeats_last=True)
    ledger = Ledger(tmp_path / "ledger.json", cap_usd=1.0)
    share = ledger.grant("Toy", 4)
    assert share.usd == 0.25

    ended = bench.run(bench.task(caps=Caps(budget_usd=share.usd)))
    ledger.settle("Toy", ended.session, ended.cost_usd, ended.turns)
    assert (ended.how, ledger.spent) == ("budget", pytest.approx(0.315))

    service.scripts.clear()
    service.plays(Reply([calls(SUBMIT, {"flops": 42})], tokens=(100_000, 1_000)))
    share = ledger.grant("Toy")
    assert share.usd == pytest.approx(0.685)
    ended = bench.run(bench.task(caps=Caps(budget_usd=share.usd), session=ended.session, prompt="Go on."))
    ledger.settle("Toy", ended.session, ended.cost_usd, ended.turns)

    assert ended.how == "over"
    assert ended.cost_usd == pytest.approx(0.63)
    assert ledger.spent == pytest.approx(0.63)  # not 0.315 + 0.63


_RUNS_ALONE = """
import asyncio, sys
from pathlib import Path
from lmp.agents.base import Caps, Task
from lmp.agents.claude import ClaudeAgent
folder = Path(sys.argv[1])
task = Task("Toy", "module-analyzer", "You analyse.", "Analyse Toy.", [], [folder], Caps(timeout=600.0))
asyncio.run(ClaudeAgent(folder / "agents", model=sys.argv[2]).carry_out(task, lambda event: None))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_lmp_that_is_stopped_leaves_no_process(service: MessagesServer, tmp_path: Path, number: signal.Signals) -> None:
    """`no_process_left` looks; the answer would come after twenty seconds."""
    script = service.plays(Reply([says("late")], waits=20.0))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _RUNS_ALONE, str(tmp_path), MODEL]
    with subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, text=True, preexec_fn=as_in_a_terminal
    ) as process:
        while not script.requests and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(number)
        _, said = process.communicate(timeout=600)
    assert process.returncode == -number, said


def test_ctrl_c_in_the_terminal_reaches_lmp_alone(bench, service: MessagesServer, tmp_path: Path) -> None:
    script = service.plays(Reply([says("done")], waits=0.5))
    groups = set()

    def look() -> None:
        while not script.requests:
            time.sleep(0.02)
        groups.update(os.getpgid(process) for process in processes_of(tmp_path))

    looking = threading.Thread(target=look)
    looking.start()
    assert bench.run().how == "ended"
    looking.join()
    assert groups
    assert os.getpgid(0) not in groups
