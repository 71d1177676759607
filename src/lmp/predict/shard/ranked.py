"""The kernels of one GPU of a model that several share, and the collectives between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lmp.errors import UsageError
from lmp.formula import Number
from lmp.link.records import EvaluatedKernel
from lmp.predict.rewrite.graph import runs
from lmp.predict.shard.parallel import Parallel
from lmp.predict.shard.part import Part
from lmp.predict.shard.planning import Plan, Whole, planned
from lmp.predict.shard.records import Kind, RankKernel, collective
from lmp.predict.shard.stages import of_stage
from lmp.records import MATMUL_CATEGORIES, Operand, Operands


@dataclass(frozen=True)
class Ranked:
    """One GPU of each stage. All GPUs of a stage do the same work."""

    stages: tuple[tuple[RankKernel, ...], ...]
    parallel: Parallel
    whole: tuple[Whole, ...]
    """Products that each GPU does whole, with the reasons."""
    matmul_flops_before: int
    """Of the whole model."""

    @property
    def kernels(self) -> tuple[RankKernel, ...]:
        """Of the stage with the most work, by its share of all FLOPs and of all bytes."""
        flops = sum(map(_flops, self.stages)) or 1
        moved = sum(map(_bytes, self.stages)) or 1
        return max(self.stages, key=lambda stage: _flops(stage) / flops + _bytes(stage) / moved)

    @property
    def every(self) -> tuple[RankKernel, ...]:
        """Of all stages: what one call runs, one stage after the other."""
        return tuple(kernel for stage in self.stages for kernel in stage)

    @property
    def matmul_flops(self) -> int:
        """Of one GPU of each stage."""
        return sum(map(_matmul, self.every))

    @property
    def repeated_flops(self) -> int:
        """Matrix FLOPs that all GPUs together do more than once: of what is whole, and of heads on several GPUs.

        ``matmul_flops * tp - repeated_flops`` are those of the whole model, unless a vocabulary is padded.
        """
        return sum(_matmul(kernel) * (kernel.ranks - kernel.parts) for kernel in self.every)

    @property
    def collectives(self) -> tuple[RankKernel, ...]:
        return tuple(kernel for kernel in self.every if kernel.collective is not None)


def _matmul(kernel: EvaluatedKernel) -> int:
    return kernel.flops * kernel.repeat if kernel.category in MATMUL_CATEGORIES else 0


def _flops(stage: Sequence[EvaluatedKernel]) -> int:
    return sum(kernel.flops * kernel.repeat for kernel in stage)


def _bytes(stage: Sequence[EvaluatedKernel]) -> float:
    return float(sum((kernel.read + kernel.write) * kernel.repeat for kernel in stage))


def ranked(
    kernels: Sequence[EvaluatedKernel],
    values: Mapping[str, Number],
    parallel: Parallel,
    plan: Plan | None = None,
    own: Sequence[EvaluatedKernel] | None = None,
) -> Ranked:
    """The kernels of one GPU. ``plan`` is how the model is divided; None: found from these kernels.

    ``own``: with ``dp_attention``, the kernels of the call with the sequences of one GPU alone. Raises UsageError, with
    the allowed values, where the model does not divide.
    """
    plan = planned(kernels, values) if plan is None else plan
    plan.check(parallel)
    before = sum(map(_matmul, kernels))
    part = Part(plan, parallel, values)
    found = _of_own_sequences(kernels, own or (), part) if parallel.dp_attention else _divided(kernels, part)
    stages = tuple(_stage(found, part, number) for number in range(parallel.pp))
    return Ranked(stages, parallel, plan.whole if parallel.tp > 1 else (), before)


def _stage(kernels: Sequence[RankKernel], part: Part, number: int) -> tuple[RankKernel, ...]:
    """One stage, with what it sends to the next one: the output of its last layer."""
    plan, stages = part.plan, part.parallel.pp
    if stages == 1:
        return tuple(kernels)
    found = [
        kernel.model_copy(update={"repeat": times})
        for kernel, times in of_stage(kernels, plan.layers, plan.tables, stages, number)
    ]
    inside = [kernel for kernel in found if plan.layers.of(kernel) is not None and runs(kernel)]
    if number == stages - 1 or not inside:
        return tuple(found)
    last = inside[-1].model_copy(update={"repeat": 1})
    return (*found, collective(last, "send", 2, part.bytes_of_output(last)))


# --- by tensors ------------------------------------------------------------------------------------------------------


def _divided(kernels: Sequence[EvaluatedKernel], part: Part) -> list[RankKernel]:
    """Every kernel as one GPU runs it, each with the collective behind it."""
    found: list[RankKernel] = []
    behind: dict[str, str] = {}
    for kernel in kernels:
        found.append(part.of(kernel))
        kind = _kind(part.plan, kernel)
        if part.parallel.tp > 1 and kind is not None and runs(kernel):
            made = collective(kernel, kind, part.parallel.tp, part.bytes_of_output(kernel))
            behind[kernel.id or ""] = made.id or ""
            found.append(made)
    return [_wired(kernel, behind) for kernel in found]


def _kind(plan: Plan, kernel: EvaluatedKernel) -> Kind | None:
    if kernel.id in plan.reduced:
        return "all_reduce"
    return "all_gather" if kernel.id in plan.gathered else None


def _wired(kernel: RankKernel, behind: Mapping[str, str]) -> RankKernel:
    """With the edges from the collectives in place of those from the kernels before them."""
    follows = any(source in behind for source in kernel.inputs_from)
    # An addition that moves no bytes is a part of the product.
    if kernel.collective is not None or not follows or not (kernel.read or kernel.write):
        return kernel
    return kernel.model_copy(update={"inputs_from": [behind.get(source, source) for source in kernel.inputs_from]})


# --- by sequences ----------------------------------------------------------------------------------------------------


def _of_own_sequences(
    kernels: Sequence[EvaluatedKernel], own: Sequence[EvaluatedKernel], part: Part
) -> list[RankKernel]:
    """Whole weights and own sequences everywhere but in the experts, which get the tokens of all GPUs.

    The tokens are gathered before the routed rows, and the sums over a token's experts are scattered behind them.
    """
    tp, routed = part.parallel.tp, part.plan.routed
    if len(own) != len(kernels):
        raise UsageError("--dp-attention needs the call of one GPU's sequences\ngive the sequences of all GPUs")
    found: list[RankKernel] = []
    paths = [kernel.path if kernel.id in routed and runs(kernel) else "" for kernel in kernels]
    products = {kernel.path: kernel for kernel in reversed(kernels) if _experts(kernel) is not None}
    gathered: dict[str, str] = {}
    behind: dict[str, str] = {}
    for number, (kernel, mine) in enumerate(zip(kernels, own, strict=True)):
        product = next((products[path] for path in products if path and paths[number].startswith(path)), None)
        if product is None:
            made = part.whole(mine).model_copy(update={"parts": tp})
            found.append(_wired(made, behind))
            continue
        first = product.path not in gathered
        if first:
            tokens = _tokens(product, part)
            before = collective(product, "all_gather", tp, tokens, "tokens of all GPUs")
            gathered[product.path] = before.id or ""
            found.append(before.model_copy(update={"inputs_from": list(kernel.inputs_from)}))
        inside = part.of(kernel)
        if first:
            inside = inside.model_copy(update={"inputs_from": [gathered[product.path], *inside.inputs_from]})
        found.append(inside)
        if not any(path.startswith(product.path) for path in paths[number + 1 :] if path):
            after = collective(kernel, "reduce_scatter", tp, _tokens(product, part), "sums of own tokens")
            behind[kernel.id or ""] = after.id or ""
            found.append(after)
    return found


def _experts(kernel: EvaluatedKernel) -> Operands | None:
    return kernel.operands if kernel.operands is not None and kernel.operands.experts is not None else None


def _tokens(product: EvaluatedKernel, part: Part) -> int:
    """Bytes of the hidden states of all tokens."""
    operands = _experts(product)
    assert operands is not None
    rows = next(one for one in operands.inputs if one.role == "activation")
    shape: list[int | str] = [int(operands.tokens or 1), int(operands.k or 1)]
    return part.bytes_of([Operand(name="self", shape=shape, width=rows.width, role="activation", present=1)])
