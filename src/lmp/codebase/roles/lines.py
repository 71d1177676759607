"""The lines of a function that make it play its part: the draw, the call of attention, the write into the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from lmp.codebase.graph.records import Call, Chain, Class, Function
from lmp.codebase.roles import operators
from lmp.codebase.roles.reach import CACHED, PRODUCTS, Reading, Row
from lmp.codebase.roles.sampling import PARAMETERS, makes_step
from lmp.codebase.roles.words import split

MOST = 6
"""Lines that are named of one function: the first ones."""
GROWS = frozenset(["append", "extend", *operators.JOINS])
"""Calls by which what is kept grows."""
ARGUMENTS = PARAMETERS | {"temp"}
"""What arguments of a draw are called."""
TURNED = operators.SEEDS | {"Generator", "PRNGKey", "seed"}
"""Calls that make or set the state of random numbers."""


def with_lines(reading: Reading, rows: list[Row]) -> list[Row]:
    """Rows of functions with the lines that do it, each with the name that stands there."""
    functions = {each.key: each for each in reading.functions}
    found: dict[str, Callable[[Reading, Function], Iterable[tuple[int, str]]]]
    found = {"sampling": _drawn, "attention": _attended, "kv_cache": lambda *of: sorted(_kept(*of))}
    told: list[Row] = []
    for row in rows:
        function = functions.get(row.key)
        if function is not None and row.section in found:
            named: dict[int, str] = {}
            for line, name in found[row.section](reading, function):
                if line != function.line:
                    named.setdefault(line, name)
            row = replace(row, lines=tuple(list(named.items())[:MOST]))
        told.append(row)
    return told


def _calls(function: Function) -> list[Call]:
    return sorted(function.calls, key=lambda each: each.line)


def _drawn(reading: Reading, function: Function) -> Iterator[tuple[int, str]]:
    """Draws, then seeds and what logits run through, then parameters of the draw on lines of their own."""
    draws = operators.SAMPLES | {"choice"} if function in reading.samples else operators.DRAWS
    calls = _calls(function)
    yield from ((call.line, call.name) for call in calls if call.name in draws)
    yield from ((call.line, call.name) for call in calls if call.name in TURNED or makes_step(call))
    for name, line, _ in function.arguments:
        if name in ARGUMENTS:
            yield line, name
    # Numbers in the code take the place of arguments.
    for hazard in function.hazards:
        name = hazard.text.partition(" = ")[0]
        if hazard.kind == "fixed" and name in ARGUMENTS:
            yield hazard.line, name


def _attended(reading: Reading, function: Function) -> Iterator[tuple[int, str]]:
    """Calls of attention in other packages; of products around a softmax all three."""
    around = reading.attends.get(function) == PRODUCTS
    products = operators.MATMULS | operators.SOFTMAX if around else frozenset()
    for call in _calls(function):
        if call.name in products or (
            not reading.is_inside(function, call) and operators.ATTENTION.search(reading.dotted(function, call))
        ):
            yield call.line, call.name


def _kept(reading: Reading, function: Function) -> Iterator[tuple[int, str]]:
    """Writes into what is named as a cache, what makes it, or makes it grow, and where the object keeps it."""
    for write in function.writes:
        for name in map(_cache_of, write.target):
            if name:
                yield write.line, name
    for call in function.calls:
        grows = call.name in GROWS and (*call.given, *(chain[:-1] for chain in call.callee))
        for name in map(_cache_of, grows or ()):
            if name:
                yield call.line, name
        if split(call.name) & CACHED and not any(edge.call is call for edge in reading.graph.edges[function]):
            yield call.line, call.name
    for made in function.made:
        if split(made.target) & CACHED:
            yield made.line, made.target
    of = function.owner
    for name, line in of.lines.items() if isinstance(of, Class) else ():
        if function.line < line <= function.end and split(name) & CACHED:
            yield line, name


def _cache_of(chain: Chain) -> str:
    """The name of a cache in a chain, the last one."""
    return next((part for part in reversed(chain) if isinstance(part, str) and split(part) & CACHED), "")
