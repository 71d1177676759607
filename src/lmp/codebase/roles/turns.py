"""What code does with pieces of the work and with what waits: witnesses that no name of a code base gives.

What orders the work of a model steps by a size, asks for lengths, holds a lock, shuffles samples, or is gone
through item by item. Names are those of Python and of array libraries.
"""

from __future__ import annotations

from collections.abc import Iterator

from lmp.codebase.graph.records import Class, Function
from lmp.codebase.roles import operators
from lmp.codebase.roles.reach import Reading
from lmp.codebase.roles.scheduling import PUTS, is_made_queue

LOCKS = frozenset(["Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Event", "Barrier"])
SHUFFLES = frozenset(["shuffle", "randperm", "permutation"])
GONE_THROUGH = frozenset(["__iter__", "__next__", "__aiter__", "__anext__"])
MOST = 3
"""Lengths that are asked for, up to which a further one says more."""


def of_function(reading: Reading, function: Function) -> Iterator[tuple[str, float]]:
    names = [call.name for call in function.calls]
    called = set(names)
    repeated = {
        edge.callee for edge in reading.graph.edges.get(function, ()) if edge.call is not None and edge.call.loop
    }
    yield "shuffles", bool(called & SHUFFLES)
    yield "gone through", function.name in GONE_THROUGH
    yield "steps by a size", any(chains for each in function.calls if each.name == "range" for chains in each.args[2:])
    yield "asks for lengths", min(MOST, names.count("len"))
    yield "asks for the least or most", bool(called & {"min", "max"})
    yield "joins in a loop", bool(function.loops and called & operators.JOINS)
    yield "its loop leads to attention or sampling", not repeated.isdisjoint(reading.running)
    yield "its loop gets logits", not repeated.isdisjoint(reading.runs_model)
    put = (chain for call in function.calls if call.name in PUTS for chain in call.callee)
    yield "puts into what it keeps", any(chain[0] == "self" and len(chain) > 2 for chain in put)
    if function.owner is not None:
        yield "reads a queue of its object", any(is_made_queue(function.owner, name) for name in function.gets)
        yield "reads a lock of its object", any(_is_lock(function.owner, name) for name in function.gets)


def of_class(of: Class) -> Iterator[tuple[str, float]]:
    yield "can be gone through", not GONE_THROUGH.isdisjoint(of.methods)
    yield "keeps a queue", any(is_made_queue(of, name) for name in of.attributes)
    yield "keeps a lock", any(_is_lock(of, name) for name in of.attributes)


def _is_lock(of: Class, name: str) -> bool:
    return any(part in LOCKS for _, chain in of.attributes.get(name, ()) for part in chain if isinstance(part, str))
