"""Where a run of a model ends, and the loops that lead there again and again."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from lmp.codebase.graph.records import Function
from lmp.codebase.roles import operators
from lmp.codebase.roles.reach import Reading
from lmp.codebase.roles.words import says, split


@lru_cache(maxsize=1)
def leaves(reading: Reading) -> frozenset[Function]:
    """Where a run of a model ends: attention, sampling, cache writes, kernels, the step of an optimizer."""
    found: set[Function] = {*reading.attends, *reading.samples, *reading.runs_model, *reading.starts_attention}
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
    return frozenset(found)


@lru_cache(maxsize=1)
def decode_loops(reading: Reading) -> tuple[Function, ...]:
    """Functions whose loop leads to a model again and again, best first.

    Best are those that reach most of attention, sampling, the cache and a step of training from inside of the loop. Of
    equals an endless loop comes first, then the one further out. Where none leads to a model, as where a caller
    hands it in, those count that draw again and again.
    """
    ends = {
        "attention": reading.attending | reading.reaching({*reading.runs_model, *reading.native_attends}),
        "sampling": reading.reaching({*reading.samples, *reading.native_samples}),
        "cache": reading.reaching(each for each in reading.functions if says(each.name, "kv_write")),
        "training": reading.reaching(
            each for each in leaves(reading) if {c.name for c in each.calls} & operators.TRAINS
        ),
    }
    scored: list[tuple[float, Function]] = []
    draws: list[tuple[float, Function]] = []
    for function in reading.functions:
        operator = not function.native and function.name in ("forward", "backward", "__call__")
        if (
            not function.loops
            or operator
            or function.key in reading.kernels
            or _BESIDE.search(f"{function.file} {function.qualname}")
        ):
            continue
        inside = [edge for edge in reading.graph.edges[function] if edge.call is not None and edge.call.loop]
        # Attention is reached through a model; what calls its function itself is an operator.
        called = [edge.callee for edge in inside]
        ran = [each for each in called if each.owner is not None or each.native or each in reading.runs_model]
        own = {name for name, reached in ends.items() if any(edge.callee in reached for edge in inside)}
        if not any(each in ends["attention"] for each in ran):
            own.discard("attention")
        if function in reading.runs_model and (own or function.endless):
            # A loop over chunks of logits is a loss; what decodes ends when the text does.
            own.add("attention")
        if function in reading.samples and own:
            own.add("sampling")
        if own & {"attention", "training"}:
            scored.append((len(own) + 0.6 * function.endless - 0.4 * (own == {"attention"}), function))
        elif "sampling" in own:
            draws.append((len(own) + 0.6 * function.endless, function))
    scored = scored or draws
    above = {function: sum(other is not function for other in _callees(reading, function)) for _, function in scored}
    # Of equals the one that leads to others, then the one with the plainest name: variants are named by what they add.
    scored.sort(key=lambda each: (-each[0], above[each[1]] == 0, len(each[1].name), each[1].file, each[1].line))
    return tuple(function for _, function in scored)


_BESIDE = re.compile(
    r"(?i)(?:^|[/_. ])(?:tests?|bench\w*|examples?|eval\w*|profil\w*|warm\w*|experiment(?:s|al)?|scripts?)(?:[/_. ]|$)"
)


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
