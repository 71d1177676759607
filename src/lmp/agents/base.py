"""The seams: a task for an agent, the tools that it has, and how it ended.

`Agent` is implemented by the Claude client (``claude``) and, for tests, by a plain script.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import BaseModel

from lmp.records import GateFinding


@dataclass(frozen=True)
class Answer:
    """A tool's answer. ``refused`` marks an error: the agent sees it as one."""

    text: str
    refused: bool = False


@dataclass(frozen=True)
class Tool:
    """A tool of lmp, the same for the SDK, for MCP clients and for scripts."""

    name: str
    description: str
    arguments: type[BaseModel]
    call: Callable[[Any], Awaitable[Answer]]
    """Called with a validated instance of ``arguments``."""


StageName = Literal["module-analyzer", "reference-expander", "narrator", "refuter"]
ANALYZER: StageName = "module-analyzer"
EXPANDER: StageName = "reference-expander"
NARRATOR: StageName = "narrator"
REFUTER: StageName = "refuter"

Event = dict[str, Any]
"""One line of the transcript: ``{"event": "tool", "tool": "Read", …}``; `transcript` adds time, number and class."""


@dataclass(frozen=True)
class Caps:
    """Limits of one task."""

    max_turns: int = 40
    """Answers of the model in one task, follow-ups included."""
    timeout: float | None = 1800.0
    """Seconds of one task; None means no limit."""
    budget_usd: float | None = None
    """Dollars of this task, by the client's estimate; None means no limit."""


@dataclass(frozen=True)
class Task:
    """One conversation: its messages, its tools, its end."""

    name: str
    """The class or the report it is about, for display and transcript."""
    stage: StageName
    system: str
    prompt: str
    tools: Sequence[Tool]
    roots: Sequence[Path]
    """Folders that Read, Grep and Glob may look into; nothing else may be read."""
    caps: Caps = field(default_factory=Caps)
    session: str | None = None
    """A conversation to resume; ``prompt`` is its next message then."""
    next_message: Callable[[], str | None] = lambda: None
    """Called when the agent stops by itself: the message to send, or None to let it end."""
    is_over: Callable[[], bool] = lambda: False
    """Called after every tool call: True ends the conversation, whatever the agent would do next."""


How = Literal["ended", "over", "turns", "budget", "timeout"]


@dataclass(frozen=True)
class Ended:
    """How a conversation ended, and what it cost."""

    how: How
    models: tuple[str, ...] = ()
    turns: int = 0
    cost_usd: float | None = None
    """Of the whole session, earlier runs included, by the client's estimate; None if not known."""
    seconds: float = 0.0
    session: str | None = None
    denials: int = 0
    """Tool calls that were refused by the guard or the permission mode."""
    sdk_version: str | None = None
    cli_version: str | None = None
    said: str = ""
    """The agent's last text."""


class Agent(Protocol):
    """Carries out tasks, several at once. Raises AgentUnavailable if it cannot run or the service refuses.

    ``on_event`` receives every step as it happens, under ``event``: ``prompt`` (system, text), ``started`` (session,
    model, tools), ``turn`` (turns, model), ``text`` (text), ``thinking`` (text), ``tool`` (tool, short, call, input),
    ``answer`` (tool, call, refused, text), ``denied`` (tool, short, why, call), ``said`` (text: of
    `Task.next_message`), ``retry`` (attempt, of, seconds, why), ``rate_limit`` (status, until, window), ``fallback``
    (model, why), ``result`` (turns, cost_usd, why, session, usage: tokens by kind), and, before anything that is
    raised, ``broken_off`` (why, session, turns, cost_usd: None if not known).
    """

    def can_resume(self, session: str) -> bool:
        """Whether a conversation of an earlier run can be resumed."""
        ...

    async def carry_out(self, task: Task, on_event: Callable[[Event], None]) -> Ended: ...


class Verdict(Protocol):
    """A gate's answer to a submission, whatever is submitted: an analysis, bindings, a narrative."""

    @property
    def accepted(self) -> bool: ...

    @property
    def findings(self) -> Sequence[GateFinding]: ...

    @property
    def summary(self) -> str:
        """One sentence about an accepted submission."""
        ...
