"""Operands of executed operators, and the comparison with those that kernels claim. Written apart from `lmp.trace`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch

from lmp.formula import Expr, Program, num, parse
from lmp.records import Operand, Operands


@dataclass(frozen=True)
class Seen:
    """An operand with numbers. ``storage`` is its memory while the run lasts: what a KV cache holds is known later."""

    name: str
    shape: tuple[int, ...]
    width: str | int
    role: str
    is_output: bool = False
    storage: int = 0

    def with_cache(self, storages: Collection[int]) -> Seen:
        """The same operand after the run: keys and values of a KV cache have these storages."""
        if self.role == "weight" or self.storage not in storages:
            return replace(self, storage=0)
        return replace(self, width="kv" if self.width == "a" else self.width, role="cache", storage=0)


WITH_ADDITION = {"addmm": ("mm", "mat1", "mat2"), "baddbmm": ("bmm", "batch1", "batch2")}
"""Operator that adds to a product -> the product, and the names of its factors. What is added is the bias."""


def plain(operator: str, arguments: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """An operator and its arguments by name, with a product that something is added to as that product."""
    if operator not in WITH_ADDITION:
        return operator, arguments
    product, left, right = WITH_ADDITION[operator]
    return product, {"bias": arguments["self"], "self": arguments[left], "mat2": arguments[right]}


def seen(
    arguments: Mapping[str, Any], outputs: Iterable[torch.Tensor], weights: Collection[int], dtype: torch.dtype
) -> tuple[Seen, ...]:
    """The operands of an executed operator: tensors among its arguments by name, and its outputs by number."""

    def one(name: str, tensor: torch.Tensor, is_output: bool = False) -> Seen:
        storage = tensor.untyped_storage()._cdata
        is_weight = storage in weights
        width: str | int = tensor.dtype.itemsize
        if tensor.dtype == dtype:
            width = "w" if is_weight else "a"
        counts = tensor.dtype.is_floating_point or tensor.dtype.is_complex or tensor.dtype.itemsize == 1
        role = "weight" if is_weight else "activation" if counts else "index"
        return Seen(name, tuple(tensor.shape), width, role, is_output, storage)

    def named() -> Iterator[tuple[str, torch.Tensor]]:
        for name, value in arguments.items():
            parts = enumerate(value) if isinstance(value, (list, tuple)) else [(None, value)]
            for index, part in parts:
                if isinstance(part, torch.Tensor):
                    yield (name if index is None else f"{name}[{index}]"), part

    inputs = [one(name, tensor) for name, tensor in named()]
    return (*inputs, *(one(str(i), tensor, is_output=True) for i, tensor in enumerate(outputs)))


@dataclass(frozen=True)
class Claim:
    """The operands that a kernel claims at one point."""

    operator: str
    operands: frozenset[Seen]
    product: int | None
    """FLOPs of its product; None if it has none."""


class OperandClaims:
    """Evaluates the operands of kernels. Formulas are compiled once."""

    def __init__(self) -> None:
        self._programs: dict[int, tuple[Operands, list[Any], Program]] = {}

    def at(self, operands: Operands, values: Mapping[str, int]) -> Claim:
        """The operands at a point. Raises LmpError if a size has no value."""
        if id(operands) not in self._programs:
            formulas = _formulas(operands)
            self._programs[id(operands)] = operands, list(formulas), Program(formulas.values())
        _, names, program = self._programs[id(operands)]
        found = dict(zip(names, program(values), strict=True))
        both = ((operands.inputs, False), (operands.outputs, True))
        present = frozenset(
            Seen(
                operand.name,
                tuple(found[is_output, index, dim] for dim in range(len(operand.shape))),
                operand.width,
                operand.role,
                is_output,
            )
            for group, is_output in both
            for index, operand in enumerate(group)
            if found[is_output, index, "present"]
        )
        return Claim(operands.operator, present, _product({n: v for n, v in found.items() if isinstance(n, str)}))


def _formulas(operands: Operands) -> dict[Any, Expr]:
    """Each size by its place: output or input, number of the operand, dimension; or the field of the product."""
    found: dict[Any, Expr] = {}

    def add(key: Any, size: int | str) -> None:
        found[key] = num(size) if isinstance(size, int) else parse(size)

    groups: tuple[tuple[bool, list[Operand]], ...] = ((False, operands.inputs), (True, operands.outputs))
    for is_output, group in groups:
        for index, operand in enumerate(group):
            add((is_output, index, "present"), operand.present)
            for dim, size in enumerate(operand.shape):
                add((is_output, index, dim), size)
    for name in (*_MATMUL, *_GROUPED, *_ATTENTION):
        size = getattr(operands, name)
        if size is not None and name not in found:
            add(name, size)
    return found


_MATMUL = ("batch", "m", "n", "k")
_GROUPED = ("tokens", "top_k", "n", "k")
_ATTENTION = ("batch", "heads", "q_len", "kv_len", "head_dim", "v_head_dim")


def _product(sizes: Mapping[str, int]) -> int | None:
    """FLOPs of the product with these sizes, a multiply-add as 2."""
    if sizes.keys() >= set(_ATTENTION):
        batch, heads, q_len, kv_len, head_dim, v_head_dim = (sizes[name] for name in _ATTENTION)
        return 2 * batch * heads * q_len * kv_len * (head_dim + v_head_dim)
    for names in (_MATMUL, _GROUPED):
        if sizes.keys() >= set(names):
            return 2 * prod(sizes[name] for name in names)
    return None


def missing(claims: Iterable[tuple[Claim, int]], executed: Iterable[tuple[str, tuple[Seen, ...]]]) -> list[Claim]:
    """Claims, each with its number of runs, that too few executed operators have exactly the operands of."""
    there = Counter((operator, frozenset(operands)) for operator, operands in executed)
    wanted: Counter[Claim] = Counter()
    for claim, runs in claims:
        wanted[claim] += runs
    return [claim for claim, runs in wanted.items() if there[claim.operator, claim.operands] < runs]


def described(claim: Claim) -> str:
    """A claim as text, for findings."""
    parts = sorted(claim.operands, key=lambda one: (one.is_output, one.name))
    return f"{claim.operator} " + ", ".join(
        f"{'output ' if one.is_output else ''}{one.name} {list(one.shape)} {one.width} {one.role}" for one in parts
    )
