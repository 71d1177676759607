"""The rule on attention: one kernel that reads the cache itself, and a write of the new tokens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from fractions import Fraction

from lmp.link.records import EvaluatedKernel
from lmp.predict.rewrite.graph import Graph
from lmp.predict.rewrite.products import flops_of
from lmp.predict.rewrite.rules import Launch, Match, State
from lmp.records import Operands

SCORES = frozenset({"mul", "div", "add", "sub", "max", "amax", "cat", "where", "masked_fill", "_to_copy"})
"""Operators between the scores of all pairs and their softmax."""
AFTER_SOFTMAX = frozenset({"_to_copy", "clone", "mul"})
MOVES = frozenset({"cat", "clone", "copy", "_to_copy", "expand", "contiguous"})
"""Operators that hand keys and values from the cache to the product."""
COMPARES = frozenset({"le", "lt", "ge", "gt", "tril", "triu"})


@dataclass(frozen=True)
class Attended:
    """Attention as the class computes it."""

    anchor: int
    """Its first product, or the only one."""
    members: frozenset[int]
    kernel: EvaluatedKernel
    """As one kernel, with the sizes of attention among its operands."""


def attentions(state: State) -> Iterator[Attended]:
    """All attention that no rule has taken: one operator, or two batched products around a softmax."""
    graph = state.graph
    for one in state.untaken():
        if graph.kernels[one].category == "attention" and graph.kernels[one].operands is not None:
            yield Attended(one, frozenset({one}), _as_grouped(state, one))
        elif graph.kernels[one].category == "softmax" and (found := _written_out(state, one)) is not None:
            yield found


def _as_grouped(state: State, one: int) -> EvaluatedKernel:
    """An operator of attention with its heads and those of its cache, where a class copies keys or folds queries."""
    graph, kernel = state.graph, state.graph.kernels[one]
    operands = kernel.operands
    assert operands is not None
    if operands.heads is None:
        return kernel
    update: dict[str, object] = {}
    cached = {int(o.shape[1]) for cat in _cats(state, {one}) for o in graph.appends(cat)
              if len(o.shape) == 4 and o.shape[-1] in (operands.head_dim, operands.v_head_dim)}  # fmt: skip
    heads, queries = min(cached, default=0), int(operands.q_len or 1)
    if queries > 1 and graph.values.get("seq_len") == 1 and not operands.causal:
        # One token a sequence: what has more queries has those of a group of heads, which share a cache.
        update |= {"q_len": 1, "heads": int(operands.heads) * queries}
    elif not operands.causal and queries > 1 and _is_causal(graph, {one}):
        update["causal"] = 1
    if len(cached) == 1 and heads < int(operands.kv_heads or 1) and int(operands.heads) % heads == 0:
        update["kv_heads"] = heads
    return kernel.model_copy(update={"operands": operands.model_copy(update=update)}) if update else kernel


def attention(state: State) -> Iterator[Match]:
    for found in attentions(state):
        yield _from_cache(state, found)


def _written_out(state: State, softmax: int) -> Attended | None:
    """Attention as two batched products around a softmax."""
    graph, path = state.graph, state.graph.kernels[softmax].path

    def own(one: int) -> bool:
        return state.free(one, softmax) and graph.kernels[one].path == path and not graph.is_product(one)

    above = graph.closure([softmax], graph.makers, lambda one: own(one) and graph.operator(one) in SCORES)
    below = graph.closure([softmax], graph.consumers.__getitem__,
                          lambda one: own(one) and graph.operator(one) in AFTER_SOFTMAX)  # fmt: skip
    scores = {m for one in above for m in graph.makers(one) if _is_batched(state, m, softmax)}
    values = {u for one in below for u in graph.consumers[one] if _is_batched(state, u, softmax)}
    if len(scores) != 1 or len(values) != 1 or scores == values:
        return None
    (first,), (second,) = scores, values
    members = {first, second, *above, *below}
    kernel = graph.kernels[second]
    operands = _attended(state, first, second, above)
    if operands is None:
        return None
    flops = sum(graph.kernels[one].flops for one in members)
    update = {"operation": "attention", "category": "attention", "flops": flops, "operands": operands}
    return Attended(first, frozenset(members), kernel.model_copy(update=update))


def _is_batched(state: State, one: int, like: int) -> bool:
    operands = state.graph.kernels[one].operands
    return (
        state.free(one, like) and state.graph.kernels[one].category == "matmul" and operands is not None
        and operands.batch is not None and not any(o.role == "weight" for o in operands.inputs)
    )  # fmt: skip


def _masks(graph: Graph, scores: set[int]) -> set[int]:
    """Kernels of positions alone that make the mask of the scores."""
    return graph.closure(scores, graph.makers, graph.positions.__contains__) & graph.positions


SELECTS = frozenset({"_to_copy", "bitwise_not", "bitwise_and", "scatter", "masked_fill", "where", "new_ones", "clone"})
"""Operators between the top-k selection of tokens and the mask of attention."""


def selected(state: State, found: Attended) -> tuple[int, frozenset[int]] | None:
    """Tokens of the cache that a selection leaves to each query, and the kernels that make a mask of it.

    None if no mask of attention comes from a top-k selection among all tokens.
    """
    graph, operands = state.graph, found.kernel.operands

    def kept(one: int) -> bool:
        return graph.operator(one) in SELECTS and not graph.is_product(one) and state.free(one, found.anchor)

    masks = graph.closure(found.members, graph.makers, kept) - found.members
    for one in sorted({maker for mask in masks for maker in graph.makers(mask)}):
        chosen = graph.kernels[one].operands
        if graph.operator(one) != "topk" or chosen is None or operands is None:
            continue
        among, count = int(chosen.inputs[0].shape[-1]), int(chosen.outputs[0].shape[-1])
        if among == operands.kv_len and count < among:
            inside = graph.closure([one], graph.consumers.__getitem__, masks.__contains__) - {one}
            used = {mask for mask in masks if set(graph.consumers[mask]) <= masks | found.members}
            return count, frozenset(inside & used)
    return None


def _is_causal(graph: Graph, scores: set[int]) -> bool:
    """Whether the mask of the scores compares positions."""
    return any(graph.operator(one) in COMPARES for one in _masks(graph, scores))


def _window(graph: Graph, scores: set[int]) -> int | None:
    """Tokens that one query sees, if the mask has a lower end too, and the model a window."""
    compares = {graph.operator(one) for one in _masks(graph, scores)}
    window = graph.values.get("sliding_window")
    return int(window) if window and compares & {"le", "lt"} and compares & {"ge", "gt"} else None


def _attended(state: State, first: int, second: int, above: set[int]) -> Operands | None:
    """Operands of attention from its two products and the sequences of the batch."""
    graph = state.graph
    scores, values = graph.kernels[first].operands, graph.kernels[second].operands
    batch = int(state.graph.values.get("batch_size", 1))
    if scores is None or values is None or int(scores.batch or 1) % batch:
        return None
    heads = int(scores.batch or 1) // batch
    new = [o for cat in _cats(state, {first, second}) for o in graph.appends(cat)]
    # A cache of latents has other widths: its heads are not those of the keys.
    widths = {scores.k, values.n}
    grouped = [int(o.shape[1]) for o in new if len(o.shape) == 4 and o.shape[-1] in widths]
    product = {"batch": batch, "q_len": scores.m, "kv_len": scores.n, "heads": heads, "head_dim": scores.k,
               "kv_heads": grouped[0] if grouped else heads, "v_head_dim": values.n,
               "causal": int(int(scores.m or 1) > 1 and _is_causal(graph, above)),
               "window": _window(graph, above)}  # fmt: skip
    return Operands(operator="attention", inputs=scores.inputs[:1], outputs=values.outputs, **product)


def moved(state: State, members: Collection[int]) -> set[int]:
    """Copies and concatenations between the cache and the members."""
    graph, like = state.graph, min(members)
    path = graph.kernels[like].path

    def kept(one: int) -> bool:
        moves = graph.operator(one) in MOVES and graph.kernels[one].category == "copy"
        inside = all(user in members or graph.operator(user) in MOVES for user in graph.consumers[one])
        return moves and inside and state.free(one, like) and graph.kernels[one].path == path

    return graph.closure(members, graph.makers, kept) - set(members)


def _cats(state: State, members: Collection[int]) -> list[int]:
    """Concatenations of the cache with new tokens."""
    graph = state.graph
    return [one for one in sorted(moved(state, members)) if graph.appends(one)]


def _from_cache(state: State, found: Attended) -> Match:
    """Attention that reads the cache itself; and a kernel that writes the new tokens, if there is a cache."""
    graph, cats = state.graph, _cats(state, found.members)
    every = tuple(sorted(found.members | moved(state, found.members) | outgoing(state, found)))
    operands = found.kernel.operands
    assert operands is not None
    sizes = (operands.batch, operands.kv_len, operands.kv_heads, operands.head_dim, operands.v_head_dim)
    batch, kv_len, kv_heads, key, value = (1 if size is None else int(size) for size in sizes)
    value = value if operands.v_head_dim is not None else key
    width = Fraction(graph.values.get("kv_bytes" if cats else "a_bytes", 2))
    keys = batch * kv_len * kv_heads * (key + value) * width
    queries = batch * int(operands.q_len or 1) * int(operands.heads or 1) * Fraction(graph.values.get("a_bytes", 2))
    update = {"read": int(keys + queries * key), "write": int(queries * value)}
    attends = Launch(found.kernel.model_copy(update=update), "flash", every, flops_of(operands))
    written = written_tokens(state, cats, "flash")
    return Match(every, (attends,) if written is None else (written, attends))


def outgoing(state: State, found: Attended) -> set[int]:
    """Copies behind attention: its kernel writes the output as the next product reads it."""
    graph = state.graph
    return {
        user for one in found.members for user in graph.consumers[one]
        if graph.operator(user) in MOVES and graph.kernels[user].category == "copy" and state.free(user, found.anchor)
    }  # fmt: skip


def written_tokens(state: State, cats: Collection[int], rule: str) -> Launch | None:
    """One kernel that writes the new tokens behind the cache, in place of concatenations; None without any."""
    graph, kept = state.graph, sorted(cats)
    new = [operand for cat in kept for operand in graph.appends(cat)]
    if not new:
        return None
    read = sum((graph.bytes_of(operand) for operand in new), Fraction(0))
    write = sum((graph.bytes_of(operand.model_copy(update={"width": "kv"})) for operand in new), Fraction(0))
    append = {"operation": "write of new tokens to the cache", "category": "copy", "flops": 0, "operands": None,
              "read": int(read), "write": int(write)}  # fmt: skip
    return Launch(graph.kernels[kept[0]].model_copy(update=append), rule, tuple(kept), 0)


def appended(state: State) -> Iterator[Match]:
    """Concatenations with the cache that no attention has taken: only the new tokens are written."""
    groups: dict[tuple[str, int], list[int]] = defaultdict(list)
    for one in state.untaken():
        if state.graph.appends(one):
            kernel = state.graph.kernels[one]
            groups[kernel.path, kernel.repeat].append(one)
    for cats in groups.values():
        written = written_tokens(state, cats, "kv_append")
        if written is not None:
            yield Match(tuple(cats), (written,))
