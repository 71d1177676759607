"""Cached operator results on symbolic sizes equal those of executing the operators again."""

from __future__ import annotations

from typing import Any

import torch

from lmp.trace.remembered import SymbolicResults
from lmp.trace.symbols import ConcolicShapeEnv, expression, fake_mode


class Counted:
    """Runs operators, and counts the executions."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def __call__(self, func: Any, args: Any, kwargs: Any) -> Any:
        self.ran.append(func._schema.name)
        return func(*args, **kwargs)


def _shapes(tensor: torch.Tensor) -> tuple[list[Any], list[Any], torch.dtype, torch.device]:
    return [expression(s) for s in tensor.shape], [expression(s) for s in tensor.stride()], tensor.dtype, tensor.device


def test_the_same_operator_on_the_same_sizes_runs_once() -> None:
    env, counted = ConcolicShapeEnv(), Counted()
    results = SymbolicResults(env, counted)
    batch, width = env.size("batch", 2), env.size("width", 8)
    with fake_mode(env):
        a, b = torch.empty(batch, width, 3), torch.empty(width, 3)
        first = results.run(torch.ops.aten.add.Tensor, (a, b), {})
        again = results.run(torch.ops.aten.add.Tensor, (torch.empty(batch, width, 3), b), {})
        assert counted.ran == ["aten::add"]
        assert _shapes(again) == _shapes(first) == _shapes(a + b)
        assert again.untyped_storage()._cdata != first.untyped_storage()._cdata
        # Equal numbers are different arguments if their symbols, dtype or strides differ.
        other = env.size("other", 2)
        for c in (torch.empty(other, width, 3), a.double(), torch.empty(3, width, batch).permute(2, 1, 0)):
            assert _shapes(results.run(torch.ops.aten.add.Tensor, (c, b), {})) == _shapes(c + b)
        assert counted.ran == ["aten::add"] * 4


def test_views_and_operators_that_write_always_run() -> None:
    env, counted = ConcolicShapeEnv(), Counted()
    results = SymbolicResults(env, counted)
    with fake_mode(env):
        a = torch.empty(env.size("batch", 2), 3)
        for _ in range(2):
            view = results.run(torch.ops.aten.t.default, (a,), {})
            assert view.untyped_storage()._cdata == a.untyped_storage()._cdata
            assert results.run(torch.ops.aten.add_.Tensor, (a, 1), {}) is a
    assert len(counted.ran) == 4


def test_what_an_operator_turned_into_numbers_is_put_down_for_each_class() -> None:
    env = ConcolicShapeEnv()
    running = ["first"]
    env.where = lambda: frozenset(running)
    size = env.size("length", 5)

    def execute(func: Any, args: Any, kwargs: Any) -> Any:
        int(size)
        return func(*args, **kwargs)

    results = SymbolicResults(env, execute)
    with fake_mode(env):
        a = torch.empty(size, 3)
        results.run(torch.ops.aten.relu.default, (a,), {})
        running[0] = "second"
        results.run(torch.ops.aten.relu.default, (a,), {})
    assert env.pinned == {expression(size): 5}
    assert env.pinned_in == {expression(size): {"first", "second"}}
