"""What reading finds of a code base, as rows with places: what the reports are made from, and what is scored."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from lmp.codebase.facts import Selection
from lmp.codebase.graph.graph import Edge
from lmp.codebase.reading import no_cycles_looked_for, read_repository
from lmp.codebase.roles import attention, cache, sampling, scheduling
from lmp.codebase.roles.configuration import configuration_rows
from lmp.codebase.roles.entry import entry_rows, route_rows
from lmp.codebase.roles.likely import Likely
from lmp.codebase.roles.lines import with_lines
from lmp.codebase.roles.pitfalls import pitfalls
from lmp.codebase.roles.reach import Reading, Row
from lmp.codebase.roles.spine import paths_of
from lmp.codebase.roles.strength import Weighing

Ends = tuple[tuple[str, int], ...]


PLAYED = {
    "kv_cache": (cache.cache_rows, cache.role_of),
    "scheduler": (scheduling.scheduler_rows, scheduling.role_of),
    "sampling": (sampling.sampling_rows, sampling.role_of),
    "attention": (attention.attention_rows, attention.role_of),
}
"""Parts of a run of a model: the rules of each, and what role they give."""


BY_NAME = re.compile(r"(?:method )?of \w+$|by (?:its (?:name|witnesses)|what it handles)")
"""Why a row is one, where only its name, that of its class, or signs together say so."""


@lru_cache(maxsize=1)
@no_cycles_looked_for()
def likely(reading: Reading) -> Likely:
    """What rules found of the parts and of the nesting, with its witnesses; worked out once."""
    weighing = Weighing(reading)
    ruled = {section: list(rules(reading)) for section, (rules, _) in PLAYED.items()}
    shown = [row for section, (_, role) in PLAYED.items() for row in weighing.shown(section, ruled[section], role)]
    begun = entry_rows(reading)
    paths = paths_of(reading).among([*begun, *shown, *route_rows(reading)])
    return Likely(weighing, ruled, shown, begun, paths)


@no_cycles_looked_for()
def every_row(reading: Reading) -> list[Row]:
    found = likely(reading)
    played = found.rows({section: role for section, (_, role) in PLAYED.items()})
    beginnings = found.beginnings()
    return [*beginnings, *with_lines(reading, played), *configuration_rows(reading, beginnings)]


@no_cycles_looked_for()
def nesting(reading: Reading) -> list[Edge]:
    """What runs a model, from the entry points down."""
    found = likely(reading)
    return list(found.paths.in_order(found.nesting()))


@no_cycles_looked_for()
def rows_of(folder: Path) -> dict[str, list[Ends]]:
    """By section the places of what was found: the definition, then the lines in it that do it, or cause a pitfall. Of
    the nesting pairs of places."""
    reading = Reading(read_repository(folder, Selection(), lambda at, of, file: None))
    rows = every_row(reading)
    found: dict[str, list[Ends]] = {}
    edges = nesting(reading)
    for row in rows:
        lines = ((row.place.file, line) for line, _ in row.lines)
        found.setdefault(row.section, []).append((row.key, *lines))
    told = pitfalls(reading, rows, edges)
    found["pitfalls"] = [tuple((at.file, at.line) for at in each.places) for each in told]
    found["nesting"] = [(edge.caller.key, edge.callee.key) for edge in edges]
    return found
