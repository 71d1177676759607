"""The real SDK and CLI against a scripted service on loopback, in an environment that is built from nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pytest
from agents_service import MODEL, MessagesServer
from pydantic import BaseModel

from lmp.agents.base import Answer, Caps, Ended, Event, Task, Tool
from lmp.agents.transcript import Transcript

DUMMY_KEY = "sk-ant-dummy-0123456789-not-a-key-abcdefghij"
_KEPT = ("PATH", "LANG", "TMPDIR", "PYTEST_CURRENT_TEST", "PYTEST_XDIST_WORKER")


@pytest.fixture(autouse=True)
def nothing_real(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable of who runs the tests is left, so that no credential, proxy or setting of theirs can be used."""
    for name in set(os.environ) - set(_KEPT):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    monkeypatch.setenv("ANTHROPIC_API_KEY", DUMMY_KEY)
    # A test that sets no server of its own must reach none.
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")


@pytest.fixture(autouse=True)
def no_process_left(tmp_path: Path) -> Iterator[None]:
    """The CLI is given paths below the test's folder, which tells its processes from those of other tests."""
    yield
    deadline = time.monotonic() + 3
    while (left := processes_of(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left, f"left behind: {left}"


def as_in_a_terminal() -> None:
    """For a process that is to be interrupted: what a shell runs in the background ignores SIGINT otherwise."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def processes_of(folder: Path) -> dict[int, str]:
    """Process ids and command lines of what was started with a path below ``folder``."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:  # it has just ended
                continue
            if str(folder) in command:
                found[int(entry.name)] = command[:200]
    return found


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[MessagesServer]:
    with MessagesServer() as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        yield server


class Submission(BaseModel):
    """What the test's own `submit_analysis` takes: enough for a right and a wrong answer."""

    flops: int
    kind: Literal["module", "model"] = "module"
    lines: list[int] = []


@dataclass
class Desk:
    """Takes submissions: 42 is right."""

    got: list[Submission] = field(default_factory=list)
    accepted: bool = False

    async def submit(self, given: Submission) -> Answer:
        self.got.append(given)
        if given.flops == 42:
            self.accepted = True
            return Answer("accepted")
        return Answer(f"flops: {given.flops} is not what was counted, 42", refused=True)

    def tool(self) -> Tool:
        return Tool("submit_analysis", "Hand in the analysis.", Submission, self.submit)


@dataclass
class Bench:
    """One run's folder, with a root to read, and what happened in it."""

    folder: Path
    root: Path
    desk: Desk = field(default_factory=Desk)
    events: list[Event] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)

    def task(self, **changes: Any) -> Task:
        task = Task(
            name="modeling_toy.Toy",
            stage="module-analyzer",
            system="You analyse modules.",
            prompt="Analyse Toy.",
            tools=[self.desk.tool()],
            roots=[self.root],
            caps=Caps(max_turns=12, timeout=600.0),
            is_over=lambda: self.desk.accepted,
        )
        return replace(task, **changes)

    def agent(self) -> Any:
        from lmp.agents.claude import ClaudeAgent

        options = {"model": MODEL, "retries": 1, **self.options}
        return ClaudeAgent(self.folder / "agents", **options)

    async def carry_out(self, task: Task | None = None) -> Ended:
        task = task or self.task()
        with Transcript(self.folder / "transcript.jsonl") as transcript:
            write = transcript.of(task)

            def heard(event: Event) -> None:
                self.events.append(event)
                write(event)

            ended: Ended = await self.agent().carry_out(task, heard)
            return ended

    def run(self, task: Task | None = None) -> Ended:
        return asyncio.run(self.carry_out(task))

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event["event"] == kind]

    def transcript(self) -> str:
        return (self.folder / "transcript.jsonl").read_text()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    root = tmp_path / "vendored"
    root.mkdir()
    (root / "modeling_toy.py").write_text("class Toy:\n    def forward(self, x):\n        return x @ self.w\n")
    bench = Bench(tmp_path / "run", root)
    yield bench
    holding = [path for path in bench.folder.rglob("*") if path.is_file() and _holds_key(path)]
    assert not holding, f"the key, or a part of it, is in {holding}"


def _holds_key(path: Path) -> bool:
    text = path.read_text(errors="replace")
    return any(DUMMY_KEY[at : at + 12] in text for at in range(len(DUMMY_KEY) - 11))
