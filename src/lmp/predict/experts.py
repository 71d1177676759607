"""How many experts' weights figures suppose to be read, said in the same words wherever figures are shown."""

from __future__ import annotations

from collections.abc import Iterable

from lmp.predict.screen.records import ExpertsRead
from lmp.records import ModelAnalysis, ModelKernel, Operands

FEWER = "fewer where they share experts"
OF_MANY_CALLS = f"of each layer's experts, the most that a call's tokens reach are read; {FEWER}"
"""Of a table or a plot whose points have different numbers."""
ONE_TOKEN = 1
"""A token reaches as many experts as it chooses, whatever these are."""


def experts_read(operands: Iterable[Operands | None]) -> list[ExpertsRead]:
    """Each number of experts that products of a call are counted to read, once. None where a call has one token."""
    found = set()
    for one in operands:
        if one is not None and one.experts is not None and one.tokens is not None and int(one.tokens) > ONE_TOKEN:
            tokens, every = int(one.tokens), int(one.experts)
            found.add((tokens, min(every, tokens * int(one.top_k or 1)), every))
    return [ExpertsRead(experts=every, read=read, tokens=tokens) for tokens, read, every in sorted(found)]


def words(found: ExpertsRead) -> str:
    """``128 of 128 experts read, the most that 16 tokens reach``, and that they may be fewer."""
    return f"{found.read:,} of {found.experts:,} experts read, the most that {found.tokens:,} tokens reach; {FEWER}"


def of_many_calls(model: ModelAnalysis) -> list[str]:
    """The note on many calls of a model, if it has products over experts."""
    return [OF_MANY_CALLS] if any(map(_has_experts, model.kernels)) else []


def _has_experts(kernel: ModelKernel) -> bool:
    own = kernel.operands is not None and kernel.operands.experts is not None
    return own or any(map(_has_experts, kernel.kernels or ()))
