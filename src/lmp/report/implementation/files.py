"""Section 10: the files that the model's code stands in, each with what is in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from lmp.records import short
from lmp.report.document.parts import Code, Inline, Line
from lmp.report.facts import ModelFacts
from lmp.report.implementation.operators import joined
from lmp.report.implementation.reads import first_sentence, marked
from lmp.report.implementation.sources import Piece, Sources, sources_of
from lmp.source.parsed import parse

MOST_PLACES = 4
MOST_WORDS = 5


def file_rows(facts: ModelFacts) -> list[Sequence[Line]]:
    """File, purpose and key functions, the config's first."""
    sources = sources_of(facts)
    by_file: dict[str, list[Piece]] = {}
    for piece in (*sources.config, *sources.own):
        by_file.setdefault(piece.here.file, []).append(piece)
    return [_row(facts, sources, file, pieces) for file, pieces in by_file.items()]


def _row(facts: ModelFacts, sources: Sources, file: str, pieces: Sequence[Piece]) -> Sequence[Line]:
    entered = _entered(facts, file)
    pieces = sorted(
        pieces, key=lambda piece: not isinstance(piece.node, ast.ClassDef) and piece.node.name not in entered
    )
    more = [f" and {len(pieces) - MOST_PLACES} more"] if len(pieces) > MOST_PLACES else []
    places = joined([piece.here for piece in pieces[:MOST_PLACES]])
    return (Code(file), list(_purpose(facts, sources, pieces)), [*places, *more])


def _purpose(facts: ModelFacts, sources: Sources, pieces: Sequence[Piece]) -> Iterator[Inline]:
    """What of the model stands in the file; the file's own first sentence where it has one."""
    said = ast.get_docstring(parse(pieces[0].path).tree)
    if said:
        first = first_sentence(said.split("\n\n")[0])
        yield from (*marked(first), " " if first.endswith(".") else ". ")
    if any(piece in sources.config for piece in pieces):
        yield f"The config's class: {len(facts.settings)} values"
        plans = list(dict.fromkeys(n for piece in pieces for n in _assigned(piece) if n.endswith("_plan")))
        for index, name in enumerate(plans):
            yield ", and its plans " if not index else ", "
            yield Code(name)
        yield "."
        return
    here = {piece.node.name for piece in pieces}
    ran = [short(name) for name in facts.analyses if short(name) in here]
    every = sorted({piece.node.name for piece in pieces if not isinstance(piece.node, ast.ClassDef)})
    known = _entered(facts, pieces[0].file)
    functions = [name for name in every if name in known] if facts.flows.phases else every
    beside = len(every) - len(functions)
    if ran:
        yield f"forward() of {', '.join(ran)}"
    if every and not functions:
        yield f"{'; ' if ran else ''}functions that the code may call: {_few(every)}; no operator of the runs shown "
        yield "comes from them"
    if functions:
        callers = [short(name) for name, a in facts.analyses.items() if any(k.function in functions for k in a.kernels)]
        words = list(dict.fromkeys(_operations(facts, pieces[0].file, functions)))
        number = sum(not isinstance(piece.node, ast.ClassDef) and piece.node.name in functions for piece in pieces)
        yield f"{'; ' if ran else ''}{_counted(number)} that {_runners(callers)} through"
        yield f" (operator{'s' if len(words) > 1 else ''}: {_few(words)})" if words else ""
        yield f"; {beside} more that it may call, which no operator of the runs shown comes from" if beside else ""
    yield "." if ran or every else "Classes that the model's are built on."


def _entered(facts: ModelFacts, file: str) -> set[str]:
    """Functions of a file that lead to an operator of the runs shown."""
    flows = facts.flows.phases.values()
    lines = (line for flow in flows for op in flow.ops for frame in op.frames for line in frame.lines)
    return {line.function for line in lines if line.file == file or f"/{line.file}" in f"/{file}"}


def _runners(callers: Sequence[str]) -> str:
    if not callers:
        return "the model runs"
    return f"{' and '.join(callers)} {'runs' if len(callers) == 1 else 'run'}"


def _counted(number: int) -> str:
    return "a function" if number == 1 else f"{number} functions"


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:MOST_WORDS]) + (", …" if len(names) > MOST_WORDS else "")


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
