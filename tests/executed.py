"""Execution as a counter: a module on the meta device, as it is constructed, under the judge's counter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from lmp.verify.counter import Counter


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
    counts = counter.counts
    return (
        sum(c.flops for c in counts),
        sum(c.read.bytes(2, 2, 2) for c in counts),
        sum(c.write.bytes(2, 2, 2) for c in counts),
    )
