"""Stage 3, second pass: a reader who tries to refute every text of a narrative from the code.

This file knows nothing about reports: ``review`` checks the reader's own texts, and is passed in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, SkipValidation, ValidationError

from lmp.agents.attempts import Attempts
from lmp.agents.base import REFUTER, Agent, Answer, Tool
from lmp.agents.narrator import Assignment, form_findings, keep_draft, nothing_to_wait_for
from lmp.agents.prompts import Prompt, fill
from lmp.agents.run import Run
from lmp.agents.stage import Brief, Stage
from lmp.agents.tools import Arguments, Submit, read_json, tool
from lmp.errors import NotFound, Refused
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


@dataclass(frozen=True)
class RefutationVerdict:
    """The answer to a submission: a refutation without findings, or findings."""

    refutation: Refutation | None
    findings: tuple[GateFinding, ...] = ()

    @property
    def accepted(self) -> bool:
        return self.refutation is not None

    @property
    def summary(self) -> str:
        assert self.refutation is not None
        judged = self.refutation.judged
        return f"{len(judged)} texts judged, {sum(not one.holds for one in judged)} refuted"


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


def check_refutation(submitted: Any, texts: Sequence[Claimed], review: Review) -> RefutationVerdict:
    """Check that every text is judged once, and review each judgement."""
    try:
        refutation = Refutation.model_validate(submitted)
    except ValidationError as error:
        return RefutationVerdict(None, tuple(form_findings(error)))
    names = [one.text for one in refutation.judged]
    known = [one.name for one in texts]
    findings = [_wrong(name, "it is not judged: say whether it holds") for name in known if name not in names]
    findings += [_wrong(name, "the narrative has no such text") for name in dict.fromkeys(names) if name not in known]
    findings += [_wrong(name, "it is judged twice") for name in known if names.count(name) > 1]
    for one in refutation.judged:
        findings += review(one)
    return RefutationVerdict(None, tuple(findings)) if findings else RefutationVerdict(refutation)


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

    async def check(submitted: Any) -> RefutationVerdict:
        async with run.executing:
            return await asyncio.to_thread(check_refutation, submitted, texts, review)

    attempts = Attempts(
        name=assignment.name,
        check=check,
        keep=lambda submitted, findings: keep_draft(run.folder, submitted, findings),
        most=run.state.limits.max_rounds,
        most_checks=run.state.limits.max_checks,
        tried=run.tried(assignment.name, REFUTER),
        tool=SUBMIT,
        or_else="",
        instead="leave out --narrate",
    )
    prompt = refuter_prompt(assignment, texts)
    tools = refuter_tools(attempts.submit)
    brief = Brief(assignment.name, REFUTER, prompt, tools, assignment.roots, nothing_to_wait_for)
    try:
        provenance = await Stage(run, agent, brief, attempts).through()
    except (Refused, NotFound):
        run.close(assignment.name, REFUTER)
        raise
    accepted = attempts.accepted
    assert isinstance(accepted, RefutationVerdict)
    assert accepted.refutation is not None
    run.close(assignment.name, REFUTER)
    # The report does not depend on when and where this was done.
    return accepted.refutation, provenance.model_copy(update={"run": None, "seconds": None})
