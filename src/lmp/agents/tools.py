"""The tools of both stages. What they do beyond reading is given to them: the gate, the rounds, the store.

The same tools serve the SDK (`analyzer_tools`, `expander_tools`: of one class), MCP clients (of any class) and scripts.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, SkipValidation

from lmp.agents.base import Answer, Tool
from lmp.agents.facts import Facts
from lmp.agents.findings import findings_text
from lmp.agents.handins import Check
from lmp.agents.open_places import OpenPlace
from lmp.agents.reading import AnalysisOf, Arguments, reading_tools, tool
from lmp.records import Binding, Draft
from lmp.source.trees import Trees

Submit = Callable[[Any], Awaitable[Answer]]
"""Takes a hand-in, as it came."""
Stop = Callable[[str, str, str], Awaitable[Answer]]
"""Ends the work: what was looked for, where, and what was there."""


def read_json(value: Any) -> Any:
    """Some clients send an object as its JSON; what cannot be read is for the gate to refuse."""
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


# The schema is told; the gate validates, as its findings say more than a validation error.
DraftGiven = Annotated[SkipValidation[Draft], BeforeValidator(read_json)]
BindingsGiven = Annotated[SkipValidation[list[Binding]], BeforeValidator(read_json)]


class GiveDraft(Arguments):
    draft: DraftGiven = Field(description="the analysis of the class: parameters, kernels, and the lines without one")


class NotThere(Arguments):
    looked_for: str = Field(description="what is needed and missing: a class, a function, a file")
    where: str = Field(description="the files and folders that were searched")
    found: str = Field(description="what was there instead")


class GiveBindings(Arguments):
    bindings: BindingsGiven = Field(description="one entry for each open place")


class Nothing(Arguments):
    pass


def analyzer_tools(
    facts: Facts | None,
    trees: Callable[[], Trees],
    check: Check,
    submit: Submit,
    stop: Stop,
    analysis_of: AnalysisOf,
    config: Mapping[str, Any] | None = None,
) -> list[Tool]:
    """The tools of the module analyzer. Without ``facts`` they are for any class: the draft names its own."""
    known = config if config is not None else facts.config if facts is not None else {}

    async def checked(given: GiveDraft) -> Answer:
        judged = await check(given.draft)
        if judged.accepted:
            return Answer(f"This would be accepted: {judged.summary}. Hand it in with submit_analysis.")
        return Answer(findings_text(judged.findings) + "\n\nNothing was handed in by this.", refused=True)

    async def submitted(given: GiveDraft) -> Answer:
        return await submit(given.draft)

    return [
        *reading_tools(trees, analysis_of, known, facts),
        tool(
            "check_draft",
            "Runs every check that a hand-in has to pass, and says what they find. Does not hand in.",
            GiveDraft,
            checked,
        ),
        tool(
            "submit_analysis",
            "Hands in the analysis. It is checked; what is refused comes back with what to correct.",
            GiveDraft,
            submitted,
        ),
        _not_found_tool(stop),
    ]


def expander_tools(
    places: Sequence[OpenPlace],
    trees: Callable[[], Trees],
    submit: Submit,
    stop: Stop,
    analysis_of: AnalysisOf,
    config: Mapping[str, Any] | None = None,
) -> list[Tool]:
    """The tools of the reference expander. ``submit`` gets a list of bindings, as it came."""

    async def opened(given: Nothing) -> str:
        return places_text(places)

    async def submitted(given: GiveBindings) -> Answer:
        return await submit(given.bindings)

    return [
        *reading_tools(trees, analysis_of, config or {}),
        tool("open_places", "The references that are to be decided on.", Nothing, opened),
        tool(
            "submit_bindings",
            "Hands in the class, the bindings and the repeat of every open place. They are checked.",
            GiveBindings,
            submitted,
        ),
        _not_found_tool(stop),
    ]


def places_text(places: Sequence[OpenPlace]) -> str:
    return "\n\n".join(str(place) for place in places) or "There is no open place."


def _not_found_tool(stop: Stop) -> Tool:
    async def stopped(given: NotThere) -> Answer:
        return await stop(given.looked_for, given.where, given.found)

    return tool(
        "source_not_found",
        "Stops the work: source that the answer depends on is not in the trees. Never guess instead.",
        NotThere,
        stopped,
    )


# --- their schemas ---------------------------------------------------------------------------------------------------


def input_schema(arguments: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments, with ``type`` and ``properties`` at the top and no reference in it."""
    schema = arguments.model_json_schema()
    known = schema.pop("$defs", {})
    written = _without_references(schema, known)
    return {"type": "object", "properties": {}, **written}


def described(expander: bool = False) -> list[dict[str, Any]]:
    """The tools of a stage as clients are told of them: name, description, schema of the arguments."""
    tools = expander_tools([], _no_trees, _never, _never, _never) if expander else _analyzer()
    return [{"name": t.name, "description": t.description, "input_schema": input_schema(t.arguments)} for t in tools]


def _analyzer() -> list[Tool]:
    return analyzer_tools(None, _no_trees, _never, _never, _never, _never)


def _no_trees() -> Trees:
    return Trees(None, None)


async def _never(*given: Any) -> Any:
    raise AssertionError("a tool that is only described was called")


def _without_references(part: Any, known: Mapping[str, Any]) -> Any:
    if isinstance(part, list):
        return [_without_references(inner, known) for inner in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        target = known[part["$ref"].rpartition("/")[2]]
        part = {**target, **{name: value for name, value in part.items() if name != "$ref"}}
    # A title says no more than the name does; "properties" may have one of that name.
    return {
        name: {inner: _without_references(value[inner], known) for inner in value}
        if name == "properties"
        else _without_references(value, known)
        for name, value in part.items()
        if name != "title" or isinstance(value, dict)
    }
