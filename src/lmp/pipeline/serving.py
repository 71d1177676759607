"""The tools as an MCP client gets them: of any class, with the gate and the store behind them.

Work that blocks runs in a thread, one call at a time: a class is executed in this process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from pydantic import Field

from lmp.agents.base import Answer, Tool, Verdict
from lmp.agents.findings import findings_text
from lmp.agents.reading import Arguments
from lmp.agents.tools import analyzer_tools
from lmp.errors import LmpError, NotFound, Search, UsageError
from lmp.pipeline.model import ModelSession
from lmp.pipeline.module import Options, Progress
from lmp.pipeline.submitting import analyse, checked, submit
from lmp.records import ModuleAnalysis
from lmp.source.scratchpad import write_scratchpad
from lmp.source.trees import Trees

T = TypeVar("T")


class OfTask(Arguments):
    class_path: str = Field(description="the class to analyse, as transformers.models.llama.modeling_llama.LlamaMLP")


@dataclass
class Serving:
    """What the tools of one server share. What is missing is analysed by lmp's own engine."""

    options: Options
    progress: Progress
    _one: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(1))

    def tools(self) -> list[Tool]:
        """The tools of the module analyzer for any class, and one that tells its task."""
        found = self.options.found_config
        config = {} if found is None else found.content
        task = Tool("analysis_task", "What to do to analyse a class: the rules, and its facts.", OfTask, self._task)
        others = analyzer_tools(None, self._trees, self._check, self._submit, self._stop, self._analysis, config)
        return [task, *others]

    def _session(self) -> ModelSession:
        """A new one a call: what others stored meanwhile is seen."""
        return ModelSession(self.options, self.progress)

    def _trees(self) -> Trees:
        return self._session().trees

    async def _task(self, given: OfTask) -> Answer:
        from lmp.pipeline.telling import told_of_class

        try:
            told = await self._threaded(lambda: told_of_class(self._session(), given.class_path))
        except LmpError as error:
            return Answer(str(error), refused=True)
        return Answer(f"{told.system}\n\n{told.prompt}")

    async def _check(self, draft: Any) -> Verdict:
        return await self._threaded(lambda: self._judged(draft))

    def _judged(self, draft: Any) -> Verdict:
        from lmp.agents.gate import Gate
        from lmp.pipeline.subject import ClassSubject, HandInSession

        subject = ClassSubject(HandInSession(self.options, self.progress), class_of(draft), engine="submitted")
        return checked(Gate(subject), draft, lambda missing: analyse(missing, self.options, self.progress))[0]

    async def _submit(self, draft: Any) -> Answer:
        done = await self._threaded(lambda: submit(class_of(draft), draft, self.options, self.progress))
        if not done.hand_in.accepted:
            return Answer(
                f"{findings_text(done.hand_in.findings)}\n\nThe draft is kept: {done.hand_in.file}", refused=True
            )
        why = f", {done.hand_in.reason}" if done.hand_in.reason else ""
        return Answer(f"Accepted: {done.hand_in.status}{why}. Stored: {done.hand_in.file}")

    async def _analysis(self, class_path: str) -> ModuleAnalysis:
        return await self._threaded(lambda: self._session().lookup(class_path))

    async def _stop(self, looked_for: str, where: str, found: str) -> Answer:
        error = NotFound(
            f"no source of {looked_for}\ngive the tree that holds it with --transformers, --pytorch or --path",
            [Search(looked_for, where, found)],
        )
        page = await self._threaded(partial(write_scratchpad, self.options.results, looked_for, error))
        return Answer(f"Noted in {page}. Stop here.")

    def _threaded(self, work: Callable[[], T]) -> Awaitable[T]:
        return anyio.to_thread.run_sync(work, limiter=self._one)


def class_of(draft: Any) -> str:
    """The class that a draft says it is of. Raises UsageError where it says none."""
    name = draft.get("class_name") if isinstance(draft, dict) else None
    if not isinstance(name, str):
        raise UsageError("the draft names no class\ngive an object with class_name, parameters and kernels")
    return name
