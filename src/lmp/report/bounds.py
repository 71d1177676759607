"""The least time that operators take on a device: what its peak rates allow, never what was measured.

One run of an operator takes at least as long as the longest of three: its matrix products at the matmul rate, its other
FLOPs at the vector rate, its eager traffic at the memory bandwidth. A product of float32 operands runs at the vector
rate: that of the matmul units is for 16 bits, and PyTorch does not round float32 to TF32 unless it is told to
(``torch.backends.cuda.matmul.allow_tf32`` is False). Operators run one after another, so bounds add up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from lmp.link.numbers import KernelNumbers, ModelNumbers, ModuleNumbers
from lmp.records import MATMUL_CATEGORIES, UNIVERSAL, ModelKernel
from lmp.report.devices import Device
from lmp.report.routing import MILLION, Routing, Way, routing_of

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


def is_wide(kernel: ModelKernel) -> bool:
    """Whether an operator is a product of operands that are wider than the model's: float32 whatever its dtype is.

    The bytes that such a product moves grow with no element size of the model: of weights, activations or KV cache.
    """
    access = kernel.memory_access
    if kernel.category not in MATMUL_CATEGORIES or access is None:
        return False
    return not any(f"{{{name}}}" in text for name in UNIVERSAL for text in (access.read, access.write))


def limit_of(kernel: KernelNumbers, device: Device, moved: Fraction | None = None) -> tuple[str, Fraction]:
    """What one run of an operator is bound by, and for how many seconds; ``moved`` in place of its bytes."""
    once = kernel.once
    fast = 0 if is_wide(kernel.kernel) else once.matmul_flops
    times = {
        "memory": Fraction(once.bytes if moved is None else moved) / device.bandwidth,
        "compute": Fraction(fast, device.matmul_flops),
        "vector": Fraction(once.flops - fast, device.other_flops),
    }
    name = max(times, key=lambda limit: times[limit])
    return name, times[name]


def bound_of(kernel: KernelNumbers, device: Device, moved: Fraction | None = None) -> Bound:
    """Of one operator in all its runs."""
    name, seconds = limit_of(kernel, device, moved)
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

    def __init__(self, numbers: ModelNumbers, points: Mapping[str, Mapping[str, int]], device: Device) -> None:
        self.trees = {key: numbers.tree(values) for key, values in points.items()}
        self.model, self.points, self.device = numbers.model, points, device

    def of(self, point: str) -> Bound:
        """Of the whole model."""
        return self._sum(self.trees[point])

    @cached_property
    def routings(self) -> dict[str, Routing]:
        """Of each point: which experts its products read."""
        return {point: routing_of(tree, self.points[point]) for point, tree in self.trees.items()}

    @property
    def is_routed(self) -> bool:
        return any(routing.choices for routing in self.routings.values())

    def routed(self, point: str, way: Way) -> tuple[Bound, Fraction, Fraction]:
        """Of the whole model with another number of experts: the bound, the bytes read, and the compulsory ones."""
        routing, total, read = self.routings[point], Bound(), Fraction(0)
        for kernel in self.trees[point].kernels():
            once, access = kernel.once, kernel.kernel.memory_access
            touched = access is not None and kernel.kernel.category == "grouped_matmul" and routing.touches(access.read)
            here = routing.worth(access.read, way) if access is not None and touched else Fraction(once.read)
            total = total.plus(bound_of(kernel, self.device, here + once.write))
            read += here * kernel.runs
        known = self.model.compulsory
        least = routing.worth(known.read, way) + routing.worth(known.write, way) if known is not None else Fraction(0)
        return total, read, least

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

    def modules(self, point: str) -> dict[str, Bound]:
        """Of each module with everything in it, all runs of alike layers together."""
        return dict(_of_modules(self.trees[point], self.device))

    def parts(self, point: str) -> dict[str, Bound]:
        """Of the model's outermost parts: what runs outside of layers, and each kind of layer."""
        return dict(self._parts(self.trees[point]))

    def inside(self, point: str, path: str) -> dict[str, Bound]:
        """Of one run of the layer at a path: its modules, and theirs, with what each does itself, in the order in which
        they run; what takes no time is left out."""
        layer = next((m for m in _modules(self.trees[point]) if m.path == path), None)
        found: dict[str, Bound] = {}
        for name, kernel in _inner(layer, path) if layer is not None else ():
            runs = Fraction(1, layer.runs) if layer is not None else Fraction(1)
            bound = bound_of(kernel, self.device)
            share = Bound(bound.compute * runs, bound.vector * runs, bound.memory * runs)
            found[name] = found.get(name, Bound()).plus(share)
        order = self._order(path)
        return {name: found[name] for name in sorted(found, key=lambda name: order.get(name, 0)) if found[name].total}

    def _order(self, path: str) -> dict[str, int]:
        """Names in a layer -> where they first take time, at whichever point: kernels of one line that hold under
        different conditions stand apart in an analysis, and a later one may be the only one that a point has."""
        found: dict[str, int] = {}
        for tree in self.trees.values():
            layer = next((m for m in _modules(tree) if m.path == path), None)
            for number, (name, kernel) in enumerate(_inner(layer, path)) if layer is not None else ():
                if bound_of(kernel, self.device).total:
                    found[name] = min(number, found.get(name, number))
        return found

    @property
    def named(self) -> dict[str, int]:
        """Everything that a report states of them, in picoseconds, by name."""
        found: dict[str, int] = {}
        for point in self.trees:
            found |= _named(f"bound.{point}", self.of(point)) | self._routed_named(point)
            for group, bound in self.groups(point).items():
                found |= _named(f"bound.{point}.group.{group}", bound)
            for name, bound in self.classes(point).items():
                found |= _named(f"bound.{point}.class.{name}", bound)
            for part, bound in self.parts(point).items():
                found |= _named(f"bound.{point}.part.{part}", bound)
            for path, bound in self.modules(point).items():
                found |= _named(f"bound.{point}.module.{path}", bound)
            for path in self.layers(point):
                for name, bound in self.inside(point, path).items():
                    found |= _named(f"bound.{point}.in.{path}.{name}", bound)
        return found

    def _routed_named(self, point: str) -> dict[str, int]:
        """With fewer experts: bounds in picoseconds, bytes, and numbers of experts in millionths."""
        routing, found = self.routings[point], dict[str, int]()
        for way in ("most", "uniform", "least") if routing.choices else ():
            bound, read, compulsory = self.routed(point, way)
            found |= _named(f"bound.{point}.{way}", bound)
            found |= {f"routed.{point}.{way}.read": round(read), f"routed.{point}.{way}.compulsory": round(compulsory)}
            for number, choice in enumerate(routing.choices):
                found[f"routed.{point}.{way}.experts.{number}"] = int(routing.number(choice, way) * MILLION)
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


def _of_modules(tree: ModuleNumbers, device: Device) -> Iterator[tuple[str, Bound]]:
    """The modules below one, then itself, each with its bound; several calls of one are counted together."""
    found: dict[str, Bound] = {}
    whole = Bound()
    for child in tree.children:
        if isinstance(child, ModuleNumbers):
            for path, bound in _of_modules(child, device):
                found[path] = found.get(path, Bound()).plus(bound)
                whole = whole.plus(bound) if path == child.path else whole
        else:
            whole = whole.plus(bound_of(child, device))
    found[tree.path] = found.get(tree.path, Bound()).plus(whole)
    yield from found.items()


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
    """Modules of a module of the layer together, but beside operators that it has itself each by its own name."""
    below = [(kernel.path.removeprefix(path).lstrip("."), kernel) for kernel in layer.kernels()]
    own = {local for local, _ in below}
    for local, kernel in below:
        two = ".".join(local.split(".")[:2])
        name = (local if two in own else two) or "the layer itself"
        category = kernel.kernel.category
        if category in MATMUL_CATEGORIES and category != "matmul":
            name = f"{name}: {category}"
        elif kernel.kernel.function:
            name = f"{name}: {kernel.kernel.function}()"
        yield name, kernel


def _named(name: str, bound: Bound) -> dict[str, int]:
    values = {"total": bound.total, **{limit: getattr(bound, limit) for limit in LIMITS}}
    return {f"{name}.{key}": round(value * PICOSECONDS) for key, value in values.items()}
