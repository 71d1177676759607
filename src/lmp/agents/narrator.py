"""Stage 3, the narrator: an agent that writes a narrative into a report, from the report and the code.

This file knows nothing about reports: ``review`` checks a narrative, and is passed in.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, SkipValidation, ValidationError

from lmp.agents.attempts import Attempts
from lmp.agents.base import NARRATOR, Agent, Answer, Tool
from lmp.agents.prompts import Prompt, fill
from lmp.agents.run import Run
from lmp.agents.stage import Brief, Stage
from lmp.agents.tools import MOST_LINES, Arguments, Submit, read_json, tool
from lmp.errors import NotFound, Refused
from lmp.records import GateFinding, Narration, Narrative
from lmp.source.quoting import escaped
from lmp.store.files import storage_errors, write_whole

WRITE = "write_narrative"
SUBMIT = "submit_narrative"
MOST_SENT = 240_000
"""Characters of a report in the first message; `read_report` gives the rest."""
DRAFT, FINDINGS, ACCEPTED = "draft.json", "findings.json", "narrative.json"
"""Files in the run's folder: the last refused narrative, its findings, the accepted narrative."""

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


@dataclass(frozen=True)
class NarrativeVerdict:
    """The answer to a submission: a narrative without findings, or findings."""

    narrative: Narrative | None
    findings: tuple[GateFinding, ...] = ()

    @property
    def accepted(self) -> bool:
        return self.narrative is not None

    @property
    def summary(self) -> str:
        assert self.narrative is not None
        narrative = self.narrative
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


def check_narrative(submitted: Any, review: Review) -> NarrativeVerdict:
    """Check the form of a submission, then review it."""
    try:
        narrative = Narrative.model_validate(submitted)
    except ValidationError as error:
        return NarrativeVerdict(None, tuple(form_findings(error)))
    findings = tuple(review(narrative))
    return NarrativeVerdict(None, findings) if findings else NarrativeVerdict(narrative)


def form_findings(error: ValidationError) -> Sequence[GateFinding]:
    where = [(".".join(map(str, problem["loc"])) or "the narrative", problem["msg"]) for problem in error.errors()[:20]]
    return [GateFinding(rule="schema", message=f"{place}: {what}") for place, what in where]


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

    async def check(submitted: Any) -> NarrativeVerdict:
        async with run.executing:
            return await asyncio.to_thread(check_narrative, submitted, review)

    attempts = Attempts(
        name=assignment.name,
        check=check,
        keep=lambda submitted, findings: keep_draft(run.folder, submitted, findings),
        most=run.state.limits.max_rounds,
        most_checks=run.state.limits.max_checks,
        tried=run.tried(assignment.name, NARRATOR),
        tool=SUBMIT,
        or_else="",
        instead="leave out --narrate",
    )
    tools = narrator_tools(assignment.report, attempts.try_out, attempts.submit)
    prompt = narrator_prompt(assignment)
    brief = Brief(assignment.name, NARRATOR, prompt, tools, assignment.roots, nothing_to_wait_for)
    try:
        provenance = await Stage(run, agent, brief, attempts).through()
    except (Refused, NotFound):
        run.close(assignment.name, NARRATOR)
        raise
    accepted = attempts.accepted
    assert isinstance(accepted, NarrativeVerdict)
    assert accepted.narrative is not None
    # The report does not depend on when and where this was done.
    provenance = provenance.model_copy(update={"run": None, "seconds": None})
    narration = Narration(narrative=accepted.narrative, provenance=provenance)
    keep_accepted(run, narration)
    run.close(assignment.name, NARRATOR)
    return narration


def keep_accepted(run: Run, narration: Narration) -> None:
    """Store what was accepted in the run's folder, for a report that is written later."""
    _write(run.folder / ACCEPTED, narration.model_dump_json(indent=2))


def accepted_before(run: Run) -> Narration | None:
    """The narrative that an interrupted run accepted before its report was written; None if there is none."""
    file = run.folder / ACCEPTED
    with storage_errors(file):
        return Narration.model_validate_json(file.read_bytes()) if file.is_file() else None


def keep_draft(folder: Path, submitted: Any, findings: Sequence[GateFinding]) -> str:
    # In ASCII: a submission may hold half a surrogate pair.
    _write(folder / DRAFT, json.dumps(submitted, indent=2, default=str))
    _write(folder / FINDINGS, json.dumps([one.model_dump(exclude_none=True) for one in findings], indent=2))
    return str(folder / DRAFT)


def _write(file: Path, text: str) -> None:
    with storage_errors(file):
        write_whole(file, text + "\n")


async def nothing_to_wait_for(classes: Sequence[str]) -> None:
    raise AssertionError(f"the narrator refers to no class, and waits for {', '.join(classes)}")
