"""What a model holds on a device: its parameters, what its layers keep for a sequence, and what a call keeps alive."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any


@dataclass(frozen=True)
class KeptLayer:
    """What layers that are alike keep for one sequence."""

    indices: tuple[int, ...]
    """Places in the list of layers; none for a layer that another one stands for."""
    heads: int
    """KV heads; 0 if the layer has none."""
    elements: int
    """Elements of keys and values of a token, all heads together."""
    window: int | None
    other_bytes: int
    """Bytes of a token beside keys and values: an index of the tokens."""
    state_bytes: int
    """Bytes that do not grow: a recurrent state, the input of a convolution."""


@dataclass(frozen=True)
class Weight:
    """A parameter, counted once where several modules share it."""

    path: str
    """Of its module."""
    name: str
    class_name: str
    """Of its module."""
    shape: tuple[int, ...]
    element_size: int
    stored: Fraction
    """Bytes as deployed: as the checkpoint stores it, scales included."""
    is_linear: bool
    """A matrix of a linear layer, or of all experts: what quantising replaces."""

    @property
    def bytes(self) -> int:
        """Bytes in the model's own dtype."""
        return math.prod(self.shape) * self.element_size


@dataclass(frozen=True)
class Live:
    """Activations at the peak of one call."""

    bytes: int
    operator: str
    largest: tuple[tuple[str, int], ...]
    """The largest tensors then, with their bytes."""


@dataclass(frozen=True)
class Held:
    """A model, as plain numbers. ``live`` runs it on the meta device."""

    class_name: str
    dtype: str
    element_size: int
    quantised: str | None
    """Method of the checkpoint's quantisation."""
    weights: tuple[Weight, ...]
    kept: tuple[KeptLayer, ...]
    """Empty: it keeps nothing, or what it keeps cannot be told, for the ``reason``."""
    reason: str | None
    part: str
    """Path of the part that keeps it."""
    plan: Mapping[str, str]
    """Path of a module or parameter, with ``*`` for an index -> how tensor parallelism divides it."""
    config: Mapping[str, Any]
    """Values of the text part's config."""
    vision: Mapping[str, Any] | None
    """Values of the vision part's config, and those of the whole that say how images become tokens."""
    warnings: tuple[str, ...]
    live: Callable[[int, Mapping[str, int]], Live | str] = field(compare=False)
    """Tokens, and values in place of the config's -> the peak; or why it is not known."""
