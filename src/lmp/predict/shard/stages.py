"""Stages of a pipeline: which part of the kernels runs where."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

from lmp.errors import UsageError
from lmp.link.records import EvaluatedKernel
from lmp.predict.rewrite.graph import runs

K = TypeVar("K", bound=EvaluatedKernel)
LAYER = re.compile(r"^(?P<list>.*?)(?:^|\.)(?P<number>\d+)(?:\.|$)")
"""Path of a module in a list of layers."""


def stage_layers(layers: int, stages: int, number: int) -> range:
    """The layers of a stage: even parts, and one more for the stages before the last where they do not divide."""
    each, more = divmod(layers, stages)
    sizes = [each + (stages - 1 - more <= place < stages - 1) for place in range(stages)] if more else [each] * stages
    start = sum(sizes[:number])
    return range(start, start + sizes[number])


@dataclass(frozen=True)
class Layers:
    """The model's last list of layers. Layers that are alike stand once."""

    list: str
    counts: dict[int, int]
    """Number of the first one of those that are alike -> how many they are."""
    order: tuple[int, ...]
    """For each layer, which it is like. Layers that alternate are spread evenly: their order is not in the kernels."""

    def of(self, kernel: EvaluatedKernel) -> int | None:
        """Which layers a kernel is in; None: in no layer."""
        found = LAYER.match(kernel.path)
        return int(found["number"]) if found is not None and found["list"] == self.list else None

    def times(self, like: int, stages: int, number: int) -> int:
        """How many of the layers that are like this one are in a stage."""
        return sum(self.order[layer] == like for layer in stage_layers(len(self.order), stages, number))


def layers_of(kernels: Sequence[EvaluatedKernel]) -> Layers:
    """The last list of layers that kernels are in."""
    repeats: dict[str, dict[int, int]] = defaultdict(dict)
    last = ""
    for kernel in kernels:
        found = LAYER.match(kernel.path) if runs(kernel) else None
        if found is not None:
            last, number = found["list"], int(found["number"])
            own = repeats[last]
            own[number] = min(own.get(number, kernel.repeat), kernel.repeat)
    counts = dict(sorted(repeats.get(last, {}).items()))
    return Layers(last, counts, _order(counts))


def _order(counts: dict[int, int]) -> tuple[int, ...]:
    """For each layer which it is like: blocks where the first numbers say so, else spread evenly."""
    total, left = sum(counts.values()), dict(counts)
    order: list[int] = []
    blocks = all(
        first + count == following
        for (first, count), following in zip(counts.items(), list(counts)[1:], strict=False)
    )  # fmt: skip
    for layer in range(total):
        started = [first for first in counts if first <= layer and left[first]]
        if layer in counts:
            chosen = layer
        elif blocks and started:
            chosen = started[-1]
        else:
            # The one that is furthest behind its share.
            near = started or [first for first in counts if left[first]]
            behind = [Fraction(counts[f] * (layer + 1 - f), total - f) - counts[f] + left[f] for f in near]
            chosen = near[behind.index(max(behind))]
        left[chosen] -= 1
        order.append(chosen)
    return tuple(order)


def refuse_stages(layers: Layers, stages: int) -> None:
    """Raise UsageError for more stages than layers."""
    if stages > max(1, len(layers.order)):
        raise UsageError(
            f"--pp {stages} is more than the {len(layers.order)} layers\nallowed are 1 to {max(1, len(layers.order))}"
        )


def of_stage(
    kernels: Sequence[K], layers: Layers, tables: frozenset[str], stages: int, number: int
) -> list[tuple[K, int]]:
    """The kernels of a stage, with how often each runs there.

    What stands before the layers is on the first stage, what stands behind them on the last one; ``tables``, ids of
    what is made of positions alone, are on each.
    """
    places = [n for n, kernel in enumerate(kernels) if layers.of(kernel) is not None]
    first = places[0] if places else 0
    found = []
    for n, kernel in enumerate(kernels):
        like = layers.of(kernel)
        if like is not None:
            each = kernel.repeat // layers.counts[like] if layers.counts.get(like) else 0
            times = each * layers.times(like, stages, number)
        elif kernel.id in tables:
            times = kernel.repeat
        else:
            times = kernel.repeat if number == (0 if n < first else stages - 1) else 0
        if times:
            found.append((kernel, times))
    return found
