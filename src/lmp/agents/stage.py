"""One conversation from the first message to a hand-in that is accepted: the loop of both stages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lmp.agents.base import Agent, Caps, Ended, Event, StageName, Task, Tool
from lmp.agents.handins import HandIns
from lmp.agents.ledger import Share
from lmp.agents.prompts import prompt_sha256
from lmp.agents.run import Run, conversation
from lmp.errors import AgentUnavailable, CapReached
from lmp.records import Provenance

NO_LIMIT = 1_000_000
"""Turns, where there is no cap on them."""
KEPT_BACK = 0.25
"""Part of the dollars up to which an agent gets half of what is left at most, and what is left when that is spent."""
GO_ON = (
    "This conversation was interrupted here. What you read and handed in so far is in it: go on, and hand in the "
    "result with the tool {tool}."
)


@dataclass(frozen=True)
class Talk:
    """What an agent is told, and what it has."""

    name: str
    stage: StageName
    system: str
    prompt: str
    tools: Sequence[Tool]
    roots: Sequence[Path]
    need: Callable[[Sequence[str]], Awaitable[None]]
    """Has classes analysed that turned up on the way."""


@dataclass
class Stage:
    """Carries one talk through: one agent at a time, within what the run still has."""

    run: Run
    agent: Agent
    talk: Talk
    hand_ins: HandIns
    parts: list[Ended] = field(default_factory=list)
    """The pieces of the conversation: it is interrupted where a class has to be analysed first."""

    def __post_init__(self) -> None:
        self.hand_ins.on_round = self._event

    async def through(self) -> Provenance:
        """Until a hand-in is accepted. Raises NotFound, Refused, CapReached, AgentUnavailable."""
        message, session = self._first()
        self._event({"event": "begins", "resumes": session})
        while True:
            try:
                ended = await self._converse(message, session)
            except AgentUnavailable:
                if self.hand_ins.accepted is None:
                    raise
                return self._provenance(whole=False)  # what was accepted stands, whatever became of the client then
            session = ended.session or session
            waited = await self._wait_for_classes()
            if self.hand_ins.accepted is not None:
                return self._provenance()
            if self.hand_ins.given_up is not None:
                raise self.hand_ins.given_up
            if self.hand_ins.hopeless():
                raise self.hand_ins.refused()
            if waited:
                message = waited
            elif ended.how in ("turns", "budget"):
                # Its share is spent; the next one is what others left. Where that is nothing, the ledger says so.
                message = GO_ON.format(tool=self.hand_ins.tool)
            else:
                raise self._why(ended)

    def _first(self) -> tuple[str, str | None]:
        """The first message, or what is said in a conversation that was interrupted."""
        begun = self.run.session(self.talk.name, self.talk.stage)
        if begun is None or not self.agent.can_resume(begun):  # it may have been killed in its first moments
            return self.talk.prompt, None
        return GO_ON.format(tool=self.hand_ins.tool), begun

    async def _converse(self, message: str, session: str | None) -> Ended:
        talk, limits = self.talk, self.run.state.limits
        async with self.run.slots:
            share = self._share()
            caps = Caps(share.turns or NO_LIMIT, limits.timeout, share.usd)
            task = Task(
                name=talk.name,
                stage=talk.stage,
                system=talk.system,
                prompt=message,
                tools=talk.tools,
                roots=talk.roots,
                caps=caps,
                session=session,
                next_message=self.hand_ins.next_message,
                is_over=self.hand_ins.is_over,
            )
            with self.run.working(talk.name):
                ended = await self.agent.carry_out(task, self._event)
        self.run.ledger.settle(self._key, ended.session, ended.cost_usd, ended.turns)
        self.parts.append(ended)
        return ended

    def _share(self) -> Share:
        """What this agent may use of what is left. Raises CapReached, with the command that goes on."""
        ledger, among = self.run.ledger, self.run.unfinished
        if ledger.left is not None and ledger.cap_usd is not None and ledger.left > KEPT_BACK * ledger.cap_usd:
            # Never all: what a killed agent had is lost, as nobody knows what it spent.
            among = max(2, among)
        try:
            return ledger.grant(self._key, among)
        except CapReached as error:
            caps = "a larger --max-turns or --max-budget-usd"
            why = str(error).splitlines()[0]
            raise CapReached(f"{why}\n`{self.run.resume_command}` with {caps} goes on") from error

    async def _wait_for_classes(self) -> str:
        """Has analysed what the last hand-in refers to; returns what the gate then says, empty if it did not wait."""
        said = ""
        while classes := self.hand_ins.waiting_for:
            self._event({"event": "waits", "for": list(classes)})
            await self.talk.need(classes)
            said = (await self.hand_ins.again()).text
        return said

    def _why(self, ended: Ended) -> Exception:
        """Why there is no result, for a conversation that ended without one."""
        if ended.how == "timeout":
            limit = self.run.state.limits.timeout
            goes_on = f"`{self.run.resume_command}` goes on from here; give it a longer --timeout"
            return CapReached(f"{self.talk.name}: no result after {limit:g} s\n{goes_on}")
        if self.hand_ins.findings:
            return self.hand_ins.refused()
        return AgentUnavailable(
            f"{self.talk.name}: the agent ended without handing anything in\nwhat it said: {self.run.transcript.path}"
        )

    @property
    def _key(self) -> str:
        return conversation(self.talk.name, self.talk.stage)

    def _event(self, event: Event) -> None:
        if event.get("event") == "broken_off" and event.get("session"):
            # It raises, so there is no Ended: what it used is in this event.
            self.run.ledger.settle(self._key, event["session"], event.get("cost_usd"), event.get("turns") or 0)
        self.run.event(self.talk.name, self.talk.stage, event)

    def _provenance(self, whole: bool = True) -> Provenance:
        """``whole``: every piece of the conversation came to an end, so that its turns and time are known."""
        versions: dict[str, Any] = {}
        for part in self.parts:
            versions = {"sdk_version": part.sdk_version, "cli_version": part.cli_version}
        return Provenance(
            stage=self.talk.stage,
            models=list(dict.fromkeys(model for part in self.parts for model in part.models)),
            turns=sum(part.turns for part in self.parts) if whole else None,
            rounds=self.hand_ins.rounds,
            cost_usd=round(self.run.ledger.spent_on(self._key), 6),
            seconds=round(sum(part.seconds for part in self.parts), 3) if whole else None,
            prompt_sha256=prompt_sha256(self.talk.system, self.talk.prompt),
            run=self.run.id,
            **versions,
        )
