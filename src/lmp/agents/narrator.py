"""Stage 3, the narrator: an agent that writes a narrative into a report, from the report and the code.

This file knows nothing about reports: ``review`` checks a narrative, and is passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, SkipValidation

from lmp.agents.base import NARRATOR, Agent, Answer, Tool
from lmp.agents.prompts import Prompt, fill
from lmp.agents.run import Run
from lmp.agents.texts import TextStage, TextVerdict, check_texts, write_text
from lmp.agents.tools import MOST_LINES, Arguments, Submit, read_json, tool
from lmp.records import GateFinding, Narration, Narrative
from lmp.source.quoting import escaped
from lmp.store.files import storage_errors

WRITE = "write_narrative"
SUBMIT = "submit_narrative"
MOST_SENT = 240_000
"""Characters of a report in the first message; `read_report` gives the rest."""
ACCEPTED = "narrative.json"
"""File in the run's folder: the accepted narrative."""

Review = Callable[[Narrative], Sequence[GateFinding]]
"""Findings about a narrative. Called in a thread, one at a time."""


@dataclass(frozen=True)
class Takes:
    """The parts of a narrative that a report has a place for."""

    insights: Sequence[str] = ()
    """Components."""
    deep_dive: Sequence[str] = ()
    """Headings of sections."""
    pitfalls: bool = False
    open_questions: bool = False

    def __str__(self) -> str:
        lines = ["- `tldr`: 3 to 8 sentences"]
        if self.insights:
            lines += ["- `insights`, by component; leave out those of which there is nothing to say:"]
            lines += [f"  - `{escaped(name)}`" for name in self.insights]
        if self.deep_dive:
            lines += ["- `deep_dive`, by section; leave out those of which there is nothing more to say:"]
            lines += [f"  - `{escaped(name)}`" for name in self.deep_dive]
        lines += ["- `pitfalls`: what it is, how it is noticed, what helps"] if self.pitfalls else []
        lines += ["- `open_questions`"] if self.open_questions else []
        lines += ["- `strikes` and `corrections`, of rows and sentences that the code shows to be wrong"]
        return "\n".join(lines)


@dataclass(frozen=True)
class Assignment:
    """The report that gets a narrative."""

    name: str
    report: str
    """The report without a narrative, in markdown."""
    takes: Takes
    places: Sequence[tuple[str, Path]]
    """First part of a place in code, which may be empty, and the folder to which the rest is relative."""
    roots: Sequence[Path]
    """Folders that Read, Grep and Glob may look into."""


def check_narrative(submitted: Any, review: Review) -> TextVerdict[Narrative]:
    """Check the form of a submission, then review it."""
    return check_texts(Narrative, submitted, review, _counted)


def _counted(narrative: Narrative) -> str:
    counts = {
        "summary": len(narrative.tldr),
        "insights": sum(map(len, narrative.insights.values())),
        "pitfalls": len(narrative.pitfalls),
        "deep dive": sum(map(len, narrative.deep_dive.values())),
        "open questions": len(narrative.open_questions),
        "strikes": len(narrative.strikes),
        "corrections": len(narrative.corrections),
    }
    return "texts: " + ", ".join(f"{what} {count}" for what, count in counts.items() if count)


# --- prompt and tools ------------------------------------------------------------------------------------------------


def narrator_prompt(assignment: Assignment) -> Prompt:
    lines = assignment.report.splitlines()
    shown = _most_lines(lines)
    left = len(lines) - shown
    report = numbered_lines(lines, 1, shown)
    if left:
        report += f"\n… lines {shown + 1}-{len(lines)} are left: `read_report` gives them"
    places = [
        f"- {f'`{escaped(label)}/…`' if label else 'anything else'}: below {escaped(str(folder))}"
        for label, folder in assignment.places
    ]
    message = fill(
        WRITE,
        {
            "name": escaped(assignment.name),
            "takes": str(assignment.takes),
            "places": "\n".join(places),
            "roots": escaped(", ".join(map(str, assignment.roots))) or "no folder",
            "report": report,
        },
    )
    return Prompt(fill(f"{WRITE}.system", {}), message)


def _most_lines(lines: Sequence[str]) -> int:
    """Number of lines that the first message holds."""
    room = MOST_SENT
    for number, line in enumerate(lines):
        room -= len(line) + 1
        if room < 0:
            return number
    return len(lines)


def numbered_lines(lines: Sequence[str], first: int, last: int) -> str:
    """Lines of a text with their numbers, so that no line of it can end its block."""
    width = len(str(len(lines)))
    chosen = range(first, min(last, len(lines)) + 1)
    return "\n".join(f"{number:>{width}}  {escaped(lines[number - 1])}".rstrip() for number in chosen)


# The schema is sent to the agent; `check_narrative` validates, as its findings say more than a validation error.
NarrativeGiven = Annotated[SkipValidation[Narrative], BeforeValidator(read_json)]


class NarrativeArguments(Arguments):
    narrative: NarrativeGiven = Field(description="all that is to be written into the report")


class ReportArguments(Arguments):
    first: int = Field(1, ge=1, description="first line")
    last: int | None = Field(None, ge=1, description=f"last line; at most {MOST_LINES} lines are shown at once")


def narrator_tools(report: str, check: Submit, submit: Submit) -> list[Tool]:
    """The tools of the narrator, beside Read, Grep and Glob."""
    lines = report.splitlines()

    async def read(given: ReportArguments) -> str:
        last = min(given.last or len(lines), given.first + MOST_LINES - 1)
        return numbered_lines(lines, given.first, last) or f"the report has {len(lines)} lines"

    async def checked(given: NarrativeArguments) -> Answer:
        return await check(given.narrative)

    async def submitted(given: NarrativeArguments) -> Answer:
        return await submit(given.narrative)

    return [
        tool("read_report", "Numbered lines of the report as it is without your narrative.", ReportArguments, read),
        tool(
            "check_narrative",
            "Reviews the report with your narrative in it, and says what is found, a limited number of times. Does not "
            "submit.",
            NarrativeArguments,
            checked,
        ),
        tool(
            SUBMIT,
            "Submits the narrative. The report with it is reviewed; a refused one comes back with what to correct.",
            NarrativeArguments,
            submitted,
        ),
    ]


# --- the stage -------------------------------------------------------------------------------------------------------


async def narrate(run: Run, agent: Agent, assignment: Assignment, review: Review) -> Narration:
    """A narrative without findings. Raises what `Stage.through` does.

    It is stored in the run's folder as soon as it is accepted, as it was paid for.
    """
    stage = TextStage(
        assignment.name,
        NARRATOR,
        narrator_prompt(assignment),
        assignment.roots,
        SUBMIT,
        lambda submitted: check_narrative(submitted, review),
        lambda attempts: narrator_tools(assignment.report, attempts.try_out, attempts.submit),
    )
    narrative, provenance = await stage.through(
        run, agent, lambda told, by: keep_accepted(run, Narration(narrative=told, provenance=by))
    )
    return Narration(narrative=narrative, provenance=provenance)


def keep_accepted(run: Run, narration: Narration) -> None:
    """Store what was accepted in the run's folder, for a report that is written later."""
    write_text(run.folder / ACCEPTED, narration.model_dump_json(indent=2))


def accepted_before(run: Run) -> Narration | None:
    """The narrative that an interrupted run accepted before its report was written; None if there is none."""
    file = run.folder / ACCEPTED
    with storage_errors(file):
        return Narration.model_validate_json(file.read_bytes()) if file.is_file() else None
