"""The least traffic of a call, worked out from operands: what the proven formula says of the whole model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from lmp.formula import Number, read_number
from lmp.link.records import EvaluatedKernel
from lmp.predict.rewrite.graph import Graph
from lmp.predict.shard.records import ep_of
from lmp.predict.shard.state import LOOKUPS
from lmp.records import Operand

INDEX_BYTES = 8
"""Of a token's index, which every GPU reads."""


def looks_up(kernel: EvaluatedKernel) -> bool:
    """Whether a kernel reads rows of a table."""
    return kernel.operands is not None and kernel.operands.operator in (*LOOKUPS, "embedding")


def least_traffic(kernels: Sequence[EvaluatedKernel], values: Mapping[str, Number], tied: bool = False) -> Fraction:
    """Bytes of weights and cache read once, of new entries in the cache, of tokens, and of the last output.

    ``tied``: tables that are looked up are weights of a product too, which reads them whole.
    """
    graph = Graph(kernels, values)
    found = Fraction(INDEX_BYTES * values.get("batch_size", 1) * values.get("seq_len", 1))
    for number, kernel in enumerate(graph.kernels):
        inputs = graph.inputs(number)
        for operand in inputs:
            if operand.role == "weight" and tied and looks_up(kernel):
                continue
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
