"""Section 10: the files that the model's code stands in, each with what is in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from lmp.report.document.parts import Code, Inline, Line, Section, Table
from lmp.report.document.told import Told
from lmp.report.facts import ModelFacts, short
from lmp.report.implementation.reads import first_sentence, marked
from lmp.report.implementation.sources import Piece, Sources, sources_of
from lmp.source.parsed import parse

MOST_PLACES = 6
MOST_WORDS = 5


def section(facts: ModelFacts, told: Told | None = None) -> Section:
    sources = sources_of(facts)
    by_file: dict[str, list[Piece]] = {}
    for piece in (*sources.config, *sources.own):
        by_file.setdefault(piece.here.file, []).append(piece)
    rows = [_row(facts, sources, file, pieces) for file, pieces in by_file.items()]
    return Section(
        "10. Key Files Reference", [Table(("File", "Purpose", "Key Functions/Classes"), rows, "the sources")]
    )


def _row(facts: ModelFacts, sources: Sources, file: str, pieces: Sequence[Piece]) -> Sequence[Line]:
    places: list[Inline] = []
    for index, piece in enumerate(pieces[:MOST_PLACES]):
        places += [", " if index else "", piece.here]
    if len(pieces) > MOST_PLACES:
        places.append(f" and {len(pieces) - MOST_PLACES} more")
    return (Code(file), list(_purpose(facts, sources, pieces)), places)


def _purpose(facts: ModelFacts, sources: Sources, pieces: Sequence[Piece]) -> Iterator[Inline]:
    """What of the model stands in the file; the file's own first sentence where it has one."""
    said = ast.get_docstring(parse(pieces[0].path).tree)
    if said:
        first = first_sentence(said.split("\n\n")[0])
        yield from (*marked(first), " " if first.endswith(".") else ". ")
    if any(piece in sources.config for piece in pieces):
        yield f"The config's class: {len(facts.settings)} values"
        plans = [name for piece in pieces for name in _assigned(piece) if name.endswith("_plan")]
        for index, name in enumerate(plans):
            yield ", and its plans " if not index else ", "
            yield Code(name)
        yield "."
        return
    here = {piece.node.name for piece in pieces}
    ran = [short(name) for name in facts.analyses if short(name) in here]
    functions = sorted({piece.node.name for piece in pieces if not isinstance(piece.node, ast.ClassDef)})
    if ran:
        yield f"forward() of {', '.join(ran)}"
    if functions:
        callers = [short(name) for name, a in facts.analyses.items() if any(k.function in functions for k in a.kernels)]
        yield f"{'; ' if ran else ''}functions that {' and '.join(callers) if callers else 'the model'} runs through"
        words = list(dict.fromkeys(_operations(facts, pieces[0].file, functions)))
        yield f": {', '.join(words[:MOST_WORDS])}{', …' if len(words) > MOST_WORDS else ''}" if words else ""
    yield "." if ran or functions else "Classes that the model's are built on."


def _operations(facts: ModelFacts, file: str, functions: Sequence[str]) -> Iterator[str]:
    """What the functions of a file do."""
    for analysis in facts.analyses.values():
        for kernel in analysis.kernels:
            is_here = (kernel.file or analysis.source.file) == file and kernel.function in functions
            if is_here and kernel.category != "call" and kernel.kernel_type == "basic":
                yield kernel.operation


def _assigned(piece: Piece) -> Iterator[str]:
    for statement in piece.node.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)]):
                yield name
