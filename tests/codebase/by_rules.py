"""What rules alone find, before their rows and calls are weighed with what readers named: what tests of rules see."""

from __future__ import annotations

from lmp.codebase.graph.graph import Edge
from lmp.codebase.roles.configuration import configuration_rows
from lmp.codebase.roles.entry import entry_rows
from lmp.codebase.roles.reach import Reading, Row
from lmp.codebase.rows import likely


def ruled_rows(reading: Reading) -> list[Row]:
    played = [row for rows in likely(reading).shown.values() for row in rows.values()]
    beginnings = entry_rows(reading)
    return [*beginnings, *played, *configuration_rows(reading, beginnings)]


def carrying_calls(reading: Reading) -> list[Edge]:
    found = likely(reading)
    return list(found.paths.in_order(edge for edge, witnesses in found.calls() if witnesses["carries a run"]))
