"""Stage 3, second pass: a reader who tries to refute every text of a narrative from the code.

This file knows nothing about reports: ``review`` checks the reader's own texts, and is passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, SkipValidation

from lmp.agents.base import REFUTER, Agent, Answer, Tool
from lmp.agents.narrator import Assignment
from lmp.agents.prompts import Prompt, fill
from lmp.agents.run import Run
from lmp.agents.texts import TextStage, TextVerdict, check_texts
from lmp.agents.tools import Arguments, Submit, read_json, tool
from lmp.records import GateFinding, Judged, Provenance, Refutation
from lmp.source.quoting import escaped

REFUTE = "refute_narrative"
SUBMIT = "submit_refutation"

Review = Callable[[Judged], Sequence[GateFinding]]
"""Findings about one judgement. Called in a thread, one at a time."""


@dataclass(frozen=True)
class Claimed:
    """One text of a narrative."""

    name: str
    """``tldr[2]``."""
    text: str
    source: str
    """The lines of its places, numbered; empty where it names none."""


def refuter_prompt(assignment: Assignment, texts: Sequence[Claimed]) -> Prompt:
    blocks = []
    for one in texts:
        lines = [f"## {escaped(one.name)}", "", escaped(one.text)]
        blocks.append("\n".join([*lines, "", *(f"    {escaped(line)}".rstrip() for line in one.source.splitlines())]))
    values = {
        "name": escaped(assignment.name),
        "roots": escaped(", ".join(map(str, assignment.roots))) or "no folder",
        "texts": "\n\n".join(block.rstrip() for block in blocks),
    }
    return Prompt(fill(f"{REFUTE}.system", {}), fill(REFUTE, values))


def check_refutation(submitted: Any, texts: Sequence[Claimed], review: Review) -> TextVerdict[Refutation]:
    """Check that every text is judged once, and review each judgement."""

    def findings(refutation: Refutation) -> list[GateFinding]:
        names = [one.text for one in refutation.judged]
        known = [one.name for one in texts]
        found = [_wrong(name, "it is not judged: say whether it holds") for name in known if name not in names]
        found += [_wrong(name, "the narrative has no such text") for name in dict.fromkeys(names) if name not in known]
        found += [_wrong(name, "it is judged twice") for name in known if names.count(name) > 1]
        return [*found, *(finding for one in refutation.judged for finding in review(one))]

    return check_texts(Refutation, submitted, findings, _counted)


def _counted(refutation: Refutation) -> str:
    judged = refutation.judged
    return f"{len(judged)} texts judged, {sum(not one.holds for one in judged)} refuted"


def _wrong(name: str, message: str) -> GateFinding:
    return GateFinding(rule="schema", message=f"{name}: {message}")


# The schema is sent to the agent; `check_refutation` validates, as its findings say more than a validation error.
RefutationGiven = Annotated[SkipValidation[Refutation], BeforeValidator(read_json)]


class RefutationArguments(Arguments):
    refutation: RefutationGiven = Field(description="what you say of every text")


def refuter_tools(submit: Submit) -> list[Tool]:
    """The tool of the refuter, beside Read, Grep and Glob."""

    async def submitted(given: RefutationArguments) -> Answer:
        return await submit(given.refutation)

    what = "Submits the judgements. Each is reviewed; a refused submission comes back with what to correct."
    return [tool(SUBMIT, what, RefutationArguments, submitted)]


async def refute(
    run: Run, agent: Agent, assignment: Assignment, texts: Sequence[Claimed], review: Review
) -> tuple[Refutation, Provenance]:
    """A judgement of every text. Raises what `Stage.through` does."""
    stage = TextStage(
        assignment.name,
        REFUTER,
        refuter_prompt(assignment, texts),
        assignment.roots,
        SUBMIT,
        lambda submitted: check_refutation(submitted, texts, review),
        lambda attempts: refuter_tools(attempts.submit),
    )
    return await stage.through(run, agent)
