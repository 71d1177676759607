"""Pitfalls: what costs a user time, from what the code does: each with its trigger, its effect and what to do."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from lmp.codebase.facts import Place
from lmp.codebase.graph.records import Function, Hazard, HazardKind
from lmp.codebase.roles import operators
from lmp.codebase.roles.configuration import configuration_rows
from lmp.codebase.roles.entry import entry_rows
from lmp.codebase.roles.reach import Reading, Row
from lmp.codebase.roles.sampling import PARAMETERS
from lmp.codebase.roles.spine import leaves

PORT = re.compile(r"(?i)(?:^|[_.-])port$")
TIMEOUT = re.compile(r"(?i)time_?out")
LOCAL = re.compile(
    r"^[frb]?[\"'](?:\./|\.\./|/tmp/|~/|/home/|/data|tests/|[a-z_]+/[\w./-]+\.(?:json|ya?ml|txt|model|bin))"
)
CHECKS = re.compile(r"valid|check|post_init|verify|__init__|build|load")
"""Functions that look at settings before a run, and those that make what it needs."""
MOST = 40
MOST_ALIKE = 2
SILENT: dict[HazardKind, float] = {
    "none used": 3,
    "not awaited": 3,
    "replaced": 2,
    "falls back": 1,
    "swallowed": 1,
    "ignored": 1,
    "any value": 2,
}
"""What is no mistake of the user, or is not told to them."""
SEEN = 2
SHORT = 4
"""Letters of a setting's name that say nothing in a condition."""
WORD = re.compile(r"[A-Za-z_]\w+")


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
    "replaced": (
        "The condition holds.",
        "Another value silently takes the place of the one that was given.",
        "Pass values that do not meet the condition.",
    ),
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
    found = [*_of_code(reading), *_of_settings(reading), *_of_process(reading)]
    found.sort(key=lambda each: (each.rank, each.place.file, each.place.line))
    kept: dict[Place, Pitfall] = {}
    alike: Counter[tuple[str, str]] = Counter()
    for each in found:
        # Variants of one method in the files of one folder ask for the same.
        name = each.symbol.rpartition(".")[2]
        of = each.place.file if name.startswith("__") else each.place.file.rpartition("/")[0], name
        if each.place not in kept and alike[of] < MOST_ALIKE:
            alike[of] += 1
            kept[each.place] = each
    return list(kept.values())[:MOST]


def pitfall_rows(reading: Reading) -> list[Row]:
    return [Row("pitfalls", each.trigger, each.symbol, each.place, each.written) for each in pitfalls(reading)]


def _of_code(reading: Reading) -> Iterator[Pitfall]:
    """Of each function what costs most: what no message tells, and what a setting of the user brings about."""
    key = reading.reaching(leaves(reading))
    settings = _names_of_settings(reading)
    first = {row.place.file for row in entry_rows(reading)}
    for function in reading.functions:
        hazards = [*function.hazards, *_not_awaited(reading, function)]
        if not hazards or reading.is_beside(function.file):
            continue
        near = function in key
        checks = CHECKS.search(function.name) is not None
        met = sum(_names_one(each.text, settings) for each in hazards)
        called = len(reading.graph.callers.get(function, ()))
        starts = (function.file, function.qualname) in reading.launching
        for hazard in hazards:
            by_setting = _names_one(hazard.text, settings)
            if hazard.kind == "replaced" and not by_setting:
                continue
            if SILENT.get(hazard.kind, 0) < SEEN and not (near or checks or by_setting):
                # Far from a run and from its settings, what is tried may fail.
                continue
            trigger, effect, fix = SAID[hazard.kind]
            points = SILENT.get(hazard.kind, 0) + 2 * by_setting + min(met, 3) / 2 + min(called, 4) / 10
            points += near + checks + (function.file in first)
            where = Place(function.file, function.line)
            yield Pitfall(
                function.qualname,
                where,
                Place(function.file, hazard.line),
                trigger,
                effect,
                fix,
                hazard.text,
                2 * starts + 1.5 * function.native - points,
            )


def _names_of_settings(reading: Reading) -> set[str]:
    """What a user sets, without the verb that switches it on."""
    names = set(PARAMETERS)
    for row in configuration_rows(reading):
        name = re.sub(r"^(?:enable|disable|use|no)_", "", row.symbol.rpartition(".")[2].lstrip("-").replace("-", "_"))
        if len(name) > SHORT and row.role != "env var":
            names.add(name.lower())
    return names


def _names_one(text: str, settings: set[str]) -> bool:
    """Whether a condition names a setting, or a message with blanks: ``prefix_caching``, ``prefix caching``."""
    words = [word.lower() for word in WORD.findall(text)]
    pairs = ("_".join(pair) for pair in itertools.pairwise(words))
    return not settings.isdisjoint(words) or any(pair in settings for pair in pairs)


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
                -4.5,
            )
        elif TIMEOUT.search(name) and re.fullmatch(r"\d+(?:\.\d+)?", default) and float(default) > 0:
            yield Pitfall(
                row.symbol,
                row.place,
                row.place,
                f"One step takes longer than {default}.",
                "The run is given up, though nothing is wrong.",
                "Raise the limit for slow machines, first compilations and large models.",
                f"{name} = {default}",
                -4.5,
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
                -4.5,
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
                        -4.5,
                    )
