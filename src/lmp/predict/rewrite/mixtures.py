"""The rule on mixtures of experts: one operator from the selection to the weighted sum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lmp.link.records import EvaluatedKernel
from lmp.predict.rewrite.products import flops_of
from lmp.predict.rewrite.rules import Launch, Match, State
from lmp.predict.shard.records import RankKernel, collective_of, ep_of
from lmp.records import Operands

COMBINES = frozenset({"sum", "index_add", "scatter_add"})
"""Operators that add the rows of a token's experts."""
SAVED = "2 * tokens * (experts - top_k) * n * k where all experts are multiplied, else 0"


def experts(state: State) -> Iterator[Match]:
    graph, seen = state.graph, set[int]()
    for anchor in state.untaken():
        if not _is_of_experts(state, anchor) or anchor in seen:
            continue

        def inside(one: int, anchor: int = anchor) -> bool:
            other = graph.is_product(one) and not _is_of_experts(state, one)
            return state.free(one, anchor) and not other and collective_of(graph.kernels[one]) is None

        def below(one: int) -> list[int]:
            # The rows of a token's experts are added: what follows is of the token.
            return [] if graph.operator(one) in COMBINES else graph.consumers[one]

        ends = [o for o in graph.closure([anchor], below, inside) if graph.operator(o) in COMBINES]
        members = graph.closure(ends, lambda one: [m for m in graph.makers(one) if m < one], inside)
        converts = [user for end in ends for user in graph.consumers[end] if graph.operator(user) == "_to_copy"]
        members |= {user for user in converts if inside(user)}
        seen |= members
        products = _products(state, members) if anchor in members else []
        if products:
            yield _match(state, members, products)


def _is_of_experts(state: State, one: int) -> bool:
    """Whether it is a product of rows with the weights of their experts, or of all rows with those of all experts."""
    kernel = state.graph.kernels[one]
    operands = kernel.operands
    if kernel.category != "matmul" or operands is None or operands.batch in (None, 1):
        return kernel.category == "grouped_matmul"
    weights = [operand for operand in operands.inputs if operand.role == "weight" and len(operand.shape) == 3]
    return bool(weights) and weights[0].shape[0] == operands.batch


def _products(state: State, members: set[int]) -> list[Operands]:
    """The products of the members, of the selected experts; none without a selection."""
    graph = state.graph
    chosen = [operands for one in sorted(members) if (operands := graph.kernels[one].operands) is not None
              and operands.operator == "topk"]  # fmt: skip
    found = []
    for one in sorted(members):
        operands = graph.kernels[one].operands
        if operands is None or not _is_of_experts(state, one) or not chosen:
            continue
        if operands.experts is None:
            count = [int(of.outputs[0].shape[-1]) for of in chosen if of.inputs[0].shape[-1] == operands.batch]
            if not count:
                return []
            rows = {"tokens": operands.m, "experts": operands.batch, "top_k": count[-1], "batch": None, "m": None}
            operands = operands.model_copy(update=rows)
        found.append(operands)
    return found


def _match(state: State, members: set[int], products: list[Operands]) -> Match:
    graph, kept = state.graph, tuple(sorted(members))
    of_experts = [one for one in kept if _is_of_experts(state, one)]
    first = graph.kernels[of_experts[0]]
    read, write = graph.traffic(members)
    # An expert without a token is not read.
    read -= sum(_unread(state, one, operands) for one, operands in zip(of_experts, products, strict=True))
    # The products have the rows of all experts; each group of GPUs has some of them.
    flops = sum(-(-flops_of(product) // ep_of(first)) for product in products)
    before = [operands for one in of_experts if (operands := graph.kernels[one].operands) is not None]
    saved = sum(-(-flops_of(product) // ep_of(first)) for product in before) - flops
    update = {"operation": "mixture of experts", "flops": sum(graph.kernels[one].flops for one in kept) - saved,
              "category": "grouped_matmul", "read": read, "write": write, "operands": products[0]}  # fmt: skip
    launch = Launch(first.model_copy(update=update), "moe", kept, flops, _row(state, first, products))
    return Match(kept, (launch,), saved * first.repeat)


def _unread(state: State, one: int, selected: Operands) -> int:
    """Bytes of experts that no token selected, where the class's product reads all of them."""
    operands = state.graph.kernels[one].operands
    if operands is None or operands.experts is not None:
        return 0
    experts, rows = int(selected.experts or 1), int(selected.tokens or 1) * int(selected.top_k or 1)
    weights = sum(state.graph.bytes_of(operand) for operand in operands.inputs if operand.role == "weight")
    return int(weights * max(experts - rows, 0) / experts)


def _row(state: State, first: EvaluatedKernel, products: list[Operands]) -> Mapping[str, object] | None:
    """The row of a mixture; None where its products are not those of two or three matrices an expert."""
    products_in = state.of_expert(first)
    hidden, inner = int(products[-1].n or 0), int(products[-1].k or 0)
    matrices, rest = divmod(sum(int(p.n or 0) * int(p.k or 0) for p in products), max(1, hidden * inner))
    if products_in is None or products_in["dtype"] not in ("bfloat16", "fp8") or matrices not in (2, 3) or rest:
        return None
    sizes = {"tokens": products[0].tokens, "topk": products[0].top_k, "experts": products[0].experts}
    shared = {"tp": first.expert_tp, "ep": first.ep} if isinstance(first, RankKernel) else {}
    inner *= shared.get("tp", 1)
    return {"op": "moe", **products_in, "hidden": hidden, "inter": inner, "gated": matrices == 3, **sizes, **shared}
