"""Records of what one GPU runs: its kernels, and what it moves to others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from lmp.link.records import EvaluatedKernel
from lmp.records import Operands, Record

Kind = Literal["all_reduce", "all_gather", "reduce_scatter", "alltoall", "send"]
WORDS: Mapping[Kind, str] = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "alltoall": "all-to-all",
    "send": "send to the next stage",
}
COLLECTIVE = "collective"
"""Category of kernels that move data between GPUs."""


class Collective(Record):
    """What a group of GPUs moves."""

    kind: Kind
    gpus: int
    bytes: int
    """The message as the library counts it: the whole tensor on each GPU."""


class RankKernel(EvaluatedKernel):
    """One kernel as one GPU runs it."""

    parts: int = 1
    """Different parts of its work that the GPUs have; 1: each has the whole."""
    ranks: int = 1
    """GPUs that run it, each one part."""
    expert_tp: int = 1
    """GPUs that share the inner size of an expert."""
    ep: int = 1
    """Groups of GPUs with different experts. Rows, experts and top-k in the operands are those of all of them."""
    collective: Collective | None = None


def collective_of(kernel: EvaluatedKernel) -> Collective | None:
    """What a kernel moves between GPUs; None for all others."""
    return kernel.collective if isinstance(kernel, RankKernel) else None


def ep_of(kernel: EvaluatedKernel) -> int:
    """Groups of GPUs with different experts."""
    return kernel.ep if isinstance(kernel, RankKernel) else 1


def with_bytes(kernel: EvaluatedKernel, times: int) -> EvaluatedKernel:
    """A collective of a message that is so many times smaller."""
    collective = collective_of(kernel)
    assert collective is not None
    size = -(-collective.bytes // times)
    made = collective.model_copy(update={"bytes": size})
    return kernel.model_copy(update={"read": size, "write": size, "collective": made})


def collective(kernel: EvaluatedKernel, kind: Kind, gpus: int, size: int, what: str = "") -> RankKernel:
    """What GPUs move behind a kernel: its first output, or ``what`` with so many bytes."""
    tensors = [] if kernel.operands is None or what else kernel.operands.outputs[:1]
    inputs = [one.model_copy(update={"name": "self"}) for one in tensors]
    return RankKernel(
        path=kernel.path, class_name=kernel.class_name, line=kernel.line, category=COLLECTIVE, repeat=kernel.repeat,
        operation=WORDS[kind] if kind == "send" else f"{WORDS[kind]} over {gpus} GPUs" + (what and f": {what}"),
        flops=0, read=size, write=size, id=f"{kernel.id}.{kind}", inputs_from=[kernel.id or ""],
        operands=Operands(operator=kind, inputs=inputs, outputs=tensors, window=None, causal=None),
        parts=gpus, ranks=gpus, collective=Collective(kind=kind, gpus=gpus, bytes=size),
    )  # fmt: skip
