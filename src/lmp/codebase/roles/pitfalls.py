"""Pitfalls: what costs a user time, from what the code does: each with its trigger, its effect and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from lmp.codebase.facts import Place
from lmp.codebase.graph.records import Function, Hazard, HazardKind
from lmp.codebase.roles import operators
from lmp.codebase.roles.configuration import configuration_rows
from lmp.codebase.roles.reach import Reading, Row
from lmp.codebase.roles.spine import leaves

PORT = re.compile(r"(?i)(?:^|[_.-])port$")
LOCAL = re.compile(
    r"^[frb]?[\"'](?:\./|\.\./|/tmp/|~/|/home/|/data|tests/|[a-z_]+/[\w./-]+\.(?:json|ya?ml|txt|model|bin))"
)
CHECKS = re.compile(r"valid|check|post_init|verify|__init__|build|load")
"""Functions that look at settings before a run, and those that make what it needs."""
MOST = 100
MOST_OF_ONE = 3
"""Pitfalls of one function."""
ORDER: dict[HazardKind, int] = {
    "none used": 0,
    "not awaited": 0,
    "ignored": 1,
    "replaced": 1,
    "any value": 2,
    "falls back": 3,
    "swallowed": 3,
    "assert": 4,
    "raise": 5,
}
"""What is no mistake of the user, and is not told to them, comes first."""


@dataclass(frozen=True, slots=True)
class Pitfall:
    """``place`` is the definition or setting that it is of, ``cause`` the line that does it."""

    symbol: str
    place: Place
    cause: Place
    trigger: str
    effect: str
    fix: str
    written: str
    rank: float


SAID: dict[HazardKind, tuple[str, str, str]] = {
    "assert": ("The condition does not hold.", "An assert stops the run.", "Check the condition before the call."),
    "raise": ("The condition holds.", "The call raises an error.", "Choose values that do not meet the condition."),
    "swallowed": (
        "The guarded lines fail.",
        "The error is dropped without a message.",
        "Log the error, or raise it again.",
    ),
    "not awaited": ("The line is reached.", "The coroutine is never run, and counts as true.", "Await the call."),
    "none used": (
        "The line is reached.",
        "The method returns None, which replaces the value.",
        "Call the method first, then use the object.",
    ),
    "ignored": (
        "An argument is misspelt.",
        "The argument is accepted and never read.",
        "Compare the names with the signature.",
    ),
    "replaced": ("The value is 0 or below.", "Another value silently takes its place.", "Pass a value above 0."),
    "falls back": (
        "The case of the message occurs.",
        "The code warns and goes on in another way.",
        "Read the log for this message.",
    ),
    "any value": (
        "The variable is set to any text, 0 too.",
        "The switch counts as on.",
        "Unset the variable to switch it off.",
    ),
}
"""Of each kind: trigger, effect, fix."""


def pitfalls(reading: Reading) -> list[Pitfall]:
    key = reading.reaching(leaves(reading))
    found = [*_of_code(reading, key), *_of_settings(reading), *_of_process(reading)]
    found.sort(key=lambda each: (each.rank, each.place.file, each.place.line))
    taken: dict[Place, int] = {}
    kept: list[Pitfall] = []
    for each in found:
        taken[each.place] = taken.get(each.place, 0) + 1
        if taken[each.place] <= MOST_OF_ONE:
            kept.append(each)
    return kept[:MOST]


def pitfall_rows(reading: Reading) -> list[Row]:
    return [Row("pitfalls", each.trigger, each.symbol, each.place, each.written) for each in pitfalls(reading)]


def _of_code(reading: Reading, key: set[Function]) -> Iterator[Pitfall]:
    for function in reading.functions:
        near = function in key
        called = len(reading.graph.callers.get(function, ()))
        for hazard in [*function.hazards, *_not_awaited(reading, function)]:
            if not near and ORDER[hazard.kind] >= 3 and not CHECKS.search(function.name):
                continue
            trigger, effect, fix = SAID[hazard.kind]
            rank = ORDER[hazard.kind] - 1.5 * near - min(called, 4) * 0.1
            where = Place(function.file, function.line)
            yield Pitfall(
                function.qualname, where, Place(function.file, hazard.line), trigger, effect, fix, hazard.text, rank
            )


def _not_awaited(reading: Reading, function: Function) -> Iterator[Hazard]:
    """A coroutine that is made in a condition and never awaited."""
    for edge in reading.graph.edges[function]:
        if edge.call is not None and edge.call.tested and edge.callee.is_async and edge.how in ("direct", "attribute"):
            yield Hazard("not awaited", edge.line, edge.call.written)


def _of_settings(reading: Reading) -> Iterator[Pitfall]:
    """Fixed ports, and paths that count from the folder in which the command is given."""
    for row in configuration_rows(reading):
        name, default = row.symbol.rpartition(".")[2].lstrip("-"), row.why
        if PORT.search(name) and re.fullmatch(r"\d{4,5}", default):
            yield Pitfall(
                row.symbol,
                row.place,
                row.place,
                f"Two processes keep the default port {default}.",
                "The second one cannot bind it.",
                "Give each process its own port.",
                f"{name} = {default}",
                0.5,
            )
        elif LOCAL.match(default):
            yield Pitfall(
                row.symbol,
                row.place,
                row.place,
                "The default path is kept in another folder or machine.",
                "The file is not found, or is written where nobody looks.",
                "Give a path that is there on this machine.",
                f"{name} = {default}",
                1.5,
            )


def _of_process(reading: Reading) -> Iterator[Pitfall]:
    """State of the whole process that one object sets."""
    for function in reading.functions:
        if function.name in ("__init__", "init_model", "setup") and function.owner is not None:
            for call in function.calls:
                if call.name in operators.SEEDS:
                    yield Pitfall(
                        function.qualname,
                        Place(function.file, function.line),
                        Place(function.file, call.line),
                        "Two objects are made in one process, or one is asked twice.",
                        "The seed is set once for the whole process, so that calls do not repeat.",
                        "Set the seed before each call.",
                        call.written,
                        0.5,
                    )
