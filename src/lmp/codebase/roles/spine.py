"""Where a run of a model ends, and the loops that lead there again and again."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from lmp.codebase.graph.records import Function
from lmp.codebase.roles.paths import Paths
from lmp.codebase.roles.reach import MODELS, PARTS, Reading
from lmp.codebase.roles.words import says, split


@lru_cache(maxsize=1)
def leaves(reading: Reading) -> frozenset[Function]:
    """Where a run of a model ends: attention, sampling, cache writes, kernels, the step of an optimizer."""
    found: set[Function] = {*reading.attends, *reading.samples, *reading.runs_model, *reading.starts_attention}
    found.update(each for each in reading.trains if not each.native)
    launches = {(each.place.file, each.inside) for each in reading.facts.launches}
    kernels = {
        (each.place.file, each.place.line)
        for each in reading.facts.kernels
        if says(each.name, "attention") or says(each.name, "sampling") or says(each.name, "kv_write")
    }
    for function in reading.functions:
        name = function.name
        worked = says(name, "attention") or says(name, "sampling")
        starts = says(name, "attention") and (function.file, function.qualname) in launches
        native = (function.file, function.line) in kernels or (function.native and function.calls and worked)
        if starts or native or says(name, "kv_write"):
            found.add(function)
    for edges in reading.graph.edges.values():
        found |= {edge.callee for edge in edges if edge.how == "queue" and reading.is_own(edge.callee.file)}
    return frozenset(found)


@lru_cache(maxsize=1)
def paths_of(reading: Reading) -> Paths:
    """The ways through a code base, worked out once."""
    return Paths(reading)


@lru_cache(maxsize=1)
def decode_loops(reading: Reading) -> tuple[Function, ...]:
    """Functions whose loop runs a step of the model again and again, the nearest to the step first. Where what runs it
    is handed in, those count that draw again and again. What only works out gradients of an operator comes last."""
    paths = paths_of(reading)
    reach = reading.attending | reading.reaching({*reading.runs_model, *reading.native_attends})
    found = paths.repeating(paths.hubs, reach) or paths.repeating(paths.sampling)
    return tuple(sorted(found, key=lambda each: _is_gradient(reading, each)))


def _is_gradient(reading: Reading, function: Function, most: int = 4) -> bool:
    """The method ``backward`` beside a ``forward``, and what nothing but such methods call."""
    if function.name == "backward" and function.owner is not None and "forward" in function.owner.methods:
        return True
    callers = reading.graph.callers.get(function, ())
    return most > 0 and bool(callers) and all(_is_gradient(reading, edge.caller, most - 1) for edge in callers)


@lru_cache(maxsize=1)
def stepping(reading: Reading) -> frozenset[Function]:
    """Those of them that draw or train, or whose loop calls what leads to a draw, to logits, to the whole model or to a
    step of training. A loop over layers, or over tuned sizes, calls none of them."""
    model = [reading.model] if reading.model is not None else []
    ends = reading.reaching([*reading.samples, *reading.runs_model, *reading.trains, *model])
    itself = {*reading.samples, *reading.trains}

    def steps(loop: Function) -> bool:
        within = (edge for edge in reading.graph.edges[loop] if edge.call is None or edge.call.loop)
        if loop in itself or any(edge.callee in ends and edge.callee is not loop for edge in within):
            return True
        # A model that is handed in is known by its name alone.
        called = (split(call.written.replace(".", "_")) for call in loop.calls if call.loop)
        return loop in reading.runs_model and any(words & MODELS and not words & PARTS for words in called)

    return frozenset(each for each in decode_loops(reading) if steps(each))


def _callees(reading: Reading, function: Function) -> set[Function]:
    return {edge.callee for edge in reading.reached(function, lambda edge: reading.is_own(edge.callee.file), 4)}


def phases(reading: Reading, loops: Iterable[Function]) -> list[tuple[str, Function]]:
    """Where prefill and decode part: functions of one class or file that both lead to attention, named by the phase."""
    found: dict[str, Function] = {}
    near = {each for loop in list(loops)[:3] for each in (loop, *_callees(reading, loop))}
    for kind, word in (("Prefill", "prefill"), ("Decode", "decode")):
        named = [each for each in reading.attending if word in split(each.name)]
        named.sort(key=lambda each: (each not in near, len(each.name), each.file, each.line))
        if named:
            found[kind] = named[0]
    return list(found.items()) if len(found) == 2 else []
