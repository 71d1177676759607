"""Whether a called module runs other operators because an input is a slice or transposed.

Analyses of a class alone are made on dense inputs. A Linear with a bias copies a slice of the tokens first, and adds
the bias separately.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from lmp.trace.recording import Executed, Recorder, Recording
from lmp.workload.calls import Call
from lmp.workload.failures import hand_on
from lmp.workload.results import Results, tensors_in


def strides_matter(call: Call, recording: Recording, dtype: torch.dtype) -> bool:
    """True if a call of plain sizes costs something else than the same call with dense inputs."""
    if all(tensor.is_contiguous() for tensor in tensors_in((call.args, call.kwargs))):
        return False
    args, kwargs = tree_map_only(torch.Tensor, _dense, (call.args, call.kwargs))
    recorder = Recorder(call.module, dtype, int, Results())
    with torch.no_grad(), recorder:
        hand_on(call.module, *args, **kwargs)
    return _costs(recorder.recording.operators) != _costs(recording.below(call))


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.is_contiguous() else torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def _costs(executed: Iterable[Executed]) -> Counter[Any]:
    """Number of operators of each kind and cost. Views cost nothing and are not among them."""
    found: Counter[Any] = Counter()
    for one in executed:
        cost = one.cost
        moved = [tuple((move.unit, move.elements) for move in moves) for moves in (cost.reads, cost.writes)]
        found[one.operator.name, cost.matmul_flops, cost.scalar_flops, *moved] += 1
    return found
