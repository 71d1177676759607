"""Cached operator results on symbolic sizes equal those of executing the operators again."""

from __future__ import annotations

from typing import Any

import torch

from lmp.trace.recording import number_of
from lmp.trace.remembered import OtherRuns, SymbolicResults
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


def test_operators_that_write_always_run_and_a_view_stays_a_view() -> None:
    env, counted = ConcolicShapeEnv(), Counted()
    results = SymbolicResults(env, counted)
    with fake_mode(env):
        a = torch.empty(env.size("batch", 2), 3)
        for base in (a, torch.empty(env.size("batch", 2), 3), a[1:]):
            view = results.run(torch.ops.aten.t.default, (base,), {})
            assert _shapes(view) == _shapes(base.t())
            assert view.untyped_storage()._cdata == base.untyped_storage()._cdata
            assert expression(view.storage_offset()) == expression(base.storage_offset())
            assert results.run(torch.ops.aten.add_.Tensor, (base, 1), {}) is base
    # a[1:] has another size, and another place in its memory.
    assert counted.ran == ["aten::t", "aten::add_", "aten::add_", "aten::t", "aten::add_"]


def test_another_run_takes_a_result_if_the_sizes_compare_alike() -> None:
    others, counted = OtherRuns(), Counted()

    def added(length: int, keys: int) -> tuple[list[Any], ...]:
        env = ConcolicShapeEnv()
        with fake_mode(env):
            a, b = torch.empty(env.size("length", length), 3), torch.empty(env.size("keys", keys), 3)
            sum_ = SymbolicResults(env, counted, others).run(torch.ops.aten.add.Tensor, (a, b), {})
            assert number_of(sum_.shape[0]) == max(length, keys)  # its value in this run
            return _shapes(sum_)

    # A dimension of 1 broadcasts: the sum is as long as the other one.
    assert str(added(5, 1)[0]) == "[length, 3]"
    assert str(added(7, 1)[0]) == "[length, 3]"
    assert counted.ran == ["aten::add"]
    assert str(added(1, 7)[0]) == "[keys, 3]"
    assert counted.ran == ["aten::add"] * 2


def test_another_run_takes_no_result_of_another_layout_though_nothing_is_compared_for_it() -> None:
    others, counted = OtherRuns(), Counted()
    for batch in (2, 3, 1):  # [1, 8] is dense in either order
        env = ConcolicShapeEnv()
        with fake_mode(env):
            a = torch.empty(env.size("width", 8), env.size("batch", batch)).t()
            assert a.is_contiguous() == (batch == 1)  # PyTorch keeps the answer with the tensor
            SymbolicResults(env, counted, others).run(torch.ops.aten.relu.default, (a,), {})
    assert len(counted.ran) == 2


def test_what_an_operator_does_to_sizes_is_done_in_another_run_too() -> None:
    others = OtherRuns()
    executed = []

    def execute(func: Any, args: Any, kwargs: Any) -> Any:
        executed.append(func)
        (size, _) = args[0].shape
        return func(*args, **kwargs) if int(size) + size // 2 else None

    def run(length: int) -> ConcolicShapeEnv:
        env = ConcolicShapeEnv()
        with fake_mode(env):
            a = torch.empty(env.size("length", length), 3)
            SymbolicResults(env, execute, others).run(torch.ops.aten.relu.default, (a,), {})
        return env

    first, again, other = run(5), run(5), run(6)
    assert len(executed) == 2  # at another length the number is another one
    assert list(first.pinned.values()) == list(again.pinned.values()) == [5]
    assert list(other.pinned.values()) == [6]
    assert first.turned_now == again.turned_now != set()
    assert first.divisions == again.divisions == other.divisions != {}


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
