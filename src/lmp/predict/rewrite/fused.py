"""Rules that fuse kernels which are no products: norms, rotary embedding, gated activations, chains."""

from __future__ import annotations

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
NORM_ANCHOR = "rsqrt"
NORM_UP = (step("add", optional=True), step("mean"), step("pow", "mul", "square"), CONVERTS)
"""From the reciprocal root to the input."""
NORM_DOWN = (step("mul"), CONVERTS, step("mul", optional=True, scales=True), CONVERTS)
"""From the reciprocal root to the output."""
TABLE = frozenset({"cos", "sin", "mul", "cat", "_to_copy"})
"""Operators of the table of angles."""
ROTATION = frozenset({"mul", "neg", "cat", "stack", "add", "sub"})
CHAINED = frozenset({"elementwise", "activation", "copy", "reduction", "softmax", "normalization", "factory"})
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


def norms(state: State) -> Iterator[Match]:
    graph = state.graph
    for anchor in state.untaken():
        if graph.operator(anchor) != NORM_ANCHOR:
            continue
        above, below = chain(state, anchor, NORM_UP, True), chain(state, anchor, NORM_DOWN, False)
        if above is None or below is None:
            continue
        members = {anchor, *above, *below}
        members |= graph.closure(below, graph.makers, lambda one: one not in state.taken and graph.weights_only(one))
        residual = next((one for one in graph.makers(above[-1]) if _is_residual(state, one, anchor)), None)
        name = "rms_norm"
        if residual is not None and residual not in members:
            members.add(residual)
            name = "add_rms_norm"
        kept = tuple(sorted(members))
        yield Match(kept, (fused(state, "norm", kept, name, "reduction"),))


def _is_residual(state: State, one: int, like: int) -> bool:
    """Whether it is a sum of two activations of one size, in the same layers."""
    graph = state.graph
    sizes = [graph.bytes_of(operand) for operand in graph.inputs(one) if operand.role == "activation"]
    return graph.operator(one) == "add" and state.free(one, like) and len(sizes) == 2 and sizes[0] == sizes[1]


def rope_tables(state: State) -> Iterator[Match]:
    graph, seen = state.graph, set[int]()
    for anchor in state.untaken():
        if graph.operator(anchor) not in ("cos", "sin") or anchor in seen:
            continue
        path = graph.kernels[anchor].path

        def kept(one: int, path: str = path, anchor: int = anchor) -> bool:
            return graph.operator(one) in TABLE and graph.kernels[one].path == path and state.free(one, anchor)

        members = graph.closure([anchor], graph.both_ways, kept)
        seen |= members
        yield Match(tuple(sorted(members)), ())


def ropes(state: State) -> Iterator[Match]:
    """Rotations of queries and keys: what uses a table of angles, in one module."""
    graph, regions = state.graph, dict[tuple[str, int], set[int]]()
    for anchor in state.untaken():
        of_table = any(state.taken.get(maker) == "rope_table" for maker in graph.makers(anchor))
        if graph.operator(anchor) not in ROTATION or not of_table:
            continue
        place = (graph.kernels[anchor].path, graph.kernels[anchor].repeat)

        def kept(one: int, path: str = place[0], anchor: int = anchor) -> bool:
            own = graph.operator(one) in ROTATION and graph.kernels[one].path == path
            return own and state.free(one, anchor) and not graph.appends(one)

        regions.setdefault(place, set()).update(graph.closure([anchor], graph.both_ways, kept))
    for region in regions.values():
        yield Match(tuple(sorted(region)), (fused(state, "rope", region, "rotary embedding", "elementwise"),))


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
    inputs = [operand for operand in state.graph.inputs(one) if operand.role == "activation"]
    return state.graph.operator(one) == "mul" and state.free(one, act) and len(inputs) == 2


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
    graph, levels, seen = state.graph, list[int](), set[int]()

    def chains(one: int) -> bool:
        return graph.kernels[one].category in CHAINED and not graph.appends(one) and bool(graph.inputs(one))

    for one in range(len(graph.kernels)):
        before = [maker for maker in graph.makers(one) if maker < one]
        levels.append(max((levels[maker] + (not chains(maker)) for maker in before), default=0))
    for anchor in state.untaken():
        if anchor in seen or not chains(anchor):
            continue

        def near(one: int) -> list[int]:
            # An edge backwards in the list comes from the layer before.
            before = [maker for maker in graph.makers(one) if maker < one]
            return before + [user for user in graph.consumers[one] if user > one]

        def kept(one: int, anchor: int = anchor) -> bool:
            return chains(one) and levels[one] == levels[anchor] and state.free(one, anchor)

        members = graph.closure([anchor], near, kept)
        seen |= members
        if len(members) > 1:
            reduces = any(graph.kernels[one].category in ("reduction", "softmax", "normalization") for one in members)
            operation = f"fused chain of {len(members)}"
            category = "reduction" if reduces else "elementwise"
            yield Match(tuple(sorted(members)), (fused(state, "pointwise_chain", members, operation, category),))
