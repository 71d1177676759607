"""The seams: a task that is given to an agent, the tools that it has, and what became of it.

`Agent` is implemented by the Claude client (``claude``) and, for tests, by a plain script.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import BaseModel

from lmp.records import GateFinding, ModuleAnalysis, Verification
from lmp.source.locate import ClassSource
from lmp.source.trees import Trees


@dataclass(frozen=True)
class Answer:
    """What a tool says. ``refused`` marks an error: the agent sees it as one."""

    text: str
    refused: bool = False


@dataclass(frozen=True)
class Tool:
    """A tool of lmp's, the same for the SDK, for MCP clients and for scripts."""

    name: str
    description: str
    arguments: type[BaseModel]
    call: Callable[[Any], Awaitable[Answer]]
    """Called with a validated instance of ``arguments``."""


StageName = Literal["module-analyzer", "reference-expander", "narrator"]
ANALYZER: StageName = "module-analyzer"
EXPANDER: StageName = "reference-expander"
NARRATOR: StageName = "narrator"

Event = dict[str, Any]
"""One line of the transcript: ``{"event": "tool", "tool": "Read", …}``; `transcript` adds time, number and class."""


@dataclass(frozen=True)
class Caps:
    """What a task may cost."""

    max_turns: int = 40
    """Answers of the model in one task, follow-ups included."""
    timeout: float | None = 1800.0
    """Seconds of one task; None means no limit."""
    budget_usd: float | None = None
    """Dollars of this task, by the client's estimate; None means no limit."""


@dataclass(frozen=True)
class Task:
    """One conversation: what is said, what may be used, when it ends."""

    name: str
    """The class or the report it is about: shown, and written into the transcript."""
    stage: StageName
    system: str
    prompt: str
    tools: Sequence[Tool]
    roots: Sequence[Path]
    """Folders that Read, Grep and Glob may look into; nothing else may be read."""
    caps: Caps = field(default_factory=Caps)
    session: str | None = None
    """A conversation of an earlier run to go on with; then ``prompt`` is what is said next."""
    next_message: Callable[[], str | None] = lambda: None
    """Asked when the agent stops by itself: what to say to it then, or None to let it end."""
    is_over: Callable[[], bool] = lambda: False
    """Asked after every tool call: True ends the conversation, whatever the agent would do next."""


How = Literal["ended", "over", "turns", "budget", "timeout"]


@dataclass(frozen=True)
class Ended:
    """How a conversation ended, and what it took."""

    how: How
    models: tuple[str, ...] = ()
    turns: int = 0
    cost_usd: float | None = None
    """Of the whole session, also where it was resumed, by the client's estimate; None where it is not known."""
    seconds: float = 0.0
    session: str | None = None
    denials: int = 0
    """Tool calls that were refused by the guard or the permission mode."""
    sdk_version: str | None = None
    cli_version: str | None = None
    said: str = ""
    """The agent's last words."""


class Agent(Protocol):
    """Carries out tasks, several at once. Raises AgentUnavailable where it cannot run or the service refuses.

    ``on_event`` gets every step as it happens, under ``event``: ``prompt`` (system, text), ``started`` (session, model,
    tools), ``turn`` (turns, model), ``text`` (text), ``thinking`` (text), ``tool`` (tool, short, call, input),
    ``answer`` (tool, call, refused, text), ``denied`` (tool, short, why, call), ``said`` (text: of
    `Task.next_message`), ``retry`` (attempt, of, seconds, why), ``rate_limit`` (status, until, window), ``fallback``
    (model, why), ``result`` (turns, cost_usd, why, session), and, before anything that is raised, ``broken_off`` (why,
    session, turns, cost_usd: None if not known).
    """

    def can_resume(self, session: str) -> bool:
        """Whether a conversation of an earlier run can be gone on with."""
        ...

    async def carry_out(self, task: Task, on_event: Callable[[Event], None]) -> Ended: ...


class Subject(Protocol):
    """The class that is analysed, as the gate needs it: its source, and what executes it."""

    source: ClassSource
    trees: Trees

    @property
    def config_names(self) -> Collection[str]:
        """What a config that was given states, beside what its class says."""
        ...

    def lookup(self, class_path: str) -> ModuleAnalysis:
        """The analysis of a class that is referred to.

        Raises NotFound where there is no such class, Missing where there is no analysis of it yet.
        """
        ...

    def completed(self, analysis: dict[str, Any]) -> ModuleAnalysis:
        """A checked draft's fields with those that lmp knows by itself: source, config, dtype, values, fingerprint."""
        ...

    def judged(self, analysis: ModuleAnalysis) -> Verification:
        """What execution says of it. Raises TraceFailed where the class cannot be executed here."""
        ...


@dataclass(frozen=True)
class Verdict:
    """What the gate says: an analysis that may be stored, or findings."""

    analysis: ModuleAnalysis | None
    findings: tuple[GateFinding, ...] = ()
    notes: tuple[str, ...] = ()
    """What was taken, with a remark: fields that lmp fills in by itself."""

    @property
    def accepted(self) -> bool:
        return self.analysis is not None

    @property
    def summary(self) -> str:
        """What is accepted, and how far it is proven."""
        assert self.analysis is not None
        found = self.analysis.verification
        proof = (
            f"verified at {found.points} points" if found.status == "verified" else f"{found.status}: {found.reason}"
        )
        return f"{self.analysis.class_name} {proof}"
