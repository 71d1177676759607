"""Autograd functions, and arguments that are shapes, in symbolic runs."""

from __future__ import annotations

import torch

from lmp.trace.observe import sizes_given
from lmp.trace.symbols import plain_functions
from lmp.workload.calls import Call


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x)
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        return 2 * gradient


class Shaped(torch.nn.Module):
    def forward(self, shape: torch.Size, x: torch.Tensor) -> torch.Tensor:
        return x


def test_apply_is_forward_while_active_and_itself_afterwards() -> None:
    before = torch.autograd.Function.__dict__["apply"]
    x = torch.ones(3, requires_grad=True)
    with plain_functions():
        made = Doubled.apply(x)
    assert made.tolist() == [2.0, 2.0, 2.0]
    # The product has a gradient of its own; the function around it has none.
    assert type(made.grad_fn).__name__ == "MulBackward0"
    assert torch.autograd.Function.__dict__["apply"] is before


def test_a_shape_that_is_handed_over_says_sizes_as_a_tensor_does() -> None:
    module = Shaped()
    call = Call(module, "", 0, None, (torch.Size([2, 5]), torch.empty(3, 4)))
    assert sizes_given(call) == {
        "inputs.x.shape[0]": 3,
        "inputs.x.shape[1]": 4,
        "inputs.shape[0]": 2,
        "inputs.shape[1]": 5,
    }
