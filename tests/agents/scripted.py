"""An agent that follows a script: the pipeline above the SDK without a process or a service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from lmp.agents.base import Answer, Ended, Event, How, Task

MODEL = "scripted-1"


@dataclass(frozen=True)
class Use:
    """The agent calls a tool. ``arguments`` may be made from what was answered so far."""

    tool: str
    arguments: Mapping[str, Any] | Callable[[list[Answer]], Mapping[str, Any]]


@dataclass(frozen=True)
class Say:
    """The agent says something and stops."""

    text: str


@dataclass(frozen=True)
class End:
    """The conversation ends in this way."""

    how: How


Step = Use | Say | End | Exception


@dataclass
class ScriptedAgent:
    """Scripts by stage and the class's short name; each conversation takes its steps in turn, over resumes."""

    scripts: Mapping[str, list[Step]]
    cost: float = 0.25
    """Dollars of a turn."""
    tasks: list[Task] = field(default_factory=list)
    answers: dict[str, list[Answer]] = field(default_factory=dict)
    at_once: int = 0
    most_at_once: int = 0
    pause: float = 0.0
    gone: tuple[str, ...] = ()
    """Conversations that cannot be gone on with."""
    _sessions: dict[str, int] = field(default_factory=dict)

    def can_resume(self, session: str) -> bool:
        return session not in self.gone

    async def carry_out(self, task: Task, on_event: Callable[[Event], None]) -> Ended:
        self.tasks.append(task)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            return await self._carried_out(task, on_event)
        finally:
            self.at_once -= 1

    async def _carried_out(self, task: Task, on_event: Callable[[Event], None]) -> Ended:
        key = f"{task.stage} {task.name.rpartition('.')[2]}"
        session = task.session or f"session of {key}"
        on_event({"event": "started", "session": session, "model": MODEL, "tools": [tool.name for tool in task.tools]})
        steps, turns, how = self.scripts.get(key, []), 0, "ended"
        while turns < task.caps.max_turns and steps:
            step = steps.pop(0)
            await asyncio.sleep(self.pause)
            if isinstance(step, Exception):
                raise step
            if isinstance(step, End):
                how = step.how
                break
            turns += 1
            self._sessions[session] = self._sessions.get(session, 0) + 1
            on_event({"event": "turn", "turns": turns, "model": MODEL})
            if isinstance(step, Say):
                if task.next_message() is None:
                    break
                continue
            await self._use(task, step, key, on_event)
            if task.is_over():
                how = "over"
                break
        else:
            how = "turns" if turns >= task.caps.max_turns else "ended"
        cost = self._sessions.get(session, 0) * self.cost
        on_event({"event": "result", "turns": turns, "cost_usd": cost})
        return Ended(how=how, models=(MODEL,), turns=turns, cost_usd=cost, seconds=0.5, session=session)  # type: ignore[arg-type]

    async def _use(self, task: Task, step: Use, key: str, on_event: Callable[[Event], None]) -> None:
        answers = self.answers.setdefault(key, [])
        given = step.arguments(answers) if callable(step.arguments) else step.arguments
        on_event({"event": "tool", "tool": step.tool, "short": ""})
        tool = next(tool for tool in task.tools if tool.name == step.tool)
        try:
            answers.append(await tool.call(tool.arguments.model_validate(given)))
        except ValidationError as error:
            answers.append(Answer(str(error), refused=True))
        on_event({"event": "answer", "tool": step.tool, "refused": answers[-1].refused, "text": answers[-1].text})
