"""The data flow of one call of a class: operators with lines, data dependencies, shapes and lifetimes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Shape = tuple[str, ...]
"""Sizes as formulas."""


@dataclass(frozen=True)
class Line:
    """A source line on the way to an operator. ``file`` is relative to its tree."""

    file: str
    line: int
    function: str


@dataclass(frozen=True)
class Frame:
    """A module call that contains an operator, with its lines, the innermost first."""

    class_name: str
    path: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Op:
    """One executed operator. Views and allocations are not operators."""

    index: int
    name: str
    """ATen name."""
    words: str
    category: str
    frames: tuple[Frame, ...]
    """The enclosing module calls, the innermost first."""
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    """Indices of tensors."""
    depends: tuple[int, ...]
    """Indices of the operators whose results it reads."""
    shape: Shape | None
    """Shape of its first result; None if no formula was found."""
    sizes: tuple[int, ...]
    """The same shape in numbers."""
    product: tuple[str, ...] | None = None
    """For a matrix product: batches, M, N, K; for attention: batch, heads, queries, keys, head size."""
    causal: bool = False
    operands: tuple[Shape, ...] | None = None
    """Shapes of its input tensors; None if no formulas were found."""


@dataclass(frozen=True)
class Tensor:
    """Memory of one tensor, shared with all its views."""

    index: int
    kind: str
    """One of: weight, cache, input, activation."""
    bytes: int
    formula: str | None
    """Its bytes, in the model's variables; None if no formula was found."""
    sizes: tuple[int, ...]
    dtype: str
    name: str
    maker: int | None
    readers: tuple[int, ...]
    end: int | None
    """The first operator that ran after its release. None: it outlives the call."""
    whole: Shape | None = None
    """Its shape as its readers see it, if its maker wrote only a part of it."""


@dataclass(frozen=True)
class Flow:
    """One call at ``values``, for a model with one layer of each kind."""

    values: Mapping[str, int]
    ops: tuple[Op, ...]
    tensors: tuple[Tensor, ...]
    returned: tuple[int, ...]
    outputs: Mapping[str, Shape]
    """Module path -> shape of the output of its call."""
    given: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Module path -> names of the arguments of its call that were not None."""


@dataclass(frozen=True)
class Peak:
    """The moment with the most live memory beside the weights, in one call of the class with all layers. In bytes."""

    total: int
    activations: int
    cache: int
    cache_before: int
    cache_after: int
    words: str
    frames: tuple[Frame, ...]
    alive: tuple[tuple[str, int, int], ...]
    """Live memory: description, bytes, number of storages; the most bytes first. The cache is included."""


@dataclass(frozen=True)
class Flows:
    """The flows of a class's phases, and its peaks at stated points. ``reason`` states why there are none."""

    phases: Mapping[str, Flow] = field(default_factory=dict)
    peaks: Mapping[str, Peak] = field(default_factory=dict)
    kept: Mapping[str, Peak] = field(default_factory=dict)
    """The same peaks with logits of the last position only, if the class supports that."""
    reason: str | None = None

    @property
    def measured(self) -> dict[str, int]:
        """Numbers that only execution gives, in bytes, by name."""
        found: dict[str, int] = {}
        for key, peak in self.kept.items():
            found |= {f"peak.{key}.kept.{name}": getattr(peak, name) for name in ("total", "activations")}
        for key, peak in self.peaks.items():
            for name in ("total", "activations", "cache", "cache_before", "cache_after"):
                found[f"peak.{key}.{name}"] = getattr(peak, name)
            for number, (_, size, _) in enumerate(peak.alive):
                found[f"peak.{key}.alive.{number}"] = size
        for phase, flow in self.phases.items():
            found |= {f"tensor.{phase}.{t.index}": t.bytes for t in flow.tensors if t.formula is None}
        return found


KEPT = "logits_to_keep"
"""Argument of transformers' models for the number of positions with logits. ``generate()`` passes 1."""
