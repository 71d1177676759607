"""Lifetimes of storages in one call of small modules, worked out by hand."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from lmp.observe.lifetimes import Lifetimes


def seen(module: nn.Module, *shape: int, **how: bool) -> Lifetimes:
    """One call on the meta device with a float32 input of this shape."""
    module = module.to("meta").eval()
    watch = Lifetimes(module, **how)
    with torch.no_grad(), watch:
        module(torch.empty(shape, device="meta"))
    return watch


class Three(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(i, o, bias=False) for i, o in ((4, 8), (8, 16), (16, 2)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c(self.b(self.a(x)))


class Steps(nn.Module):
    """A forward() that is given."""

    def __init__(self, steps: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.steps(x)


def test_the_peak_of_three_layers() -> None:
    watch = seen(Three(), 3, 4)
    # 3 rows of float32: the input has 3 * 4 * 4 = 48 bytes, the results 3 * 8 * 4 = 96, 3 * 16 * 4 =
    # 192 and 3 * 2 * 4 = 24.
    # b: 48 + 96 + 192 = 336, the input being the caller's. c: 48 + 192 + 24 = 264, as nothing holds a's result.
    assert watch.peak is not None
    assert (watch.peak.total, watch.peak.operator) == (336, 1)
    # Weights are no part of it: (32 + 128 + 32) * 4 bytes.
    assert sum(s.bytes for s in watch.storages if s.kind == "weight") == 192 * 4
    assert [op.depends for op in watch.operators] == [(), (0,), (1,)]


def test_without_detail_the_peak_is_the_same() -> None:
    brief = seen(Three(), 3, 4, detail=False)
    assert brief.peak is not None
    assert brief.peak.total == 336
    assert (brief.operators, brief.storages) == ([], [])


def test_a_name_that_is_given_to_another_tensor_ends_the_first() -> None:
    def steps(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y = y + 1
        y = y - 3
        return y / 4

    watch = seen(Steps(steps), 5)
    made = {s.maker: s for s in watch.storages if s.maker is not None}
    # The product is read by operator 1 and forgotten there: operator 2 runs without it, and so on.
    assert [made[i].end for i in range(4)] == [2, 3, 4, None]
    # Two results of 20 bytes and the input are alive at a time.
    assert watch.peak is not None
    assert watch.peak.total == 60


def test_a_view_keeps_the_whole_storage_alive() -> None:
    def steps(x: torch.Tensor) -> torch.Tensor:
        y = (x * 2)[:1]
        z = y + 1
        return z + y

    watch = seen(Steps(steps), 100)
    product = next(s for s in watch.storages if s.maker == 0)
    assert (product.bytes, product.readers, product.end) == (400, [1, 2], 3)


def test_what_is_written_in_place_is_no_new_memory() -> None:
    def steps(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.add_(1)
        return y * y

    watch = seen(Steps(steps), 10)
    product = next(s for s in watch.storages if s.maker == 0)
    assert product.writers == [1]
    # The last operator takes what the second one wrote, the second what the first one made.
    assert [op.depends for op in watch.operators] == [(), (0,), (1,)]


def test_an_allocation_is_made_by_who_first_writes_it() -> None:
    def steps(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty(4, device="meta")
        y.copy_(x)
        return y * 2

    watch = seen(Steps(steps), 4)
    assert [op.name for op in watch.operators] == ["copy", "mul"]
    assert [s.bytes for s in watch.storages if s.maker == 0] == [16]
    assert watch.operators[1].depends == (0,)


def test_attention_is_one_operator() -> None:
    def steps(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, x)

    watch = seen(Steps(steps), 1, 2, 64, 8)
    assert [op.name for op in watch.operators] == ["scaled_dot_product_attention"]
    # The input and the result, 2 * 64 * 8 * 4 bytes each: the 64 x 64 scores are not seen.
    assert watch.peak is not None
    assert watch.peak.total == 2 * 4096


def test_only_the_first_call_of_a_module_inside() -> None:
    model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.Linear(8, 16, bias=False)).to("meta")
    watch = Lifetimes(model, model[1])
    with torch.no_grad(), watch:
        model(torch.empty(3, 4, device="meta"))
    # Its input of 96 bytes and its result of 192.
    assert [op.name for op in watch.operators] == ["mm"]
    assert watch.peak is not None
    assert watch.peak.total == 96 + 192
