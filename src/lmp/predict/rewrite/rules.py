"""The rules: which kernels each takes, by operators, shapes and edges, and what it puts in their place.

No rule knows a model. A rule takes kernels that no rule before it in the profile has taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from lmp.link.records import EvaluatedKernel
from lmp.predict.rewrite.graph import Graph


@dataclass(frozen=True)
class Launch:
    """One kernel of the rewritten list."""

    kernel: EvaluatedKernel
    """What is launched: costs of one execution."""
    rule: str | None
    """The rule that made it; None for an eager kernel."""
    members: tuple[int, ...]
    """The kernels that it stands for."""
    matmul_flops: int
    """Of one execution; worked out from the shapes of what is launched if a rule made it."""
    row: Mapping[str, object] | None = None
    """The row of `lmp predict-op`, without the device, where the kernel alone does not tell it."""


@dataclass(frozen=True)
class Match:
    """Kernels that a rule takes, and what it puts in their place."""

    members: tuple[int, ...]
    launches: tuple[Launch, ...]
    saved: int = 0
    """Matrix FLOPs that are not done any more, in all executions."""


@dataclass
class State:
    """A list that is being rewritten."""

    graph: Graph
    dtype: str
    """Of products, as a datasheet names it."""
    of_expert: Callable[[EvaluatedKernel], Mapping[str, object] | None]
    """Fields of a row on the products of a layer's experts: their dtype, and bytes of a weight in memory if these are
    fewer. None if no kernel of such a layer was measured."""
    absorbed: str = "bfloat16"
    """Dtype of the products of each head that latent attention absorbs."""
    reads_fp8: Callable[[EvaluatedKernel], bool] = lambda kernel: True
    """Whether a product with a weight reads its input in 8 bits, where ``dtype`` is fp8."""
    taken: dict[int, str] = field(default_factory=dict)
    """Kernel -> the rule that took it."""
    launches: list[Launch] = field(default_factory=list)

    def free(self, one: int, like: int) -> bool:
        """Whether no rule has it, and it runs as often as another one: in the same layers."""
        return one not in self.taken and self.graph.kernels[one].repeat == self.graph.kernels[like].repeat

    def untaken(self) -> list[int]:
        return [one for one in range(len(self.graph.kernels)) if one not in self.taken]


Finder = Callable[[State], Iterator[Match]]


@dataclass(frozen=True)
class Rule:
    """One rule, with what ``lmp predict --explain`` says of it."""

    name: str
    pattern: str
    becomes: str
    saves: str
    """The matrix FLOPs that it saves."""
    find: Finder


NOTHING = "0"
