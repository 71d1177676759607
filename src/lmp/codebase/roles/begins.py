"""What speaks for a thing that users begin with: the package hands it out, the README shows it, a script starts it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cached_property

from lmp.codebase.facts import Place
from lmp.codebase.graph.records import Class, Function
from lmp.codebase.graph.values import ClassValue, FunctionValue, Instance, innermost
from lmp.codebase.roles.entry import (
    ARGUMENTS,
    CONFIG,
    MAKES,
    METHODS,
    OTHER_MODEL,
    command_of,
    first_files,
    named_bases,
    route_rows,
    shown_by_readme,
)
from lmp.codebase.roles.reach import TEST, Reading, Row
from lmp.codebase.roles.strength import Thing, name_of
from lmp.codebase.roles.words import says

Key = tuple[str, int]
NO_PROGRAMS = ("vendored", "legacy", "docs", "build")
FAR = 9
"""Folders below the outermost package, from which on they are no longer counted."""


class Begins:
    """``ruled`` are the ways to run that rules found (:mod:`lmp.codebase.roles.entry`)."""

    def __init__(self, reading: Reading, ruled: Mapping[Key, Row]) -> None:
        self.reading = reading
        self.ruled = ruled

    def row(self, key: Key, thing: Thing | None) -> Row:
        """As it is told, where no rule did."""
        file, _ = key
        if thing is None:
            role = self.reading.roles.get(file, "")
            kind = {"benchmark": "benchmark", "example": "example", "test": "example"}.get(role, "cli")
            return Row("entry_points", kind, "__main__", Place(*key), command_of(self.reading, file, role))
        if key in self.routes:
            return self.routes[key]
        return Row("entry_points", "library", name_of(thing), Place(*key), f"{thing.name}(...)", 1)

    @cached_property
    def blocks(self) -> list[Key]:
        """``__main__`` blocks, beside tests too: what is not named as one may be a program."""
        graphs = self.reading.facts.graphs.items()
        read = ((file, graph) for file, graph in graphs if self.reading.roles.get(file, "") not in NO_PROGRAMS)
        return [(file, graph.main) for file, graph in read if graph.main and not TEST.match(file.rpartition("/")[2])]

    def takes_arguments(self, file: str) -> bool:
        """Whether what is in a file, or what its main block calls, reads arguments of the command."""
        graph = self.reading.facts.graphs[file]
        return any(not ARGUMENTS.isdisjoint(each.reads) for each in graph.functions)

    @cached_property
    def handed_out(self) -> dict[Key, int]:
        """What packages hand out, and how many folders the nearest of them is below the outermost."""
        found: dict[Key, int] = {}
        firsts = first_files(self.reading)
        outermost = min((file.count("/") for file in firsts), default=0)
        for file in firsts:
            graph = self.reading.facts.graphs[file]
            for name in dict.fromkeys((*graph.imports, *graph.names, *graph.top, *graph.classes)):
                for value in self.reading.graph.evaluator.top(file, name, 0) if name[0] != "_" else ():
                    if isinstance(value, ClassValue | FunctionValue) and self.reading.is_own(value.of.file):
                        found.setdefault(value.of.key, file.count("/") - outermost)
        return found

    @cached_property
    def shown(self) -> tuple[dict[Key, set[str]], set[Key]]:
        """What the README imports or calls, and the methods that it calls of it."""
        evaluator = self.reading.graph.evaluator
        things: dict[Key, set[str]] = {}
        methods: set[Key] = set()
        for module, _, called, value in shown_by_readme(self.reading):
            things.setdefault(value.of.key, set()).add("imports" if module else "calls")
            given = [value.of] if isinstance(value, ClassValue) else []
            if isinstance(value, FunctionValue):
                made = map(innermost, evaluator.values(value.of, value.of.returns))
                given = [each.of for each in made if isinstance(each, Instance)]
            asked = (evaluator.method(of, each) for of in given for each in called)
            methods.update(method.key for method in asked if method is not None)
        return things, methods

    @cached_property
    def called(self) -> set[str]:
        """Methods that the README calls, of whatever object."""
        return {method for _, _, methods in self.reading.facts.told for method in methods}

    @cached_property
    def started(self) -> set[Key]:
        """What ``__main__`` blocks call."""
        graphs = self.reading.facts.graphs.values()
        bodies = [(graph.body, graph.main) for graph in graphs if graph.main and graph.body is not None]
        edges = [(edge, main) for body, main in bodies for edge in self.reading.graph.edges.get(body, ())]
        return {edge.callee.key for edge, main in edges if edge.line >= main}

    @cached_property
    def routes(self) -> dict[Key, Row]:
        return {row.key: row for row in route_rows(self.reading)}

    @cached_property
    def in_all(self) -> dict[str, float]:
        """What is the same for everything of the code base."""
        things, _ = self.shown
        outermost = sum(not far for far in self.handed_out.values())
        return {
            "ways in all": math.log2(1 + len(self.ruled)),
            "handed out in all": math.log2(1 + len(self.handed_out)),
            "handed out by the outermost in all": math.log2(1 + outermost),
            "shown by the README in all": math.log2(1 + len(things)),
        }

    def witnesses(self, key: Key, thing: Thing | None) -> Iterator[tuple[str, float]]:
        """What speaks for or against it, beside what :class:`lmp.codebase.roles.likely.Likely` knows of any thing."""
        things, methods = self.shown
        file = key[0]
        graph = self.reading.facts.graphs.get(file)
        row = self.ruled.get(key)
        yield f"in {self.reading.roles.get(file, 'source')} code", 1.0
        yield "beside a main block", graph is not None and graph.main > 0
        yield "folders", min(FAR, file.count("/"))
        yield from self.in_all.items()
        if thing is None:
            yield "main block", 1.0
            yield "main block that takes arguments", graph is not None and self.takes_arguments(file)
            yield "main block of a trial", says(file, "trial")
        yield "handed out", key in self.handed_out
        yield "handed out by the outermost", self.handed_out.get(key) == 0
        for how in things.get(key, ()):
            yield f"README {how} it", 1.0
        if row is not None:
            yield f"ruled as {row.role}", 1.0
        if isinstance(thing, Function):
            of = thing.owner.key if thing.owner is not None else None
            yield "README calls the method", key in methods
            yield "README calls a method of the name", of is not None and thing.name in self.called
            yield "started", key in self.started
            yield "route", key in self.routes
            yield "of what is handed out", of in self.handed_out
            yield "of what the README shows", of in things
            yield "of a way to run", of in self.ruled
            yield "makes an object", any(chain[-1] in MAKES for chain in thing.decorators)
            yield "command", any("command" in chain for chain in thing.decorators)
        elif isinstance(thing, Class):
            bases = named_bases(self.reading, thing)
            yield "module", "Module" in bases
            yield "another package's model", any(map(OTHER_MODEL.search, bases))
            yield "settings", CONFIG.search(thing.name) is not None
            yield "has text made, or trains", not thing.methods.keys().isdisjoint(METHODS)
            yield "started", any(each.key in self.started for each in thing.methods.values())
