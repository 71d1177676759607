"""The nesting that runs a model: from the entry points to attention, cache writes, sampling, or a training step."""

from __future__ import annotations

from collections.abc import Iterable, Set

from lmp.codebase.facts import Place
from lmp.codebase.graph.graph import Edge
from lmp.codebase.graph.records import Function
from lmp.codebase.roles import operators
from lmp.codebase.roles.reach import Reading
from lmp.codebase.roles.words import says

MOST = 5
"""Functions that are followed of one call that may lead to several."""


def leaves(reading: Reading) -> set[Function]:
    """Where a run of a model ends: attention, sampling, cache writes, kernels, the step of an optimizer."""
    found: set[Function] = {*reading.attends, *reading.samples}
    launches = {(each.place.file, each.inside) for each in reading.facts.launches}
    kernels = {
        (each.place.file, each.place.line)
        for each in reading.facts.kernels
        if says(each.name, "attention") or says(each.name, "sampling") or says(each.name, "kv_write")
    }
    for function in reading.functions:
        name = function.name
        worked = says(name, "attention") or says(name, "sampling")
        trains = not function.native and {call.name for call in function.calls} & operators.TRAINS
        starts = says(name, "attention") and (function.file, function.qualname) in launches
        native = (function.file, function.line) in kernels or (function.native and function.calls and worked)
        if trains or starts or native or says(name, "kv_write"):
            found.add(function)
    for edges in reading.graph.edges.values():
        found |= {edge.callee for edge in edges if edge.how == "queue" and reading.is_own(edge.callee.file)}
    return found


def spine(reading: Reading, roots: Iterable[Place], parts: Set[tuple[str, int]]) -> list[Edge]:
    """Edges from the entry points to the leaves, and to what plays a ``part``; of each call the first of its equals."""
    key = reading.reaching(leaves(reading))
    places = {(each.file, each.line) for each in roots}
    waiting = [each for each in reading.functions if each.key in places or (each.owner and each.owner.key in places)]
    waiting += [
        each
        for each in reading.functions
        if each in key and not any(e.caller in key for e in reading.graph.callers.get(each, ()))
    ]
    seen = set(waiting)
    found: list[Edge] = []
    while waiting:
        function = waiting.pop(0)
        taken: dict[tuple[int, str], int] = {}
        for edge in reading.graph.edges[function]:
            if (edge.callee in key or edge.callee.key in parts) and reading.is_own(edge.callee.file):
                at = (edge.line, edge.callee.name)
                taken[at] = taken.get(at, 0) + 1
                if taken[at] <= MOST:
                    found.append(edge)
                    if edge.callee not in seen and edge.callee in key:
                        seen.add(edge.callee)
                        waiting.append(edge.callee)
    return found
