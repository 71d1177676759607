"""The rule on norms: one kernel, with the residual sum before it or the gate beside it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from lmp.predict.rewrite.fused import CONVERTS, chain, fused, step
from lmp.predict.rewrite.rules import Launch, Match, State

ANCHORS = frozenset({"rsqrt", "pow"})
"""Operators that make the reciprocal root."""
UP = (step("add", optional=True), step("mean"), step("pow", "mul", "square"), CONVERTS)
"""From the reciprocal root to the input."""
DOWN = (step("mul"), CONVERTS, step("mul", optional=True, scales=True), CONVERTS)
"""From the reciprocal root to the output."""
NATIVE = {
    "native_layer_norm": "layer_norm",
    "layer_norm": "layer_norm",
    "rms_norm": "rms_norm",
    "_fused_rms_norm": "rms_norm",
}
"""Operators that are a norm by themselves -> the kernel."""


@dataclass
class Norm:
    """A norm that was found."""

    anchor: int
    first: int
    """The member that reads the input."""
    last: int
    name: str
    members: set[int] = field(default_factory=set)
    elsewhere: int | None = None
    """A residual sum before it whose edge goes to norms of other layers."""


def norms(state: State) -> Iterator[Match]:
    found = [norm for one in state.untaken() if (norm := _norm(state, one)) is not None]
    used = {one for norm in found for one in norm.members}
    for norm in found:
        _add_gate(state, norm, used)
        _add_residual(state, norm, used)
    for norm in found:
        _add_residual_of_other_layers(state, norm, found, used)
        launch = fused(state, "norm", norm.members, norm.name, "reduction")
        if norm.elsewhere is not None:
            launch = _with_sum(state, norm, launch)
        yield Match(launch.members, (launch,))


def _norm(state: State, anchor: int) -> Norm | None:
    graph = state.graph
    native = NATIVE.get(graph.operator(anchor))
    if native is not None:
        return Norm(anchor, anchor, anchor, native, {anchor})
    if graph.operator(anchor) not in ANCHORS:
        return None
    above, below = chain(state, anchor, UP, True), chain(state, anchor, DOWN, False)
    if above is None or below is None:
        return None
    members = {anchor, *above, *below}
    members |= graph.closure(below, graph.makers, lambda one: one not in state.taken and graph.weights_only(one))
    return Norm(anchor, above[-1], below[-1], "rms_norm", members)


# --- gates -----------------------------------------------------------------------------------------------------------


def _add_gate(state: State, norm: Norm, used: set[int]) -> None:
    """A product with an activation of another tensor, right before the norm or right behind it."""
    graph = state.graph
    before = [one for one in graph.makers(norm.first) if set(graph.consumers[one]) <= norm.members]
    for product in (*before, *graph.consumers[norm.last]):
        behind = product in graph.consumers[norm.last]
        gates = [gate for gate in graph.makers(product) if _is_gate(state, gate, product, norm)]
        if (behind and len(graph.consumers[norm.last]) > 1) or product in used or not gates:
            continue
        members = {product, gates[0]}
        members |= {one for one in graph.makers(gates[0]) if _converts(state, one, norm, members)}
        members |= {one for one in graph.makers(product) if _converts(state, one, norm, members)}
        if behind:
            members |= {one for one in graph.consumers[product] if _is_conversion(state, one, norm)}
        if not members & used:
            norm.members |= members
            used |= members
            norm.name = f"gated {norm.name}"
            return


def _is_gate(state: State, gate: int, product: int, norm: Norm) -> bool:
    """Whether the product is one of two tensors of one size, and this kernel is the activation of one of them."""
    graph = state.graph
    sizes = {math.prod(map(int, operand.shape)) for operand in graph.inputs(product)}
    whole = graph.operator(product) == "mul" and len(graph.inputs(product)) == 2 and len(sizes) == 1
    free = state.free(gate, norm.anchor) and state.free(product, norm.anchor)
    return whole and free and graph.kernels[gate].category == "activation" and graph.consumers[gate] == [product]


def _is_conversion(state: State, one: int, norm: Norm) -> bool:
    return state.graph.operator(one) == "_to_copy" and state.free(one, norm.anchor)


def _converts(state: State, one: int, norm: Norm, users: set[int]) -> bool:
    return _is_conversion(state, one, norm) and set(state.graph.consumers[one]) <= users | norm.members


# --- residual sums ---------------------------------------------------------------------------------------------------


def _add_residual(state: State, norm: Norm, used: set[int]) -> None:
    residuals = (one for one in state.graph.makers(norm.first) if _is_residual(state, one, norm) and one not in used)
    residual = next(residuals, None)
    if norm.name == "rms_norm" and residual is not None:
        norm.members.add(residual)
        used.add(residual)
        norm.name = "add_rms_norm"


def _add_residual_of_other_layers(state: State, norm: Norm, found: list[Norm], used: set[int]) -> None:
    """A sum at the end of a layer before a norm of another kind of layers.

    Where kinds of layers alternate, the sum before a norm belongs to layers of another number than the norm's. The
    sums of the norm's own layers, which as many norms of other layers read, stand for them: their sizes are the same.
    """
    graph = state.graph
    sums = [one for one in graph.makers(norm.first) if graph.operator(one) == "add"]
    size = max((graph.bytes_of(operand) for operand in graph.inputs(norm.first)), default=0)
    readers = {other.first for other in found}
    if norm.name != "rms_norm" or not sums:
        return
    for one in state.untaken():
        if one in used or not _is_residual(state, one, norm) or not readers & set(graph.consumers[one]):
            continue
        if max(graph.bytes_of(operand) for operand in graph.inputs(one)) == size:
            used.add(one)
            norm.name, norm.elsewhere = "add_rms_norm", one
            return


def _with_sum(state: State, norm: Norm, launch: Launch) -> Launch:
    """The norm's kernel, which makes the sum too: it reads the summands in place of the sum."""
    graph, one = state.graph, norm.elsewhere
    assert one is not None
    read, write = graph.traffic({one})
    input_ = max(graph.bytes_of(operand) for operand in graph.inputs(norm.first))
    kernel = launch.kernel
    update = {"flops": kernel.flops + graph.kernels[one].flops, "read": int(kernel.read - input_ + read),
              "write": int(kernel.write + write)}  # fmt: skip
    members = tuple(sorted({one, *norm.members}))
    return replace(launch, kernel=kernel.model_copy(update=update), members=members)


def _is_residual(state: State, one: int, norm: Norm) -> bool:
    """Whether it is a sum of two activations of one size, in the same layers."""
    graph = state.graph
    sizes = [graph.bytes_of(operand) for operand in graph.inputs(one) if operand.role == "activation"]
    same = len(sizes) == 2 and sizes[0] == sizes[1]
    return graph.operator(one) == "add" and state.free(one, norm.anchor) and same
