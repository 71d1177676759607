"""The distinct classes of a model in the order in which they run, with what each is by its kernels, and its measures.

What a class is follows from its operators and from what it calls, never from its name.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from lmp.records import Kernel, ModelKernel, ModuleAnalysis, short
from lmp.report.document.parts import Pointer
from lmp.report.facts import ModelFacts
from lmp.report.implementation.measures import Measure

ATTENTION = "attention"
EXPERTS = "routed experts"
ROUTER = "router"
MIXTURE = "mixture of experts"
FEED_FORWARD = "gated feed-forward"
PLAIN_FEED_FORWARD = "feed-forward"
GATED_PROJECTION = "gated projection"
MIXER = "mixer with a convolution"
PROJECTION = "projection with an activation"
NORM = "RMS normalization"
LAYER_NORM = "layer normalization"
POSITION = "rotary position embedding"
EMBEDDING = "embedding"
LINEAR = "linear projection"
ACTIVATION = "activation"
LAYER = "layer"
SUBLAYER = "part of a layer"
STACK = "stack of layers"
MODEL = "model with output head"
OTHER = "module"


@dataclass(frozen=True, eq=False)
class Component:
    """A class of the model. ``paths`` are its places in the expanded tree; alike layers stand under their first."""

    facts: ModelFacts
    class_name: str
    role: str
    paths: tuple[str, ...]
    calls: tuple[str, ...]
    """Classes that it calls, in order."""

    @property
    def name(self) -> str:
        return short(self.class_name)

    @property
    def analysis(self) -> ModuleAnalysis:
        return self.facts.analyses[self.class_name]

    @cached_property
    def measure(self) -> Measure:
        """Everything in it, wherever it runs."""
        if self.class_name == self.facts.model.class_name:
            return Measure(self.facts, ({},))
        if not self.calls:
            return Measure(self.facts, ({"class_name": self.class_name},))
        return Measure(self.facts, tuple({"path": path} for path in self.paths))

    @property
    def pointer(self) -> Pointer:
        """Where the class stands; of one without source lines, its forward()."""
        source = self.facts.sources[self.class_name]
        return self.facts.place(source.file, source.class_lines[0], source.name, source.class_lines[1])

    @property
    def forward(self) -> Pointer:
        source = self.facts.sources[self.class_name]
        return self.facts.pointer(self.class_name, source.lines[0], "forward")


@functools.lru_cache(maxsize=2)
def components(facts: ModelFacts) -> tuple[Component, ...]:
    """The root first; every class once, where it first runs."""
    paths: dict[str, dict[str, None]] = {facts.model.class_name: {"": None}}
    calls: dict[str, dict[str, None]] = {}
    for owner, kernel in _called(facts.model.class_name, facts.model.kernels):
        if kernel.class_name is not None:
            paths.setdefault(kernel.class_name, {})[kernel.path or ""] = None
            calls.setdefault(owner, {})[kernel.class_name] = None
    roles = roles_of(facts)
    return tuple(
        Component(facts, name, roles[name], tuple(found), tuple(calls.get(name, ()))) for name, found in paths.items()
    )


def _called(owner: str, kernels: list[ModelKernel]) -> Iterator[tuple[str, ModelKernel]]:
    for kernel in kernels:
        if kernel.class_name is not None:
            yield owner, kernel
            yield from _called(kernel.class_name, kernel.kernels)


# --- what a class is -------------------------------------------------------------------------------------------------


def roles_of(facts: ModelFacts) -> Mapping[str, str]:
    """Class path -> one of the names above, for every class of the model."""
    calls: dict[str, list[ModelKernel]] = {}
    places: dict[str, set[str]] = {facts.model.class_name: {""}}
    for owner, kernel in _called(facts.model.class_name, facts.model.kernels):
        calls.setdefault(owner, []).append(kernel)
        if kernel.class_name is not None:
            places.setdefault(kernel.class_name, set()).add(kernel.path or "")
    found: dict[str, str] = {}

    def role(name: str) -> str:
        if name not in found:
            called = calls.get(name, [])
            inner = {role(k.class_name) for k in called if k.class_name is not None}
            linear = {k.path for k in called if k.class_name is not None and role(k.class_name) == LINEAR}
            each = -(-len(linear) // len(places.get(name, "."))) + len(_own_products(facts.analyses[name].kernels))
            nested = all(sum(part.isdigit() for part in path.split(".")) > 1 for path in places.get(name, ("",)))
            found[name] = _role(facts.analyses[name].kernels, inner, each, nested)
        return found[name]

    return {name: role(name) for name in facts.analyses if name in facts.model.parts}


def projections(component: Component) -> int:
    """Products with weights in one call of a class: the linear projections that it calls, and those of its own."""
    facts, first = component.facts, component.paths[0]
    roles = roles_of(facts)
    called = {
        kernel.path
        for owner, kernel in _called(facts.model.class_name, facts.model.kernels)
        if owner == component.class_name and kernel.class_name is not None and roles[kernel.class_name] == LINEAR
        if not first or (kernel.path or "").startswith(f"{first}.")
    }
    return len(called) + len(_own_products(component.analysis.kernels))


def _own_products(kernels: list[Kernel]) -> set[tuple[str | None, int]]:
    """Places of a class's own products; two conditions of one line are one."""
    return {(k.file, k.line) for k in kernels if k.kernel_type == "basic" and k.category == "matmul"}


def _role(kernels: list[Kernel], inner: set[str], linear: int, nested: bool) -> str:
    """``inner``: roles of what it calls. ``linear``: its products with weights. ``nested``: in a list in a layer."""
    own = [k for k in kernels if k.kernel_type == "basic" and k.category != "call"]
    categories, operations = {k.category for k in own}, {k.operation for k in own}
    chooses = any("top-k" in operation for operation in operations)
    if inner & {STACK, MODEL}:
        return MODEL
    if LAYER in inner:
        return STACK
    if "grouped_matmul" in categories:
        return EXPERTS
    if "attention" in categories or ("softmax" in categories and "matmul" in categories and not chooses):
        return ATTENTION
    if SUBLAYER in inner:
        return LAYER
    if nested and inner & {ATTENTION, MIXER, FEED_FORWARD, PLAIN_FEED_FORWARD} and inner & {NORM, LAYER_NORM}:
        return SUBLAYER
    if inner & {ATTENTION, MIXER} and inner & {FEED_FORWARD, PLAIN_FEED_FORWARD, MIXTURE, NORM, LAYER_NORM}:
        return LAYER
    if inner & {EXPERTS, ROUTER}:
        return MIXTURE
    if chooses:
        return ROUTER
    if LINEAR in inner and "convolution" in categories:
        return MIXER
    if LINEAR in inner and (ACTIVATION in inner or "activation" in categories):
        gated = "elementwise" in categories
        if linear < 2:
            return GATED_PROJECTION if gated else PROJECTION
        return FEED_FORWARD if gated else PLAIN_FEED_FORWARD
    return _leaf(categories, operations, inner)


def _leaf(categories: set[str], operations: set[str], inner: set[str]) -> str:
    if {"cosine", "sine"} <= operations:
        return POSITION
    if "RMS normalization" in operations or {"reciprocal square root", "mean"} <= operations:
        return LAYER_NORM if "element-wise difference" in operations else NORM
    if "layer normalization" in operations:
        return LAYER_NORM
    if "row lookup" in operations and not inner:
        return EMBEDDING
    if "matrix multiplication" in operations and not inner and categories <= {"matmul", "elementwise"}:
        return LINEAR
    if categories and categories <= {"activation", "elementwise"} and "activation" in categories:
        return ACTIVATION
    return OTHER
