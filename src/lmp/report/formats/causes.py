"""Why eager traffic exceeds compulsory traffic: groups of operators, by what a fused engine would not move."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from lmp.formula import Number, plain
from lmp.link.numbers import KernelNumbers
from lmp.link.values import Point
from lmp.records import MATMUL_CATEGORIES, Operand, Operands

_WIDTHS = {"w": "w_bytes", "a": "a_bytes", "kv": "kv_bytes"}
_MOST_OPERATORS = 2
_LEAST_PART = 20
"""Operators of a group are named if they move at least one part in so many of it, but no more than _MOST_OPERATORS."""

_OTHERS = {
    "elementwise": "element-wise operators",
    "activation": "activation functions",
    "normalization": "norms",
    "reduction": "reductions",
    "copy": "copies",
    "gather": "gathers",
    "scatter": "scatters",
}


@dataclass(frozen=True)
class Cause:
    """A group of operators. ``moved`` is their traffic without weights, and without the cache that products read."""

    name: str
    operators: tuple[str, ...]
    moved: Number


def causes(executed: Sequence[tuple[KernelNumbers, Operands | None]], values: Point) -> list[Cause]:
    """The groups of the operators, each with its operands in numbers; largest first."""
    norms = _norms([kernel for kernel, _ in executed])
    moved: dict[str, Number] = defaultdict(int)
    operators: dict[str, Counter[str]] = defaultdict(Counter)
    for kernel, operands in executed:
        if not kernel.total.bytes:
            continue
        amount = plain(kernel.total.bytes - kernel.runs * _needed(kernel, operands, values))
        name = _group(kernel, operands, norms)
        moved[name] += amount
        if operands is not None:
            operators[name][operands.operator] += int(amount)
    ranked = sorted(moved, key=lambda name: moved[name], reverse=True)
    return [Cause(name, tuple(_named(operators[name], moved[name])), moved[name]) for name in ranked if moved[name] > 0]


def _named(operators: Counter[str], moved: Number) -> list[str]:
    return [one for one, amount in operators.most_common(_MOST_OPERATORS) if amount * _LEAST_PART >= moved]


def _needed(kernel: KernelNumbers, operands: Operands | None, values: Point) -> Number:
    """Bytes of one run that no engine avoids: weights, and the cache where a product or attention reads it."""
    if operands is None:
        return 0
    roles = {"weight", "cache"} if kernel.kernel.category in MATMUL_CATEGORIES else {"weight"}
    found = sum(_size(one, values) for one in operands.inputs if one.role in roles)
    return min(plain(found), kernel.once.read)  # a gather or a routed product reads a part of its weights


def _size(operand: Operand, values: Point) -> Number:
    width = operand.width if isinstance(operand.width, int) else values[_WIDTHS[operand.width]]
    return _elements(operand) * width


def _elements(operand: Operand) -> int:
    return prod(size for size in operand.shape if isinstance(size, int))


def _group(kernel: KernelNumbers, operands: Operands | None, norms: dict[str, int]) -> str:
    category = kernel.kernel.category
    if kernel.class_name in norms:
        return f"norms in {norms[kernel.class_name]} operators"
    products = "inputs and outputs of " + ("attention" if category == "attention" else "matrix products")
    others = _OTHERS.get(category, f"operators of the category {category}")
    if operands is None:
        return products if category in MATMUL_CATEGORIES else others
    cached, made = _cached(operands.inputs), _cached(operands.outputs)
    if category in MATMUL_CATEGORIES:
        largest = max(map(_elements, operands.outputs), default=0)
        if category != "attention" and cached and largest > max(map(_elements, cached)):
            return "keys and values made anew from the cache"
        return products
    if category in ("copy", "scatter") and cached:
        return "the cache copied whole to append to it" if made else "the cache copied for the heads of attention"
    if operands.operator == "_to_copy":
        return "conversions of dtype"
    return others


def _cached(tensors: Iterable[Operand]) -> list[Operand]:
    return [tensor for tensor in tensors if tensor.role == "cache"]


def _norms(kernels: Sequence[KernelNumbers]) -> dict[str, int]:
    """Classes that normalise in several operators, with how many cost something: they take a reciprocal root, and
    have no product."""
    lines: dict[str, set[str]] = defaultdict(set)
    rooted: set[str] = set()
    products: set[str] = set()
    for kernel in kernels:
        name, operands = kernel.class_name, kernel.kernel.operands
        if kernel.kernel.category in MATMUL_CATEGORIES:
            products.add(name)
        if operands is not None and operands.operator == "rsqrt":
            rooted.add(name)
        if kernel.total.bytes:
            lines[name].add((kernel.kernel.id or "").rpartition(".")[2])
    return {name: len(lines[name]) for name in rooted - products if len(lines[name]) > 1}
