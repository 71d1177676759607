"""The least time that operators take on a device: what its peak rates allow, never what was measured.

One run of an operator takes at least as long as the longest of three: its matrix products at the matmul rate, its other
FLOPs at the vector rate, its eager traffic at the memory bandwidth. Operators run one after another, so bounds add up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from lmp.expand.numbers import Cost, KernelNumbers, ModuleNumbers
from lmp.records import MATMUL_CATEGORIES
from lmp.report.devices import Device

PICOSECONDS = 10**12
LIMITS = ("compute", "vector", "memory")
"""What an operator is bound by: the matmul rate, the rate of everything else, the memory bandwidth."""


@dataclass(frozen=True)
class Bound:
    """Of some operators in all their runs, in seconds."""

    compute: Fraction = Fraction(0)
    vector: Fraction = Fraction(0)
    memory: Fraction = Fraction(0)

    @property
    def total(self) -> Fraction:
        return self.compute + self.vector + self.memory

    def plus(self, other: Bound) -> Bound:
        return Bound(self.compute + other.compute, self.vector + other.vector, self.memory + other.memory)


def limit_of(once: Cost, device: Device) -> tuple[str, Fraction]:
    """What one run of an operator is bound by, and for how many seconds."""
    times = {
        "memory": Fraction(once.bytes, device.bandwidth),
        "compute": Fraction(once.matmul_flops, device.matmul_flops),
        "vector": Fraction(once.flops - once.matmul_flops, device.other_flops),
    }
    name = max(times, key=lambda limit: times[limit])
    return name, times[name]


def bound_of(kernel: KernelNumbers, device: Device) -> Bound:
    """Of one operator in all its runs."""
    name, seconds = limit_of(kernel.once, device)
    return Bound(**{name: seconds * kernel.runs})


_INDEX = re.compile(r"\.\d+(?=\.|$)")


def group_of(kernel: KernelNumbers) -> str:
    """The module that an operator stands in, without the numbers of layers, and what it does there."""
    path = _INDEX.sub("", kernel.path).rpartition("layers.")[2] or "the model itself"
    if kernel.kernel.category in MATMUL_CATEGORIES:
        return f"{path} ({kernel.kernel.category})"
    return f"{path}: {kernel.kernel.function}()" if kernel.kernel.function else path


class Bounds:
    """Bounds at named points, of the whole model, of groups of operators, and of parts of it."""

    def __init__(self, trees: Mapping[str, ModuleNumbers], device: Device) -> None:
        self.trees, self.device = trees, device

    def of(self, point: str) -> Bound:
        """Of the whole model."""
        return self._sum(self.trees[point])

    @cached_property
    def _groups(self) -> dict[str, dict[str, Bound]]:
        found: dict[str, dict[str, Bound]] = {}
        for point, tree in self.trees.items():
            here = found.setdefault(point, {})
            for kernel in tree.kernels():
                group = group_of(kernel)
                here[group] = here.get(group, Bound()).plus(bound_of(kernel, self.device))
        return found

    def groups(self, point: str) -> dict[str, Bound]:
        """Of operators by module and kind of work, in the order of the model."""
        return self._groups[point]

    def classes(self, point: str) -> dict[str, Bound]:
        """Of each class with everything in it, wherever it runs."""
        found: dict[str, Bound] = {}
        for names, kernel in _within(self.trees[point], frozenset()):
            for name in names:
                found[name] = found.get(name, Bound()).plus(bound_of(kernel, self.device))
        return found

    def parts(self, point: str) -> dict[str, Bound]:
        """Of the model's outermost parts: what runs outside of layers, and each kind of layer."""
        return dict(self._parts(self.trees[point]))

    def inside(self, point: str, path: str) -> dict[str, Bound]:
        """Of one run of the layer at a path: its modules, and theirs, with what each does itself."""
        layer = next((m for m in _modules(self.trees[point]) if m.path == path), None)
        found: dict[str, Bound] = {}
        for name, kernel in _inner(layer, path) if layer is not None else ():
            runs = Fraction(1, layer.runs) if layer is not None else Fraction(1)
            bound = bound_of(kernel, self.device)
            share = Bound(bound.compute * runs, bound.vector * runs, bound.memory * runs)
            found[name] = found.get(name, Bound()).plus(share)
        return found

    @property
    def named(self) -> dict[str, int]:
        """Everything that a report states of them, in picoseconds, by name."""
        found: dict[str, int] = {}
        for point in self.trees:
            found |= _named(f"bound.{point}", self.of(point))
            for group, bound in self.groups(point).items():
                found |= _named(f"bound.{point}.group.{group}", bound)
            for name, bound in self.classes(point).items():
                found |= _named(f"bound.{point}.class.{name}", bound)
            for part, bound in self.parts(point).items():
                found |= _named(f"bound.{point}.part.{part}", bound)
            for path in self.layers(point):
                for name, bound in self.inside(point, path).items():
                    found |= _named(f"bound.{point}.in.{path}.{name}", bound)
        return found

    def layers(self, point: str) -> dict[str, ModuleNumbers]:
        """The first layer of each kind, by its path."""
        return {m.path: m for m in _modules(self.trees[point]) if re.search(r"(^|\.)\d+$", m.path)}

    def _parts(self, tree: ModuleNumbers) -> Iterator[tuple[str, Bound]]:
        layers = self.layers_in(tree)
        outside: dict[str, Bound] = {}
        for kernel in tree.kernels():
            inside = next((path for path in layers if kernel.path == path or kernel.path.startswith(f"{path}.")), None)
            name = inside or kernel.path or "the model itself"
            outside[name] = outside.get(name, Bound()).plus(bound_of(kernel, self.device))
        yield from outside.items()

    @staticmethod
    def layers_in(tree: ModuleNumbers) -> list[str]:
        return [m.path for m in _modules(tree) if re.search(r"(^|\.)\d+$", m.path)]

    def _sum(self, tree: ModuleNumbers) -> Bound:
        total = Bound()
        for kernel in tree.kernels():
            total = total.plus(bound_of(kernel, self.device))
        return total


def _within(tree: ModuleNumbers, around: frozenset[str]) -> Iterator[tuple[frozenset[str], KernelNumbers]]:
    """Every kernel with the classes that it runs in."""
    names = around | {tree.class_name}
    for child in tree.children:
        if isinstance(child, ModuleNumbers):
            yield from _within(child, names)
        else:
            yield names, child


def _modules(tree: ModuleNumbers) -> Iterator[ModuleNumbers]:
    """A module and those in it; inside of a layer no further layer."""
    yield tree
    if not re.search(r"(^|\.)\d+$", tree.path):
        for child in tree.children:
            if isinstance(child, ModuleNumbers):
                yield from _modules(child)


def _inner(layer: ModuleNumbers, path: str) -> Iterator[tuple[str, KernelNumbers]]:
    for kernel in layer.kernels():
        below = kernel.path.removeprefix(path).lstrip(".")
        name = ".".join(below.split(".")[:2]) or "the layer itself"
        category = kernel.kernel.category
        if category in MATMUL_CATEGORIES and category != "matmul":
            name = f"{name}: {category}"
        elif kernel.kernel.function:
            name = f"{name}: {kernel.kernel.function}()"
        yield name, kernel


def _named(name: str, bound: Bound) -> dict[str, int]:
    values = {"total": bound.total, **{limit: getattr(bound, limit) for limit in LIMITS}}
    return {f"{name}.{key}": round(value * PICOSECONDS) for key, value in values.items()}
