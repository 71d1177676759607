"""Layouts: ways to spread a model over GPUs, in equal replicas."""

from __future__ import annotations

from dataclasses import dataclass

from lmp.link.quantisation import is_experts
from lmp.observe.held import Held

MOST_TP = 8
"""GPUs of the largest tensor-parallel group that is tried: collectives of at most 8 GPUs were measured."""
MOST_PP = 8
"""Most stages that are tried."""


@dataclass(frozen=True, order=True)
class Layout:
    """Each replica has ``pp`` stages of ``tp`` GPUs. ``ep``: GPUs over which the experts are divided, 1 or ``tp``."""

    tp: int = 1
    ep: int = 1
    pp: int = 1
    replicas: int = 1

    @property
    def gpus(self) -> int:
        """Of one replica."""
        return self.tp * self.pp

    @property
    def words(self) -> str:
        """``2 replicas of tp 4``."""
        parts = [f"tp {self.tp}", *([f"ep {self.ep}"] * (self.ep > 1)), *([f"pp {self.pp}"] * (self.pp > 1))]
        return f"{self.replicas} x " + ", ".join(parts)


@dataclass(frozen=True)
class Sizes:
    """What must divide."""

    heads: int
    """Attention heads; 0 if the config states none: any tp divides."""
    layers: int
    """0 if the config states none: no pipeline is tried."""
    experts: int
    """Of one layer; 0 for a dense model."""


def sizes_of(held: Held) -> Sizes:
    """From the config, and from the stacks of the experts' weights."""
    heads, layers = (held.config.get(name) for name in ("num_attention_heads", "num_hidden_layers"))
    stacks = [weight.shape[0] for weight in held.weights if is_experts(weight.path) and len(weight.shape) > 2]
    return Sizes(
        heads if isinstance(heads, int) else 0, layers if isinstance(layers, int) else 0, max(stacks, default=0)
    )


def layouts(gpus: int, sizes: Sizes) -> list[Layout]:
    """Every layout that uses all GPUs and divides heads, layers and experts."""
    found = []
    for tp in _divisors(gpus, MOST_TP):
        if sizes.heads % tp:
            continue
        for pp in _divisors(gpus // tp, min(MOST_PP, max(1, sizes.layers))):
            by_experts = tp > 1 and sizes.experts > 0 and sizes.experts % tp == 0
            for ep in (1, tp) if by_experts else (1,):
                found.append(Layout(tp, ep, pp, gpus // (tp * pp)))
    return found


def _divisors(number: int, most: int) -> list[int]:
    return [one for one in range(1, min(number, most) + 1) if number % one == 0]
