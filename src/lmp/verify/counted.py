"""Counts of one call of a module: by line, and as text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lmp.verify.claims import QUANTITIES, About, Amounts
from lmp.verify.counter import OperatorCount
from lmp.workload.calls import Call

SIZES = ((2, 2, 2), (3, 5, 7))
"""w_bytes, a_bytes and kv_bytes: the second triple separates the three. Two more are drawn per analysis."""

SHOWN = 8
"""Largest number of operator kinds described per line."""

Line = tuple[str, int]
"""Path of a file relative to its tree, and a line number in it."""

Triple = tuple[int, int, int]
"""w_bytes, a_bytes and kv_bytes."""

Sizes = tuple[Triple, ...]


@dataclass(frozen=True)
class Costs:
    """Counted quantities at each triple of element sizes."""

    at: tuple[Amounts, ...]

    @staticmethod
    def nothing(sizes: Sizes) -> Costs:
        return Costs(tuple(Amounts() for _ in sizes))

    @staticmethod
    def of(count: OperatorCount, sizes: Sizes) -> Costs:
        return Costs(
            tuple(
                Amounts(count.flops, count.matmul_flops, count.read.bytes(*each), count.write.bytes(*each))
                for each in sizes
            )
        )

    def __add__(self, other: Costs) -> Costs:
        return Costs(tuple(mine + theirs for mine, theirs in zip(self.at, other.at, strict=True)))


@dataclass
class Counted:
    """Operators of one call: by line, and those not covered by a kernel."""

    nothing: Costs
    lines: dict[Line, Costs] = field(default_factory=dict)
    uncovered: list[tuple[Line | None, About, str]] = field(default_factory=list)
    operators: dict[Line | None, list[OperatorCount]] = field(default_factory=lambda: defaultdict(list))

    def summary(self) -> Any:
        """Value that is equal for calls with the same cost on every line."""
        return frozenset(self.lines.items()), tuple(self.uncovered)

    def described(self, line: Line | None, call: Call) -> Callable[[], list[str]]:
        return lambda: describe(self.operators.get(line, ()), call)

    def at(self, line: Line, index: int) -> Amounts:
        return self.lines.get(line, self.nothing).at[index]


def describe(counts: Sequence[OperatorCount], call: Call) -> list[str]:
    """Description of the operators at a line of a call, in execution order.

    Own operators have their shapes, and equal ones are one entry. Each called module is one entry with its sum.
    """
    found: dict[str, list[OperatorCount]] = {}
    for count in counts:
        child = child_of(count, call)
        if child is not None:
            path = child.path.removeprefix(call.path).lstrip(".")
            name = f"{path} ({type(child.module).__name__})"
        else:
            shapes = " x ".join(str(list(shape)) for shape in count.shapes)
            name = f"{count.operator.removeprefix('aten.').removesuffix('.default')} {shapes}".rstrip()
        found.setdefault(name, []).append(count)
    shown = [f"{name}: {_of_all(some, call)}" for name, some in found.items()]
    return shown if len(shown) <= SHOWN else [*shown[: SHOWN - 1], f"and {len(shown) - SHOWN + 1} more"]


def child_of(count: OperatorCount, call: Call) -> Call | None:
    """The module called directly by ``call`` in which the operator ran; None if the call ran it itself."""
    return next((segment.call for segment in count.segments if segment.call.parent is call), None)


def _of_all(counts: Sequence[OperatorCount], call: Call) -> str:
    if child_of(counts[0], call) is None:
        text = _costs(counts[0])
        return text if len(counts) == 1 else f"{text}; {len(counts)} times"
    return _amounts(sum((Costs.of(count, SIZES).at[0] for count in counts), Amounts()))


def _costs(count: OperatorCount) -> str:
    return _amounts(Costs.of(count, SIZES).at[0])


def _amounts(cost: Amounts) -> str:
    shown = ", ".join(f"{name} {getattr(cost, name)}" for name in QUANTITIES if getattr(cost, name))
    return shown or "no cost known"


def described(count: OperatorCount) -> str:
    return f"{count.operator}: {_costs(count)}"
