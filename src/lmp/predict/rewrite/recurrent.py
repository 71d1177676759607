"""Rules on layers with a state of one size: the short convolution, and the scan over tokens or its step."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from lmp.formula import read_number
from lmp.link.records import EvaluatedKernel
from lmp.predict.rewrite.products import is_linear
from lmp.predict.rewrite.rules import Launch, Match, State
from lmp.records import MATMUL_CATEGORIES

WITHOUT = frozenset({"attention", "softmax", "convolution", "grouped_matmul", "sort", "call"})
"""Categories of kernels that are no part of a scan."""
DECAYS = frozenset({"exp", "exp2"})


def convolutions(state: State) -> Iterator[Match]:
    """Convolutions of each channel over few tokens, with the state before them and the activation behind them."""
    graph = state.graph
    for one in state.untaken():
        kernel = graph.kernels[one]
        weights = [operand for operand in graph.inputs(one) if operand.role == "weight" and len(operand.shape) == 3]
        if kernel.category != "convolution" or not weights or int(weights[0].shape[1]) != 1:
            continue
        channels = int(weights[0].shape[0])
        joined = {m for m in graph.makers(one) if state.free(m, one) and graph.kernels[m].category == "copy"
                  and set(graph.consumers[m]) - {one} <= _stores(state, one)}  # fmt: skip
        sources = joined | set(graph.makers(one))
        stores = {s for s in _stores(state, one) if sources & set(graph.makers(s)) and _channels(state, s) == channels}
        empty = {m for s in stores for m in graph.makers(s)
                 if graph.kernels[m].category == "factory" and state.free(m, one)}  # fmt: skip
        behind = [user for user in graph.consumers[one] if user not in state.taken]
        acts = {user for user in behind if graph.kernels[user].category == "activation" and state.free(user, one)}
        members = {one, *joined, *stores, *empty, *(acts if len(behind) == 1 else ())}
        yield Match(tuple(sorted(members)), (_launch(state, members, one, "causal_conv", "causal convolution"),))


def _stores(state: State, like: int) -> set[int]:
    """Copies into a tensor that is kept for the next call: no kernel reads them."""
    graph = state.graph
    return {
        one for one in state.untaken()
        if graph.operator(one) == "copy" and not graph.consumers[one] and state.free(one, like)
        and _is_near(graph.kernels[one].path, graph.kernels[like].path)
    }  # fmt: skip


def _is_near(one: str, other: str) -> bool:
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


def _channels(state: State, one: int) -> int:
    shape = state.graph.inputs(one)[0].shape
    return int(shape[1]) if len(shape) > 1 else 0


def scans(state: State) -> Iterator[Match]:
    """Kernels of one module around a state that decays: a step of it, or the scan over a prompt."""
    graph, seen = state.graph, set[int]()
    for anchor in state.untaken():
        if anchor in seen or anchor not in _stores(state, anchor):
            continue
        place = graph.kernels[anchor]

        def kept(one: int, place: EvaluatedKernel = place) -> bool:
            kernel = graph.kernels[one]
            often = kernel.repeat % place.repeat == 0 or place.repeat % kernel.repeat == 0
            own = kernel.path == place.path and one not in state.taken and often
            return own and kernel.category not in WITHOUT and not is_linear(graph, one) and not graph.appends(one)

        members = graph.closure([anchor], graph.both_ways, kept)
        seen |= members
        if any(graph.operator(one) in DECAYS for one in members) and len(members) > 2:
            launch = _launch(state, members, anchor, "scan", "scan of a state")
            yield Match(tuple(sorted(members)), (launch,))


def _launch(state: State, members: set[int], anchor: int, rule: str, operation: str) -> Launch:
    """One kernel, run as often as the anchor. A loop's kernels run several times in it."""
    graph, kept = state.graph, tuple(sorted(members))
    often = graph.kernels[anchor].repeat
    kernels = [graph.kernels[one] for one in kept]
    flops = sum(Fraction(kernel.flops * kernel.repeat, often) for kernel in kernels)
    products = [kernel for kernel in kernels if kernel.category in MATMUL_CATEGORIES]
    of_products = sum(Fraction(kernel.flops * kernel.repeat, often) for kernel in products)
    read, write = graph.traffic(members)
    most = sum(Fraction(read_number(kernel.read)) * kernel.repeat / often for kernel in kernels)
    update = {"operation": operation, "category": "matmul" if products else "elementwise", "repeat": often,
              "flops": int(flops), "read": min(read, int(most)), "write": write, "operands": None}  # fmt: skip
    return Launch(kernels[0].model_copy(update=update), rule, kept, int(of_products))
