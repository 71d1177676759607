"""Operators' results from memory are what PyTorch itself returns, in memory of their own."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lmp.workload.results import Results, makes_new

aten = torch.ops.aten


def meta(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


class Asked:
    """An operator that counts how often it is run."""

    def __init__(self, func: Any) -> None:
        self.func, self.times, self._schema = func, 0, func._schema

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.times += 1
        return self.func(*args, **kwargs)


CASES = [
    (aten.add.Tensor, (meta(3, 1, 5), meta(4, 5)), {}),
    (aten.mul.Tensor, (meta(5, 3).t(), meta(3, 5)), {}),
    (aten.mm.default, (meta(3, 4), meta(4, 7)), {}),
    (aten.pow.Tensor_Scalar, (meta(3, 4), 2), {}),
    (aten._to_copy.default, (meta(3, 4),), {"dtype": torch.float32}),
    (aten.mean.dim, (meta(2, 3, 4), [-1], True), {}),
    (aten.native_layer_norm.default, (meta(2, 4), [4], meta(4), meta(4), 1e-5), {}),
    (aten.cat.default, ([meta(2, 3), meta(2, 5)], -1), {}),
    (aten.arange.default, (7,), {"device": torch.device("meta")}),
]


@pytest.mark.parametrize(("func", "args", "kwargs"), CASES, ids=[str(f) for f, _, _ in CASES])
def test_remembered_result_is_like_the_first(func: Any, args: Any, kwargs: Any) -> None:
    asked, results = Asked(func), Results()
    first = results.run(asked, args, kwargs)
    again = results.run(asked, args, kwargs)
    assert asked.times == 1
    pairs = [(first, again)] if isinstance(first, torch.Tensor) else list(zip(first, again, strict=True))
    for a, b in pairs:
        assert (a.shape, a.stride(), a.dtype, a.device) == (b.shape, b.stride(), b.dtype, b.device)
        assert a.untyped_storage()._cdata != b.untyped_storage()._cdata


def test_other_arguments_are_asked_for_anew() -> None:
    asked, results = Asked(aten.add.Tensor), Results()
    assert results.run(asked, (meta(2, 3), 1), {}).dtype == torch.bfloat16
    # An int is no float to an operator, and the strides decide on the result's.
    ints = meta(2, 3, dtype=torch.int64)
    assert results.run(asked, (ints, 1), {}).dtype == torch.int64
    assert results.run(asked, (ints, 1.0), {}).dtype == torch.float32
    assert results.run(asked, (meta(3, 2).t(), 1), {}).stride() == (1, 2)
    assert asked.times == 4


def test_views_writes_and_values_are_always_run() -> None:
    assert not makes_new(aten.view.default)
    assert not makes_new(aten.add_.Tensor)
    asked, results = Asked(aten.add.Tensor), Results()
    for _ in range(2):
        assert results.run(asked, (torch.ones(2), 1), {}).tolist() == [2.0, 2.0]
    assert asked.times == 2
