"""Where the sizes of a model's kernels are polynomials in the sizes of a call, and where they change form.

The formulas of kernels have `min`, `max`, `where` and rounding. With a model's own values put in, what decides between
their arms are comparisons of the call's three sizes. Points with the same outcomes are of one regime.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lmp.errors import LmpError
from lmp.formula import (
    ArrayProgram,
    Call,
    Compare,
    Condition,
    Expr,
    FloorDiv,
    Mod,
    Number,
    compare,
    free_variables,
    parse,
    settled,
    walk,
)
from lmp.records import ModelAnalysis, ModelKernel

SIZES = ("batch_size", "seq_len", "cache_len")
"""Of a call: sequences, new tokens of each, tokens in the cache of each."""
Sizes = tuple[int, int, int]
"""Of one call."""
Calls: TypeAlias = NDArray[np.int64]
"""One row a call, with its `SIZES` as columns."""
ROUNDS = ("ceil", "floor")


@dataclass(frozen=True)
class Regimes:
    """Comparisons that decide which form a model's formulas have at a call."""

    program: ArrayProgram
    rounds: bool
    """Whether a formula rounds a quotient of the call's sizes: it is no polynomial then."""

    def of(self, calls: Calls) -> list[bytes]:
        """A key for each call: the same for those at which every formula has one form."""
        alone = [calls[:, 0] == 1, calls[:, 1] == 1, calls[:, 2] == 0]
        try:
            held = self.program(dict(zip(SIZES, calls.T, strict=True)))
        except LmpError:
            # A comparison has no value at some call: each one is asked for itself.
            return [b"%d" % number for number in range(len(calls))]
        bits = np.stack([*alone, *held], axis=1)
        return [row.tobytes() for row in np.packbits(bits, axis=1)]


def regimes_of(model: ModelAnalysis, fixed: Mapping[str, Number]) -> Regimes:
    """The regimes of a model. ``fixed``: values of all variables; those of the call's sizes are not used."""
    own = {name: value for name, value in fixed.items() if name not in SIZES}
    formulas = settled([parse(text) for text in dict.fromkeys(_texts(model.kernels))], own)
    conditions: dict[Condition, None] = {}
    rounds = False
    for formula in dict.fromkeys(formulas):
        for node in walk(formula):
            if not free_variables(node):
                continue
            if isinstance(node, Compare):
                conditions[node] = None
            elif isinstance(node, Call) and node.function not in ROUNDS:
                conditions.update(dict.fromkeys(_pairs(node.arguments)))
            elif isinstance(node, Call | FloorDiv | Mod):
                rounds = True
    known = [one for one in conditions if free_variables(one) <= set(SIZES)]
    return Regimes(ArrayProgram(known, fractions=True), rounds)


def _pairs(arguments: Sequence[Expr]) -> Iterator[Condition]:
    """Which of the arguments is the least or the greatest: their order, two by two."""
    for index, one in enumerate(arguments):
        for other in arguments[index + 1 :]:
            yield compare("<=", one, other)


def _texts(kernels: Iterable[ModelKernel]) -> Iterator[str]:
    for kernel in kernels:
        if isinstance(kernel.repeat, str):
            yield kernel.repeat
        yield from _texts(kernel.kernels)
        if kernel.flops is not None and kernel.memory_access is not None:
            yield from (kernel.flops, kernel.memory_access.read, kernel.memory_access.write)
        if kernel.operands is not None:
            yield from (size for size in kernel.operands.sizes() if isinstance(size, str))
