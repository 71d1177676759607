"""Kinds of modules: which modules are alike, which layers of a stack are, and the pattern in which kinds repeat."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from lmp.workload.base import OWN_PLACE, LayerPattern


@dataclass(frozen=True)
class Facts:
    """Selection of the facts that count in a comparison of modules.

    The classes always count. Training mode never does, because models run in eval mode.
    """

    sizes: bool = True
    """True: plain attributes count by value. False: of a number only its presence counts, as in symbolic runs."""
    exact: bool = False
    """True: values of different types differ, so 1 is neither 1.0 nor True."""
    tuples: type[Any] | None = None
    """Type of all parts of a tuple that counts. None: no tuple counts."""
    private: bool = True
    """True: attributes whose names begin with an underscore count."""
    place: bool = False
    """True: attributes with the layer's position in its list count."""
    dropout: bool = True
    """True: dropout probabilities count, which have no effect in eval mode."""
    weights: bool = True
    """True: shapes of parameters count."""
    dtypes: bool = False
    """True: dtypes of parameters count, and shapes and dtypes of buffers."""


RUN_ALIKE = Facts(tuples=int, dropout=False)
"""Layers that run the same operators: in an executed model one of each kind is enough.

The kernel size and the stride of a convolution are tuples.
"""
COUNTED_ALIKE = Facts(sizes=False, private=False, place=True, weights=False)
"""Layers of a symbolic run with one common formula for traffic: the same classes and switches, at any sizes."""
SHOWN_ALIKE = Facts(tuples=object, dtypes=True)
"""Layers that share one entry in a tree of modules."""
SAME_INSTANCE = Facts(exact=True, private=False, place=True, dtypes=True)
"""Instances of the user's own classes that share one analysis."""

PLAIN = (bool, int, str, float, type(None))

Owner = Callable[[torch.nn.Parameter], str]
"""Function from a shared parameter to the place of its owner."""


def kind_of(
    module: torch.nn.Module,
    facts: Facts = RUN_ALIKE,
    own: Collection[tuple[str, str]] = (),
    owner: Owner | None = None,
) -> Any:
    """The key of a module: two modules are alike by ``facts`` if their keys are equal. It is hashable.

    ``own`` are attributes (module in it, name) that do not count. With ``owner``, the sharing of parameters counts.
    """
    return tuple(
        (
            name,
            f"{type(inner).__module__}.{type(inner).__qualname__}",
            tuple(sorted(_attributes(name, inner, facts, own), key=lambda found: found[0])),
            tuple(_tensors(inner, facts, owner)),
        )
        for name, inner in module.named_modules()
    )


def _attributes(
    name: str, module: torch.nn.Module, facts: Facts, own: Collection[tuple[str, str]]
) -> Iterator[tuple[str, Any]]:
    for key, value in vars(module).items():
        left_out = (
            key == "training"
            or (name, key) in own
            or (key in OWN_PLACE and not facts.place)
            or (key.startswith("_") and not facts.private)
        )
        if left_out or (facts.sizes and not _is_fact(key, value, facts)):
            continue
        if not facts.sizes:
            yield key, value if isinstance(value, (bool, str, type(None))) else type(value) in (int, torch.SymInt)
        else:
            yield key, repr(value) if facts.exact else value


def _is_fact(key: str, value: Any, facts: Facts) -> bool:
    if isinstance(value, tuple):
        return facts.tuples is not None and all(facts.tuples in (object, type(part)) for part in value)
    if isinstance(value, float) and "drop" in key:
        return facts.dropout
    return isinstance(value, PLAIN)


def _tensors(module: torch.nn.Module, facts: Facts, owner: Owner | None) -> Iterator[tuple[Any, ...]]:
    if not facts.weights:
        return
    for key, weight in module._parameters.items():
        if weight is not None:
            dtype = (weight.dtype,) if facts.dtypes else ()
            yield (key, tuple(weight.shape), *dtype, *((owner(weight),) if owner is not None else ()))
    for key, held in module._buffers.items():
        if facts.dtypes and held is not None:
            yield key, tuple(held.shape), held.dtype


def kinds_of(layers: Sequence[torch.nn.Module]) -> list[int]:
    """Index of each layer's kind, in order of first occurrence."""
    own, met = own_indices(layers) | own_factors(layers), dict[Any, int]()
    return [met.setdefault(kind_of(layer, own=own), len(met)) for layer in layers]


LONGEST_PERIOD = 12
"""Maximum period, in layers, for which formulas with the period are tried."""

FIRST = 4
"""Maximum number of layers before the periodic ones, such as dense layers before those with experts."""


def pattern_of(kinds: Sequence[int]) -> LayerPattern | None:
    """The layer pattern with the smallest ``start + period``; None if no period occurs twice."""
    longest = min(len(kinds) // 2, LONGEST_PERIOD)
    tries = ((start, period) for period in range(1, longest + 1) for start in range(min(FIRST, len(kinds)) + 1))
    found = [(s, p) for s, p in tries if len(kinds) - s >= 2 * p and list(kinds[s + p :]) == list(kinds[s:-p])]
    return LayerPattern(*min(found, key=sum)) if found else None


def own_indices(layers: Sequence[torch.nn.Module]) -> set[tuple[str, str]]:
    """Attributes (module in a layer, name) that equal each layer's index in its list, whatever their names."""
    values: dict[tuple[str, str], list[bool]] = {}
    for index, layer in enumerate(layers):
        for name, module in layer.named_modules():
            for key, value in vars(module).items():
                if type(value) is int:
                    values.setdefault((name, key), []).append(value == index)
    return {key for key, same in values.items() if len(same) > 1 and all(same)}


def own_factors(layers: Sequence[torch.nn.Module]) -> set[tuple[str, str]]:
    """Attributes whose values differ in all layers because they depend on the position, such as an attention scale.

    Integers count if they grow linearly with the position.
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
    """True if the values at these indices all differ; for integers, if they lie on a line."""
    values = [value for _, value in told]
    if any(type(value) is float for value in values):
        return len(set(values)) == len(values)
    (first, low), (second, high) = told[:2]
    return high != low and all((v - low) * (second - first) == (high - low) * (i - first) for i, v in told)
