"""What one GPU of several holds, and what it cannot avoid to move, in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from lmp.formula import Number, read_number
from lmp.link.records import EvaluatedKernel
from lmp.link.sweep import plan
from lmp.predict.cache_blocks import kv_kinds
from lmp.predict.holding import held_by_formulas
from lmp.predict.rewrite.graph import Graph
from lmp.predict.screen.asking import Subject
from lmp.predict.screen.room import with_width
from lmp.predict.shard.parallel import ONE, Parallel
from lmp.predict.shard.records import ep_of
from lmp.predict.sharding import share_by_plan
from lmp.records import Operand

INDEX_BYTES = 8
"""Of a token's index, which every GPU reads."""


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


def holds(subject: Subject, given: Mapping[str, Number], parallel: Parallel) -> OneGpuHolds:
    """What one GPU holds in a call. Raises UsageError where the model does not divide."""
    values = plan(subject.numbers(given).model, {name: (value,) for name, value in given.items()}, 1).fixed
    compulsory = _compulsory(subject, given, values, parallel)
    held = held_by_formulas(subject, given, parallel.tp)
    if isinstance(held, str):
        return OneGpuHolds(None, None, compulsory, held)
    held = with_width(held, given.get("w_bytes"))
    share, _ = share_by_plan(held, parallel.tp)
    weights = sum((weight.stored * share(weight) for weight in held.weights), Fraction(0))
    tokens = int(values.get("cache_len", 0) + values.get("seq_len", 0))
    kinds = kv_kinds(held, parallel.tp, Fraction(values.get("kv_bytes", values.get("a_bytes", 2))))
    cache = int(values.get("batch_size", 1)) * sum((kind.bytes(tokens) for kind in kinds), Fraction(0))
    return OneGpuHolds(weights, cache, compulsory, None)


def _compulsory(
    subject: Subject, given: Mapping[str, Number], values: Mapping[str, Number], parallel: Parallel
) -> Fraction | None:
    """Worked out from operands; None unless they give the whole model's proven figure in the same way."""
    whole = subject.kernels(given, values, ONE)
    proven = whole.evaluation.totals.compulsory
    if proven is None or least_traffic(whole.kernels, values) != Fraction(read_number(proven)):
        return None
    return least_traffic(subject.kernels(given, values, parallel).kernels, values)


def least_traffic(kernels: Sequence[EvaluatedKernel], values: Mapping[str, Number]) -> Fraction:
    """Bytes of weights and cache read once, of new entries in the cache, of tokens, and of the last output."""
    graph = Graph(kernels, values)
    found = Fraction(INDEX_BYTES * values.get("batch_size", 1) * values.get("seq_len", 1))
    for number, kernel in enumerate(graph.kernels):
        inputs = graph.inputs(number)
        for operand in inputs:
            if operand.role == "weight":
                found += _read_of(operand, inputs, kernel, graph) * kernel.repeat
            elif "cache" in kernel.inputs_from and operand.role in ("cache", "activation"):
                # What stands beside a tensor of the cache is added to it.
                found += graph.bytes_of(operand) * kernel.repeat
    last = graph.kernels[-1].operands
    return found + sum((graph.bytes_of(one) for one in last.outputs[:1]), Fraction(0)) if last is not None else found


def _read_of(weight: Operand, inputs: Sequence[Operand], kernel: EvaluatedKernel, graph: Graph) -> Fraction:
    """Bytes of a weight that a kernel reads: the experts that tokens reach, the rows that are looked up, or all."""
    groups = ep_of(kernel)
    others = sum((graph.bytes_of(one) for one in inputs if one is not weight), Fraction(0))
    read = (Fraction(read_number(kernel.read)) * groups - others) / groups
    return min(read, graph.bytes_of(weight))
