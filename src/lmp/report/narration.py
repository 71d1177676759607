"""Reports with an agent's narrative: what the agent is given, its run, and that a run ends with a written report."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lmp.agents.base import Agent
from lmp.agents.commands import MakeAgent, Summary, finishing, plain_options
from lmp.agents.narrator import (
    Assignment,
    Takes,
    accepted_before,
    check_narrative,
    keep_accepted,
    narrate,
    narrator_prompt,
)
from lmp.agents.refuter import Claimed, check_refutation, refute, refuter_prompt
from lmp.agents.run import Limits, Run, State, begin
from lmp.analyze.session import Options
from lmp.errors import AgentUnavailable, CapReached, Refused, ReportRefused
from lmp.records import GateFinding, Narration, Narrative, Provenance, Refutation
from lmp.report.document.told import texts, without
from lmp.report.making import Making
from lmp.report.narrative_review import findings, judgement_findings
from lmp.report.review.places import cited, lines_of
from lmp.report.review.reading import read_markdown
from lmp.report.writing import Written

First = Callable[[Run, Agent], Coroutine[Any, Any, Making]]


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


def narrated(
    run: Run,
    making: Making,
    make_agent: MakeAgent,
    write: Callable[[Making, Narration], Written],
    first: First | None = None,
) -> Written:
    """The run's report with a narrative. It is done when the report is written.

    ``first`` is what the agent does before: the report that it tells of may be another one after it.

    Raises what `Stage.through` and ``write`` do; Interrupted, with the command that goes on, on Ctrl-C.
    """
    began = datetime.now(UTC)

    def summarise(report: str = "no narrative") -> None:
        run.on_event({"event": "summary", "summary": _summary(run, began, report)})

    with finishing(run, summarise):
        narration = accepted_before(run)
        if narration is None and first is not None:
            making = asyncio.run(first(run, make_agent(run)))
        if narration is None or (narration.refutation is None and narration.not_refuted is None):
            narration = asyncio.run(_narrated(run, making, make_agent, narration))
        written = write(making, narration)
    summarise("narrated")
    return written


async def _narrated(run: Run, making: Making, make_agent: MakeAgent, before: Narration | None) -> Narration:
    """``before`` is a narration that was accepted before its second pass was done."""
    agent, given = make_agent(run), assignment(making)
    narration = before or await narrate(run, agent, given, lambda narrative: findings(making, narrative))
    narrative = narration.narrative
    try:
        refutation, by = await refute(
            run,
            agent,
            given,
            claimed(making, narrative),
            lambda judged: judgement_findings(making, narrative, judged),
        )
    except (Refused, CapReached, AgentUnavailable) as error:
        # The narrative was paid for, and holds by the review: its report says that nobody read it a second time.
        narration = narration.model_copy(update={"not_refuted": str(error).splitlines()[0]})
    else:
        narration = refuted(making, narration, refutation, by)
    keep_accepted(run, narration)
    return narration


def claimed(making: Making, narrative: Narrative) -> list[Claimed]:
    """The texts of a narrative, each with the lines of the places that it names."""
    return [Claimed(name, text, "\n".join(_lines_at(making, text))) for name, text in texts(narrative)]


def _lines_at(making: Making, text: str) -> Iterator[str]:
    for place in cited(read_markdown(text)):
        files = making.roots.find(place.path)
        lines = (lines_of(files[0]) if files else None) or ()
        for number in range(
            max(1, place.first - AROUND), min(len(lines), min(place.last, place.first + MOST) + AROUND) + 1
        ):
            yield f"{place.path}:{number}  {lines[number - 1]}"


AROUND, MOST = 4, 40
"""Lines before and after a place, and of one, that are shown to the second reader."""


def refuted(making: Making, narration: Narration, refutation: Refutation, by: Provenance) -> Narration:
    """The narration without what was refuted. Raises ReportRefused where nothing of the summary is left, or where the
    rest does not hold by itself."""
    names = [one.text for one in refutation.judged if not one.holds]
    left = without(narration.narrative, names)
    wrong = [] if left is None else findings(making, left)
    if left is None or wrong:
        why = "the whole summary was refuted" if left is None else wrong[0].message.splitlines()[0]
        raise ReportRefused(f"the narrative of {making.name} does not hold: {why}\nwrite another", making.plain.file)
    return narration.model_copy(
        update={"narrative": left, "refutation": refutation, "refuted_by": by, "not_refuted": None}
    )


def submitted(making: Making, content: object, author: str) -> tuple[Narration | None, Sequence[GateFinding]]:
    """A narrative that any agent or person wrote from the printed prompt: with it, or with what is wrong with it."""
    prompt = narrator_prompt(assignment(making))
    verdict = check_narrative(content, lambda narrative: findings(making, narrative))
    if verdict.texts is None:
        return None, verdict.findings
    by = Provenance(stage="submitted", author=author, prompt_sha256=prompt.sha256)
    return Narration(narrative=verdict.texts, provenance=by), ()


def submitted_refutation(
    making: Making, narration: Narration, content: object, author: str
) -> tuple[Narration | None, Sequence[GateFinding]]:
    """The same of a second pass over a narration: with what is left of it, or with what is wrong with the pass."""
    told = claimed(making, narration.narrative)
    verdict = check_refutation(content, told, lambda one: judgement_findings(making, narration.narrative, one))
    if verdict.texts is None:
        return None, verdict.findings
    prompt = refuter_prompt(assignment(making), told)
    by = Provenance(stage="submitted", author=author, prompt_sha256=prompt.sha256)
    return refuted(making, narration, verdict.texts, by), ()


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
