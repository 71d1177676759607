"""Which layers of a stack are alike, and how their kinds come again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch

from lmp.workload.base import OWN_PLACE, Turn


def kinds_of(layers: Sequence[torch.nn.Module]) -> list[int]:
    """The kind of each layer: how many others were met before it for the first time."""
    own, met = own_indices(layers) | own_factors(layers), dict[Any, int]()
    return [met.setdefault(kind_of(layer, own), len(met)) for layer in layers]


MOST_IN_TURN = 12
"""Layers after which their kinds come again, at most, for formulas to be looked for that say so."""

FIRST = 4
"""Layers that may stand before them, as dense ones before those with experts, at most."""


def turn_of(kinds: Sequence[int]) -> Turn | None:
    """How the kinds of a stack's layers come again, as early as that begins; None where it is not seen twice."""
    longest = min(len(kinds) // 2, MOST_IN_TURN)
    tries = ((start, period) for period in range(1, longest + 1) for start in range(min(FIRST, len(kinds)) + 1))
    found = [(s, p) for s, p in tries if len(kinds) - s >= 2 * p and list(kinds[s + p :]) == list(kinds[s:-p])]
    return Turn(*min(found, key=sum)) if found else None


def own_indices(layers: Sequence[torch.nn.Module]) -> set[tuple[str, str]]:
    """Attributes (module in a layer, name) that are each layer's own place in its list, whatever they are called."""
    values: dict[tuple[str, str], list[bool]] = {}
    for index, layer in enumerate(layers):
        for name, module in layer.named_modules():
            for key, value in vars(module).items():
                if type(value) is int:
                    values.setdefault((name, key), []).append(value == index)
    return {key for key, same in values.items() if len(same) > 1 and all(same)}


def own_factors(layers: Sequence[torch.nn.Module]) -> set[tuple[str, str]]:
    """Attributes that no two of several layers share, made from each one's place: as what scales its attention.

    Whole numbers are where they grow evenly with the place.
    """
    factors: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for index, layer in enumerate(layers):
        for name, module in layer.named_modules():
            for key, value in vars(module).items():
                if type(value) is float or type(value) is int:
                    factors.setdefault((name, key), []).append((index, value))
    made = {key for key, told in factors.items() if len(told) > 2 and _made_from_places(told)}
    return {key for key in made if key[1] not in OWN_PLACE and any(i != value for i, value in factors[key])}


def _made_from_places(told: Sequence[tuple[int, float]]) -> bool:
    """Whether values at these indices are all different; of whole numbers, whether they stand on a line."""
    values = [value for _, value in told]
    if any(type(value) is float for value in values):
        return len(set(values)) == len(values)
    (first, low), (second, high) = told[:2]
    return high != low and all((v - low) * (second - first) == (high - low) * (i - first) for i, v in told)


def kind_of(layer: torch.nn.Module, own: Collection[tuple[str, str]] = ()) -> Any:
    """What makes a layer the kind it is: classes, plain attributes and weights' shapes in it, without its index.

    Models are run in eval mode: how often what is dropped in training makes no difference.
    """
    description = []
    for name, module in layer.named_modules():
        plain = {
            key: value
            for key, value in vars(module).items()
            if (
                isinstance(value, (bool, int, str, float, type(None)))
                # As the kernel and the stride of a convolution.
                or (isinstance(value, tuple) and all(type(v) is int for v in value))
            )
            and key not in (*OWN_PLACE, "training")
            and (name, key) not in own
            and not (isinstance(value, float) and "drop" in key)
        }
        weights = tuple((key, tuple(p.shape)) for key, p in module._parameters.items() if p is not None)
        description.append(
            (name, type(module).__qualname__, tuple(sorted(plain.items(), key=lambda kv: kv[0])), weights)
        )
    return tuple(description)
