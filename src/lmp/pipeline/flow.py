"""The data flow of one call of a class: operators with their lines, real dependencies, shapes and lifetimes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Shape = tuple[str, ...]
"""Sizes as formulas."""


@dataclass(frozen=True)
class Line:
    """A line that led to an operator. ``file`` is relative to its tree."""

    file: str
    line: int
    function: str


@dataclass(frozen=True)
class Frame:
    """A module call that an operator is part of, with its lines, the innermost first."""

    class_name: str
    path: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Op:
    """One executed operator. Views and allocations are none."""

    index: int
    name: str
    """ATen's."""
    words: str
    category: str
    frames: tuple[Frame, ...]
    """The innermost module first."""
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    """Tensors, by index."""
    depends: tuple[int, ...]
    """Operators whose results it takes."""
    shape: Shape | None
    """Of its first result; None where no formula was found."""
    sizes: tuple[int, ...]
    """The same in numbers."""
    product: tuple[str, ...] | None = None
    """Of a matrix product: batches, M, N, K; of attention: batch, heads, queries, keys, head size."""
    causal: bool = False
    operands: tuple[Shape, ...] | None = None
    """Shapes of the tensors that went in; None where no formulas were found."""


@dataclass(frozen=True)
class Tensor:
    """Memory of one tensor, with all views of it."""

    index: int
    kind: str
    """weight, cache, input, activation."""
    bytes: int
    formula: str | None
    """Its bytes, in the model's variables; None where none was found."""
    sizes: tuple[int, ...]
    dtype: str
    name: str
    maker: int | None
    readers: tuple[int, ...]
    end: int | None
    """The first operator that ran without it; None: it outlives the call."""
    whole: Shape | None = None
    """Its shape where its maker wrote only a part of it, as what reads it has it."""


@dataclass(frozen=True)
class Flow:
    """One call at ``values``, of a model with one layer of each kind."""

    values: Mapping[str, int]
    ops: tuple[Op, ...]
    tensors: tuple[Tensor, ...]
    returned: tuple[int, ...]
    outputs: Mapping[str, Shape]
    """Module path -> shape of what its call returned."""
    given: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Module path -> names of the arguments that its call was given and that were not None."""


@dataclass(frozen=True)
class Peak:
    """Where most was alive beside the weights in one call of the whole class, with all its layers."""

    total: int
    activations: int
    cache: int
    cache_before: int
    cache_after: int
    words: str
    frames: tuple[Frame, ...]
    alive: tuple[tuple[str, int, int], ...]
    """What was alive: words, bytes, how many; the most bytes first. The cache is one of them."""


@dataclass(frozen=True)
class Flows:
    """The flows of the phases that a class has, and its peaks at stated points; ``reason`` is why there are none."""

    phases: Mapping[str, Flow] = field(default_factory=dict)
    peaks: Mapping[str, Peak] = field(default_factory=dict)
    kept: Mapping[str, Peak] = field(default_factory=dict)
    """The same with logits of the last position alone, where the class can be asked for that."""
    reason: str | None = None

    @property
    def measured(self) -> dict[str, int]:
        """Numbers that only execution gives, by name."""
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
"""The argument of transformers' models that says of how many positions logits are made; ``generate()`` gives 1."""
