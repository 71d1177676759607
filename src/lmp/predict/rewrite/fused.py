"""Rules that fuse kernels which are no products: gated activations, chains; and kernels that engines do not run."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from lmp.predict.rewrite.rules import Launch, Match, State


@dataclass(frozen=True)
class Step:
    """One step of a chain along the edges."""

    operators: frozenset[str]
    optional: bool = False
    scales: bool = False
    """The kernel has a weight among its operands, or what was made of weights alone."""


def step(*operators: str, optional: bool = False, scales: bool = False) -> Step:
    return Step(frozenset(operators), optional, scales)


CONVERTS = step("_to_copy", optional=True)
CHAINED = frozenset({"elementwise", "activation", "copy", "reduction", "softmax", "normalization", "factory", "gather"})
"""Categories that a compiler writes into one kernel."""


def fused(state: State, rule: str, members: Collection[int], operation: str, category: str) -> Launch:
    """One kernel in place of the members: their FLOPs, and the bytes that pass their border."""
    graph, kept = state.graph, tuple(sorted(members))
    read, write = graph.traffic(set(kept))
    first = graph.kernels[kept[0]]
    flops = sum(graph.kernels[one].flops for one in kept)
    update = {"operation": operation, "category": category, "flops": flops, "read": read, "write": write,
              "operands": None}  # fmt: skip
    return Launch(first.model_copy(update=update), rule, kept, 0)


def chain(state: State, start: int, steps: tuple[Step, ...], up: bool) -> list[int] | None:
    """The kernels of the steps from a start on; None if one that has to be there is not."""
    graph, found, here = state.graph, list[int](), start
    for wanted in steps:
        near = graph.makers(here) if up else graph.consumers[here]
        fitting = [
            one for one in near
            if graph.operator(one) in wanted.operators and state.free(one, start) and one not in found
            and (not wanted.scales or graph.has_role(one, "weight") or any(map(graph.weights_only, graph.makers(one))))
        ]  # fmt: skip
        if fitting:
            here = fitting[0]
            found.append(here)
        elif not wanted.optional:
            return None
    return found


def gated_activations(state: State) -> Iterator[Match]:
    graph = state.graph
    for anchor in state.untaken():
        if graph.kernels[anchor].category != "activation":
            continue
        gate = next((one for one in graph.consumers[anchor] if _is_gate(state, one, anchor)), None)
        if gate is not None:
            members = (anchor, gate)
            yield Match(members, (fused(state, "gated_act", members, "gated activation", "elementwise"),))


def _is_gate(state: State, one: int, act: int) -> bool:
    """Whether it is a product of two activations, element by element."""
    inputs = [operand for operand in state.graph.inputs(one) if operand.role == "activation"]
    elements = {math.prod(map(int, operand.shape)) for operand in inputs}
    return state.graph.operator(one) == "mul" and state.free(one, act) and len(inputs) == 2 and len(elements) == 1


def constants(state: State) -> Iterator[Match]:
    """What is made of weights alone: an engine makes it when it loads them."""
    graph, groups = state.graph, dict[tuple[str, int], list[int]]()
    for one in state.untaken():
        if not graph.is_product(one) and graph.weights_only(one):
            kernel = graph.kernels[one]
            groups.setdefault((kernel.path, kernel.repeat), []).append(one)
    for members in groups.values():
        yield Match(tuple(members), ())


def dead_masks(state: State) -> Iterator[Match]:
    """What is worked out of positions alone, and only for masks and tables that are not there any more."""
    graph = state.graph
    dead = graph.positions - state.taken.keys()
    gone = dead | {one for one, rule in state.taken.items() if rule in ("flash", "rope_table")}
    while used := {one for one in dead if not set(graph.consumers[one]) <= gone}:
        dead, gone = dead - used, gone - used
    if dead:
        yield Match(tuple(sorted(dead)), ())


def pointwise_chains(state: State) -> Iterator[Match]:
    """Kernels without products between them, connected, in the same layers: what a compiler fuses."""
    graph, levels, regions = state.graph, list[int](), dict[int, set[int]]()

    def chains(one: int) -> bool:
        return graph.kernels[one].category in CHAINED and not graph.appends(one) and bool(graph.inputs(one))

    for one in range(len(graph.kernels)):
        before = [maker for maker in graph.makers(one) if maker < one]
        levels.append(max((levels[maker] + (not chains(maker)) for maker in before), default=0))
    for anchor in state.untaken():
        if anchor in regions or not chains(anchor):
            continue

        def near(one: int) -> list[int]:
            before = [maker for maker in graph.makers(one) if maker < one]
            return before + [user for user in graph.consumers[one] if user > one]

        def kept(one: int, anchor: int = anchor) -> bool:
            return chains(one) and levels[one] == levels[anchor] and state.free(one, anchor)

        members = graph.closure([anchor], near, kept)
        regions |= dict.fromkeys(members, members)
    for members in _over_layers(state, regions, levels):
        if len(members) > 1:
            reduces = any(graph.kernels[one].category in ("reduction", "softmax", "normalization") for one in members)
            operation = f"fused chain of {len(members)}"
            category = "reduction" if reduces else "elementwise"
            yield Match(tuple(sorted(members)), (fused(state, "pointwise_chain", members, operation, category),))


def _over_layers(state: State, regions: dict[int, set[int]], levels: list[int]) -> list[set[int]]:
    """The regions; the end of a layer and the begin of the next one are one, if they are in as many layers."""
    graph = state.graph
    for one in sorted(regions):
        # An edge backwards in the list goes to the next layer. What is behind a product there is no begin of it.
        behind = [user for user in graph.consumers[one] if user < one and user in regions and state.free(user, one)]
        first = min(behind, key=levels.__getitem__, default=one)
        if regions[first] is not regions[one]:
            joined = regions[first] | regions[one]
            regions.update(dict.fromkeys(joined, joined))
    return list({id(members): members for members in regions.values()}.values())
