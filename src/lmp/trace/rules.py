"""Costs of single operators: a registry of short rules over the shapes of inputs and outputs.

A rule gives an operator's matmul FLOPs and its category. It also gives the elements read and written, unless each input
is read once and each output written once. Shapes are tuples of sizes; a size is an integer or a formula. Rules only
multiply and add sizes, so plain numbers suffice to test them. Scalar FLOPs come from ``lmp.flops``, or from a rule that
states its own definition. Names are ATen's, without overload and without the underscore of in-place variants.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lmp.flops import (
    COMPLEX,
    FREE,
    GELU_TANH,
    INPUT_STATISTICS,
    NEIGHBOURS,
    SAMPLED,
    TABLE,
    ScalarOps,
    complex_operations,
    pow_operations,
)

Size = Any
"""An int, or an expression that supports multiplication and addition."""

Unit = str | int
"""Unit of an element's cost: "w_bytes", "a_bytes", "kv_bytes", or its size in bytes."""


@dataclass(eq=False, slots=True)
class Tensor:
    """Properties of a tensor that rules use. Compared by identity: two objects are two tensors."""

    shape: tuple[Size, ...]
    unit: Unit
    """Known when the run has ended: a tensor may be stored in a KV cache after it was made."""
    floating: bool = True
    broadcast: frozenset[int] = frozenset()
    """Dimensions of stride 0: all their elements share one memory."""
    storage: int = 0
    """Identity of the memory that this tensor is a view of."""
    complex: bool = False
    weight: bool = False
    """True for a parameter or buffer of the module, or a view of one, of any dtype."""
    cached: bool = False
    """True for keys and values that a KV cache holds, of any dtype. Known when the run has ended, as ``unit``."""

    @property
    def elements(self) -> Size:
        """Elements in memory. Broadcast dimensions count once; 0-dimensional and empty tensors count 0."""
        if not self.shape or any(isinstance(size, int) and size == 0 for size in self.shape):
            return 0
        return product(size for dim, size in enumerate(self.shape) if dim not in self.broadcast)

    @property
    def results(self) -> Size:
        """Elements of the computation: the product of all dimensions."""
        return product(self.shape)


@dataclass(frozen=True, slots=True)
class Operator:
    """One dispatched operator: its arguments by schema name, with tensors as ``Tensor``."""

    name: str
    arguments: Mapping[str, Any]
    outputs: tuple[Tensor, ...]
    in_place: bool = False

    @property
    def inputs(self) -> list[Tensor]:
        """Distinct input tensors in schema order."""
        found: dict[int, Tensor] = {}
        for value in self.arguments.values():
            for item in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(item, Tensor):
                    found.setdefault(id(item), item)
        return list(found.values())

    def get(self, name: str, default: Any = None) -> Any:
        value = self.arguments.get(name)
        return default if value is None else value


@dataclass(frozen=True, slots=True)
class Move:
    """A number of elements moved, and the unit of each."""

    elements: Size
    unit: Unit
    tensor: Tensor | None = None
    whole: bool = True
    """False if only gathered parts of the tensor are moved."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one operator. ``scalar_flops``: all FLOPs but the matmul's. ``counted``: false if there is no rule."""

    category: str
    matmul_flops: Size = 0
    scalar_flops: Size = 0
    reads: tuple[Move, ...] = ()
    writes: tuple[Move, ...] = ()
    counted: bool = True


@dataclass(frozen=True)
class Rule:
    category: str
    matmul_flops: Callable[[Operator], Size] | None = None
    scalar_flops: Callable[[Operator], Size] | None = None
    reads: Callable[[Operator], list[Move]] | None = None
    writes: Callable[[Operator], list[Move]] | None = None
    definition: str = ""
    """What ``scalar_flops`` counts, for an operator without a row in ``TABLE``."""


RULES: dict[str, Rule] = {}


def product(sizes: Any) -> Size:
    return math.prod(sizes, start=1)


def register(*names: str, **rule: Any) -> None:
    for name in names:
        if name in RULES:
            raise ValueError(f"operator {name} has two rules")
        RULES[name] = Rule(**rule)


def definitions() -> dict[str, ScalarOps]:
    """Counts and definitions of all operators: the rows of ``TABLE``, then the rules with their own definition."""
    return TABLE | {name: ScalarOps(definition=rule.definition) for name, rule in RULES.items() if rule.definition}


def whole(tensor: Tensor | None) -> list[Move]:
    """One move of every element of a tensor; empty for None and for tensors without elements."""
    return [] if tensor is None or (isinstance(tensor.elements, int) and tensor.elements == 0) else [_move(tensor)]


def _move(tensor: Tensor) -> Move:
    return Move(tensor.elements, tensor.unit, tensor)


def cost(operator: Operator) -> Cost:
    """Cost of the operator: by its rule, by the table of scalar operations, and by the default for bytes."""
    rule = RULES.get(operator.name)
    table = TABLE.get(operator.name)
    reads = rule.reads(operator) if rule and rule.reads else _general_reads(operator)
    writes = rule.writes(operator) if rule and rule.writes else [m for out in operator.outputs for m in whole(out)]
    floating = any(t.floating for t in (*operator.inputs, *operator.outputs))
    scalar: Size = 0
    if operator.name in COMPLEX and any(t.complex for t in operator.outputs):
        factors = (operator.get("self"), operator.get("other"))
        parts = sum(isinstance(t, Tensor) and t.complex for t in factors)
        floating, scalar = True, complex_operations(operator.name, parts) * operator.outputs[0].results
    elif rule and rule.scalar_flops:
        scalar = rule.scalar_flops(operator)
    elif table is not None:
        scalar = _table_flops(operator, table)
    return Cost(
        category=rule.category if rule else CATEGORIES.get(operator.name, "elementwise"),
        matmul_flops=rule.matmul_flops(operator) if rule and rule.matmul_flops else 0,
        scalar_flops=scalar if floating else 0,
        reads=tuple(reads),
        writes=tuple(writes),
        counted=_has_rule(operator, rule, floating),
    )


def _has_rule(operator: Operator, rule: Rule | None, floating: bool) -> bool:
    """Integer work needs no rule. The table counts real numbers; only some arithmetic has rules for complex ones."""
    table = TABLE.get(operator.name)
    if any(t.complex for t in (*operator.inputs, *operator.outputs)):
        return table == FREE or operator.name == "polar" or operator.name in COMPLEX
    if not floating or table is not None:
        return True
    return rule is not None and bool(rule.matmul_flops or rule.scalar_flops)


def _general_reads(operator: Operator) -> list[Move]:
    if operator.name in WRITE_ONLY or operator.name.endswith("_like") or operator.name.startswith("new_"):
        return []
    return [move for tensor in operator.inputs for move in whole(tensor)]


def _table_flops(operator: Operator, table: Any) -> Size:
    first = next((t for t in operator.inputs if t.floating), None)
    count = table.per_output * operator.outputs[0].results if operator.outputs else 0
    if first is not None and table.per_input:
        count = count + table.per_input * first.results
    return count


# -- matmul-class operators, as torch.utils.flop_counter counts them ---------------------------------------------------


def _mm(op: Operator, a: str = "self", b: str = "mat2") -> Size:
    *batch, m, k = op.arguments[a].shape
    return 2 * product(batch) * m * k * op.arguments[b].shape[-1]


def _bias(op: Operator) -> Size:
    """One addition per result, plus one product for each scale other than 1."""
    scales = (op.get("beta", 1) not in (0, 1)) + (op.get("alpha", 1) != 1)
    return ((op.get("beta", 1) != 0) + scales) * op.outputs[0].results


def _convolution(op: Operator) -> Size:
    x, weight = op.arguments["input"], op.arguments["weight"]
    positions = (x if op.get("transposed") else op.outputs[0]).shape[2:]
    return 2 * x.shape[0] * product(positions) * product(weight.shape)


def _convolution_bias(op: Operator) -> Size:
    return op.outputs[0].results if op.get("bias") is not None else 0


def _grouped_mm(op: Operator, rows: str = "self", weight: str = "mat2") -> Size:
    return 2 * op.arguments[rows].results * op.arguments[weight].shape[-1]


def _grouped_mm_reads(op: Operator, rows_name: str = "self", weight_name: str = "mat2") -> list[Move]:
    """Each row goes to one expert, so at most as many experts' weights are read as there are rows."""
    rows, weight = op.arguments[rows_name], op.arguments[weight_name]
    used = whole(weight)
    if len(rows.shape) == 2 and len(weight.shape) == 3:
        used = [Move(smaller(weight.shape[0], rows.shape[0]) * product(weight.shape[1:]), weight.unit, weight)]
    return [*whole(rows), *used, *whole(op.get("offs")), *whole(op.get("bias"))]


def _attention(op: Operator) -> Size:
    """query @ key and scores @ value. Groups of query heads share key and value heads."""
    *batch, queries, qk_dim = op.arguments["query"].shape
    *_, keys, v_dim = op.arguments["value"].shape
    return 2 * product(batch) * queries * keys * (qk_dim + v_dim)


def smaller(a: Size, b: Size) -> Size:
    """min(a, b) of sizes that may be formulas."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    if a == b:
        return a
    from lmp.formula import minimum

    return minimum(a, b)


def larger(a: Size, b: Size) -> Size:
    """max(a, b) of sizes that may be formulas."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    from lmp.formula import maximum

    return maximum(a, b)


def rounded_up(a: Size, b: Size) -> Size:
    """a / b, rounded up, of sizes that may be formulas."""
    if isinstance(a, int) and isinstance(b, int):
        return -(-a // b)
    from lmp.formula import ceil

    return ceil(a / b)


register("mm", category="matmul", matmul_flops=_mm)
register("bmm", category="matmul", matmul_flops=_mm)
register("addmm", category="matmul", matmul_flops=lambda op: _mm(op, "mat1"), scalar_flops=_bias)
register("baddbmm", category="matmul", matmul_flops=lambda op: _mm(op, "batch1", "batch2"), scalar_flops=_bias)
register("convolution", category="convolution", matmul_flops=_convolution, scalar_flops=_convolution_bias)
register("_grouped_mm", category="grouped_matmul", matmul_flops=_grouped_mm, reads=_grouped_mm_reads)
register(
    "grouped_mm_fallback",  # transformers' own operator, for dtypes that PyTorch's operator rejects
    category="grouped_matmul",
    matmul_flops=lambda op: _grouped_mm(op, "input", "weight"),
    reads=lambda op: _grouped_mm_reads(op, "input", "weight"),
)
register("scaled_dot_product_attention", category="attention", matmul_flops=_attention)

# -- gathers and scatters ----------------------------------------------------------------------------------------------


def _tensors(value: Any) -> list[Tensor]:
    """The distinct tensors of an argument: a tensor, a list with optional tensors, or neither."""
    items = value if isinstance(value, (list, tuple)) else [value]
    return list({id(t): t for t in items if isinstance(t, Tensor)}.values())


def _gather(table: str, indices: str) -> Callable[[Operator], list[Move]]:
    def reads(op: Operator) -> list[Move]:
        read = [m for t in _tensors(op.arguments[indices]) for m in whole(t)]
        source = op.arguments[table]
        return [*read, Move(op.outputs[0].elements, source.unit, source, whole=False)]

    return reads


def _scatter(
    values: str, indices: str, count: Callable[[Operator], Size], *, adds: bool = False, partial: bool = False
) -> dict[str, Any]:
    """A rule that writes ``count`` elements. ``partial``: no more values are read than elements are written."""

    def accumulates(op: Operator) -> bool:
        return adds or bool(op.get("accumulate")) or op.get("reduce") is not None

    def reads(op: Operator) -> list[Move]:
        read = [m for t in _tensors(op.arguments[indices]) for m in whole(t)]
        for value in _tensors(op.arguments.get(values)):
            elements = smaller(value.elements, count(op)) if partial else value.elements
            read += [Move(elements, value.unit, value, whole=not partial)] if value.shape else []
        target = op.arguments["self"]
        return [*read, Move(count(op), target.unit, target, whole=False)] if accumulates(op) else read

    def writes(op: Operator) -> list[Move]:
        out = op.outputs[0]
        return [Move(count(op), out.unit, out, whole=False)]

    def flops(op: Operator) -> Size:
        return (accumulates(op) + (op.get("alpha", 1) != 1)) * count(op)

    return {"category": "scatter", "reads": reads, "writes": writes, "scalar_flops": flops}


def _indexed(op: Operator) -> Size:
    """Elements of ``self[indices]``. A broadcast value is stored once for each of them."""
    target, value = op.arguments["self"], op.arguments["values"]
    shapes: list[tuple[Size, ...]] = []
    rest: list[Size] = []
    dim = 0
    for index in op.arguments["indices"]:
        if index is None:
            rest, dim = [*rest, target.shape[dim]], dim + 1
        elif index.unit == 1:
            # A boolean mask: only as many values reveal how many entries are set. A value that fills all of them has
            # fewer dimensions.
            if len(value.shape) > len(target.shape) - len(index.shape):
                return value.results
            shapes, dim = [*shapes, (index.results,)], dim + len(index.shape)
        else:
            shapes, dim = [*shapes, index.shape], dim + 1
    return product(broadcast(shapes)) * product(rest) * product(target.shape[dim:])


def broadcast(shapes: list[tuple[Size, ...]]) -> tuple[Size, ...]:
    """The common broadcast shape. Where sizes differ, one side is 1."""
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(next((size for size in sizes if size != 1), 1) for sizes in zip(*padded, strict=True))


def _filled(op: Operator) -> Size:
    """Elements of the slices along ``dim`` that the indices select."""
    shape = op.arguments["self"].shape
    dim = op.arguments["dim"] % len(shape)
    return product(shape[:dim] + shape[dim + 1 :]) * op.arguments["index"].results


def _as_many_as(name: str) -> Callable[[Operator], Size]:
    return lambda op: op.arguments[name].results


register("embedding", category="gather", reads=_gather("weight", "indices"))
register("index", category="gather", reads=_gather("self", "indices"))
register("index_select", category="gather", reads=_gather("self", "index"))
register("gather", category="gather", reads=_gather("self", "index"))
register("take", category="gather", reads=_gather("self", "index"))
register("index_put", **_scatter("values", "indices", _indexed))
register("scatter", **_scatter("src", "index", _as_many_as("index"), partial=True))
register("index_copy", **_scatter("source", "index", _as_many_as("source")))
register("index_fill", **_scatter("value", "index", _filled))
register("index_add", **_scatter("source", "index", _as_many_as("source"), adds=True))
register("scatter_add", **_scatter("src", "index", _as_many_as("index"), adds=True, partial=True))

# -- operators whose scalar FLOPs depend on an argument ----------------------------------------------------------------


def _binary(op: Operator) -> Size:
    return (1 + (op.get("alpha", 1) != 1)) * op.outputs[0].results


def _clamp(op: Operator) -> Size:
    return sum(op.get(bound) is not None for bound in ("min", "max")) * op.outputs[0].results


def _norm(rows: Callable[[Operator, Tensor], Size], name: str) -> Callable[[Operator], Size]:
    def flops(op: Operator) -> Size:
        x, table = op.arguments["input"], TABLE[name]
        affine = sum(isinstance(op.get(part), Tensor) for part in ("weight", "bias"))
        return (table.per_input + affine) * x.results + table.per_row * rows(op, x)

    return flops


def _batch_norm(op: Operator) -> Size:
    x, more = op.arguments["input"], INPUT_STATISTICS
    found = _norm(lambda op, x: x.shape[1], "native_batch_norm")(op)
    return found + more.per_input * x.results + more.per_row * x.shape[1] if op.get("training") else found


def _log_softmax(op: Operator) -> Size:
    x, table = op.arguments["self"], TABLE["_log_softmax"]
    dim = op.arguments["dim"] % max(len(x.shape), 1)
    return table.per_input * x.results + table.per_row * product(x.shape[:dim] + x.shape[dim + 1 :])


def _normalised_rows(op: Operator, x: Tensor) -> Size:
    return product(x.shape[: len(x.shape) - len(op.arguments["normalized_shape"])])


def _window(op: Operator) -> Size:
    """Elements of one window. A kernel with one size has that size in every dimension."""
    kernel, dims = op.arguments["kernel_size"], 3 if "3d" in op.name else 2
    sizes = kernel if isinstance(kernel, (list, tuple)) else [kernel]
    return product(sizes if len(sizes) == dims else [sizes[0]] * dims)


register("add", "sub", "rsub", category="elementwise", scalar_flops=_binary)
register("clamp", category="elementwise", scalar_flops=_clamp)
register(
    "pow",
    category="elementwise",
    scalar_flops=lambda op: pow_operations(op.get("exponent")) * op.outputs[0].results,
)
register(
    "gelu",
    category="activation",
    scalar_flops=lambda op: (
        (GELU_TANH if op.get("approximate", "none") == "tanh" else TABLE["gelu"].per_output) * op.outputs[0].results
    ),
)
register("native_layer_norm", category="normalization", scalar_flops=_norm(_normalised_rows, "native_layer_norm"))
register("_fused_rms_norm", category="normalization", scalar_flops=_norm(_normalised_rows, "_fused_rms_norm"))
register(
    "_weight_norm_interface",
    category="normalization",
    scalar_flops=lambda op: (
        TABLE["_weight_norm_interface"].per_input * op.arguments["v"].elements
        + TABLE["_weight_norm_interface"].per_row * op.arguments["g"].elements
    ),
)
register(
    "native_group_norm",
    category="normalization",
    scalar_flops=_norm(lambda op, x: x.shape[0] * op.arguments["group"], "native_group_norm"),
)
register(
    "native_batch_norm",
    "_native_batch_norm_legit_no_training",
    category="normalization",
    scalar_flops=_batch_norm,
)
register("_log_softmax", category="softmax", scalar_flops=_log_softmax)
register(
    "_trilinear",
    category="elementwise",
    scalar_flops=lambda op: 3 * op.arguments["i1"].shape[0] * op.arguments["i2"].results,
    definition="two products and an addition for each term of sum_ij x_i * W_ij * y_j",
)
register(
    "linalg_solve_triangular",
    category="elementwise",
    scalar_flops=lambda op: (
        (op.arguments["self"].shape[-1] - int(bool(op.get("unitriangular")))) * op.outputs[0].results
    ),
    definition="row i of n: i products, i subtractions, one division; n an element of the result, "
    "n - 1 where the diagonal is 1 and nothing is divided",
)
register(
    "max_pool2d_with_indices",
    "max_pool3d_with_indices",
    category="pooling",
    scalar_flops=lambda op: _window(op) * op.outputs[0].results,
)
register(
    "avg_pool2d",
    "avg_pool3d",
    category="pooling",
    scalar_flops=lambda op: (_window(op) + 1) * op.outputs[0].results,
)


def _resampled(op: Operator) -> Size:
    """Products and additions over the neighbours of each result. Downsampling uses more neighbours."""
    given, made, least = op.arguments["self"].shape[-2:], op.outputs[0].shape[-2:], NEIGHBOURS[op.name]
    each = [larger(least, rounded_up(least * before, after)) for before, after in zip(given, made, strict=True)]
    return (2 * product(each) - 1) * op.outputs[0].results


def _squared_error(op: Operator) -> Size:
    reduction = op.get("reduction", 1)
    return (2 + (reduction != 0)) * op.arguments["self"].results + int(reduction == 1)


register(
    "_upsample_bilinear2d_aa",
    category="elementwise",
    scalar_flops=_resampled,
    definition="as upsample_bilinear2d; s times smaller: ceil(2 * s) a side",
)
register(
    "_upsample_bicubic2d_aa",
    category="elementwise",
    scalar_flops=_resampled,
    definition="as upsample_bicubic2d; s times smaller: ceil(4 * s) a side",
)
register(
    "grid_sampler_2d",
    category="elementwise",
    scalar_flops=lambda op: TABLE[SAMPLED[op.get("interpolation_mode", 0)]].per_output * op.outputs[0].results,
    definition="by its mode: upsample_bilinear2d, upsample_bicubic2d or none",
)
register(
    "mse_loss",
    category="reduction",
    scalar_flops=_squared_error,
    definition="subtract, square, add; a mean divides once; unreduced, no addition",
)
register(
    "_euclidean_dist",
    category="reduction",
    scalar_flops=lambda op: (3 * op.arguments["x1"].shape[-1] + 1) * op.outputs[0].results,
    definition="subtract, square, add an element of two rows; a square root a result",
)

# -- bytes that are not "every input once, every output once" ----------------------------------------------------------

WRITE_ONLY = frozenset({"fill", "zero"})
"""In-place operators that overwrite their tensor without reading it."""

register("copy", category="copy", reads=lambda op: whole(op.arguments["src"]))

CATEGORIES: dict[str, str] = {
    **dict.fromkeys(("_to_copy", "clone", "cat", "stack", "repeat", "constant_pad_nd", "roll", "flip"), "copy"),
    **dict.fromkeys(("silu", "relu", "sigmoid", "tanh", "elu", "softplus", "hardtanh", "leaky_relu", "mish", "glu"),
                    "activation"),
    **dict.fromkeys(("_softmax", "_safe_softmax"), "softmax"),
    **dict.fromkeys(("sum", "mean", "prod", "amax", "amin", "max", "min", "argmax", "argmin", "var", "var_mean", "std",
                     "cumsum", "cumprod", "logsumexp", "linalg_vector_norm", "any", "all"), "reduction"),
    **dict.fromkeys(("topk", "sort", "argsort", "histc", "bincount"), "sort"),
    **dict.fromkeys(("arange", "zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros",
                     "new_ones", "new_full", "scalar_tensor", "eye", "linspace"), "factory"),
    **dict.fromkeys(("_adaptive_avg_pool2d",), "pooling"),
}  # fmt: skip
