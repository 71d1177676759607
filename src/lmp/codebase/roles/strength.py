"""How much speaks for a row that rules found: each witness is read from the code, and what has too few is not shown.

A name alone proves nothing, and neither does a call alone. A name counts one, and so does the name of what is around,
a caller elsewhere, a loop of the run that leads there; what is seen to behave so counts two. What stands beside a run
counts against it. :mod:`lmp.codebase.roles.likely` weighs what is shown here with further witnesses.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import cached_property

from lmp.codebase.facts import Kernel, Place
from lmp.codebase.graph.records import Class, Function
from lmp.codebase.roles import operators
from lmp.codebase.roles.cache import SHORT
from lmp.codebase.roles.reach import SETS, Reading, Row
from lmp.codebase.roles.spine import decode_loops
from lmp.codebase.roles.words import says, split

PARTS = {
    "kv_cache": ("kv_cache", "kv_write"),
    "scheduler": ("scheduler",),
    "sampling": ("sampling", "seed"),
    "attention": ("attention",),
}
"""Section -> parts of the vocabulary that speak for it."""
ENOUGH = 5
"""Witnesses that a row needs which the section's own rules found, of twelve that are possible."""
WORDS_ALONE = 7
"""Witnesses that a row needs which only words found."""
MOST = 80
"""Rows of a section: what has most witnesses. Nobody reads a longer list."""
CLASS = 4
"""What a class or a kernel counts in place of its size and its callers: it stands for its methods."""
MOST_SHARED = 8.0
"""Where the use by others ends to count: a name that 256 files import."""
HANDS = re.compile(r"alloc|(?<!num_)free|evict|release|reclaim")
"""Verbs of an allocator."""
Thing = Function | Class | Kernel
RoleOf = Callable[[str, Thing], str]


class Weighing:
    """Weighs rows of one code base."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.reached = _reached(reading)
        self.things: dict[tuple[str, int], Thing] = {}
        for kernel in reading.facts.kernels:
            if reading.is_own(kernel.place.file):
                self.things[kernel.place.file, kernel.place.line] = kernel
        for of in reading.classes:
            self.things.setdefault(of.key, of)
        for function in reading.functions:
            self.things.setdefault(function.key, function)

    def shown(self, section: str, rows: Iterable[Row], role: RoleOf) -> list[Row]:
        """Rows with witnesses enough, strongest first: those of the section's own rules and those of its words."""
        found = {row.key: row for row in rows}
        ruled = set(found)
        for key, thing in self.things.items():
            words = section != "scheduler" and (section not in ("attention", "sampling") or not _is_python(thing))
            if words and key not in found and self._speaks(section, thing, key[0]):
                name = name_of(thing)
                found[key] = Row(section, role(thing.name, thing), name, Place(*key), "by its name")
        weight = {key: self.weight(section, row, ruled) for key, row in found.items()}
        needed = {key: ENOUGH if key in ruled else WORDS_ALONE for key in found}
        # Attributes of what is shown say no more of their file than it does.
        parts = found.keys() - self.things.keys() if section == "kv_cache" else set()
        strong = {key for key, points in weight.items() if points >= needed[key] and key not in parts}
        beside = Counter(file for file, _ in strong)
        kept: list[Row] = []
        for key, row in found.items():
            points = weight[key] + (beside[key[0]] - (key in strong) >= 3) + (not self.near(key).isdisjoint(strong))
            if points >= needed[key]:
                kept.append(replace(row, rank=-points))
        # Of equals the plainest name: variants are named by what they add.
        kept.sort(
            key=lambda row: (
                row.key in parts,
                self.reading.says_aside(row.symbol),
                row.rank - self.shared(self.things.get(row.key)),
                len(row.symbol.rpartition(".")[0]),
                row.place.file,
                row.place.line,
            )
        )
        return kept[:MOST]

    def shared(self, thing: Thing | None) -> float:
        """What speaks for a thing among many of its kind: a run leads there, and many files use or build on it. What
        one model has alone says less of a code base with many."""
        if thing is None or isinstance(thing, Kernel):
            return 0.0
        methods = list(thing.methods.values()) if isinstance(thing, Class) else [thing]
        is_method = isinstance(thing, Function) and thing.owner is not None
        users = set() if is_method else set(self.importers.get(thing.name, ()))
        if isinstance(thing, Function):
            users |= {edge.caller.file for edge in self.reading.graph.callers.get(thing, ())}
        below = sum(1 for _ in self.reading.graph.evaluator.below(thing)) if isinstance(thing, Class) else 0
        reached = not self.reached.isdisjoint(methods)
        return reached + min(MOST_SHARED, math.log2(1 + len(users - {thing.file}) + below))

    @cached_property
    def importers(self) -> dict[str, set[str]]:
        """Name -> the files that import it."""
        found: dict[str, set[str]] = {}
        for file, graph in self.reading.facts.graphs.items():
            for dotted in graph.imports.values():
                found.setdefault(dotted.rpartition(".")[2], set()).add(file)
        return found

    def _speaks(self, section: str, thing: Thing, file: str) -> bool:
        words = (thing.name, name_of(thing).rpartition(".")[0], *file.rpartition("/")[::2])
        return any(says(each, part) for each in words for part in PARTS[section])

    def weight(self, section: str, row: Row, every: AbstractSet[tuple[str, int]]) -> int:
        """How many witnesses speak for a row; ``every`` are the places that the section's rules found."""
        thing = self.things.get(row.key)
        if thing is None:
            # A line within a function that is shown.
            return ENOUGH
        ruled = row.key in every
        file = row.place.file

        def told(text: str) -> bool:
            return any(says(text, part) for part in PARTS[section])

        points = 2 * ruled + told(row.symbol.rpartition(".")[2])
        within = isinstance(thing, Function) and thing.owner is not None and thing.owner.key in every
        points += within or any(told(each) for each in (row.symbol.rpartition(".")[0], *file.rpartition("/")[::2]))
        # A word against it does not count where its code says that it is about the cache.
        proved = section == "kv_cache" and ruled and row.rank != 1
        points -= 2 * (says(row.symbol, f"not_{section}") and not proved) + 3 * self.reading.is_beside(file)
        if not isinstance(thing, Function) or row.key in self.reading.kernels:
            methods = thing.methods.values() if isinstance(thing, Class) else ()
            points += 2 * any(self._behaves(section, method, row, ruled) for method in methods)
            return points + CLASS
        # What an interface asks for is said in few lines.
        large = 2 if thing.end - thing.line > SHORT else int(thing.abstract)
        points += large + (thing in self.reached)
        if section in ("attention", "sampling") and thing.native:
            points += (thing.loops > 0) - 2 * bool(split(thing.name) & SETS)
        callers = (edge.caller for edge in self.reading.graph.callers.get(thing, ()))
        points += any(each.owner is not thing.owner or thing.owner is None for each in callers)
        return points + 2 * self._behaves(section, thing, row, ruled)

    def _behaves(self, section: str, thing: Function, row: Row, ruled: bool) -> bool:
        if section == "attention":
            return ruled and row.rank == 0
        if section == "kv_cache":
            return ruled and (row.rank != 1 or HANDS.search(thing.name) is not None)
        if section == "scheduler":
            # It puts requests into a queue or takes them out.
            return ruled and row.rank == 0
        seeds = any(call.name in operators.SEEDS for call in thing.calls)
        computes = ruled and row.rank == 0
        return section == "sampling" and (thing in self.reading.samples or seeds or computes)

    def near(self, key: tuple[str, int]) -> set[tuple[str, int]]:
        """Places of what it calls, or is called by, in other files."""
        thing = self.things.get(key)
        if isinstance(thing, Class):
            methods = list(thing.methods.values())
        else:
            methods = [thing] if isinstance(thing, Function) else []
        graph = self.reading.graph
        near = {edge.callee for each in methods for edge in graph.edges.get(each, ())}
        near |= {edge.caller for each in methods for edge in graph.callers.get(each, ())}
        return {each.key for each in near if each.file != key[0]}


def _is_python(thing: Thing) -> bool:
    return not isinstance(thing, Kernel) and not thing.native


def name_of(thing: Thing) -> str:
    return thing.name if isinstance(thing, Kernel) else thing.qualname


def _reached(reading: Reading) -> set[Function]:
    """What the best loops that run a model lead to."""
    found = set(decode_loops(reading)[:3])
    waiting = list(found)
    while waiting:
        for edge in reading.graph.edges.get(waiting.pop(), ()):
            if edge.callee not in found and reading.is_own(edge.callee.file):
                found.add(edge.callee)
                waiting.append(edge.callee)
    return found
