"""Reports with an agent's narrative: what the agent is given, its run, and that a run ends with a written report."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lmp.agents.commands import MakeAgent, Summary, finishing, plain_options
from lmp.agents.narrator import Assignment, Takes, accepted_before, narrate, narrator_prompt
from lmp.agents.run import Limits, Run, State, begin
from lmp.analyze.session import Options
from lmp.errors import ReportRefused
from lmp.records import Narration
from lmp.report.making import Making
from lmp.report.narrative_review import findings
from lmp.report.writing import Written


def assignment(making: Making) -> Assignment:
    """What a narrator is given. Raises ReportRefused where the report does not hold without a narrative."""
    found = making.plain_review.findings
    if found:
        count = f"{len(found)} finding{'s' if len(found) != 1 else ''}"
        raise ReportRefused(
            f"the report on {making.name} has {count} without a narrative already: no agent was asked\n"
            "write it without --narrate to have them kept",
            making.plain.file,
            found,
        )
    asked = making.asked
    takes = Takes(tuple(asked.insights), tuple(asked.deep_dive), asked.pitfalls, asked.open_questions)
    places = [*making.roots.labelled.items(), *(("", folder) for folder in making.roots.folders)]
    return Assignment(making.name, making.plain.text, takes, places, making.readable)


@dataclass(frozen=True)
class DryRun:
    """What a narrator would be told."""

    name: str
    lines: int
    """Of the report without a narrative."""
    characters: int
    """Of all that is said before its first answer."""
    roots: tuple[Path, ...]


def dry_run(making: Making) -> DryRun:
    """Nothing is sent or written. Raises what `assignment` does."""
    given = assignment(making)
    prompt = narrator_prompt(given)
    lines = len(given.report.splitlines())
    return DryRun(given.name, lines, len(prompt.system) + len(prompt.message), tuple(given.roots))


def start(making: Making, options: Options, limits: Limits, report: dict[str, Any]) -> Run:
    """A new run. ``report`` is what the command needs to go on with it, beside the options."""
    assignment(making)  # what cannot be told of is said before there is a run
    state = State(
        command="report",
        classes=[making.name],
        options=plain_options(options),
        limits=limits,
        report=report,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    return begin(options.results, state)


def narrated(run: Run, making: Making, make_agent: MakeAgent, write: Callable[[Narration], Written]) -> Written:
    """The run's report with a narrative. It is done when the report is written.

    Raises what `Stage.through` and ``write`` do; Interrupted, with the command that goes on, on Ctrl-C.
    """
    began = datetime.now(UTC)

    def summarise(report: str = "no narrative") -> None:
        run.on_event({"event": "summary", "summary": _summary(run, began, report)})

    with finishing(run, summarise):
        narration = accepted_before(run)
        if narration is None:
            narration = asyncio.run(_narrated(run, making, make_agent))
        written = write(narration)
    summarise("narrated")
    return written


async def _narrated(run: Run, making: Making, make_agent: MakeAgent) -> Narration:
    agent = make_agent(run)
    return await narrate(run, agent, assignment(making), lambda narrative: findings(making, narrative))


def _summary(run: Run, began: datetime, report: str) -> Summary:
    return Summary(
        run=run.id,
        stored={},
        failed={},
        turns=run.ledger.turns,
        spent_usd=run.ledger.spent,
        denials=run.denials,
        models=tuple(run.models),
        seconds=(datetime.now(UTC) - began).total_seconds(),
        transcript=run.transcript.path,
        report=report,
    )
