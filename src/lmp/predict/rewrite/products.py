"""Rules on products: merged weights, attention over the cache, mixtures of experts, logits, quantisation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from fractions import Fraction

from lmp.formula import read_number
from lmp.link.records import EvaluatedKernel
from lmp.predict.rewrite.graph import Graph
from lmp.predict.rewrite.rules import Launch, Match, State
from lmp.records import Operand, Operands

SCORES = frozenset({"mul", "div", "add", "sub", "max", "amax", "cat", "where", "masked_fill", "_to_copy"})
"""Operators between the scores of all pairs and their softmax."""
AFTER_SOFTMAX = frozenset({"_to_copy", "clone", "mul"})
MOVES = frozenset({"cat", "clone", "copy_", "_to_copy", "expand", "contiguous"})
"""Operators that hand keys and values from the cache to the product."""
COMPARES = frozenset({"le", "lt", "ge", "gt", "tril", "triu"})
COMBINES = frozenset({"sum", "index_add", "scatter_add"})
"""Operators that add the rows of a token's experts."""
FUSES_QUANTISATION = ("norm", "gated_act")
"""Rules whose kernels write 8 bits themselves, at a static scale."""


def flops_of(operands: Operands) -> int:
    """FLOPs of a product from its shapes, as `Operands` states them."""

    def size(name: str) -> int:
        value = getattr(operands, name)
        return 1 if value is None else int(value)

    if operands.q_len is not None:
        widths = size("head_dim") + size("v_head_dim" if operands.v_head_dim is not None else "head_dim")
        return 2 * size("batch") * size("heads") * size("q_len") * size("kv_len") * widths
    if operands.experts is not None:
        return 2 * size("tokens") * size("top_k") * size("n") * size("k")
    return 2 * size("batch") * size("m") * size("n") * size("k")


def _is_linear(graph: Graph, one: int) -> bool:
    """Whether it is one product with a weight matrix."""
    operands = graph.kernels[one].operands
    if graph.kernels[one].category != "matmul" or operands is None or operands.m is None:
        return False
    return operands.batch in (None, 1) and _weight(operands) is not None


def _weight(operands: Operands) -> Operand | None:
    return next((o for o in operands.inputs if o.role == "weight" and len(o.shape) > 1), None)


def epilogues(state: State) -> Iterator[Match]:
    """Additions of a bias that move no bytes: the product writes them."""
    graph = state.graph
    for one in state.untaken():
        kernel, makers = graph.kernels[one], graph.makers(one)
        moves = read_number(kernel.read) or read_number(kernel.write)
        if not moves and kernel.category == "elementwise" and any(graph.is_product(maker) for maker in makers):
            yield Match((one,), ())


def merged(state: State) -> Iterator[Match]:
    graph = state.graph
    groups: dict[object, list[int]] = defaultdict(list)
    for one in state.untaken():
        operands = graph.kernels[one].operands
        if operands is None or not _is_linear(graph, one):
            continue
        # A router's scores go to the selection of experts by themselves.
        if any(state.taken.get(user) == "moe" for user in graph.consumers[one]):
            continue
        groups[graph.producers[one], operands.m, operands.k, graph.kernels[one].repeat].append(one)
    for members in groups.values():
        if len(members) > 1:
            yield Match(tuple(members), (_merged(graph, members),))


def _merged(graph: Graph, members: list[int]) -> Launch:
    kernels = [graph.kernels[one] for one in members]
    parts = [kernel.operands for kernel in kernels if kernel.operands is not None]
    columns = sum(int(part.n or 0) for part in parts)
    weight = _weight(parts[0])
    assert weight is not None
    inputs = [o.model_copy(update={"shape": [parts[0].k, columns]}) if o is weight else o for o in parts[0].inputs]
    operands = parts[0].model_copy(update={"n": columns, "inputs": inputs, "outputs": []})
    shared = max((graph.bytes_of(o) for o in parts[0].inputs if o.role == "activation"), default=Fraction(0))
    read = sum(Fraction(read_number(kernel.read)) for kernel in kernels) - (len(kernels) - 1) * shared
    write = sum(Fraction(read_number(kernel.write)) for kernel in kernels)
    update = {"operation": f"matrix multiplication, {len(members)} weights", "flops": sum(k.flops for k in kernels),
              "read": int(read), "write": int(write), "operands": operands}  # fmt: skip
    return Launch(kernels[0].model_copy(update=update), "merge_same_input", tuple(members), flops_of(operands))


# --- attention -------------------------------------------------------------------------------------------------------


def attention(state: State) -> Iterator[Match]:
    graph = state.graph
    for one in state.untaken():
        if graph.kernels[one].category == "attention" and graph.kernels[one].operands is not None:
            yield _from_cache(state, one, {one}, graph.kernels[one])
        elif graph.kernels[one].category == "softmax":
            found = _written_out(state, one)
            if found is not None:
                yield found


def _written_out(state: State, softmax: int) -> Match | None:
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
    return _from_cache(state, first, members, kernel.model_copy(update=update))


def _is_batched(state: State, one: int, like: int) -> bool:
    operands = state.graph.kernels[one].operands
    return (
        state.free(one, like) and state.graph.kernels[one].category == "matmul" and operands is not None
        and operands.batch is not None and not any(o.role == "weight" for o in operands.inputs)
    )  # fmt: skip


def _is_causal(graph: Graph, scores: set[int]) -> bool:
    """Whether the mask of the scores compares positions."""
    masks = graph.closure(scores, graph.makers, graph.positions.__contains__) & graph.positions
    return any(graph.operator(one) in COMPARES for one in masks)


def _attended(state: State, first: int, second: int, above: set[int]) -> Operands | None:
    """Operands of attention from its two products and the sequences of the batch."""
    graph = state.graph
    scores, values = graph.kernels[first].operands, graph.kernels[second].operands
    batch = int(state.graph.values.get("batch_size", 1))
    if scores is None or values is None or int(scores.batch or 1) % batch:
        return None
    heads = int(scores.batch or 1) // batch
    new = [o for cat in _cats(state, {first, second}) for o in graph.appends(cat)]
    grouped = [int(o.shape[1]) for o in new if len(o.shape) == 4]
    product = {"batch": batch, "q_len": scores.m, "kv_len": scores.n, "heads": heads, "head_dim": scores.k,
               "kv_heads": grouped[0] if grouped else heads, "v_head_dim": values.n,
               "causal": int(int(scores.m or 1) > 1 and _is_causal(graph, above))}  # fmt: skip
    return Operands(operator="attention", inputs=scores.inputs[:1], outputs=values.outputs, **product)


def _moved(state: State, members: set[int]) -> set[int]:
    """Copies and concatenations between the cache and the members."""
    graph, like = state.graph, min(members)
    path = graph.kernels[like].path

    def kept(one: int) -> bool:
        moves = graph.operator(one) in MOVES and graph.kernels[one].category == "copy"
        inside = all(user in members or graph.operator(user) in MOVES for user in graph.consumers[one])
        return moves and inside and state.free(one, like) and graph.kernels[one].path == path

    return graph.closure(members, graph.makers, kept) - members


def _cats(state: State, members: set[int]) -> list[int]:
    """Concatenations of the cache with new tokens."""
    graph = state.graph
    return [one for one in sorted(_moved(state, members)) if graph.appends(one)]


def _from_cache(state: State, anchor: int, members: set[int], kernel: EvaluatedKernel) -> Match:
    """Attention that reads the cache itself; and a kernel that writes the new tokens, if there is a cache."""
    graph, cats = state.graph, _cats(state, members)
    # The kernel writes its output as the next product reads it.
    after = {
        user for one in members for user in graph.consumers[one]
        if graph.operator(user) in MOVES and graph.kernels[user].category == "copy" and state.free(user, anchor)
    }  # fmt: skip
    every = tuple(sorted(members | _moved(state, members) | after))
    operands = kernel.operands
    assert operands is not None
    sizes = (operands.batch, operands.kv_len, operands.kv_heads, operands.head_dim, operands.v_head_dim)
    batch, kv_len, kv_heads, key, value = (1 if size is None else int(size) for size in sizes)
    value = value if operands.v_head_dim is not None else key
    width = Fraction(graph.values.get("kv_bytes" if cats else "a_bytes", 2))
    keys = batch * kv_len * kv_heads * (key + value) * width
    queries = batch * int(operands.q_len or 1) * int(operands.heads or 1) * Fraction(graph.values.get("a_bytes", 2))
    update = {"read": int(keys + queries * key), "write": int(queries * value)}
    attends = Launch(kernel.model_copy(update=update), "flash", every, flops_of(operands))
    new = [operand for cat in cats for operand in graph.appends(cat)]
    if not new:
        return Match(every, (attends,))
    read = sum((graph.bytes_of(operand) for operand in new), Fraction(0))
    write = sum((graph.bytes_of(operand.model_copy(update={"width": "kv"})) for operand in new), Fraction(0))
    append = {"operation": "write of new tokens to the cache", "category": "copy", "flops": 0, "operands": None,
              "read": int(read), "write": int(write)}  # fmt: skip
    writes = Launch(graph.kernels[cats[0]].model_copy(update=append), "flash", tuple(cats), 0)
    return Match(every, (writes, attends))


# --- mixtures of experts ---------------------------------------------------------------------------------------------


def experts(state: State) -> Iterator[Match]:
    graph, seen = state.graph, set[int]()
    for anchor in state.untaken():
        if graph.kernels[anchor].category != "grouped_matmul" or anchor in seen:
            continue

        def inside(one: int, anchor: int = anchor) -> bool:
            other = graph.is_product(one) and graph.kernels[one].category != "grouped_matmul"
            return state.free(one, anchor) and not other

        def below(one: int) -> list[int]:
            # The rows of a token's experts are added: what follows is of the token.
            return [] if graph.operator(one) in COMBINES else graph.consumers[one]

        ends = [o for o in graph.closure([anchor], below, inside) if graph.operator(o) in COMBINES]
        members = graph.closure(ends, lambda one: [m for m in graph.makers(one) if m < one], inside)
        converts = [user for end in ends for user in graph.consumers[end] if graph.operator(user) == "_to_copy"]
        members |= {user for user in converts if inside(user)}
        seen |= members
        if anchor in members and any(graph.operator(one) == "topk" for one in members):
            yield Match(tuple(sorted(members)), (_experts(state, members),))


def _experts(state: State, members: set[int]) -> Launch:
    graph, kept = state.graph, tuple(sorted(members))
    grouped = [one for one in kept if graph.kernels[one].category == "grouped_matmul"]
    products = [operands for one in grouped if (operands := graph.kernels[one].operands) is not None]
    first = graph.kernels[grouped[0]]
    read, write = graph.traffic(members)
    update = {"operation": "mixture of experts", "flops": sum(graph.kernels[one].flops for one in kept),
              "read": read, "write": write, "operands": products[0]}  # fmt: skip
    flops = sum(map(flops_of, products))
    return Launch(first.model_copy(update=update), "moe", kept, flops, _row(state, first, products))


def _row(state: State, first: EvaluatedKernel, products: list[Operands]) -> Mapping[str, object] | None:
    """The row of a mixture; None where its products are not those of two or three matrices an expert."""
    dtype = state.of_expert(first)
    hidden, inner = int(products[-1].n or 0), int(products[-1].k or 0)
    matrices, rest = divmod(sum(int(p.n or 0) * int(p.k or 0) for p in products), max(1, hidden * inner))
    if dtype not in ("bfloat16", "fp8") or matrices not in (2, 3) or rest:
        return None
    sizes = {"tokens": products[0].tokens, "topk": products[0].top_k, "experts": products[0].experts}
    return {"op": "moe", "dtype": dtype, "hidden": hidden, "inter": inner, "gated": matrices == 3, **sizes}


# --- logits and quantisation -----------------------------------------------------------------------------------------


def last_logits(state: State) -> Iterator[Match]:
    """The last product of the model, if it has a row for each token: engines keep one for each sequence."""
    graph = state.graph
    batch, tokens = (int(graph.values.get(name, 1)) for name in ("batch_size", "seq_len"))
    for one in state.untaken():
        kernel, operands = graph.kernels[one], graph.kernels[one].operands
        if operands is None or not _is_linear(graph, one) or kernel.repeat != 1 or graph.consumers[one]:
            continue
        if tokens == 1 or operands.m != batch * tokens:
            continue
        last = operands.model_copy(update={"m": batch})
        weight = _weight(operands)
        assert weight is not None
        matrix = graph.bytes_of(weight)
        rows = Fraction(read_number(kernel.read)) - matrix
        saved = flops_of(operands) - flops_of(last)
        update = {"operands": last, "flops": kernel.flops - saved, "read": int(matrix + rows / tokens),
                  "write": int(Fraction(read_number(kernel.write)) / tokens)}  # fmt: skip
        launch = Launch(kernel.model_copy(update=update), "last_token_logits", (one,), flops_of(last))
        yield Match((one,), (launch,), saved * kernel.repeat)


def quantises(state: State) -> Iterator[Match]:
    """A kernel before each fp8 product whose input no fused kernel writes in 8 bits. It takes no kernel."""
    graph = state.graph
    if state.dtype != "fp8":
        return
    linear = [launch for launch in state.launches if launch.row is None and launch.kernel.category == "matmul"]
    linear += [Launch(graph.kernels[one], None, (one,), 0) for one in state.untaken() if _is_linear(graph, one)]
    for launch in linear:
        operands = launch.kernel.operands
        makers = graph.makers(launch.members[0])
        if operands is None or (makers and all(state.taken.get(maker) in FUSES_QUANTISATION for maker in makers)):
            continue
        m, k = int(operands.m or 1), int(operands.k or 1)
        costs = {"operation": "quantisation of the input", "category": "copy", "flops": 0, "operands": None,
                 "read": 2 * m * k, "write": m * k}  # fmt: skip
        row = {"op": "quantise", "m": m, "k": k, "scale": "static"}
        made = Launch(launch.kernel.model_copy(update=costs), "quantise", launch.members[:1], 0, row)
        yield Match((), (made,))
