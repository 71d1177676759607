"""One conversation from the first message to a hand-in that is accepted: the loop of both stages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from lmp.agents.base import Agent, Caps, Ended, Event, Task, Tool
from lmp.agents.handins import HandIns
from lmp.agents.prompts import prompt_sha256
from lmp.agents.run import Run
from lmp.errors import AgentUnavailable, CapReached
from lmp.records import Provenance

GO_ON = (
    "This conversation was interrupted here. What you read and handed in so far is in it: go on, and hand in the "
    "result with the tool {tool}."
)


@dataclass(frozen=True)
class Talk:
    """What an agent is told, and what it has."""

    name: str
    stage: Literal["module-analyzer", "reference-expander"]
    system: str
    prompt: str
    tools: Sequence[Tool]
    roots: Sequence[Path]
    need: Callable[[str], Awaitable[None]]
    """Has a class analysed that turned up on the way."""


@dataclass
class Stage:
    """Carries one talk through: one agent at a time, within what the run still has."""

    run: Run
    agent: Agent
    talk: Talk
    hand_ins: HandIns
    parts: list[Ended] = field(default_factory=list)
    """The pieces of the conversation: it is interrupted where a class has to be analysed first."""

    async def through(self) -> Provenance:
        """Until a hand-in is accepted. Raises NotFound, Refused, CapReached, AgentUnavailable."""
        message, session = self._first()
        self._event({"event": "begins", "system": self.talk.system, "prompt": message, "resumes": session})
        while True:
            ended = await self._converse(message, session)
            session = ended.session or session
            waited = await self._wait_for_classes()
            if self.hand_ins.accepted is not None:
                self._event({"event": "accepted", "rounds": self.hand_ins.rounds})
                return self._provenance()
            if self.hand_ins.given_up is not None:
                raise self.hand_ins.given_up
            if self.hand_ins.hopeless():
                raise self.hand_ins.refused()
            if waited:
                message = waited
            elif ended.how in ("turns", "budget") and self.run.ledger.has_left:
                # Its share is spent, and others have left some of theirs.
                message = GO_ON.format(tool=self.hand_ins.tool)
            else:
                raise self._why(ended)

    def _first(self) -> tuple[str, str | None]:
        """The first message, or what is said in a conversation that was interrupted."""
        begun = self.run.state.open.get(self.talk.name)
        if begun is None or begun.stage != self.talk.stage:
            return self.talk.prompt, None
        return GO_ON.format(tool=self.hand_ins.tool), begun.session

    async def _converse(self, message: str, session: str | None) -> Ended:
        talk, limits = self.talk, self.run.state.limits
        async with self.run.slots:
            with self.run.ledger.share(talk.name) as share:
                caps = Caps(share.turns, limits.max_rounds, limits.timeout, share.usd)
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
                ended = await self.agent.carry_out(task, self._event)
                share.settle(ended)
        self.parts.append(ended)
        return ended

    async def _wait_for_classes(self) -> str:
        """Has analysed what the last hand-in refers to; returns what the gate then says, empty if it did not wait."""
        said = ""
        while (class_path := self.hand_ins.waiting_for) is not None:
            await self.talk.need(class_path)
            said = (await self.hand_ins.again()).text
        return said

    def _why(self, ended: Ended) -> Exception:
        """Why there is no result, for a conversation that ended without one."""
        goes_on = f"`{self.run.resume_command}` goes on from here; give it a larger cap"
        ledger, limits = self.run.ledger, self.run.state.limits
        match ended.how:
            case "turns":
                return CapReached(f"{self.talk.name}: {ledger.turns} turns are spent (--max-turns)\n{goes_on}")
            case "budget":
                spent = f"${ledger.spent:.2f} of ${limits.max_budget_usd or 0:.2f} are spent (--max-budget-usd)"
                return CapReached(f"{self.talk.name}: {spent}\n{goes_on}")
            case "timeout":
                return CapReached(f"{self.talk.name}: no result after {limits.timeout:g} s (--timeout)\n{goes_on}")
        if self.hand_ins.findings:
            return self.hand_ins.refused()
        return AgentUnavailable(
            f"{self.talk.name}: the agent ended {len(self.parts)} time(s) without handing anything in\n"
            f"what it said: {self.run.transcript.path}"
        )

    def _event(self, event: Event) -> None:
        self.run.event(self.talk.name, self.talk.stage, event)

    def _provenance(self) -> Provenance:
        versions: dict[str, Any] = {}
        for part in self.parts:
            versions = {"sdk_version": part.sdk_version, "cli_version": part.cli_version}
        return Provenance(
            stage=self.talk.stage,
            models=list(dict.fromkeys(model for part in self.parts for model in part.models)),
            turns=sum(part.turns for part in self.parts),
            rounds=self.hand_ins.rounds,
            cost_usd=round(self.run.ledger.spent_on(self.talk.name), 6),
            seconds=round(sum(part.seconds for part in self.parts), 3),
            prompt_sha256=prompt_sha256(self.talk.system, self.talk.prompt),
            run=self.run.id,
            **versions,
        )
