"""What one GPU of several holds, and what it cannot avoid to move, in one call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from lmp.formula import Number, read_number
from lmp.link.sweep import plan
from lmp.observe.held import Held
from lmp.predict.cache_blocks import kv_kinds
from lmp.predict.holding import held_by_formulas
from lmp.predict.least import least_traffic
from lmp.predict.quantising import narrowed
from lmp.predict.screen.asking import Subject
from lmp.predict.shard.parallel import ONE, Parallel
from lmp.predict.sharding import share_by_plan


@dataclass(frozen=True)
class OneGpuHolds:
    """Bytes on one GPU of a tensor-parallel group. What is not known is None."""

    weights: Fraction | None
    cache: Fraction | None
    """After the call."""
    compulsory: Fraction | None
    """Its part of the weights and of the cache, inputs and outputs, once."""
    reason: str | None
    """Why weights and cache are not known."""
    gpus: int
    """GPUs of the group."""


def holds(
    subject: Subject, given: Mapping[str, Number], parallel: Parallel, held: Held | str | None = None
) -> OneGpuHolds:
    """What one GPU holds in a call; ``held`` is what the model holds, if that is known.

    Raises UsageError where the model does not divide.
    """
    values = plan(subject.numbers(given).model, {name: (value,) for name, value in given.items()}, 1).fixed
    compulsory = _compulsory(subject, given, values, parallel)
    held = held_by_formulas(subject, given, parallel.tp) if held is None else held
    if isinstance(held, str):
        return OneGpuHolds(None, None, compulsory, held, parallel.tp)
    held = narrowed(held, given.get("w_bytes"))
    share, _ = share_by_plan(held, parallel.tp)
    weights = sum((weight.stored * share(weight) for weight in held.weights), Fraction(0))
    tokens = int(values.get("cache_len", 0) + values.get("seq_len", 0))
    kinds = kv_kinds(held, parallel.tp, Fraction(values.get("kv_bytes", values.get("a_bytes", 2))))
    cache = int(values.get("batch_size", 1)) * sum((kind.bytes(tokens) for kind in kinds), Fraction(0))
    return OneGpuHolds(weights, cache, compulsory, None, parallel.tp)


def _compulsory(
    subject: Subject, given: Mapping[str, Number], values: Mapping[str, Number], parallel: Parallel
) -> Fraction | None:
    """Worked out from operands; None unless they give the whole model's proven figure in the same way."""
    whole = subject.kernels(given, values, ONE)
    proven = whole.evaluation.totals.compulsory
    if proven is None:
        return None
    least = Fraction(read_number(proven))
    tied = next((tied for tied in (False, True) if least_traffic(whole.kernels, values, tied) == least), None)
    return None if tied is None else least_traffic(subject.kernels(given, values, parallel).kernels, values, tied)
