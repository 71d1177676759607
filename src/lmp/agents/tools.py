"""The tools of the agents: those that read the source trees, and those that check, submit and stop.

`analyzer_tools` and `expander_tools` serve the SDK for one class, MCP clients for any class, and scripts. Gate,
attempts and store are passed in. Reading tools read the source trees alone; no answer is longer than
`MOST_CHARACTERS`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SkipValidation

from lmp.agents.base import Answer, Tool
from lmp.agents.facts import CalledClass, Facts, statements_of
from lmp.agents.gate.bindings import OpenReference, open_references_text
from lmp.errors import LmpError, NotFound
from lmp.records import Binding, Draft, ModuleAnalysis
from lmp.source.lines import called_functions, forward_lines
from lmp.source.locate import find_class, lineage_of, locate
from lmp.source.names import Names, check_class_path
from lmp.source.quoting import (
    config_names,
    constructors,
    definitions_named,
    escaped,
    names_like,
    numbered,
    source_file,
)
from lmp.source.trees import Trees

AnalysisOf = Callable[[str], Awaitable[ModuleAnalysis]]
"""The analysis of a class, made now if there is none. Raises an LmpError if that is not possible."""
Submit = Callable[[Any], Awaitable[Answer]]
"""Takes a submission as it came."""
Stop = Callable[[str, str, str], Awaitable[Answer]]
"""Ends the work: what was looked for, where, and what was there."""

MOST_CHARACTERS = 24_000
MOST_LINES = 400
"""Lines of source in one answer."""
_MOST_PLACES = 20


class Arguments(BaseModel):
    """Arguments of a tool: no names but its fields."""

    model_config = ConfigDict(extra="forbid")


class FindClass(Arguments):
    name: str = Field(
        description="a class path, a public alias of one (torch.nn.Linear), or the bare name of a class or function"
    )


class ReadSource(Arguments):
    what: str = Field(
        description="a file from its tree's root (src/transformers/cache_utils.py, torch/nn/functional.py), "
        "or a class path: its class statement"
    )
    first: int | None = Field(None, ge=1, description="first line; left out: the beginning")
    last: int | None = Field(None, ge=1, description=f"last line; at most {MOST_LINES} lines are shown at once")


class OfClass(Arguments):
    class_path: str = Field(description="the class's full path, or a public alias of it")


def tool(
    name: str, description: str, arguments: type[BaseModel], answer: Callable[[Any], Awaitable[str | Answer]]
) -> Tool:
    """A tool that answers in bounded text. An LmpError becomes a refused answer."""

    async def call(given: Any) -> Answer:
        try:
            result = await answer(given)
        except LmpError as error:
            result = Answer(str(error), refused=True)
        if isinstance(result, str):
            result = Answer(result)
        return Answer(bounded(result.text), result.refused)

    return Tool(name, description, arguments, call)


def bounded(text: str) -> str:
    if len(text) <= MOST_CHARACTERS:
        return text
    cut = text.rfind("\n", 0, MOST_CHARACTERS)
    return f"{text[: cut if cut > 0 else MOST_CHARACTERS]}\n… cut here: ask for a smaller part"


def reading_tools(
    trees: Callable[[], Trees], analysis_of: AnalysisOf, config: Mapping[str, Any], facts: Facts | None = None
) -> list[Tool]:
    """``config`` are the plain values that read_constructor shows; ``facts`` say which lines of their class ran."""

    async def find(given: FindClass) -> str:
        return found(given.name, trees())

    async def read(given: ReadSource) -> str:
        return span(given, trees())

    async def constructor(given: OfClass) -> str:
        return constructor_of(given.class_path, trees(), config)

    async def lines(given: OfClass) -> str:
        return lines_of(given.class_path, trees(), facts)

    async def parameters(given: OfClass) -> Answer:
        return await parameters_of(given.class_path, trees(), analysis_of)

    return [
        tool("find_class", "Where a class is defined: its full path, file and lines.", FindClass, find),
        tool("read_source", "Numbered lines of a source file, or of a class.", ReadSource, read),
        tool(
            "read_constructor",
            "The __init__ of a class, and the values of the config that it reads.",
            OfClass,
            constructor,
        ),
        tool(
            "computational_lines",
            "The statements of forward() and of the functions it calls that must be accounted for.",
            OfClass,
            lines,
        ),
        tool(
            "class_parameters",
            "What a reference to a class must bind: the parameters of its analysis, and the shapes that it takes.",
            OfClass,
            parameters,
        ),
    ]


def found(name: str, trees: Trees) -> str:
    """The place of a class, by its path or its bare name. Raises NotFound with close matches."""
    check_class_path(name)
    if "." not in name:
        places = definitions_named(name, trees)
        if not places:
            close = ", ".join(names_like(name, trees)) or "none"
            raise NotFound(f"no class or function {name} in the sources\nclose names: {close}")
        shown = "\n".join(f"- {place}" for place in places[:_MOST_PLACES])
        more = len(places) - _MOST_PLACES
        return shown + (f"\n… and {more} more: give the full path" if more > 0 else "")
    names = Names(trees)
    definition = find_class(name, names)
    node, tree = definition.node, definition.module.tree
    lines = [
        f"{definition.qualified}",
        f"file: {tree.relative(definition.path)}, lines {node.lineno}-{node.end_lineno}",
        f"of: {tree.distribution} {tree.version}",
    ]
    lineage = lineage_of(definition, names)
    lines.append("bases: " + (", ".join(entry.qualified for entry in lineage.order[1:]) or "none"))
    if lineage.is_module:
        source = locate(name, trees)
        lines.append(f"forward(): {source.forward_file}, lines {source.lines[0]}-{source.lines[1]}")
    return "\n".join(lines)


def span(given: ReadSource, trees: Trees) -> str:
    """Numbered lines. Raises NotFound for what is not in the trees."""
    if given.what.endswith((".py", ".pyi")) or "/" in given.what:
        tree, path = source_file(given.what, trees)
        start, end = 1, len(path.read_text(encoding="utf-8", errors="replace").splitlines())
    else:
        definition = find_class(given.what, Names(trees))
        tree, path = source_file(str(definition.path), trees)
        start, end = definition.node.lineno, definition.node.end_lineno or definition.node.lineno
    first = given.first or start
    last = min(given.last or end, first + MOST_LINES - 1)
    text = numbered(path, first, last)
    if not text:
        return f"{tree.relative(path)} has no line {first}"
    wanted = given.last or end
    more = f"\n… lines {last + 1}-{wanted} are left" if wanted > last else ""
    return f"{tree.relative(path)}\n{text}{more}"


def constructor_of(class_path: str, trees: Trees, config: Mapping[str, Any]) -> str:
    """Each ``__init__`` that runs, and the config values that they read."""
    places = constructors(class_path, trees)
    if not places:
        return f"{class_path} has no __init__ of its own, nor have its bases"
    parts = [f"{place}\n{numbered(place.path, *place.lines)}" for place in places]
    values = [
        f"config.{name} = {escaped(repr(config[name])) if name in config else 'not known here'}"
        for name in config_names(places)
    ]
    return "\n\n".join([*parts, "\n".join(values) or "It reads nothing from a config."])


def lines_of(class_path: str, trees: Trees, facts: Facts | None = None) -> str:
    """The computational statements of a class, by function."""
    source = locate(class_path, trees)
    own = facts if facts is not None and facts.source.class_path == source.class_path else None
    functions = own.functions if own is not None else called_functions(source, trees)
    return "\n\n".join(statements_of(function, own) for function in (forward_lines(source), *functions))


async def parameters_of(class_path: str, trees: Trees, analysis_of: AnalysisOf) -> Answer:
    """What a reference to a class binds."""
    name = locate(class_path, trees).class_path
    return Answer(str(CalledClass.of(await analysis_of(name))))


# --- checking, submitting, stopping ----------------------------------------------------------------------------------


def read_json(value: Any) -> Any:
    """Parse an object that a client sent as JSON text; the gate refuses what cannot be parsed."""
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


# The schema is sent to the agent; the gate validates, as its findings say more than a validation error.
DraftGiven = Annotated[SkipValidation[Draft], BeforeValidator(read_json)]
BindingsGiven = Annotated[SkipValidation[list[Binding]], BeforeValidator(read_json)]


class DraftArguments(Arguments):
    draft: DraftGiven = Field(description="the analysis of the class: parameters, kernels, and the lines without one")


class NotFoundArguments(Arguments):
    looked_for: str = Field(description="what is needed and missing: a class, a function, a file")
    where: str = Field(description="the files and folders that were searched")
    found: str = Field(description="what was there instead")


class BindingsArguments(Arguments):
    bindings: BindingsGiven = Field(description="one entry for each open place")


class NoArguments(Arguments):
    pass


def analyzer_tools(
    facts: Facts | None,
    trees: Callable[[], Trees],
    check: Submit,
    submit: Submit,
    stop: Stop,
    analysis_of: AnalysisOf,
    config: Mapping[str, Any] | None = None,
) -> list[Tool]:
    """The tools of the module analyzer. Without ``facts`` they serve any class: the draft names it.

    ``check`` answers like ``submit``, and submits nothing.
    """
    known = config if config is not None else facts.config if facts is not None else {}

    async def checked(given: DraftArguments) -> Answer:
        return await check(given.draft)

    async def submitted(given: DraftArguments) -> Answer:
        return await submit(given.draft)

    return [
        *reading_tools(trees, analysis_of, known, facts),
        tool(
            "check_draft",
            "Runs every check that a submission must pass, and returns the findings, a limited number of times. Does "
            "not submit.",
            DraftArguments,
            checked,
        ),
        tool(
            "submit_analysis",
            "Submits the analysis. It is checked; a refused one comes back with what to correct.",
            DraftArguments,
            submitted,
        ),
        _not_found_tool(stop),
    ]


def expander_tools(
    opened: Sequence[OpenReference],
    trees: Callable[[], Trees],
    submit: Submit,
    stop: Stop,
    analysis_of: AnalysisOf,
    config: Mapping[str, Any] | None = None,
) -> list[Tool]:
    """The tools of the reference expander. ``submit`` receives a list of bindings as it came."""

    async def listed(given: NoArguments) -> str:
        return open_references_text(opened)

    async def submitted(given: BindingsArguments) -> Answer:
        return await submit(given.bindings)

    return [
        *reading_tools(trees, analysis_of, config or {}),
        tool("open_places", "The references that are to be decided on.", NoArguments, listed),
        tool(
            "submit_bindings",
            "Submits the class, the bindings and the repeat of every open place. They are checked.",
            BindingsArguments,
            submitted,
        ),
        _not_found_tool(stop),
    ]


def _not_found_tool(stop: Stop) -> Tool:
    async def stopped(given: NotFoundArguments) -> Answer:
        return await stop(given.looked_for, given.where, given.found)

    return tool(
        "source_not_found",
        "Stops the work: source that the answer depends on is not in the trees. Never guess instead.",
        NotFoundArguments,
        stopped,
    )


# --- schemas ---------------------------------------------------------------------------------------------------


def input_schema(arguments: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments, with ``type`` and ``properties`` at the top and no reference in it."""
    schema = arguments.model_json_schema()
    known = schema.pop("$defs", {})
    written = _without_references(schema, known)
    return {"type": "object", "properties": {}, **written}


def described(expander: bool = False) -> list[dict[str, Any]]:
    """The tools of a stage as clients receive them: name, description, schema of the arguments."""
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
    # A title repeats the name; a key of "properties" may be called so, too.
    return {
        name: {inner: _without_references(value[inner], known) for inner in value}
        if name == "properties"
        else _without_references(value, known)
        for name, value in part.items()
        if name != "title" or isinstance(value, dict)
    }
