"""One command's agents: what they share, and what is stored so that the command can be resumed.

RESULTS/.runs/<id>/run.json           request, classes that are done, open conversations
RESULTS/.runs/<id>/transcript.jsonl   every step, from the first second
RESULTS/.runs/<id>/ledger.json        what was spent
RESULTS/.runs/<id>/client/            the client's own folder, removed when the command is done
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lmp.agents.attempts import MOST_CHECKS, Tried
from lmp.agents.base import Event
from lmp.agents.ledger import Ledger
from lmp.agents.transcript import Transcript
from lmp.errors import StorageError, UsageError
from lmp.settings import Effort
from lmp.store.files import storage_errors, write_whole

RUNS = ".runs"
STATE = "run.json"
LOCK = ".lock"

MODEL = "claude-sonnet-4-5"
"""The model of a run that names none: the client's own choice changes with its version, and so does the price."""
EFFORT: Effort = "high"


class Limits(BaseModel):
    """Limits of all agents of one command together."""

    model_config = ConfigDict(extra="forbid")

    max_budget_usd: float | None = Field(default=5.0, description="dollars, by the client's estimate; None: no limit")
    max_turns: int | None = Field(default=200, description="answers of the model; None: no limit")
    max_rounds: int = Field(default=8, description="hand-ins of one agent")
    max_checks: int = Field(default=MOST_CHECKS, description="drafts of one agent that are checked, not handed in")
    concurrency: int = Field(default=2, description="agents at the same time, each a process of about 190 MB")
    timeout: float | None = Field(default=1800.0, description="seconds of one agent's work; None: no limit")
    model: str | None = Field(default=MODEL, description="None: the client's own choice, in runs of an older lmp")
    effort: Effort | None = Field(default=EFFORT, description="how much the model thinks; None: its own choice")
    fallback_model: str | None = Field(default=None, description="takes over when the model is overloaded")


class State(BaseModel):
    """``run.json``."""

    model_config = ConfigDict(extra="forbid")

    schema_version: Literal[1] = 1
    command: Literal["analyze-module", "expand", "report"]
    classes: list[str]
    """The requested classes; of a report its name alone."""
    options: dict[str, Any]
    """The command's options, as `lmp.analyze.session.Options` has them; paths are absolute."""
    limits: Limits
    report: dict[str, Any] | None = Field(default=None, description="what `lmp report` was asked, beside the options")
    started: str
    status: Literal["running", "done", "interrupted", "failed"] = "running"
    done: list[str] = []
    """Classes whose analysis was stored in this run."""
    open: dict[str, str] = Field(default={}, description="conversations not brought to an end -> their session")
    tried: dict[str, Tried] = Field(default={}, description="conversations, ended ones too -> what was tried in them")


@dataclass
class Run:
    """The state that the agents of one command share: ledger, transcript, number of processes."""

    folder: Path
    state: State
    on_event: Callable[[Event], None] = lambda event: None

    def __post_init__(self) -> None:
        self._held = _lock(self.folder)
        limits = self.state.limits
        self.transcript = Transcript(self.folder / "transcript.jsonl")
        self.ledger = Ledger(self.folder / "ledger.json", limits.max_budget_usd, limits.max_turns)
        self.slots = asyncio.Semaphore(limits.concurrency)
        self.executing = asyncio.Lock()
        """Held while torch executes, which one thread does at a time."""
        self.at_work: list[str] = []
        """Classes with an agent at work."""
        self.unfinished = 1
        """Tasks among which the ledger divides what is left."""
        self.turns = 0
        """Answers of the model in this command."""
        self.denials = 0
        self.models: list[str] = []

    @contextmanager
    def working(self, name: str) -> Iterator[None]:
        """Note that an agent works on a class while the block runs."""
        self.at_work.append(name)
        try:
            yield
        finally:
            self.at_work.remove(name)

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def client_folder(self) -> Path:
        return self.folder / "client"

    @property
    def resume_command(self) -> str:
        results = self.folder.parent.parent
        return f"lmp resume {self.id} --results {results}"

    def event(self, name: str, stage: str, event: Event) -> None:
        """Write an event into the transcript, then pass it to ``on_event``."""
        self.transcript.write(event, name, stage)
        self._count(event)
        if event.get("event") == "started" and event.get("session"):
            self.state.open[conversation_key(name, stage)] = str(event["session"])
            self.save()
        self.on_event({"class": name, "stage": stage, **event})

    def _count(self, event: Event) -> None:
        match event.get("event"):
            case "turn":
                self.turns += 1
                self.models = list(dict.fromkeys([*self.models, event["model"]]))
            case "denied":
                self.denials += 1

    def session(self, name: str, stage: str) -> str | None:
        """The unfinished conversation about a class; None if there is none."""
        return self.state.open.get(conversation_key(name, stage))

    def tried(self, name: str, stage: str) -> Tried:
        """What was tried in the conversations about a class, in earlier commands of this run too."""
        return self.state.tried.setdefault(conversation_key(name, stage), Tried())

    def close(self, name: str, stage: str) -> None:
        """Note that a conversation has ended and is not to be resumed."""
        if self.state.open.pop(conversation_key(name, stage), None) is not None:
            self.save()

    def mark_done(self, name: str) -> None:
        """Note that the analysis of a class is stored."""
        if name not in self.state.done:
            self.state.done.append(name)
        self.save()

    def finish(self, status: Literal["done", "interrupted", "failed"]) -> None:
        self.state.status = status
        try:
            self.save()
            self.transcript.close()
        except StorageError:  # a full disk: what was stored before is whole, and the run can be resumed
            if status == "done":
                raise
        finally:
            self._held.release()
        if status == "done":
            shutil.rmtree(self.client_folder, ignore_errors=True)

    def save(self) -> None:
        file = self.folder / STATE
        with storage_errors(file):
            write_whole(file, self.state.model_dump_json(indent=2) + "\n")


def _lock(folder: Path) -> FileLock:
    """Lock a run while it is at work. Raises UsageError if another process holds the lock."""
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise UsageError(
            f"the run {folder.name} is at work in another process\nwait for it to end, or interrupt it there"
        ) from error
    return lock


def _is_at_work(folder: Path) -> bool:
    try:
        _lock(folder).release()
    except UsageError:
        return True
    return False


def conversation_key(name: str, stage: str) -> str:
    """The key of a conversation in the state and in the ledger."""
    return f"{stage} {name}"


def begin(results: Path, state: State) -> Run:
    """A new run in a folder of its own."""
    name = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    folder = results.absolute() / RUNS / name
    with storage_errors(folder):
        folder.mkdir(parents=True)
    run = Run(folder, state)
    run.save()
    return run


def reopen(results: Path, name: str | None, changed: dict[str, Any]) -> Run:
    """The run of this name, or the last one that is not done, with ``changed`` limits. Raises UsageError."""
    folder = find_run(results, name)
    file = folder / STATE
    try:
        state = State.model_validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        raise UsageError(f"{file} cannot be read as a run\nstart the command again; what it stored is kept") from error
    state.status = "running"
    state.limits = state.limits.model_copy(update=changed)
    return Run(folder, state)


def _is_done(folder: Path) -> bool:
    """False for a file that cannot be read as a run: resuming it reports that."""
    try:
        return State.model_validate_json((folder / STATE).read_bytes()).status == "done"
    except (OSError, ValidationError):
        return False


def find_run(results: Path, name: str | None) -> Path:
    runs = results.absolute() / RUNS
    there = sorted((file.parent for file in runs.glob(f"*/{STATE}")), key=lambda folder: folder.name)
    if name is not None:
        found = next((folder for folder in there if folder.name == name), None)
        if found is None:
            known = ", ".join(folder.name for folder in there[-5:]) or "none"
            raise UsageError(f"there is no run {name!r} in {runs}\nruns there: {known}")
        return found
    for folder in reversed(there):
        if not _is_done(folder) and not _is_at_work(folder):
            return folder
    raise UsageError(f"there is no run to resume in {runs}\ngive the folder of the results with --results")
