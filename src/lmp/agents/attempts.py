"""The submissions of one conversation, until one is accepted or another one makes no sense; and what is answered."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

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


Check = Callable[[Any], Awaitable[Verdict]]
"""A gate. Raises Missing for a class without an analysis."""
Keep = Callable[[Any, Sequence[GateFinding]], str]
"""Stores a refused submission with its findings; returns where."""


@dataclass
class Attempts:
    """The submissions of one conversation."""

    name: str
    check: Check
    keep: Keep
    most: int
    """Submissions that are accepted for checking."""
    tool: str = "submit_analysis"
    or_else: str = ", or source_not_found if the source is not there"
    """What the agent can do instead of submitting."""
    instead: str = "use --engine trace"
    """What the user can do without an agent."""
    on_round: Callable[[Event], None] = lambda event: None
    """Receives the outcome of each submission."""
    rounds: int = 0
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
    _times: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    _nudged: int = 0
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def submit(self, submitted: Any) -> Answer:
        """Check one submission; two at the same time are checked one after the other."""
        async with self._one:
            if self.is_over():
                return Answer("this conversation is over; nothing more is taken", refused=True)
            self.rounds += 1
            self.last = submitted
            return await self._check_last()

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
        self.findings = tuple(verdict.findings)
        self._times.update({_key(finding) for finding in self.findings})
        self.kept = self.keep(self.last, self.findings)
        more = f" (and {len(self.findings) - 1} more)" if len(self.findings) > 1 else ""
        self._report(f"refused, {_one_line(self.findings[0])}{more}")
        return Answer(findings_text(self.findings, self.most - self.rounds), refused=True)

    def _report(self, outcome: str) -> None:
        findings = [finding.model_dump(exclude_none=True) for finding in self.findings]
        self.on_round({"event": "handed in", "round": self.rounds, "outcome": outcome, "findings": findings})

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
        repeated = next((finding for finding in self.findings if self._times[_key(finding)] >= SAME), None)
        if repeated is not None:
            return f"the same finding {SAME} times: {_one_line(repeated)}"
        if self.rounds >= self.most and self.findings:
            return f"{self.rounds} submissions were refused, the last because: {_one_line(self.findings[0])}"
        return ""

    def next_message(self) -> str | None:
        """The message to an agent that stopped by itself; None to let it end."""
        if self.is_over() or self._nudged >= NUDGES:
            return None
        self._nudged += 1
        why = "The last submission was refused; correct it" if self.findings else "Nothing was submitted yet"
        return (
            f"{why}. Only what is given to the tool {self.tool} counts, not what is written in the conversation. "
            f"Call {self.tool} now{self.or_else}."
        )

    def refused(self) -> Refused:
        """The error of a conversation that ends after a refusal."""
        why = self.hopeless() or f"the agent stopped after a refusal: {_one_line(self.findings[0])}"
        where = f"the draft and its findings are kept: {self.kept}" if self.kept else f"run again, or {self.instead}"
        return Refused(f"{self.name}: {why}\n{where}", self.findings)


def _key(finding: GateFinding) -> tuple[Any, ...]:
    """Equal for the same place and the same claim: another number is another try."""
    about = finding.claimed if finding.claimed is not None else finding.message
    return finding.rule, finding.file, finding.line, finding.quantity, about


def _one_line(finding: GateFinding) -> str:
    text = finding.message.splitlines()[0]
    if finding.line is not None and not text.startswith(f"line {finding.line}"):
        text = f"line {finding.line}: {text}"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


# --- findings as text ------------------------------------------------------------------------------------------------

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
            f"kernel {finding.kernel}" if finding.kernel is not None else "",
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
    return value is None or value in message


def _cut(text: str | None) -> str:
    text = text or "nothing"
    return text if len(text) <= _LONG else f"{text[:_LONG]}…"
