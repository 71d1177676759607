"""The tree as call stacks, for flame graphs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lmp.formula import Number
from lmp.link.numbers import KernelNumbers, ModuleNumbers
from lmp.records import ModelAnalysis, short
from lmp.report.formats.base import Weight, one_line, weighed
from lmp.report.formats.rows import place_of

UNITS = {"flops": "none", "bytes": "bytes", "read": "bytes", "write": "bytes"}
NAMES = {"flops": "FLOPs", "bytes": "bytes read and written", "read": "bytes read", "write": "bytes written"}


@dataclass(frozen=True)
class Frame:
    """One level of a stack. ``place`` is where it is written, for an operator."""

    name: str
    part: ModuleNumbers | KernelNumbers
    place: str = ""


def stacks(model: ModelAnalysis, tree: ModuleNumbers, weight: Weight) -> Iterator[tuple[tuple[Frame, ...], Number]]:
    """Each operator that has a weight, with the modules around it, outermost first; in the order of execution."""
    yield from _below(model, tree, (Frame(short(tree.class_name), tree),), weight)


def _below(
    model: ModelAnalysis, module: ModuleNumbers, around: tuple[Frame, ...], weight: Weight
) -> Iterator[tuple[tuple[Frame, ...], Number]]:
    for child in module.children:
        if isinstance(child, KernelNumbers):
            size = weighed(child.total, weight)
            if size:
                place = place_of(model, child)
                yield (*around, Frame(f"{child.kernel.operation} ({place})", child, place)), size
        else:
            yield from _below(model, child, (*around, Frame(_name(child, module), child)), weight)


def _name(child: ModuleNumbers, around: ModuleNumbers) -> str:
    """``layers.0 LlamaDecoderLayer x32``."""
    path = child.path.removeprefix(f"{around.path}.") if around.path else child.path
    times = f" x{child.repeat}" if child.repeat != 1 else ""
    return f"{path} {short(child.class_name)}{times}"


def plain(name: str) -> str:
    """The name on one line and without a semicolon, which the folded format separates frames by."""
    return one_line(name.replace(";", " ")) or "?"
