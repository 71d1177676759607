"""The submissions of one conversation, until one is accepted or another one makes no sense; and what is answered."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from lmp.agents.base import Answer, Event, Verdict
from lmp.errors import Missing, NotFound, Refused, Search
from lmp.records import GateFinding
from lmp.source.quoting import escaped

SAME = 3
"""The same finding so many times ends a conversation: the agent does not know how to correct it."""
LONGEST = 200
"""Characters of a finding on one line; the whole is in the transcript and beside the draft."""
NUDGES = 2
"""Times that an agent which stops without a submission is asked for one."""
MOST_CHECKS = 8
"""Drafts of one agent that are checked without being submitted."""
BEYOND = 3
"""Calls for a check beyond the limit that end a conversation."""


Check = Callable[[Any], Awaitable[Verdict]]
"""A gate. Raises Missing for a class without an analysis."""
Keep = Callable[[Any, Sequence[GateFinding]], str]
"""Stores a refused submission with its findings; returns where."""


class Tried(BaseModel):
    """What one agent has tried so far. It is stored with its run, so that a resume counts on."""

    model_config = ConfigDict(extra="forbid")

    rounds: int = Field(default=0, description="submissions")
    checks: int = Field(default=0, description="drafts that were checked without being submitted")
    beyond: int = Field(default=0, description="calls for a check beyond the limit")
    equal: dict[str, int] = Field(default={}, description="digest of a finding -> how often the agent was told it")
    hopeless: str = Field(default="", description="why another submission makes no sense; empty while one does")
    nudged: int = Field(default=0, description="times that the agent was asked for a submission")
    turns: int = Field(default=0, description="answers of the model")
    seconds: float | None = Field(default=0.0, description="None: not known, as lmp was killed in between")
    models: list[str] = []
    sdk_version: str | None = None
    cli_version: str | None = None
    talking: bool = Field(default=False, description="a conversation has begun, and its end was not noted")


@dataclass
class Attempts:
    """The submissions of one conversation."""

    name: str
    check: Check
    keep: Keep
    most: int
    """Submissions that are accepted for checking."""
    most_checks: int = MOST_CHECKS
    tool: str = "submit_analysis"
    or_else: str = ", or source_not_found if the source is not there"
    """What the agent can do instead of submitting."""
    instead: str = "use --engine trace"
    """What the user can do without an agent."""
    tried: Tried = field(default_factory=Tried)
    """The counts, of earlier commands of the run included."""
    on_round: Callable[[Event], None] = lambda event: None
    """Receives the outcome of each submission and of each check."""
    accepted: Verdict | None = None
    waiting_for: tuple[str, ...] = ()
    """Classes that have to be analysed before the last submission can be checked."""
    last: Any = None
    findings: tuple[GateFinding, ...] = ()
    kept: str = ""
    given_up: NotFound | None = None
    """Set if the agent itself reports that the source is not there."""
    _answer: Callable[[], str] | None = None
    """Answer to a question that a tool could not answer before ``waiting_for`` was there."""
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def rounds(self) -> int:
        return self.tried.rounds

    async def submit(self, submitted: Any) -> Answer:
        """Check one submission; two at the same time are checked one after the other."""
        async with self._one:
            if self.is_over():
                return _OVER
            self.tried.rounds += 1
            self.last = submitted
            return await self._check_last()

    async def try_out(self, draft: Any) -> Answer:
        """Check a draft that is not submitted. Its findings count like those of a submission."""
        async with self._one:
            if self.is_over():
                return _OVER
            if self.tried.checks >= self.most_checks:
                return self._no_check_left()
            self.tried.checks += 1
            verdict = await self.check(draft)
            left = self.most_checks - self.tried.checks
            if verdict.accepted:
                self._report_check("it would be accepted", ())
                return would_be_accepted(verdict, self.tool)
            told = self._count(verdict, draft)
            self._report_check(_in_short(told), told)
            return Answer(f"{findings_text(told)}\n\nThis submitted nothing. {_may_check(left, self.tool)}", True)

    def _no_check_left(self) -> Answer:
        self.tried.beyond += 1
        if self.tried.beyond >= BEYOND:
            self.tried.hopeless = f"{self.tried.beyond} more checks were asked for than the {self.most_checks} allowed"
        self._report_check("no check is left", ())
        return Answer(f"All {self.most_checks} checks are used. Submit the draft with {self.tool}.", refused=True)

    def wait_for(self, class_path: str, answer: Callable[[], str]) -> None:
        """Record that a tool was asked about a class without an analysis; ``answer`` gives the answer later."""
        self.waiting_for, self._answer = (class_path,), answer

    async def check_again(self) -> Answer:
        """The answer now that ``waiting_for`` is there: to a tool's question, or to the last submission."""
        answer, self.waiting_for, self._answer = self._answer, (), None
        return Answer(answer()) if answer is not None else await self._check_last()

    async def _check_last(self) -> Answer:
        try:
            verdict = await self.check(self.last)
        except Missing as missing:
            self.waiting_for = missing.classes
            self._report("refers to a class that is not analysed yet")
            return Answer(
                f"There is no analysis yet of {', '.join(missing.classes)}. It is made now, and your submission is "
                "checked after that: stop here and wait for the answer."
            )
        if verdict.accepted:
            self.accepted, self.findings = verdict, ()
            self._report(f"accepted, {verdict.summary}")
            return Answer(f"accepted: {verdict.summary}. There is nothing left to do.")
        told = self._count(verdict, self.last)
        if self.rounds >= self.most and not self.tried.hopeless:
            self.tried.hopeless = f"{self.rounds} submissions were refused, the last because: {_one_line(told[0])}"
        self._report(f"refused, {_in_short(told)}")
        return Answer(findings_text(told, self.most - self.rounds), refused=True)

    def _count(self, verdict: Verdict, draft: Any) -> tuple[GateFinding, ...]:
        """Keep a refused draft, and count the findings that the agent is told. They are returned."""
        self.findings = tuple(verdict.findings)
        self.kept = self.keep(draft, self.findings)
        equal = self.tried.equal
        for key in {_key(finding) for finding in self.findings[:SHOWN]}:
            equal[key] = equal.get(key, 0) + 1
        repeated = next((f for f in self.findings[:SHOWN] if equal[_key(f)] >= SAME), None)
        if repeated is not None:
            self.tried.hopeless = f"the same finding {SAME} times: {_one_line(repeated)}"
        return self.findings

    def _report(self, outcome: str) -> None:
        self.on_round({"event": "handed in", "round": self.rounds, "outcome": outcome, **_listed(self.findings)})

    def _report_check(self, outcome: str, told: Sequence[GateFinding]) -> None:
        number = min(self.tried.checks + self.tried.beyond, self.most_checks + BEYOND)
        event = {"event": "checked", "number": number, "of": self.most_checks, "outcome": outcome}
        self.on_round({**event, **_listed(told)})

    async def give_up(self, looked_for: str, where: str, found: str) -> Answer:
        """Record that the agent reports missing source."""
        message = f"the agent found no source of {self.name}: looked for {looked_for} in {where}, found {found}"
        hint = "check the class path, or give the tree that holds it with --transformers, --pytorch or --path"
        self.given_up = NotFound(f"{message}\n{hint}", [Search(looked_for, where, found)])
        return Answer("noted. Stop here.")

    def is_over(self) -> bool:
        return bool(self.accepted or self.waiting_for or self.given_up or self.hopeless())

    def hopeless(self) -> str:
        """Why another submission makes no sense; empty while one does."""
        return self.tried.hopeless

    def next_message(self) -> str | None:
        """The message to an agent that stopped by itself; None to let it end."""
        if self.is_over() or self.tried.nudged >= NUDGES:
            return None
        self.tried.nudged += 1
        why = "The last submission was refused; correct it" if self.rounds else "Nothing was submitted yet"
        return (
            f"{why}. Only what is given to the tool {self.tool} counts, not what is written in the conversation. "
            f"Call {self.tool} now{self.or_else}."
        )

    def refused(self) -> Refused:
        """The error of a conversation that ends after a refusal."""
        last = f": {_one_line(self.findings[0])}" if self.findings else ""
        why = self.hopeless() or f"the agent stopped after a refusal{last}"
        again = f"start the command again for a new conversation, or {self.instead}"
        where = f"the draft and its findings are kept: {self.kept}" if self.kept else again
        return Refused(f"{self.name}: {why}\n{where}", self.findings)


_OVER = Answer("this conversation is over; nothing more is taken", refused=True)


def would_be_accepted(verdict: Verdict, tool: str) -> Answer:
    """The answer to a draft without findings that was not submitted."""
    return Answer(f"This would be accepted: {verdict.summary}. Submit it with {tool}.")


def _may_check(left: int, tool: str) -> str:
    if left <= 0:
        return f"No check is left: the next draft goes to {tool}."
    return f"You may check {left} more time{'s' if left != 1 else ''}."


def _listed(findings: Sequence[GateFinding]) -> Event:
    return {"findings": [finding.model_dump(exclude_none=True) for finding in findings]}


def _in_short(findings: Sequence[GateFinding]) -> str:
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    return f"{_one_line(findings[0])}{more}"


def _key(finding: GateFinding) -> str:
    """Equal for the same place and the same claim: another number is another try."""
    about = finding.claimed if finding.claimed is not None else finding.message
    key = finding.rule, finding.file, finding.line, finding.quantity, about
    return hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]


def _one_line(finding: GateFinding) -> str:
    text = finding.message.splitlines()[0]
    if finding.line is not None and not text.startswith(f"line {finding.line}"):
        text = f"line {finding.line}: {text}"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


# --- findings as text ------------------------------------------------------------------------------------------------

INDEXED = "kernel index"
"""Words of a message that names its kernel itself, as bindings do: by index. Elsewhere kernels count from 1."""

SHOWN = 12
"""Findings in one answer; the rest most often have the same cause."""
_LONG = 400


def findings_text(findings: Sequence[GateFinding], rounds_left: int | None = None) -> str:
    """The answer to a refused submission: one finding a paragraph, then what to do.

    ``rounds_left`` are the submissions that are left; None leaves that sentence out.
    """
    count = f"{len(findings)} finding{'s' if len(findings) != 1 else ''}"
    parts = [f"Refused: {count}.", *(finding_text(finding) for finding in findings[:SHOWN])]
    if len(findings) > SHOWN:
        parts.append(f"… and {len(findings) - SHOWN} more; correct these first.")
    if rounds_left is not None:
        left = f"{rounds_left} more time{'s' if rounds_left != 1 else ''}" if rounds_left > 0 else "no more"
        parts.append(f"Correct what is named, keep the rest, submit the whole again. You may submit {left}.")
    return "\n\n".join(parts)


def finding_text(finding: GateFinding) -> str:
    """One finding: rule, place and message; claimed and counted too, unless the message contains them."""
    message, place = finding.message, _place(finding)
    where = ", ".join(
        part
        for part in (
            f"kernel {finding.kernel + 1}" if finding.kernel is not None and INDEXED not in message else "",
            place if place and f"line {finding.line}" not in message else "",
        )
        if part
    )
    text = f"[{finding.rule}] {where}{': ' if where else ''}{message}"
    if (finding.claimed or finding.counted) and not (
        _contains(message, finding.claimed) and _contains(message, finding.counted)
    ):
        what = f"{finding.quantity}: " if finding.quantity else ""
        at = f", at {finding.point}" if finding.point else ""
        text += f"\n  {what}given {_cut(finding.claimed)}, executed {_cut(finding.counted)}{at}"
    return escaped(text)


def _place(finding: GateFinding) -> str:
    if finding.line is None:
        return ""
    return f"{finding.file} line {finding.line}" if finding.file else f"line {finding.line}"


def _contains(message: str, value: str | None) -> bool:
    """Whether a message has a value already: the whole, or each number of a list such as ``flops 3, read 4``."""
    if value is None or value in message:
        return True
    return all(part.rpartition(" ")[2] in message for part in value.split(", "))


def _cut(text: str | None) -> str:
    text = text or "nothing"
    return text if len(text) <= _LONG else f"{text[:_LONG]}…"
