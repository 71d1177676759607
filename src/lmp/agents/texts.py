"""A stage of which the outcome is one record of texts: its form, its review, its attempts, and what is kept of it.

The narrator and the refuter are such stages. This file knows nothing about reports: a review is passed in.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from lmp.agents.attempts import Attempts
from lmp.agents.base import Agent, StageName, Tool
from lmp.agents.prompts import Prompt
from lmp.agents.run import Run
from lmp.agents.stage import Brief, Stage
from lmp.errors import NotFound, Refused
from lmp.records import GateFinding, Provenance
from lmp.store.files import storage_errors, write_whole

DRAFT, FINDINGS = "draft.json", "findings.json"
"""Files in the run's folder: the last refused record, and its findings."""

T = TypeVar("T", bound=BaseModel)


@dataclass(frozen=True)
class TextVerdict(Generic[T]):
    """The answer to a submission: a record without findings, or findings."""

    texts: T | None
    findings: tuple[GateFinding, ...] = ()
    summary: str = ""
    """What was accepted, in counts."""

    @property
    def accepted(self) -> bool:
        return self.texts is not None


def check_texts(
    kind: type[T], submitted: Any, review: Callable[[T], Sequence[GateFinding]], counted: Callable[[T], str]
) -> TextVerdict[T]:
    """Check the form of a submission, then review it."""
    try:
        texts = kind.model_validate(submitted)
    except ValidationError as error:
        named = kind.__name__.lower()
        places = [
            (".".join(map(str, problem["loc"])) or f"the {named}", problem["msg"]) for problem in error.errors()[:20]
        ]
        return TextVerdict(None, tuple(GateFinding(rule="schema", message=f"{at}: {what}") for at, what in places))
    findings = tuple(review(texts))
    return TextVerdict(None, findings) if findings else TextVerdict(texts, summary=counted(texts))


@dataclass(frozen=True)
class TextStage(Generic[T]):
    """One agent that hands in a record of texts."""

    name: str
    """Of the report."""
    role: StageName
    prompt: Prompt
    roots: Sequence[Path]
    """Folders that Read, Grep and Glob may look into."""
    submit: str
    """Name of the tool that submits."""
    check: Callable[[Any], TextVerdict[T]]
    """Called in a thread, one at a time."""
    tools: Callable[[Attempts], list[Tool]]

    async def through(
        self, run: Run, agent: Agent, accept: Callable[[T, Provenance], None] = lambda texts, by: None
    ) -> tuple[T, Provenance]:
        """A record without findings; ``accept`` stores it before the stage is closed. Raises what `Stage.through`
        does."""

        async def check(submitted: Any) -> TextVerdict[T]:
            async with run.executing:
                return await asyncio.to_thread(self.check, submitted)

        attempts = Attempts(
            name=self.name,
            check=check,
            keep=lambda submitted, findings: keep_draft(run.folder, submitted, findings),
            most=run.state.limits.max_rounds,
            most_checks=run.state.limits.max_checks,
            tried=run.tried(self.name, self.role),
            tool=self.submit,
            or_else="",
            instead="leave out --narrate",
        )
        brief = Brief(self.name, self.role, self.prompt, self.tools(attempts), self.roots, _waits_for_nothing)
        try:
            provenance = await Stage(run, agent, brief, attempts).through()
        except (Refused, NotFound):
            run.close(self.name, self.role)
            raise
        verdict = attempts.accepted
        assert isinstance(verdict, TextVerdict)
        assert verdict.texts is not None
        # The report does not depend on when and where this was done.
        provenance = provenance.model_copy(update={"run": None, "seconds": None})
        accept(verdict.texts, provenance)
        run.close(self.name, self.role)
        return verdict.texts, provenance


def keep_draft(folder: Path, submitted: Any, findings: Sequence[GateFinding]) -> str:
    # In ASCII: a submission may hold half a surrogate pair.
    write_text(folder / DRAFT, json.dumps(submitted, indent=2, default=str))
    write_text(folder / FINDINGS, json.dumps([one.model_dump(exclude_none=True) for one in findings], indent=2))
    return str(folder / DRAFT)


def write_text(file: Path, text: str) -> None:
    with storage_errors(file):
        write_whole(file, text + "\n")


async def _waits_for_nothing(classes: Sequence[str]) -> None:
    raise AssertionError(f"these texts refer to no class, and the agent waits for {', '.join(classes)}")
