"""What quantising a model leaves in 16 bits: one rule, for times and for memory.

Formulas count every weight at ``w_bytes``; what is held, and what a kernel reads, follows this rule.

Published 8-bit and 4-bit checkpoints convert the linear layers inside of blocks, and experts. Embeddings, the product
that makes the logits, routers, norms and biases stay. In a list of kernels data flow tells them; of the weights that a
model holds, their modules do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from lmp.formula import Number
from lmp.link.quantisation import Scheme, Storage, is_experts
from lmp.link.records import EvaluatedKernel
from lmp.observe.held import Held, Weight
from lmp.predict.rewrite.graph import Graph

WIDE = 2
"""Bytes of an element that stays."""


@dataclass(frozen=True)
class Narrowed(Scheme):
    """Weights of fewer bytes, as an engine makes them while it loads, except those of some modules."""

    paths: frozenset[str] = frozenset()
    """Of the modules that stay."""

    def storage(self, path: str, class_name: str) -> Storage | None:
        return Storage(8 * WIDE) if path in self.paths else None


def kept_wide(kernels: Sequence[EvaluatedKernel]) -> frozenset[str]:
    """Paths of modules that engines leave in 16 bits: the one that makes the logits, and the routers of experts.

    No product reads what comes of the first. The scores of a router are selected from before a product reads them.
    """
    graph = Graph(kernels, {})  # no bytes are asked for
    found = set()
    for one in filter(graph.is_product, range(len(graph.kernels))):
        after = graph.closure([one], graph.consumers.__getitem__, lambda other: not graph.is_product(other))
        used = any(graph.is_product(user) for other in after for user in graph.consumers[other])
        if not used or any(graph.operator(other) == "topk" for other in after):
            found.add(graph.kernels[one].path)
    return frozenset(found)


def narrows(weights: Iterable[Weight]) -> list[bool]:
    """Of each weight, whether quantising replaces it: a matrix of a block that is no router."""
    every = list(weights)
    experts = {weight.path.rpartition(".")[0]: weight.shape[0] for weight in every
               if is_experts(weight.path) and len(weight.shape) > 2}  # fmt: skip
    return [weight.is_linear and not _stays(weight, experts) for weight in every]


def _stays(weight: Weight, experts: Mapping[str, int]) -> bool:
    """Whether a matrix stays: of the logits, of an image tower, or beside experts with at most an output for each."""
    parent, _, name = weight.path.rpartition(".")
    scores = len(weight.shape) == 2 and weight.shape[0] <= experts.get(parent, 0)
    return name == "lm_head" or "vision" in weight.path or scores


def narrowed(held: Held, width: Number | None) -> Held:
    """The model with weights of so many bytes an element, where quantising replaces them if they are fewer than 2.

    Without a width it is as the checkpoint stores it.
    """
    if width is None:
        return held
    every = [weight.element_size == held.element_size for weight in held.weights]
    which = narrows(held.weights) if width < WIDE else every
    pairs = zip(held.weights, which, strict=True)
    made = (replace(w, stored=math.prod(w.shape) * Fraction(width)) if changes else w for w, changes in pairs)
    return replace(held, weights=tuple(made))


def stored_bytes(held: Held | str, width: Number) -> Fraction | None:
    """Bytes of all weights, with ``width`` where quantising replaces them; None if what is held is not known."""
    if isinstance(held, str):
        return None
    return sum((weight.stored for weight in narrowed(held, width).weights), Fraction(0))
