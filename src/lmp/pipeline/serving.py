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

from lmp.agents.base import Answer, Tool
from lmp.agents.findings import findings_text
from lmp.agents.handins import Judged
from lmp.agents.reading import Arguments
from lmp.agents.tools import analyzer_tools
from lmp.errors import LmpError, NotFound, Search
from lmp.pipeline.module import Options, Progress, Session
from lmp.records import ModuleAnalysis
from lmp.source.scratchpad import write_scratchpad

T = TypeVar("T")

CheckDraft = Callable[[Session, Any], Judged]
"""The gate on a draft as it came. Raises Missing for a class that it refers to and that has no analysis."""
StoreDraft = Callable[[Session, Any], tuple[Judged, str]]
"""The same, and stores what is accepted; of a refused one the draft is kept. Returns where."""


class OfTask(Arguments):
    class_path: str = Field(description="the class to analyse, as transformers.models.llama.modeling_llama.LlamaMLP")


@dataclass
class Serving:
    """What the tools of one server share."""

    options: Options
    progress: Progress
    check: CheckDraft
    store: StoreDraft
    _one: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(1))

    def tools(self) -> list[Tool]:
        """The tools of the module analyzer for any class, and one that tells its task."""
        found = self.options.found_config
        config = {} if found is None else found.content
        task = Tool("analysis_task", "What to do to analyse a class: the rules, and its facts.", OfTask, self._task)
        trees = lambda: self._session().trees  # noqa: E731 - a tool reads what is there now
        return [task, *analyzer_tools(None, trees, self._check, self._submit, self._stop, self._analysis, config)]

    def _session(self) -> Session:
        """A new one a call: what others stored meanwhile is seen."""
        return Session(self.options, self.progress)

    async def _task(self, given: OfTask) -> Answer:
        from lmp.pipeline.telling import told_of_class

        try:
            told = await self._threaded(lambda: told_of_class(self._session(), given.class_path))
        except LmpError as error:
            return Answer(str(error), refused=True)
        return Answer(f"{told.system}\n\n{told.prompt}")

    async def _check(self, draft: Any) -> Judged:
        return await self._threaded(lambda: self.check(self._session(), draft))

    async def _submit(self, draft: Any) -> Answer:
        judged, where = await self._threaded(lambda: self.store(self._session(), draft))
        if judged.accepted:
            return Answer(f"Accepted: {judged.summary}. Stored: {where}")
        return Answer(f"{findings_text(judged.findings)}\n\nThe draft is kept: {where}", refused=True)

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
