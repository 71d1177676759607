"""The dearest kernels of a step, with the source lines that each stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lmp.link.records import EvaluatedKernel
from lmp.predict.eager import Timed
from lmp.predict.screen.asking import Answer


@dataclass(frozen=True)
class Dear:
    """Kernels of one operation and of the same lines, in all their runs."""

    operation: str
    lines: tuple[str, ...]
    """Class paths with line numbers, as ``torch.nn.modules.linear.Linear:134``."""
    runs: int
    us: float
    """Of all runs."""
    share: float
    """Part of the kernels' time."""
    bound: str
    """What bounds most of its time."""
    provenance: str


def dearest(found: Answer, most: int) -> list[Dear]:
    """Those with the largest share, at most so many."""
    lines = _lines(found)
    groups: dict[tuple[str, tuple[str, ...]], list[Timed]] = {}
    for one in found.call.operators:
        own = lines.get(id(one.kernel), (f"{one.kernel.class_name}:{one.kernel.line}",))
        groups.setdefault((_name(one.kernel), own), []).append(one)
    whole = found.call.whole[0] or 1.0
    made = []
    for (operation, own), members in groups.items():
        us = sum(one.us for one in members)
        first = max(members, key=lambda one: one.us)
        runs = sum(one.kernel.repeat for one in members)
        made.append(Dear(operation, own, runs, us, us / whole, first.time.bound, first.time.provenance))
    return sorted(made, key=lambda dear: -dear.us)[:most]


def _name(kernel: EvaluatedKernel) -> str:
    """A product of a module stands apart by the module's own name, and not by its layer."""
    module = kernel.path.rpartition(".")[2]
    return f"{module}: {kernel.operation}" if module and not module.isdigit() else kernel.operation


def _lines(found: Answer) -> Mapping[int, tuple[str, ...]]:
    """Of each launched kernel that a rule made: the lines that it replaced."""
    firings = found.step.rewritten.firings if found.step is not None else ()
    return {id(kernel): firing.lines for firing in firings for kernel in firing.launches}
