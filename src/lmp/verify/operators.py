"""Cost of one ATen operator by the contract's byte and FLOP rules, written independently of `lmp.trace.rules`.

`Units` counts elements of the model's dtype apart from bytes, and weights, activations and the KV cache apart from one
another. So ``w_bytes``, ``a_bytes`` and ``kv_bytes`` stay distinct even if all are 2.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil, prod
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from lmp import flops as table
from lmp.verify.operands import Seen, plain, seen


@dataclass(frozen=True)
class Traffic:
    """Memory traffic: elements of ``w_bytes``, ``a_bytes`` and ``kv_bytes``, and bytes of other dtypes."""

    w: int = 0
    a: int = 0
    kv: int = 0
    literal: int = 0
    by_storage: tuple[tuple[int, int], ...] = ()
    """The elements in ``a`` by storage, until the run has ended: only then it is known what the KV cache holds."""

    def bytes(self, w_bytes: int, a_bytes: int, kv_bytes: int) -> int:
        return self.w * w_bytes + self.a * a_bytes + self.kv * kv_bytes + self.literal

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.w + other.w,
            self.a + other.a,
            self.kv + other.kv,
            self.literal + other.literal,
            self.by_storage + other.by_storage,
        )

    def with_cache(self, storages: Collection[int]) -> Traffic:
        """The same traffic after the run, with the elements in these storages as those of the KV cache."""
        kv = sum(count for storage, count in self.by_storage if storage in storages)
        return Traffic(self.w, self.a - kv, self.kv + kv, self.literal)


NOTHING = Traffic()


@dataclass(frozen=True)
class Cost:
    """Cost of one operator. ``known``: false if no rule gives its FLOPs; ``flops`` is then 0."""

    flops: int = 0
    matmul_flops: int = 0
    read: Traffic = NOTHING
    write: Traffic = NOTHING
    known: bool = True
    operands: tuple[Seen, ...] = field(default=(), compare=False)


FREE = Cost()


def elements(tensor: torch.Tensor) -> int:
    """Distinct elements: a broadcast (stride 0) dimension counts once, a 0-dimensional tensor counts 0."""
    if tensor.dim() == 0 or tensor.numel() == 0:
        return 0
    return prod(size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride != 0)


class Units:
    """Units of one module's tensors: the storages of its weights, and its dtype."""

    def __init__(self, module: torch.nn.Module, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self._kept = [*module.parameters(), *module.buffers()]  # kept alive: freed addresses are reused
        self.weights = {tensor.untyped_storage()._cdata for tensor in self._kept}

    def price(self, tensor: torch.Tensor, count: int) -> Traffic:
        """Traffic of ``count`` elements with the unit of ``tensor``."""
        if count == 0:
            return NOTHING
        if tensor.dtype != self.dtype:
            return Traffic(literal=count * tensor.dtype.itemsize)
        storage = tensor.untyped_storage()._cdata
        if storage in self.weights:
            return Traffic(w=count)
        self._kept.append(tensor)
        return Traffic(a=count, by_storage=((storage, count),))

    def seen(self, arguments: Mapping[str, Any], outputs: Iterable[torch.Tensor]) -> tuple[Seen, ...]:
        """The operands of an operator. The tensors are kept, so that their storages are not reused."""
        outputs = list(outputs)
        self._kept += [*tensors_of(arguments.values()), *outputs]
        return seen(arguments, outputs, self.weights, self.dtype)

    def total(self, tensors: Iterable[torch.Tensor]) -> Traffic:
        """Traffic of all elements, each distinct tensor object once."""
        found = NOTHING
        for tensor in {id(tensor): tensor for tensor in tensors}.values():
            found += self.price(tensor, elements(tensor))
        return found


@dataclass(frozen=True)
class Operation:
    """One dispatched operator: arguments by schema name (defaults included), and results."""

    name: str
    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    given: dict[str, Any]
    outputs: tuple[torch.Tensor, ...]
    result: Any

    @property
    def inputs(self) -> list[torch.Tensor]:
        return list(tensors_of(self.given.values()))


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from tensors_of(value.values())
    elif isinstance(value, (list, tuple)) or type(value).__name__ == "dict_values":
        for item in value:
            yield from tensors_of(item)


def operation(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Operation:
    """Bind the arguments by name. Tensors written in place are outputs too."""
    given: dict[str, Any] = {}
    written: list[torch.Tensor] = []
    for index, argument in enumerate(func._schema.arguments):
        value = args[index] if index < len(args) else kwargs.get(argument.name, argument.default_value)
        given[argument.name] = value
        if argument.alias_info is not None and argument.alias_info.is_write:
            written.extend(tensors_of(value))
    outputs = {id(tensor): tensor for tensor in (*written, *tensors_of([result]))}
    name = func._schema.name.split("::")[-1]
    return Operation(plain_name(name), func, args, kwargs, given, tuple(outputs.values()), result)


def plain_name(name: str) -> str:
    """The name without the underscore of an in-place operator."""
    return name if name.endswith("__") else name.removesuffix("_")


def is_view(func: Any) -> bool:
    """True if the operator is a view by ATen's own marks.

    Either its schema has each result alias an argument that is not written, or the tag inplace_view is set.
    """
    if torch.Tag.inplace_view in func.tags:
        return True
    returns = func._schema.returns
    return bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)


UNMARKED_VIEWS = frozenset({"_unsafe_view", "unsafe_split", "unsafe_split_with_sizes", "as_strided"})
"""Operators that share their input's memory without a mark.

as_strided also stands for as_strided_, which changes strides.
"""

ALLOCATIONS = frozenset(
    {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"},
)

HOST = frozenset({"_local_scalar_dense"})
"""Operators that return a 0-dimensional tensor's value to Python."""


def cost_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, units: Units) -> Cost:
    """Cost of one executed operator, from its schema, arguments and result."""
    op = operation(func, args, kwargs, result)
    if is_view(func) or op.name in UNMARKED_VIEWS or op.name in ALLOCATIONS or op.name in HOST:
        return FREE
    matmul = matmul_flops(op)
    if matmul is not None:
        flops: int | None = matmul + bias_flops(op)
    else:
        flops = other_flops(op)
    read, write = traffic(op, units)
    return Cost(
        flops or 0, matmul or 0, read, write, flops is not None, units.seen(plain(op.name, op.given)[1], op.outputs)
    )


# --- bytes


LIKE = frozenset(
    {"zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like"}
    | {"new_zeros", "new_ones", "new_full", "fill", "zero"}
)
"""Operators that use only the shape and dtype of a tensor."""

OVERWRITING = frozenset({"copy", "fill", "zero", "normal", "uniform", "random", "bernoulli", "exponential"})
"""Operators that write their first argument without reading it."""

GATHERS = {"embedding": ("weight", "indices"), "index": ("self", "indices"), "index_select": ("self", "index"),
           "gather": ("self", "index"), "take": ("self", "index")}  # fmt: skip
"""Operator -> name of the table argument, name of the index argument."""


def traffic(op: Operation, units: Units) -> tuple[Traffic, Traffic]:
    """Traffic read and written by the operator."""
    if op.name in GATHERS and op.result is not None:
        return gather_traffic(op, units)
    if op.name in SCATTERS:
        return scatter_traffic(op, units)
    if op.name in GROUPED:
        return grouped_traffic(op, units)
    write = units.total(op.outputs)
    if op.name in LIKE:
        return NOTHING, write
    inputs = [tensor for tensor in op.inputs if not _is_out(op, tensor)]
    if op.name in OVERWRITING:
        destination = op.given.get("self")
        inputs = [tensor for tensor in inputs if tensor is not destination]
    return units.total(inputs), write


def _is_out(op: Operation, tensor: torch.Tensor) -> bool:
    """True if the tensor is an ``out=`` argument: it is written, not read."""
    named = [a.name for a in op.func._schema.arguments if a.is_out]
    return any(tensor is given for given in tensors_of([op.given[name] for name in named]))


def gather_traffic(op: Operation, units: Units) -> tuple[Traffic, Traffic]:
    """The indices and the gathered rows are read, not the whole table."""
    table_name, index_name = GATHERS[op.name]
    source, out = op.given[table_name], op.outputs[-1]
    rows = units.price(source, out.numel() if source.dim() else 0)
    return units.total(tensors_of([op.given[index_name]])) + rows, units.total([out])


@dataclass(frozen=True)
class Scatter:
    """Names of a scatter's index and value arguments. ``adds``: destinations are read and added to."""

    index: str
    values: tuple[str, ...]
    adds: bool = False


SCATTERS = {
    "index_put": Scatter("indices", ("values",)),
    "_index_put_impl": Scatter("indices", ("values",)),
    "scatter": Scatter("index", ("src", "value")),
    "index_copy": Scatter("index", ("source",)),
    "index_fill": Scatter("index", ("value",)),
    "index_add": Scatter("index", ("source",), adds=True),
    "scatter_add": Scatter("index", ("src",), adds=True),
}


def scatter_traffic(op: Operation, units: Units) -> tuple[Traffic, Traffic]:
    """Values and indices are read. As many elements are written as there are values, in place or not."""
    rule = SCATTERS[op.name]
    count = scattered(op)
    values = next((op.given[name] for name in rule.values if name in op.given), None)
    read = units.total(tensors_of([op.given[rule.index]]))
    if isinstance(values, torch.Tensor):
        read += units.price(values, min(elements(values), count))
    destination = op.given["self"]
    if destination.dim() == 0:
        count = 0
    if accumulates(op):
        read += units.price(destination, count)
    return read, units.price(op.outputs[-1], count)


def accumulates(op: Operation) -> bool:
    return SCATTERS[op.name].adds or bool(op.given.get("accumulate")) or op.given.get("reduce") is not None


def scattered(op: Operation) -> int:
    """Number of elements that the scatter writes."""
    given = op.given
    if op.name in ("scatter", "scatter_add"):
        return given["index"].numel()
    if op.name in ("index_copy", "index_add"):
        return given["source"].numel()
    if op.name == "index_fill":
        size = given["self"].shape[given["dim"]]
        return given["self"].numel() // size * given["index"].numel() if size else 0
    return _indexed(given["self"], given["indices"], given["values"])


def _indexed(destination: torch.Tensor, indices: list[torch.Tensor | None], values: torch.Tensor) -> int:
    """Elements of ``destination[indices]``: a broadcast value is stored once for each of them."""
    shapes: list[tuple[int, ...]] = []
    rest, dim = 1, 0
    for index in indices:
        if index is None:
            rest, dim = rest * destination.shape[dim], dim + 1
        elif index.dtype in (torch.bool, torch.uint8):
            dim += index.dim()
            # On the meta device, only the shape of the values shows how many mask entries are set.
            hits = None if index.is_meta else int(torch.count_nonzero(index))
            if hits is None:
                # One value per set entry: its dimension precedes those outside the mask. A value for all entries has
                # fewer dimensions. So has a value for a single entry, because setting drops leading dimensions of 1.
                each = values.dim() > destination.dim() - index.dim()
                hits = values.shape[0] if each else index.numel()
            shapes.append((hits,))
        else:
            shapes.append(tuple(index.shape))
            dim += 1
    return prod(torch.broadcast_shapes(*shapes)) * rest * prod(destination.shape[dim:])


def grouped_traffic(op: Operation, units: Units) -> tuple[Traffic, Traffic]:
    """Traffic of rows, offsets, and the weights of at most as many experts as there are rows."""
    rows, weights = op.args[0], op.args[1]
    read = units.total(tensor for tensor in op.inputs if tensor is not weights)
    if weights is not rows:
        count = elements(weights)
        if rows.dim() == 2 and weights.dim() == 3 and weights.shape[0]:
            count = count // weights.shape[0] * min(weights.shape[0], rows.shape[0])
        read += units.price(weights, count)
    return read, units.total(op.outputs)


# --- FLOPs


def grouped_mm_flop(rows_shape: Any, weights_shape: Any, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    """``2 * M * K * N`` over all rows, for any routing. FlopCounterMode lacks this rule."""
    *_, n = weights_shape
    return 2 * prod(rows_shape) * n


GROUPED = frozenset({"_grouped_mm", "grouped_mm_fallback"})
"""PyTorch's grouped matmul, and transformers' operator for cases where it cannot run."""


def grouped_mm_mapping() -> dict[Any, Callable[..., int]]:
    """The rule that FlopCounterMode lacks, as its ``custom_mapping``."""
    mapping: dict[Any, Callable[..., int]] = {torch.ops.aten._grouped_mm: grouped_mm_flop}
    fallback = getattr(torch.ops.transformers, "grouped_mm_fallback", None)
    if fallback is not None:
        mapping[fallback] = grouped_mm_flop
    return mapping


def matmul_flops(op: Operation) -> int | None:
    """Matmul FLOPs by torch's flop counter; None if the operator is no matmul."""
    if op.name in GROUPED:
        return grouped_mm_flop(op.args[0].shape, op.args[1].shape)
    formula = flop_registry.get(op.func._overloadpacket)
    return int(formula(*op.args, **op.kwargs, out_val=op.result)) if formula is not None else None


def bias_flops(op: Operation) -> int:
    """FLOPs of a matmul beside its products: one addition per element for a bias, one product for a scale."""
    each = 0
    if "beta" in op.given and op.given["beta"] != 0:
        each += 1 + (op.given["beta"] != 1)
    if op.given.get("alpha", 1) != 1:
        each += 1
    if op.given.get("bias") is not None:
        each += 1
    return each * op.outputs[-1].numel()


SAME_AS = {"_native_batch_norm_legit_no_training": "native_batch_norm"}


def other_flops(op: Operation) -> int | None:
    """FLOPs by the table in `lmp.flops` and by `SPECIAL`; None for floating-point arithmetic without an entry."""
    floating = [tensor for tensor in op.inputs if tensor.is_floating_point()]
    if any(tensor.is_complex() for tensor in (*op.inputs, *op.outputs)):
        # The table counts real numbers. Moving complex ones is free, and most arithmetic on them has no rule.
        if op.name == "polar":
            return table.TABLE[op.name].per_output * op.outputs[0].numel()
        if op.name in table.COMPLEX:
            both = all(
                isinstance(t, torch.Tensor) and t.is_complex() for t in (op.given["self"], op.given.get("other"))
            )
            return table.complex_operations(op.name, 2 if both else 1) * op.outputs[0].numel()
        return 0 if table.TABLE.get(op.name) == table.FREE else None
    if not floating and not any(tensor.is_floating_point() for tensor in op.outputs):
        return 0
    if op.name in SCATTERS and op.name in table.TABLE:
        return scattered(op) * (accumulates(op) + (op.given.get("alpha", 1) != 1))
    if op.name.startswith(("max_pool", "avg_pool")):
        return pool_flops(op)
    name = SAME_AS.get(op.name, op.name)
    entry, special = table.TABLE.get(name), SPECIAL.get(name)
    if entry is None and special is None:
        return None
    entry = entry or table.ScalarOps()
    first = floating[0].numel() if floating else 0
    out = op.outputs[0].numel() if op.outputs else 0
    flops = entry.per_input * first + entry.per_output * out
    return flops + (special(op, first, out, entry) if special else 0)


def _scaled(op: Operation, first: int, out: int, entry: table.ScalarOps) -> int:
    return out if op.given.get("alpha", 1) != 1 else 0


def _power(op: Operation, first: int, out: int, entry: table.ScalarOps) -> int:
    exponent = op.given["exponent"]
    known = not isinstance(exponent, torch.Tensor) and not isinstance(op.given["self"], (int, float))
    return out * (table.pow_operations(exponent if known else None) - entry.per_output)


def _gelu(op: Operation, first: int, out: int, entry: table.ScalarOps) -> int:
    return out * (table.GELU_TANH - entry.per_output) if op.given.get("approximate") == "tanh" else 0


def _bounds(op: Operation, first: int, out: int, entry: table.ScalarOps) -> int:
    bounds = sum(op.given.get(name) is not None for name in ("min", "max"))
    return out * (bounds - entry.per_output)


def _normalised(rows: Callable[[Operation], int]) -> Callable[[Operation, int, int, table.ScalarOps], int]:
    def extra(op: Operation, first: int, out: int, entry: table.ScalarOps) -> int:
        affine = sum(op.given.get(name) is not None for name in ("weight", "bias"))
        return entry.per_row * rows(op) + affine * first

    return extra


def _last_dims(op: Operation) -> int:
    return op.given["input"].numel() // (prod(op.given["normalized_shape"]) or 1)


def _groups(op: Operation) -> int:
    return op.given["N"] * op.given["group"]


def _channels(op: Operation) -> int:
    return op.given["input"].shape[1]


def _batch_norm(op: Operation, first: int, out: int, entry: table.ScalarOps) -> int:
    """A norm per channel. With ``training`` the mean and the variance are of the input, and computed too."""
    more = table.INPUT_STATISTICS
    own = more.per_input * first + more.per_row * _channels(op) if op.given.get("training") else 0
    return own + _normalised(_channels)(op, first, out, entry)


def _logs(op: Operation, first: int, out: int, entry: table.ScalarOps) -> int:
    length = op.given["self"].shape[op.given["dim"]] if op.given["self"].dim() else 1
    return entry.per_row * (first // (length or 1))


def _bilinear(op: Operation, first: int, out: int, entry: table.ScalarOps) -> int:
    # x1 is [rows, in1], W is [out, in1, in2]: each row uses every element of W.
    rows, _ = op.given["i1"].shape
    return rows * op.given["i2"].numel() * 3


def _triangular(op: Operation, first: int, out: int, entry: table.ScalarOps) -> int:
    # 2 * i operations in row i, and a division unless the diagonal is 1: n * (n - 1) + n per column.
    rows = op.given["self"].shape[-1]
    columns = out // rows if rows else 0
    return columns * (rows * (rows - 1) + (0 if op.given.get("unitriangular") else rows))


def _anti_aliased(op: Operation, first: int, out: int, entry: table.ScalarOps) -> int:
    least = table.NEIGHBOURS[op.name]
    rows, columns = (
        max(least, ceil(least * before / after))
        for before, after in zip(op.given["self"].shape[-2:], op.outputs[0].shape[-2:], strict=True)
    )
    return out * (rows * columns + rows * columns - 1)


def _sampled(op: Operation, first: int, out: int, entry: table.ScalarOps) -> int:
    # torch's modes: 0 bilinear, 1 nearest, 2 bicubic. n products and n - 1 additions for n neighbours.
    neighbours = {0: 2 * 2, 1: 0, 2: 4 * 4}[op.given["interpolation_mode"]]
    return out * (2 * neighbours - 1) if neighbours else 0


def _mean_squared(op: Operation, first: int, out: int, entry: table.ScalarOps) -> int:
    # Reductions: 0 none, 1 mean, 2 sum.
    return {0: 2 * first, 1: 3 * first + 1, 2: 3 * first}[op.given.get("reduction", 1)]


def _distance(op: Operation, first: int, out: int, entry: table.ScalarOps) -> int:
    return out * 3 * op.given["x1"].shape[-1] + out


SPECIAL: dict[str, Callable[[Operation, int, int, table.ScalarOps], int]] = {
    "add": _scaled,
    "sub": _scaled,
    "rsub": _scaled,
    "pow": _power,
    "gelu": _gelu,
    "clamp": _bounds,
    "native_layer_norm": _normalised(_last_dims),
    "_fused_rms_norm": _normalised(_last_dims),
    "native_group_norm": _normalised(_groups),
    "native_batch_norm": _batch_norm,
    "_log_softmax": _logs,
    # One norm per element of g.
    "_weight_norm_interface": lambda op, first, out, entry: entry.per_row * op.given["g"].numel(),
    "_trilinear": _bilinear,
    "_upsample_bilinear2d_aa": _anti_aliased,
    "_upsample_bicubic2d_aa": _anti_aliased,
    "grid_sampler_2d": _sampled,
    "mse_loss": _mean_squared,
    "_euclidean_dist": _distance,
    "linalg_solve_triangular": _triangular,
}
"""Operator -> function for the FLOPs that its arguments add to its table entry, if it has one. They may be negative."""


def pool_flops(op: Operation) -> int:
    """A comparison or an addition per element of each window; an average also divides once per result."""
    dims = next(int(character) for character in op.name if character.isdigit())
    kernel = list(op.given["kernel_size"])
    window = prod(kernel if len(kernel) == dims else kernel * dims)
    return op.outputs[0].numel() * (window + op.name.startswith("avg_pool"))


# --- attention as one operator


def attention_cost(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    output: torch.Tensor,
    units: Units,
) -> Cost:
    """``2 * B * Hq * Sq * Sk * (Dq + Dv)``, causal or not. q, k, v and mask are read, the output is written."""
    leading = prod(output.shape[:-2])
    flops = 2 * leading * query.shape[-2] * key.shape[-2] * (query.shape[-1] + value.shape[-1])
    given = {"query": query, "key": key, "value": value, "attn_mask": mask}
    read = units.total(tensors_of(given.values()))
    return Cost(flops, flops, read, units.total([output]), operands=units.seen(given, [output]))
