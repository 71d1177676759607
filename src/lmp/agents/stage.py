"""One conversation from the first message to an accepted submission: the loop of all three stages."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lmp.agents.attempts import Attempts
from lmp.agents.base import Agent, Caps, Ended, Event, StageName, Task, Tool
from lmp.agents.ledger import Share
from lmp.agents.prompts import Prompt
from lmp.agents.run import Run, conversation_key
from lmp.errors import AgentUnavailable, CapReached
from lmp.records import Provenance

NO_LIMIT = 1_000_000
"""Turns of a task without a cap."""
KEPT_BACK = 0.25
"""While more than this part of the dollars is left, one agent gets at most half of it; after that, all of it."""
GO_ON = (
    "This conversation was interrupted here. What you read and submitted so far is in it: continue, and submit the "
    "result with the tool {tool}."
)

COUNTED = frozenset({"begins", "turn", "handed in", "checked", "broken_off"})
"""Events after which the counts are stored: lmp may be killed at any time."""


@dataclass(frozen=True)
class Brief:
    """What an agent of a stage gets: prompt, tools, folders to read."""

    name: str
    stage: StageName
    prompt: Prompt
    tools: Sequence[Tool]
    roots: Sequence[Path]
    need: Callable[[Sequence[str]], Awaitable[None]]
    """Analyses classes that the submission refers to and that have no analysis."""


@dataclass
class Stage:
    """Carries out one brief, with one agent at a time, within what is left of the run's caps."""

    run: Run
    agent: Agent
    brief: Brief
    attempts: Attempts

    def __post_init__(self) -> None:
        self.attempts.on_round = self._event

    async def through(self) -> Provenance:
        """Converse until a submission is accepted. Raises NotFound, Refused, CapReached, AgentUnavailable."""
        if self.attempts.hopeless():  # of an earlier command of this run: nothing is spent on it again
            raise self.attempts.refused()
        message, session = self._first_message()
        self._event({"event": "begins", "resumes": session})
        while True:
            try:
                ended = await self._converse(message, session)
            except AgentUnavailable:
                if self.attempts.accepted is None:
                    raise
                return self._provenance()  # accepted before the client failed: it stands
            session = ended.session or session
            waited = await self._wait_for_classes()
            if self.attempts.accepted is not None:
                return self._provenance()
            if self.attempts.given_up is not None:
                raise self.attempts.given_up
            if self.attempts.hopeless():
                raise self.attempts.refused()
            if waited:
                message = waited
            elif ended.how in ("turns", "budget"):
                # Its share is spent; the next one is what the others left. The ledger raises if nothing is left.
                message = GO_ON.format(tool=self.attempts.tool)
            else:
                raise self._why(ended)

    def _first_message(self) -> tuple[str, str | None]:
        """The first message and no session, or the message that resumes an interrupted session."""
        begun = self.run.session(self.brief.name, self.brief.stage)
        if begun is None or not self.agent.can_resume(begun):  # it may have been killed before anything was stored
            return self.brief.prompt.message, None
        return GO_ON.format(tool=self.attempts.tool), begun

    async def _converse(self, message: str, session: str | None) -> Ended:
        brief, limits = self.brief, self.run.state.limits
        async with self.run.slots:
            share = self._share()
            caps = Caps(share.turns or NO_LIMIT, limits.timeout, share.usd)
            task = Task(
                name=brief.name,
                stage=brief.stage,
                system=brief.prompt.system,
                prompt=message,
                tools=brief.tools,
                roots=brief.roots,
                caps=caps,
                session=session,
                next_message=self.attempts.next_message,
                is_over=self.attempts.is_over,
            )
            with self.run.working(brief.name), self._timed():
                ended = await self.agent.carry_out(task, self._event)
        self.run.ledger.settle(self._key, ended.session, ended.cost_usd, ended.turns)
        tried = self.attempts.tried
        tried.sdk_version, tried.cli_version = ended.sdk_version, ended.cli_version
        return ended

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Add the seconds of the block to those of earlier pieces of the conversation."""
        tried, began = self.attempts.tried, time.monotonic()
        known = None if tried.talking else tried.seconds  # lmp was killed in a conversation: nobody knows when
        tried.talking = True
        try:
            yield
        finally:
            tried.talking = False
            tried.seconds = None if known is None else known + time.monotonic() - began

    def _share(self) -> Share:
        """This agent's share of what is left. Raises CapReached, with the command that resumes."""
        ledger, among = self.run.ledger, self.run.unfinished
        if ledger.left is not None and ledger.cap_usd is not None and ledger.left > KEPT_BACK * ledger.cap_usd:
            # Never all of it: the share of a killed agent is lost, as its cost is not known.
            among = max(2, among)
        try:
            return ledger.grant(self._key, among)
        except CapReached as error:
            caps = "a larger --max-turns or --max-budget-usd"
            why = str(error).splitlines()[0]
            raise CapReached(f"{why}\n`{self.run.resume_command}` with {caps} continues") from error

    async def _wait_for_classes(self) -> str:
        """Analyse the classes that are waited for; the gate's answer after that, empty if none was waited for."""
        text = ""
        while classes := self.attempts.waiting_for:
            self._event({"event": "waits", "for": list(classes)})
            await self.brief.need(classes)
            text = (await self.attempts.check_again()).text
        return text

    def _why(self, ended: Ended) -> Exception:
        """The error of a conversation that ended without an accepted submission."""
        if ended.how == "timeout":
            limit = self.run.state.limits.timeout
            goes_on = f"`{self.run.resume_command}` continues from here; give it a longer --timeout"
            return CapReached(f"{self.brief.name}: no result after {limit:g} s\n{goes_on}")
        if self.attempts.rounds:
            return self.attempts.refused()
        return AgentUnavailable(
            f"{self.brief.name}: the agent ended without a submission\nwhat it said: {self.run.transcript.path}"
        )

    @property
    def _key(self) -> str:
        return conversation_key(self.brief.name, self.brief.stage)

    def _event(self, event: Event) -> None:
        if event.get("event") == "broken_off" and event.get("session"):
            # The agent raises, so there is no Ended: the cost is in this event.
            self.run.ledger.settle(self._key, event["session"], event.get("cost_usd"), event.get("turns") or 0)
        if event.get("event") == "turn":
            tried = self.attempts.tried
            tried.turns, tried.models = tried.turns + 1, list(dict.fromkeys([*tried.models, event["model"]]))
        self.run.event(self.brief.name, self.brief.stage, event)
        if event.get("event") in COUNTED:
            self.run.save()

    def _provenance(self) -> Provenance:
        """Over all pieces of the conversation, those of earlier commands of the run included."""
        tried = self.attempts.tried
        return Provenance(
            stage=self.brief.stage,
            models=tried.models,
            turns=tried.turns,
            rounds=self.attempts.rounds,
            cost_usd=round(self.run.ledger.spent_on(self._key), 6),
            seconds=None if tried.seconds is None else round(tried.seconds, 3),
            prompt_sha256=self.brief.prompt.sha256,
            run=self.run.id,
            sdk_version=tried.sdk_version,
            cli_version=tried.cli_version,
        )
