"""Stage 3, the narrator: it reads a report that was composed without an agent, and the code, and says what matters.

Nothing of reports is known here. What it writes is held against a report by ``review``, which is given.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, SkipValidation, ValidationError

from lmp.agents.base import NARRATOR, Agent, Answer, Tool
from lmp.agents.findings import findings_text
from lmp.agents.handins import Check, HandIns
from lmp.agents.prompts import fill
from lmp.agents.reading import MOST_LINES, Arguments, tool
from lmp.agents.run import Run
from lmp.agents.stage import Stage, Talk
from lmp.agents.told import Told
from lmp.agents.tools import Submit, read_json
from lmp.errors import NotFound, Refused
from lmp.records import GateFinding, Narration, Narrative
from lmp.source.quoting import escaped
from lmp.store.files import storage_errors, write_whole

WRITE = "write_narrative"
SUBMIT = "submit_narrative"
MOST_TOLD = 240_000
"""Characters of a report in the first message; `read_report` gives the rest."""
DRAFT, FINDINGS, ACCEPTED = "draft.json", "findings.json", "narrative.json"
"""In the run's folder: what was refused last, why, and what was accepted."""

Review = Callable[[Narrative], Sequence[GateFinding]]
"""What is wrong with a narrative. Called in a thread, one at a time."""


@dataclass(frozen=True)
class Takes:
    """What a report has a place for."""

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
        return "\n".join(lines)


@dataclass(frozen=True)
class Assignment:
    """The report that is told of."""

    name: str
    report: str
    """As it is composed without an agent, in markdown."""
    takes: Takes
    places: Sequence[tuple[str, Path]]
    """First part of a place, empty where there is none that says so, and the folder that the rest is relative to."""
    roots: Sequence[Path]
    """Folders that Read, Grep and Glob may look into."""


@dataclass(frozen=True)
class Held:
    """A narrative that was held against the report."""

    narrative: Narrative | None
    findings: tuple[GateFinding, ...] = ()

    @property
    def accepted(self) -> bool:
        return self.narrative is not None

    @property
    def summary(self) -> str:
        assert self.narrative is not None
        told = self.narrative
        counts = {
            "summary": len(told.tldr),
            "insights": sum(map(len, told.insights.values())),
            "pitfalls": len(told.pitfalls),
            "deep dive": sum(map(len, told.deep_dive.values())),
            "open questions": len(told.open_questions),
        }
        return "texts: " + ", ".join(f"{what} {count}" for what, count in counts.items() if count)


def held(handed_in: Any, review: Review) -> Held:
    """What is handed in, by its form and by the review."""
    try:
        narrative = Narrative.model_validate(handed_in)
    except ValidationError as error:
        return Held(None, tuple(_of_form(error)))
    findings = tuple(review(narrative))
    return Held(None, findings) if findings else Held(narrative)


def _of_form(error: ValidationError) -> Sequence[GateFinding]:
    where = [(".".join(map(str, problem["loc"])) or "the narrative", problem["msg"]) for problem in error.errors()[:20]]
    return [GateFinding(rule="schema", message=f"{place}: {what}") for place, what in where]


# --- what it is told, and its tools ----------------------------------------------------------------------------------


def narrator_prompt(assignment: Assignment) -> Told:
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
    prompt = fill(
        WRITE,
        {
            "name": escaped(assignment.name),
            "takes": str(assignment.takes),
            "places": "\n".join(places),
            "roots": escaped(", ".join(map(str, assignment.roots))) or "no folder",
            "report": report,
        },
    )
    return Told(fill(f"{WRITE}.system", {}), prompt)


def _most_lines(lines: Sequence[str]) -> int:
    """How many lines the first message holds."""
    room = MOST_TOLD
    for number, line in enumerate(lines):
        room -= len(line) + 1
        if room < 0:
            return number
    return len(lines)


def numbered_lines(lines: Sequence[str], first: int, last: int) -> str:
    """Lines of a text with their numbers: so no line of it can end the block that it stands in."""
    width = len(str(len(lines)))
    chosen = range(first, min(last, len(lines)) + 1)
    return "\n".join(f"{number:>{width}}  {escaped(lines[number - 1])}".rstrip() for number in chosen)


# The schema is told; `held` validates, as its findings say more than a validation error.
NarrativeGiven = Annotated[SkipValidation[Narrative], BeforeValidator(read_json)]


class GiveNarrative(Arguments):
    narrative: NarrativeGiven = Field(description="all that is to be written into the report")


class ReadReport(Arguments):
    first: int = Field(1, ge=1, description="first line")
    last: int | None = Field(None, ge=1, description=f"last line; at most {MOST_LINES} lines are shown at once")


def narrator_tools(report: str, check: Check, submit: Submit) -> list[Tool]:
    """The tools of the narrator, beside Read, Grep and Glob."""
    lines = report.splitlines()

    async def read(given: ReadReport) -> str:
        last = min(given.last or len(lines), given.first + MOST_LINES - 1)
        return numbered_lines(lines, given.first, last) or f"the report has {len(lines)} lines"

    async def checked(given: GiveNarrative) -> Answer:
        judged = await check(given.narrative)
        if judged.accepted:
            return Answer(f"This would be accepted: {judged.summary}. Hand it in with {SUBMIT}.")
        return Answer(findings_text(judged.findings) + "\n\nNothing was handed in by this.", refused=True)

    async def submitted(given: GiveNarrative) -> Answer:
        return await submit(given.narrative)

    return [
        tool("read_report", "Numbered lines of the report as it is without your narrative.", ReadReport, read),
        tool(
            "check_narrative",
            "Reviews the report with your narrative in it, and says what is found. Does not hand in.",
            GiveNarrative,
            checked,
        ),
        tool(
            SUBMIT,
            "Hands in the narrative. The report with it is reviewed; what is refused comes back with what to correct.",
            GiveNarrative,
            submitted,
        ),
    ]


# --- the stage -------------------------------------------------------------------------------------------------------


async def narrate(run: Run, agent: Agent, assignment: Assignment, review: Review) -> Narration:
    """A narrative that the review finds nothing in. Raises what `Stage.through` does.

    What was accepted is kept in the run's folder: it was paid for, whatever becomes of the report.
    """

    async def check(handed_in: Any) -> Held:
        async with run.executing:
            return await asyncio.to_thread(held, handed_in, review)

    hand_ins = HandIns(
        name=assignment.name,
        check=check,
        keep=lambda handed_in, findings: _keep(run.folder, handed_in, findings),
        shown=findings_text,
        most=run.state.limits.max_rounds,
        tool=SUBMIT,
        or_else="",
        instead="leave out --narrate",
    )
    told = narrator_prompt(assignment)
    tools = narrator_tools(assignment.report, check, hand_ins.submit)
    talk = Talk(assignment.name, NARRATOR, told.system, told.prompt, tools, assignment.roots, _nothing_to_wait_for)
    try:
        provenance = await Stage(run, agent, talk, hand_ins).through()
    except (Refused, NotFound):
        run.close(assignment.name, NARRATOR)
        raise
    accepted = hand_ins.accepted
    assert isinstance(accepted, Held)
    assert accepted.narrative is not None
    # The report is the same wherever and whenever this was done.
    provenance = provenance.model_copy(update={"run": None, "seconds": None})
    narration = Narration(narrative=accepted.narrative, provenance=provenance)
    _write(run.folder / ACCEPTED, narration.model_dump_json(indent=2))
    run.close(assignment.name, NARRATOR)
    return narration


def accepted_before(run: Run) -> Narration | None:
    """What was accepted in a run that is gone on with, as the report could not be written then."""
    file = run.folder / ACCEPTED
    with storage_errors(file):
        return Narration.model_validate_json(file.read_bytes()) if file.is_file() else None


def _keep(folder: Path, handed_in: Any, findings: Sequence[GateFinding]) -> str:
    # In ASCII: what an agent handed in may hold what is no Unicode.
    _write(folder / DRAFT, json.dumps(handed_in, indent=2, default=str))
    _write(folder / FINDINGS, json.dumps([one.model_dump(exclude_none=True) for one in findings], indent=2))
    return str(folder / DRAFT)


def _write(file: Path, text: str) -> None:
    with storage_errors(file):
        write_whole(file, text + "\n")


async def _nothing_to_wait_for(classes: Sequence[str]) -> None:
    raise AssertionError(f"the narrator refers to no class, and waits for {', '.join(classes)}")
