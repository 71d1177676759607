"""Parts of a code base that a reader names: what a reader is given, the check of a submission, where they are kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field, SkipValidation

from lmp.agents.base import NARRATOR, Agent, Answer, Tool
from lmp.agents.prompts import Prompt, fill
from lmp.agents.run import Run
from lmp.agents.texts import TextStage, TextVerdict, check_texts
from lmp.agents.tools import Arguments, Submit, read_json, tool
from lmp.codebase.parts import ROLES, NamedParts, Parts, findings, placed
from lmp.records import GateFinding, Provenance
from lmp.report import code_base
from lmp.report.folder import ASSETS, file_name, write_changed
from lmp.report.making import Making
from lmp.report.narration import First
from lmp.report.writing import first_of, read_kept
from lmp.source.quoting import escaped
from lmp.store.files import storage_errors

if TYPE_CHECKING:
    from lmp.report.repository.study import Study

NAME, SUBMIT = "name_parts", "submit_parts"
MOST_FILES = 1_500
"""Files that the prompt lists; own code comes first."""
MOST_ROWS = 80
"""Rows of a section that it lists."""


def parts_file(folder: Path, name: str) -> Path:
    """Where the parts of a code base are kept below the reports folder."""
    return folder / ASSETS / f"{file_name(name)}-parts.json"


def parts_prompt(study: Study) -> Prompt:
    """What a reader is given: the files, and what rules found."""
    facts = study.base.facts
    files = sorted((each for each in facts.files if each.role != "test"), key=lambda each: each.role != "source")
    listed = [
        f"{each.file}  {each.language or 'text'}, {each.lines} lines{'' if each.role == 'source' else f', {each.role}'}"
        for each in files[:MOST_FILES]
    ]
    left = len(facts.files) - len(listed)
    listed += [f"… and {left} more, tests among them"] if left > 0 else []
    values = {
        "name": escaped(facts.root_name),
        "root": escaped(str(study.clone)),
        "files": escaped("\n".join(listed)),
        "found": escaped("\n".join(_found(study))),
    }
    return Prompt(fill(f"{NAME}.system", {}), fill(NAME, values))


def _found(study: Study) -> list[str]:
    lines: list[str] = []
    for section in ROLES:
        rows = [row for row in study.ruled_rows if row.section == section]
        lines += [f"{section}: {len(rows)}{f', {MOST_ROWS} of them here' if len(rows) > MOST_ROWS else ''}"]
        lines += [f"  {row.role}  {row.symbol}  {row.place.file}:{row.place.line}" for row in rows[:MOST_ROWS]]
    lines.append(f"nesting: {len(study.ruled_edges)}")
    for edge in study.ruled_edges:
        ends = (f"{each.qualname} ({each.file}:{each.line})" for each in (edge.caller, edge.callee))
        lines.append(f"  {' -> '.join(ends)}, called at line {edge.line}")
    return lines


def check_parts(content: Any, study: Study) -> TextVerdict[Parts]:
    """Check the form of a submission, open its places, and review the report that is made with it."""
    return check_texts(Parts, content, lambda parts: _findings(parts, study), counted)


def _findings(parts: Parts, study: Study) -> Sequence[GateFinding]:
    wrong = findings(parts, study.reading, study.base.lines)
    if wrong:
        return wrong
    named = NamedParts(parts=parts, provenance=Provenance(stage="submitted"))
    made = code_base.repository_making(study.base.facts, study.clone, named=named)
    return [
        GateFinding(rule=each.rule, message=f"the report: line {each.line}: {each.message}")
        for each in made.plain_review.findings
    ]


def counted(parts: Parts) -> str:
    places, calls = code_base.counted(len(parts.parts), "place"), code_base.counted(len(parts.nesting), "call")
    sections = ", ".join(sorted(parts.sections - {*parts.absent})) or "no section"
    pitfalls = f", and {code_base.counted(len(parts.pitfalls), 'pitfall')}" if parts.pitfalls else ""
    absent = f"; said to be absent: {', '.join(parts.absent)}" if parts.absent else ""
    return f"{places} and {calls} of {sections}{pitfalls}{absent}"


def submitted(content: Any, study: Study, author: str) -> tuple[NamedParts | None, Sequence[GateFinding]]:
    """Parts that any agent or person named from the printed prompt: with who it was, or with what is wrong."""
    verdict = check_parts(content, study)
    if verdict.texts is None:
        return None, verdict.findings
    by = Provenance(stage="submitted", author=author, prompt_sha256=parts_prompt(study).sha256)
    return NamedParts(parts=placed(verdict.texts, study.reading), provenance=by), ()


def keep(folder: Path, name: str, named: NamedParts) -> None:
    """Store them beside the reports. Raises StorageError where the folder cannot be written."""
    file = parts_file(folder, name)
    with storage_errors(file, "--reports"):
        write_changed(file, (named.model_dump_json(indent=1, exclude_none=True) + "\n").encode())


def kept(folder: Path, study: Study) -> tuple[NamedParts | None, tuple[str, ...]]:
    """The parts that were named for an earlier report, as long as they hold; why they are left out now, if they are."""
    file = parts_file(folder, study.base.facts.root_name)
    try:
        named = read_kept(file, NamedParts)
    except ValueError:
        return None, (f"the named parts are left out: {file} is none of lmp's; submit others with --stage parts",)
    if named is None:
        return None, ()
    wrong = findings(named.parts, study.reading, study.base.lines)
    if not wrong:
        return named, ()
    return None, (
        f"the named parts in {file} are left out, as they do not hold any more; submit others with --stage parts",
        f"  {first_of(wrong)}",
    )


# --- an agent that names them ----------------------------------------------------------------------------------------


# The schema is sent to the agent; `check_parts` validates, as its findings say more than a validation error.
PartsGiven = Annotated[SkipValidation[Parts], BeforeValidator(read_json)]


class PartsArguments(Arguments):
    parts: PartsGiven = Field(description="everything that is named")


def parts_tools(check: Submit, submit: Submit) -> list[Tool]:
    """The tools of an agent that names parts, beside Read, Grep and Glob."""

    async def checked(given: PartsArguments) -> Answer:
        return await check(given.parts)

    async def handed_in(given: PartsArguments) -> Answer:
        return await submit(given.parts)

    opens = "Opens every place, and reviews the report that is made with the parts"
    return [
        tool("check_parts", f"{opens}, a limited number of times. Does not submit.", PartsArguments, checked),
        tool(SUBMIT, f"{opens}. A refused submission comes back with what to correct.", PartsArguments, handed_in),
    ]


def first(study: Study, folder: Path, implementation: bool) -> First:
    """What an agent does before it narrates: it names the parts of the code base that the report is made with."""

    async def named(run: Run, agent: Agent) -> Making:
        parts = await name_parts(run, agent, study, folder)
        return code_base.repository_making(study.base.facts, study.clone, None, implementation, parts)

    return named


async def name_parts(run: Run, agent: Agent, study: Study, folder: Path) -> NamedParts:
    """Parts without findings, kept in the reports folder as soon as they are accepted: they were paid for. Raises what
    `Stage.through` does."""
    name = study.base.facts.root_name
    accepted: list[NamedParts] = []

    def accept(parts: Parts, by: Provenance) -> None:
        accepted.append(NamedParts(parts=placed(parts, study.reading), provenance=by))
        keep(folder, name, accepted[-1])

    stage = TextStage(
        f"parts of {name}",
        NARRATOR,
        parts_prompt(study),
        (study.clone,),
        SUBMIT,
        lambda content: check_parts(content, study),
        lambda attempts: parts_tools(attempts.try_out, attempts.submit),
    )
    await stage.through(run, agent, accept)
    return accepted[-1]
