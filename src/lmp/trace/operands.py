"""Structured operands of an operator: tensors with shapes, widths and roles, and the sizes of its product.

Every size has a key, so that sizes of one kernel can be compared between runs. A tensor argument is identified by its
name in ATen's schema, its width and its rank: an argument may be read from the KV cache in one phase and from a copy in
another. Then each of the two has a formula that says where it is present.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from lmp.formula import Expr, free_variables, num, simplify, to_size, var
from lmp.records import Operand, Operands
from lmp.trace.rules import Operator, Size, Tensor, product
from lmp.workload.base import RUNTIME

Role = Literal["weight", "activation", "cache", "index"]
Width = str | int

WIDTHS = {"w_bytes": "w", "a_bytes": "a", "kv_bytes": "kv"}
"""Unit of a tensor -> width class. Other units are bytes."""

PRESENT = "present"


@dataclass(frozen=True)
class TensorKey:
    """Identity of an operand across runs."""

    name: str
    width: Width
    role: Role
    rank: int
    output: bool = False


SizeKey = tuple[TensorKey | None, int | str]
"""A dimension of an operand, its presence (1 or 0), or, without an operand, a size of the product by its field."""

OperandSizes = dict[SizeKey, Expr]
"""Formula of each size of a kernel's operands."""


PLAIN = {
    "addmm": ("mm", {"self": "bias", "mat1": "self", "mat2": "mat2"}),
    "baddbmm": ("bmm", {"self": "bias", "batch1": "self", "batch2": "mat2"}),
}
"""Operator with an addition -> the product in it, and its names of the arguments. A bias changes no kernel."""


def product_name(operator: str) -> str:
    """The name of an operator, of the product where it adds to one."""
    return PLAIN[operator][0] if operator in PLAIN else operator


def tensors(op: Operator) -> Iterator[tuple[TensorKey, Tensor]]:
    """The operands of an operator: named inputs in schema order, then outputs by number."""
    _, names = PLAIN.get(op.name, (op.name, {}))
    for given, value in op.arguments.items():
        name = names.get(given, given)
        if isinstance(value, (list, tuple)):
            yield from ((_key(f"{name}[{i}]", t), t) for i, t in enumerate(value) if isinstance(t, Tensor))
        elif isinstance(value, Tensor):
            yield _key(name, value), value
    yield from ((_key(str(i), t, output=True), t) for i, t in enumerate(op.outputs))


def sizes(op: Operator) -> dict[SizeKey, Size]:
    """All sizes of the operands and of the product, by key. Absent operands have no entry."""
    found: dict[SizeKey, Size] = {}
    for key, tensor in tensors(op):
        found[key, PRESENT] = 1
        found.update({(key, dim): size for dim, size in enumerate(tensor.shape)})
    rule = PRODUCTS.get(op.name)
    if rule is not None:
        found.update({(None, name): size for name, size in rule(op).items()})
    return found


def _key(name: str, tensor: Tensor, output: bool = False) -> TensorKey:
    return TensorKey(name, WIDTHS.get(str(tensor.unit), tensor.unit), _role(tensor), len(tensor.shape), output)


def _role(tensor: Tensor) -> Role:
    if tensor.weight:
        return "weight"
    if tensor.cached:
        return "cache"
    # A tensor of bytes that are no numbers is a mask, and no index.
    return "activation" if tensor.floating or tensor.complex or tensor.unit == 1 else "index"


# -- sizes of products -------------------------------------------------------------------------------------------------


def _matmul(a: str, b: str) -> Callable[[Operator], dict[str, Size]]:
    def rule(op: Operator) -> dict[str, Size]:
        *batch, m, k = op.arguments[a].shape
        return {"batch": product(batch), "m": m, "n": op.arguments[b].shape[-1], "k": k}

    return rule


def _convolution(op: Operator) -> dict[str, Size]:
    """The convolution as one product of matrices: rows are positions of the output, or of the input if transposed."""
    x, weight = op.arguments["input"], op.arguments["weight"]
    transposed = bool(op.get("transposed"))
    positions = (x if transposed else op.outputs[0]).shape[2:]
    first, second, *kernel = weight.shape
    rows = x.shape[0] * product(positions)
    if transposed:
        return {"batch": 1, "m": rows, "n": second * product(kernel), "k": first}
    return {"batch": 1, "m": rows, "n": first, "k": second * product(kernel)}


def _grouped(a: str, b: str) -> Callable[[Operator], dict[str, Size]]:
    def rule(op: Operator) -> dict[str, Size]:
        rows, weight = op.arguments[a], op.arguments[b]
        *leading, k = rows.shape
        experts = weight.shape[0] if len(weight.shape) == 3 else 1
        return {"rows": product(leading), "experts": experts, "n": weight.shape[-1], "k": k}

    return rule


def _attention(op: Operator) -> dict[str, Size]:
    query, key, value = (op.arguments[name].shape for name in ("query", "key", "value"))
    return {
        "batch": product(query[:-3]),
        "q_len": query[-2],
        "kv_len": key[-2],
        "heads": query[-3] if len(query) > 2 else 1,
        "kv_heads": key[-3] if len(key) > 2 else 1,
        "head_dim": query[-1],
        "v_head_dim": value[-1],
        "window": op.get("window", 0),
        "causal": int(op.get("is_causal", False)),
    }


PRODUCTS: dict[str, Callable[[Operator], dict[str, Size]]] = {
    "mm": _matmul("self", "mat2"),
    "bmm": _matmul("self", "mat2"),
    "addmm": _matmul("mat1", "mat2"),
    "baddbmm": _matmul("batch1", "batch2"),
    "convolution": _convolution,
    "_grouped_mm": _grouped("self", "mat2"),
    "grouped_mm_fallback": _grouped("input", "weight"),
    "scaled_dot_product_attention": _attention,
}
"""Operator -> sizes of its product, by the fields of `lmp.records.Operands`; of a grouped product its rows."""


# -- the record --------------------------------------------------------------------------------------------------------


def record(operator: Operator, found: Mapping[SizeKey, Expr]) -> Operands:
    """The operands as they are stored, from the formula of each size."""
    tensors_ = dict.fromkeys(key for key, _ in found if key is not None)
    product_ = {str(name): size for (key, name), size in found.items() if key is None}
    if "rows" in product_:
        product_ |= dict(zip(("tokens", "top_k"), _routed(product_.pop("rows")), strict=True))
    if product_.get("window") == num(0):
        del product_["window"]
    return Operands(
        operator=product_name(operator.name),
        inputs=[_operand(key, found) for key in tensors_ if not key.output],
        outputs=[_operand(key, found) for key in tensors_ if key.output],
        **{name: to_size(size) for name, size in product_.items()},
    )


def _operand(key: TensorKey, found: Mapping[SizeKey, Expr]) -> Operand:
    return Operand(
        name=key.name,
        shape=[to_size(found[key, dim]) for dim in range(key.rank)],
        width=key.width,  # type: ignore[arg-type]
        role=key.role,
        present=to_size(found[key, PRESENT]),
    )


def _routed(rows: Expr) -> tuple[Expr, Expr]:
    """Tokens, and experts per token: each token has as many rows as experts. One where this cannot be told."""
    for tokens in (var("batch_size") * var("seq_len"), var("batch_size"), var("seq_len")):
        each = simplify(rows / tokens)
        if not free_variables(each) & set(RUNTIME):
            return simplify(tokens), each
    return rows, num(1)
