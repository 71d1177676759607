"""Rules on products with weights: biases, weights of one input, logits, quantisation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction

from lmp.formula import read_number
from lmp.predict.rewrite.graph import Graph
from lmp.predict.rewrite.rules import Launch, Match, State
from lmp.predict.shard.records import collective_of, with_bytes
from lmp.records import Operand, Operands

BEHIND_LOGITS = frozenset({"elementwise", "activation", "copy", "collective"})
"""Categories of kernels between the logits and the output, as a cap or a conversion."""
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


def is_linear(graph: Graph, one: int) -> bool:
    """Whether it is one product with a weight matrix."""
    operands = graph.kernels[one].operands
    if graph.kernels[one].category != "matmul" or operands is None or operands.m is None:
        return False
    return operands.batch in (None, 1) and weight_of(operands) is not None


def weight_of(operands: Operands) -> Operand | None:
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
        if operands is None or not is_linear(graph, one):
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
    weight = weight_of(parts[0])
    assert weight is not None
    inputs = [o.model_copy(update={"shape": [parts[0].k, columns]}) if o is weight else o for o in parts[0].inputs]
    operands = parts[0].model_copy(update={"n": columns, "inputs": inputs, "outputs": []})
    shared = max((graph.bytes_of(o) for o in parts[0].inputs if o.role == "activation"), default=Fraction(0))
    read = sum(Fraction(read_number(kernel.read)) for kernel in kernels) - (len(kernels) - 1) * shared
    write = sum(Fraction(read_number(kernel.write)) for kernel in kernels)
    update = {"operation": f"matrix multiplication, {len(members)} weights", "flops": sum(k.flops for k in kernels),
              "read": int(read), "write": int(write), "operands": operands}  # fmt: skip
    return Launch(kernels[0].model_copy(update=update), "merge_same_input", tuple(members), flops_of(operands))


def converted(state: State) -> Iterator[Match]:
    """Products in float32 of 16-bit operands that are converted before: matrix units multiply these as they are."""
    graph = state.graph
    for one in state.untaken():
        operands = graph.kernels[one].operands
        makers = graph.makers(one)
        if graph.kernels[one].category != "matmul" or operands is None or operands.batch not in (None, 1):
            continue
        matrices = [operand for operand in operands.inputs if len(operand.shape) > 1]
        wide = len(matrices) == 2 and all(operand.width == 4 for operand in matrices)
        if not wide or len(makers) != 2 or not all(_is_widening(state, maker, one) for maker in makers):
            continue
        if sum(map(graph.weights_only, makers)) != 1:
            continue
        members = {one, *(maker for maker in makers if graph.consumers[maker] == [one])}
        given = [graph.inputs(maker)[0] for maker in makers]
        read = sum(map(graph.bytes_of, given), Fraction(0))
        update = {"operation": "matrix multiplication, 32-bit sums", "read": int(read)}
        row = {"op": "gemm", "dtype": "bfloat16", "m": operands.m, "n": operands.n, "k": operands.k}
        kernel, kept = graph.kernels[one].model_copy(update=update), tuple(sorted(members))
        yield Match(kept, (Launch(kernel, "wide_product", kept, flops_of(operands), row),))


def _is_widening(state: State, one: int, like: int) -> bool:
    """Whether it converts 16 bits or less to 32."""
    operands = state.graph.kernels[one].operands
    if operands is None or operands.operator != "_to_copy" or not state.free(one, like):
        return False
    given, made = map(state.graph.bytes_of, (operands.inputs[0], operands.outputs[0]))
    return operands.outputs[0].width == 4 and made >= 2 * given


def last_logits(state: State) -> Iterator[Match]:
    """The last product of the model, if it has a row for each token: engines keep one for each sequence."""
    graph = state.graph
    batch, tokens = (int(graph.values.get(name, 1)) for name in ("batch_size", "seq_len"))
    for one in state.untaken():
        kernel, operands = graph.kernels[one], graph.kernels[one].operands
        if operands is None or not is_linear(graph, one) or kernel.repeat != 1:
            continue
        behind = graph.closure([one], graph.consumers.__getitem__, lambda user: user not in state.taken) - {one}
        if not all(graph.kernels[user].category in BEHIND_LOGITS for user in behind):
            continue
        if tokens == 1 or operands.m != batch * tokens:
            continue
        last = operands.model_copy(update={"m": batch})
        weight = weight_of(operands)
        assert weight is not None
        matrix = graph.bytes_of(weight)
        rows = Fraction(read_number(kernel.read)) - matrix
        saved = flops_of(operands) - flops_of(last)
        update = {"operands": last, "flops": kernel.flops - saved, "read": int(matrix + rows / tokens),
                  "write": int(Fraction(read_number(kernel.write)) / tokens)}  # fmt: skip
        launch = Launch(kernel.model_copy(update=update), "last_token_logits", (one,), flops_of(last))
        others = [_of_last(graph, user, tokens) for user in sorted(behind)]
        yield Match((one, *sorted(behind)), (launch, *others), saved * kernel.repeat)


def _of_last(graph: Graph, one: int, tokens: int) -> Launch:
    """A kernel behind the logits, of one token of each sequence."""
    kernel = graph.kernels[one]
    if collective_of(kernel) is not None:
        return Launch(with_bytes(kernel, tokens), "last_token_logits", (one,), 0)
    update = {name: int(Fraction(read_number(getattr(kernel, name))) / tokens) for name in ("flops", "read", "write")}
    return Launch(kernel.model_copy(update={**update, "operands": None}), "last_token_logits", (one,), 0)


def quantises(state: State) -> Iterator[Match]:
    """A kernel before each fp8 product whose input no fused kernel writes in 8 bits. It takes no kernel."""
    graph = state.graph
    if state.dtype != "fp8":
        return
    linear = [launch for launch in state.launches if launch.row is None and launch.kernel.category == "matmul"]
    linear += [Launch(graph.kernels[one], None, (one,), 0) for one in state.untaken() if is_linear(graph, one)]
    for launch in linear:
        operands = launch.kernel.operands
        makers = graph.makers(launch.members[0])
        if (
            operands is None
            or not state.reads_fp8(launch.kernel)
            or (makers and all(state.taken.get(maker) in FUSES_QUANTISATION for maker in makers))
        ):
            continue
        m, k = int(operands.m or 1), int(operands.k or 1)
        costs = {"operation": "quantisation of the input", "category": "copy", "flops": 0, "operands": None,
                 "read": 2 * m * k, "write": m * k}  # fmt: skip
        row = {"op": "quantise", "m": m, "k": k, "scale": "static"}
        made = Launch(launch.kernel.model_copy(update=costs), "quantise", launch.members[:1], 0, row)
        yield Match((), (made,))


def chained(state: State) -> Iterator[Match]:
    """Two products without weights, what is between them larger than the result: it stays inside of one kernel."""
    graph = state.graph
    for second in state.untaken():
        if not _is_of_activations(state, second):
            continue

        def between(one: int, second: int = second) -> bool:
            pointwise = graph.kernels[one].category in ("elementwise", "activation", "copy")
            return pointwise and state.free(one, second) and not graph.appends(one)

        chain = graph.closure([second], graph.makers, between) - {second}
        firsts = {m for one in chain | {second} for m in graph.makers(one) if _is_of_activations(state, m)}
        if len(firsts) != 1:
            continue
        first = firsts.pop()
        path = graph.closure([first], graph.consumers.__getitem__, chain.__contains__) - {first}
        members = {first, second, *path}
        while copies := {m for one in members for m in graph.makers(one) if _is_copy_for(state, m, members)} - members:
            members |= copies
        inner = [one for one in members if one != second]
        if not state.free(first, second) or any(set(graph.consumers[one]) - members for one in inner):
            continue
        read, write = graph.traffic(members)
        hidden = Fraction(read_number(graph.kernels[first].write))
        if hidden <= write:
            continue
        products = (graph.kernels[first], graph.kernels[second])
        flops = sum(flops_of(kernel.operands) for kernel in products if kernel.operands is not None)
        update = {"operation": "two products, one kernel", "flops": sum(graph.kernels[one].flops for one in members),
                  "category": "matmul", "read": read, "write": write, "operands": None}  # fmt: skip
        kept = tuple(sorted(members))
        yield Match(kept, (Launch(products[0].model_copy(update=update), "chained_products", kept, flops),))


def _is_copy_for(state: State, one: int, members: set[int]) -> bool:
    """Whether it converts or copies for these kernels alone."""
    copies = state.graph.operator(one) in ("_to_copy", "clone") and state.free(one, min(members))
    return copies and set(state.graph.consumers[one]) <= members


def _is_of_activations(state: State, one: int) -> bool:
    kernel = state.graph.kernels[one]
    operands = kernel.operands
    sized = kernel.category == "matmul" and operands is not None and operands.m is not None
    return sized and one not in state.taken and not state.graph.has_role(one, "weight")
