"""The tools that read: where a class is, its source, its constructor, its lines, what a reference to it must bind.

All of them read the source trees alone, and no answer is longer than `MOST_CHARACTERS`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from lmp.agents.base import Answer, Tool
from lmp.agents.facts import Callee, Facts, statements_of
from lmp.errors import LmpError, NotFound
from lmp.records import ModuleAnalysis
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
"""The analysis of a class; it may be made for this. Raises an LmpError where there is none."""

MOST_CHARACTERS = 24_000
MOST_LINES = 400
"""Lines of source in one answer."""
_MOST_PLACES = 20


class Arguments(BaseModel):
    """Arguments of a tool: nothing that is not named."""

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
    """A tool that answers in text, bounded; an error that lmp foresees is an answer too, a refused one."""

    async def call(given: Any) -> Answer:
        try:
            said = await answer(given)
        except LmpError as error:
            said = Answer(str(error), refused=True)
        if isinstance(said, str):
            said = Answer(said)
        return Answer(bounded(said.text), said.refused)

    return Tool(name, description, arguments, call)


def bounded(text: str) -> str:
    if len(text) <= MOST_CHARACTERS:
        return text
    cut = text.rfind("\n", 0, MOST_CHARACTERS)
    return f"{text[: cut if cut > 0 else MOST_CHARACTERS]}\n… cut here: ask for a smaller part"


def reading_tools(
    trees: Callable[[], Trees], analysis_of: AnalysisOf, config: Mapping[str, Any], facts: Facts | None = None
) -> list[Tool]:
    """``config`` are the plain values that read_constructor shows; ``facts`` tell which lines of their class ran."""

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


# --- what they answer ------------------------------------------------------------------------------------------------


def found(name: str, trees: Trees) -> str:
    """Where a class is, by its path or its bare name. Raises NotFound with close matches."""
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
    said = [
        f"{definition.qualified}",
        f"file: {tree.relative(definition.path)}, lines {node.lineno}-{node.end_lineno}",
        f"of: {tree.distribution} {tree.version}",
    ]
    lineage = lineage_of(definition, names)
    said.append("bases: " + (", ".join(entry.qualified for entry in lineage.order[1:]) or "none"))
    if lineage.is_module:
        source = locate(name, trees)
        said.append(f"forward(): {source.forward_file}, lines {source.lines[0]}-{source.lines[1]}")
    return "\n".join(said)


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
    """Each ``__init__`` that runs, and the values of the config that they read, where the config is known."""
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
    """What a reference to a class binds; where there is no analysis of it, why."""
    name = locate(class_path, trees).class_path
    return Answer(str(callee_of(await analysis_of(name))))


def callee_of(analysis: ModuleAnalysis) -> Callee:
    return Callee(analysis.class_name, analysis.parameters, analysis.interface, analysis.assumptions)
