"""What an agent hands in, until one hand-in is accepted or there is no point in another."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from lmp.agents.base import Answer, Event
from lmp.errors import Missing, NotFound, Refused, Search
from lmp.records import GateFinding

SAME = 3
"""The same finding so many times ends a conversation: the agent does not know how to put it right."""
LONGEST = 200
"""Characters of a finding where one line is due; the whole is in the transcript and beside the draft."""
NUDGES = 2
"""Times that an agent which stops without a hand-in is asked for one."""


class Judged(Protocol):
    """What a check says: accepted, or findings."""

    @property
    def accepted(self) -> bool: ...

    @property
    def findings(self) -> Sequence[GateFinding]: ...

    @property
    def summary(self) -> str:
        """Of an accepted one: what it is, in one sentence."""
        ...


Check = Callable[[Any], Awaitable[Judged]]
Keep = Callable[[Any, Sequence[GateFinding]], str]
"""Keeps a refused draft with its findings; returns where."""


@dataclass
class HandIns:
    """The hand-ins of one conversation. ``check`` is the gate; it raises Missing for a class not analysed yet."""

    name: str
    check: Check
    keep: Keep
    shown: Callable[[Sequence[GateFinding], int], str]
    """Findings and rounds left -> what the agent is told."""
    most: int
    tool: str = "submit_analysis"
    or_else: str = ", or source_not_found if the source is not there"
    """What an agent can do instead of handing in."""
    instead: str = "use --engine trace"
    """What whoever runs the command can do without an agent."""
    on_round: Callable[[Event], None] = lambda event: None
    """Hears what became of each hand-in."""
    rounds: int = 0
    accepted: Judged | None = None
    waiting_for: tuple[str, ...] = ()
    """Classes that the last hand-in refers to and that have to be analysed before it can be checked."""
    last: Any = None
    findings: tuple[GateFinding, ...] = ()
    kept: str = ""
    given_up: NotFound | None = None
    """The agent itself says that the source is not there."""
    _answer: Callable[[], str] | None = None
    """What is said when ``waiting_for`` is there, where a tool asked for it and not a hand-in."""
    _times: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    _nudged: int = 0
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def submit(self, handed_in: Any) -> Answer:
        """Check one hand-in; two at the same time are checked one after the other."""
        async with self._one:
            if self.is_over():
                return Answer("this conversation is over; nothing more is taken", refused=True)
            self.rounds += 1
            self.last = handed_in
            return await self._checked()

    def wait_for(self, class_path: str, answer: Callable[[], str]) -> None:
        """A tool was asked about a class that is not analysed yet; ``answer`` is what to say when it is."""
        self.waiting_for, self._answer = (class_path,), answer

    async def again(self) -> Answer:
        """What is said now that ``waiting_for`` is there: the answer to a question, or of the last hand-in."""
        answer, self.waiting_for, self._answer = self._answer, (), None
        return Answer(answer()) if answer is not None else await self._checked()

    async def _checked(self) -> Answer:
        try:
            judged = await self.check(self.last)
        except Missing as missing:
            self.waiting_for = missing.classes
            self._tell("refers to a class that is not analysed yet")
            return Answer(
                f"There is no analysis yet of {', '.join(missing.classes)}. That is made now, and your hand-in is "
                "checked after that: stop here and wait for the answer."
            )
        if judged.accepted:
            self.accepted, self.findings = judged, ()
            self._tell(f"accepted, {judged.summary}")
            return Answer(f"accepted: {judged.summary}. There is nothing left to do.")
        self.findings = tuple(judged.findings)
        self._times.update({_key(finding) for finding in self.findings})
        self.kept = self.keep(self.last, self.findings)
        more = f" (and {len(self.findings) - 1} more)" if len(self.findings) > 1 else ""
        self._tell(f"refused, {_short(self.findings[0])}{more}")
        return Answer(self.shown(self.findings, self.most - self.rounds), refused=True)

    def _tell(self, outcome: str) -> None:
        findings = [finding.model_dump(exclude_none=True) for finding in self.findings]
        self.on_round({"event": "handed in", "round": self.rounds, "outcome": outcome, "findings": findings})

    async def stop(self, looked_for: str, where: str, found: str) -> Answer:
        """The agent says that the source is not there."""
        message = f"the agent found no source of {self.name}: looked for {looked_for} in {where}, found {found}"
        hint = "check the class path, or give the tree that holds it with --transformers, --pytorch or --path"
        self.given_up = NotFound(f"{message}\n{hint}", [Search(looked_for, where, found)])
        return Answer("noted. Stop here.")

    def is_over(self) -> bool:
        return bool(self.accepted or self.waiting_for or self.given_up or self.hopeless())

    def hopeless(self) -> str:
        """Why another round makes no sense; empty while one does."""
        repeated = next((finding for finding in self.findings if self._times[_key(finding)] >= SAME), None)
        if repeated is not None:
            return f"the same finding {SAME} times: {_short(repeated)}"
        if self.rounds >= self.most and self.findings:
            return f"{self.rounds} hand-ins were refused, the last because: {_short(self.findings[0])}"
        return ""

    def next_message(self) -> str | None:
        """What to say to an agent that stopped by itself."""
        if self.is_over() or self._nudged >= NUDGES:
            return None
        self._nudged += 1
        why = "The last hand-in was refused; correct it" if self.findings else "Nothing was handed in yet"
        return (
            f"{why}. Only what is given to the tool {self.tool} counts, not what is written in the conversation. "
            f"Call {self.tool} now{self.or_else}."
        )

    def refused(self) -> Refused:
        """Why it ends here. For a conversation in which something was handed in and refused."""
        why = self.hopeless() or f"the agent stopped after a refusal: {_short(self.findings[0])}"
        where = f"the draft and its findings are kept: {self.kept}" if self.kept else f"run again, or {self.instead}"
        return Refused(f"{self.name}: {why}\n{where}", self.findings)


def _key(finding: GateFinding) -> tuple[Any, ...]:
    """What makes two findings the same: the same place and the same claim. Another number is another try."""
    about = finding.claimed if finding.claimed is not None else finding.message
    return finding.rule, finding.file, finding.line, finding.quantity, about


def _short(finding: GateFinding) -> str:
    text = finding.message.splitlines()[0]
    if finding.line is not None and not text.startswith(f"line {finding.line}"):
        text = f"line {finding.line}: {text}"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
