"""Execution as a counter: a module on the meta device, as it is constructed, under the judge's counter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from lmp.verify.counter import Counter, OperatorCount
from lmp.verify.judge import observe
from lmp.workload.load import load_class, quiet_warnings
from lmp.workload.model import ModelWorkload
from lmp.workload.parent_models import config_from


def executed(
    make: Callable[[], torch.nn.Module], *shapes: tuple[int, ...], given: Mapping[str, Any] | None = None
) -> tuple[int, int, int]:
    """FLOPs, bytes read and bytes written of one call on bfloat16 tensors of these shapes."""
    with torch.device("meta"):
        module = make().to(torch.bfloat16).eval()
        inputs = [torch.empty(shape, dtype=torch.bfloat16) for shape in shapes]
        counter = Counter(module, torch.bfloat16)
        with torch.no_grad(), counter:
            module(*inputs, **(given or {}))
    return _sums(counter.counts)


def _sums(counts: Sequence[OperatorCount]) -> tuple[int, int, int]:
    return (
        sum(c.flops for c in counts),
        sum(c.read.bytes(2, 2, 2) for c in counts),
        sum(c.write.bytes(2, 2, 2) for c in counts),
    )


def executed_model(class_path: str, content: dict[str, Any], **sizes: int) -> tuple[int, int, int]:
    """The same of a whole model of transformers with all its layers. ``content``: that of its config.json."""
    cls = load_class(class_path)
    with quiet_warnings():
        workload = ModelWorkload(cls, config_from(cls, content))
        values = {**workload.defaults, **workload.full_layers, "cache_len": 0, **sizes}
        counts = observe(workload, values, cross_check=False).counts
    return _sums(counts)
