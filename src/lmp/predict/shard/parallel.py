"""How many GPUs share a model, and in which way."""

from __future__ import annotations

from dataclasses import dataclass

from lmp.errors import UsageError

MOST = 1024
"""GPUs at most along each kind of parallelism."""


@dataclass(frozen=True)
class Parallel:
    """GPUs of a model. Raises UsageError for numbers that contradict each other.

    The ``tp`` GPUs of a stage share each layer. Experts are in ``ep`` groups of ``tp / ep`` GPUs, which share the inner
    size of their experts.
    """

    tp: int = 1
    ep: int = 1
    pp: int = 1
    dp_attention: bool = False
    """Each GPU of a stage runs attention for its part of the sequences, with whole weights."""

    def __post_init__(self) -> None:
        for name in ("tp", "ep", "pp"):
            if not 1 <= getattr(self, name) <= MOST:
                raise UsageError(f"--{name} {getattr(self, name)} is not a number of GPUs\nallowed are 1 to {MOST}")
        if self.tp % self.ep:
            raise UsageError(f"--ep {self.ep} does not divide --tp {self.tp}\nallowed are {divisors(self.tp)}")
        if self.dp_attention and self.tp == 1:
            raise UsageError("--dp-attention has one GPU\ngive --tp: the GPUs that share the experts")

    @property
    def expert_tp(self) -> int:
        """GPUs that share the inner size of an expert."""
        return self.tp // self.ep

    @property
    def gpus(self) -> int:
        return self.tp * self.pp


ONE = Parallel()


def divisors(number: int) -> str:
    """All divisors, as text."""
    return ", ".join(str(d) for d in range(1, number + 1) if number % d == 0)
