"""Parts of a model that one speaks of: attention, MLP, norm, experts; found by the shape of the tree, not by names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, reduce

from lmp.link.numbers import CostNumbers, KernelNumbers, ModuleNumbers
from lmp.report.bounds import bound_of
from lmp.report.devices import Device


@dataclass
class Component:
    """Modules of one class, or what containers do themselves, wherever they stand in the model."""

    name: str
    kernels: list[KernelNumbers] = field(default_factory=list)

    @cached_property
    def cost(self) -> CostNumbers:
        """In all runs."""
        return reduce(CostNumbers.plus, (kernel.total for kernel in self.kernels), CostNumbers())

    def seconds(self, device: Device) -> float:
        """The time bound of all runs, each kernel by itself."""
        return float(sum(bound_of(kernel, device).total for kernel in self.kernels))


def components(tree: ModuleNumbers) -> list[Component]:
    """In the order of the model. Together they are the whole of it.

    A component is a module that has no module with modules in it. The modules around are containers.
    """
    found: dict[str, Component] = {}
    for name, kernel in _named(tree):
        found.setdefault(name, Component(name)).kernels.append(kernel)
    return list(found.values())


def _named(module: ModuleNumbers) -> Iterator[tuple[str, KernelNumbers]]:
    for child in module.children:
        if isinstance(child, KernelNumbers):
            yield f"{_short(module.class_name)} itself", child
        elif any(_modules(inner) for inner in _modules(child)):
            yield from _named(child)
        else:
            yield from ((_name(child), kernel) for kernel in child.kernels())


def _name(module: ModuleNumbers) -> str:
    """The class; of one of torch's, which says little, with the attribute."""
    name = _short(module.class_name)
    if not module.class_name.startswith("torch."):
        return name
    attribute = next((part for part in reversed(module.path.split(".")) if not part.isdigit()), name)
    return f"{attribute} ({name})"


def _modules(module: ModuleNumbers) -> list[ModuleNumbers]:
    return [child for child in module.children if isinstance(child, ModuleNumbers)]


def _short(class_path: str) -> str:
    return class_path.rpartition(".")[2]
