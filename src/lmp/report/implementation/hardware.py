"""What hardware a model takes: memory of weights, cache and activations, and conditions on the device."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from lmp.report.document.amounts import Number, Term
from lmp.report.document.parts import Block, Bullets, Code, Inline, Line, Pointer, Table
from lmp.report.facts import ModelFacts
from lmp.report.implementation.caching import cache_of_a_token
from lmp.report.implementation.declared import ignored_line
from lmp.report.implementation.device_memory import devices_needed
from lmp.report.implementation.kept import kept_line
from lmp.report.implementation.operators import code_at, searched
from lmp.report.implementation.peaks import with_weights
from lmp.report.implementation.searching import Function, Searched, reached_functions
from lmp.source.names import dotted_name
from lmp.source.parsed import parse

ASKS = ("get_device_capability", "is_cuda", "sm_*", "triton.")


def hardware_blocks(facts: ModelFacts) -> list[Block]:
    """Sizes as bullets, conditions on the device, and how many devices each stated point takes."""
    ignored, kept = ignored_line(facts), kept_line(facts)
    items = [*_weights(facts), *([ignored] if ignored is not None else []), *cache_of_a_token(facts)]
    items += [kept] if kept is not None else []
    items += list(_conditions(facts))
    points = [point for point in facts.points if point.key in facts.flows.peaks and facts.inspection is not None]
    rows: list[list[Line]] = []
    for point in points:
        held: Number | None = with_weights(facts, point)
        rows.append([point.title, held if held is not None else "unknown", devices_needed(facts, point)])
    columns = ("Point", "Weights, KV cache and activations", f"{facts.device.name}s of this memory")
    whole = f"{searched(facts)}, with all its layers"
    return [Bullets(items), Table(columns, rows, searched=whole, right=frozenset({1, 2}))]


# --- weights ---------------------------------------------------------------------------------------------------------


def _weights(facts: ModelFacts) -> Iterator[Line]:
    if facts.inspection is None:
        return
    line: list[Inline] = ["weights: ", facts.number("{a}", "B", a=Term(name="weight_bytes")), " for "]
    line += [facts.number("{a}", "params", a=Term(name="parameters_count"))]
    kind = facts.inspection.quantised
    if facts.quantised is not None:
        line += [" as the checkpoint stores them (", Code(facts.quantised), "), scales included"]
    else:
        line += [f" in {facts.inspection.dtype}"]
    if kind and facts.quantised is None:
        line += ["; the config's quantisation (", Code(kind), ") is not in the figures of this report"]
    yield line


# --- conditions on the device ----------------------------------------------------------------------------------------


def _conditions(facts: ModelFacts) -> Iterator[Line]:
    found = Searched(facts, reached_functions(facts), ASKS)
    if not found.places:
        yield f"a condition on the device's generation: none found (searched: {found.text})"
        return
    line: list[Inline] = ["functions that run, or that they call, ask for the device: "]
    for number, ((file, place, _), pointer) in enumerate(zip(found.places, found.pointers(), strict=True)):
        line += ["; " if number else "", Code(code_at(facts, file, place).strip()), " at ", pointer]
    yield line
    inside = [f for f in found.functions if any(_holds(f, file, place) for file, place, _ in found.places)]
    for function in inside:
        for caller, instead, pointer in _instead(facts, function, found.functions):
            yield [
                "where ",
                Code(f"{function.name}()"),
                " is false, ",
                Code(f"{caller.name}()"),
                " does the same by ",
                Code(f"{instead}()"),
                ": ",
                pointer,
            ]


def _holds(function: Function, file: str, line: int) -> bool:
    return function.file == file and function.lines[0] <= line <= function.lines[1]


def _instead(
    facts: ModelFacts, asked: Function, functions: Sequence[Function]
) -> Iterator[tuple[Function, str, Pointer]]:
    """What callers return where a condition that is the function's answer does not hold."""
    for caller in functions:
        for node in ast.walk(parse(caller.path).tree):
            if isinstance(node, ast.FunctionDef) and (node.lineno, node.end_lineno) == caller.lines:
                last = node.body[-1]
                tests = [n.test for n in node.body if isinstance(n, ast.If) and not n.orelse]
                calls = [dotted_name(t.func) for t in tests if isinstance(t, ast.Call)]
                match last:
                    case ast.Return(value=ast.Call(func=func)) if asked.name in calls:
                        name = (dotted_name(func) or "").rpartition(".")[2]
                        yield caller, name, facts.place(caller.file, last.lineno, name)
