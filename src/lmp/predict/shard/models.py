"""Plans and ranks of an expanded model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lmp.errors import UsageError
from lmp.formula import Number
from lmp.link.numbers import ModelNumbers
from lmp.link.records import EvaluatedKernel
from lmp.predict.rewrite.graph import runs
from lmp.predict.shard.parallel import Parallel
from lmp.predict.shard.planning import Plan, planned
from lmp.predict.shard.ranked import Ranked, ranked

UNLIKE = {"batch_size": 101, "seq_len": 103, "cache_len": 107}
"""Sizes of a call that no size of a model is a multiple of, so that shapes tell what an axis is."""


def plan_of(numbers: ModelNumbers, values: Mapping[str, Number]) -> Plan:
    """How a model is divided in calls like this one.

    Found at sizes that tell the axes apart: of several sequences and tokens with a cache, if the same kernels run
    there; else with one sequence or token, or without a cache, as the call has it.
    """
    several = {**values, **UNLIKE}
    like = {name: size for name, size in UNLIKE.items() if values.get(name, 0) > (name != "cache_len")}
    wanted, found = (_operands(numbers, at) for at in (values, several))
    point = several if all(found.get(name) == axes for name, axes in wanted.items()) else {**values, **like}
    return planned(numbers.evaluation(point, numbers.tree(point)).kernels, point)


def _operands(numbers: ModelNumbers, values: Mapping[str, Number]) -> dict[str, tuple[tuple[str, int], ...]]:
    """The kernels that run at a point -> names and axes of their inputs."""
    found = numbers.evaluation(values, numbers.tree(values)).kernels
    inputs = {kernel.id or "": kernel.operands.inputs if kernel.operands else [] for kernel in found if runs(kernel)}
    return {name: tuple((one.name, len(one.shape)) for one in of) for name, of in inputs.items()}


def rank_of(
    numbers: ModelNumbers,
    values: Mapping[str, Number],
    parallel: Parallel,
    plan: Plan | None = None,
    kernels: Sequence[EvaluatedKernel] | None = None,
) -> Ranked:
    """The kernels of one GPU in one call. Raises UsageError, with the allowed values, where it does not divide.

    ``kernels``: those of the whole model at these values, where they are evaluated already.
    """
    plan = plan_of(numbers, values) if plan is None else plan
    if kernels is None:
        kernels = numbers.evaluation(values, numbers.tree(values)).kernels
    if not parallel.dp_attention:
        return ranked(kernels, values, parallel, plan)
    batch = values.get("batch_size", 1)
    if batch % parallel.tp:
        raise UsageError(
            f"--dp-attention: batch_size {batch} does not divide over {parallel.tp} GPUs\n"
            f"allowed are multiples of {parallel.tp}"
        )
    mine = {**values, "batch_size": batch // parallel.tp}
    return ranked(kernels, values, parallel, plan, numbers.evaluation(mine, numbers.tree(mine)).kernels)
