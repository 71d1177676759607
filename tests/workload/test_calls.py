"""Who called an operator: modules, their lines, and hooks that are gone afterwards."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.modules import module as nn_module

from lmp.trace.recording import Recorder
from lmp.workload.calls import CallTracker, Segment, package_dir


def helper(x: torch.Tensor) -> torch.Tensor:
    return inner_helper(x)


def inner_helper(x: torch.Tensor) -> torch.Tensor:
    return x.exp()


def decorated(forward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(forward)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return forward(*args, **kwargs)

    return wrapper


class Leaf(torch.nn.Module):
    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        return x.sin()


class Helped(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return helper(x)


class Decorated(torch.nn.Module):
    @decorated
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.tanh()


class Outer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.leaf = Leaf()
        self.helped = Helped()
        self.decorated = Decorated()
        self.linear = torch.nn.Linear(3, 3, device="meta")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.leaf(x, scale=2.0)
        x = self.helped(self.decorated(x)).cos()
        x = self.leaf(self.leaf(x))
        return self.linear(x)


class Rows:
    def __init__(self, x: torch.Tensor) -> None:
        self.x = x

    def __getitem__(self, power: int) -> torch.Tensor:
        return self.x.exp()


class Often(torch.nn.Module):
    """Calls of Python functions, which the interpreter makes in a faster way once they were made some times."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = Rows(x)
        return helper(x) + rows[1] + rows[2]


class Failing(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.leaf = Leaf()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.leaf(x)
        raise ValueError("in the middle")


class Rescuing(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.failing, self.leaf = Failing(), Leaf()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            return self.failing(x)
        except ValueError:
            return self.leaf(x)


def run(root: torch.nn.Module) -> tuple[CallTracker, list[tuple[str, tuple[Segment, ...]]]]:
    """The tracker after one call, and the segments of each operator."""
    recorder = Recorder(root, torch.float32)
    x = torch.empty(2, 3, device="meta")
    with torch.no_grad(), recorder:
        root(x)
    return recorder.tracker, [(e.operator.name, e.segments) for e in recorder.recording.operators]


def hooks() -> list[dict[int, Any]]:
    """All of torch's global forward hooks. (Of removed ones torch keeps the numbers of those that take arguments.)"""
    names = [n for n in sorted(vars(nn_module)) if re.fullmatch(r"_global_forward\w*_hooks(_always_called)?", n)]
    assert len(names) == 3
    return [dict(vars(nn_module)[n]) for n in names]


def code_at(segment: Segment, place: int = 0) -> str:
    """The source text of a place of the chain."""
    found = segment.chain[place]
    with open(found.file) as file:
        return file.read().splitlines()[found.line - 1].strip()


def test_an_operator_belongs_to_a_line_of_each_module_above_it() -> None:
    _, seen = run(Outer())
    (name, segments), *_ = seen
    assert name == "sin"
    assert [type(s.call.module) for s in segments] == [Leaf, Outer]
    assert [s.call.path for s in segments] == ["leaf", ""]
    assert [code_at(s) for s in segments] == ["return x.sin()", "x = self.leaf(x, scale=2.0)"]
    assert [s.chain[-1].function for s in segments] == ["forward", "forward"]


def test_helper_functions_lead_back_to_forward() -> None:
    _, seen = run(Outer())
    segments = dict(seen)["exp"]
    assert [p.function for p in segments[0].chain] == ["inner_helper", "helper", "forward"]
    assert [code_at(segments[0], i) for i in range(3)] == [
        "return x.exp()",
        "return inner_helper(x)",
        "return helper(x)",
    ]
    assert code_at(segments[1]) == "x = self.helped(self.decorated(x)).cos()"


def test_lines_around_forward_are_not_lines_of_it() -> None:
    _, seen = run(Outer())
    segments = dict(seen)["tanh"]
    assert [p.function for p in segments[0].chain] == ["forward"]
    assert code_at(segments[0]) == "return x.tanh()"


def test_pytorchs_own_functions_are_lines_of_pytorchs_modules_only() -> None:
    _, seen = run(Outer())
    linear, outer = dict(seen)["addmm"]
    assert linear.chain[-1].file.endswith("torch/nn/modules/linear.py")
    assert [p.function for p in outer.chain] == ["forward"]
    assert outer.chain[0].file == inspect.getsourcefile(Outer)


def test_two_calls_on_one_line_are_told_apart() -> None:
    _, seen = run(Outer())
    _, second, third = [segments[1].chain[0] for name, segments in seen if name == "sin"]
    assert second.line == third.line
    assert second.instruction != third.instruction


def test_calls_know_their_parents_and_sites() -> None:
    tracker, _ = run(Outer())
    assert [c.path for c in tracker.calls] == ["", "leaf", "decorated", "helped", "leaf", "leaf", "linear"]
    assert [c.index for c in tracker.calls] == list(range(7))
    root, leaf, *_ = tracker.calls
    assert (root.parent, root.site) == (None, None)
    assert leaf.parent is root
    assert leaf.site is not None
    assert leaf.site.call is root
    assert code_at(leaf.site) == "x = self.leaf(x, scale=2.0)"
    assert leaf.class_path == f"{__name__}.Leaf"


def test_calls_keep_arguments_and_results() -> None:
    tracker, _ = run(Outer())
    leaf = tracker.calls[1]
    assert leaf.args[0].shape == (2, 3)
    assert leaf.kwargs == {"scale": 2.0}
    assert leaf.output.shape == (2, 3)


def test_everyone_who_wants_to_know_is_told_of_each_call() -> None:
    entered: list[str] = []
    root = Outer()
    with torch.no_grad(), CallTracker(root, on_enter=lambda call: entered.append(call.path)):
        root(torch.empty(2, 3, device="meta"))
    assert entered == ["", "leaf", "decorated", "helped", "leaf", "leaf", "linear"]


def test_a_module_outside_of_the_root_has_no_path() -> None:
    tracker = CallTracker(torch.nn.Linear(1, 1))
    with tracker:
        Leaf()(torch.empty(1))
    assert [c.path for c in tracker.calls] == [""]


def test_no_hooks_are_left() -> None:
    before = hooks()
    tracker = CallTracker(Outer())
    with tracker:
        assert hooks() != before
    assert hooks() == before
    assert tracker.stack == []


def test_no_hooks_are_left_after_an_error() -> None:
    before, root = hooks(), Failing()
    tracker = CallTracker(root)
    with pytest.raises(ValueError, match="in the middle"), tracker:
        root(torch.empty(2, 3))
    assert hooks() == before
    assert tracker.stack == []
    # and nothing is recorded any more
    count = len(tracker.calls)
    Leaf()(torch.empty(1))
    assert len(tracker.calls) == count


def test_a_call_that_failed_is_not_on_the_stack_any_more() -> None:
    _, seen = run(Rescuing())
    assert [[type(s.call.module) for s in segments] for _, segments in seen] == [
        [Leaf, Failing, Rescuing],
        [Leaf, Rescuing],
    ]


def test_segments_outside_of_any_call_are_none() -> None:
    with CallTracker(Outer()) as tracker:
        assert tracker.segments() == ()


def test_an_operator_stays_at_its_place_however_often_it_runs() -> None:
    """After some calls of a function Python stands at another instruction while it makes one."""
    module = Often()
    chains = []
    for _ in range(40):
        _, seen = run(module)
        chains.append([(name, segments[0].chain) for name, segments in seen])
    assert all(chain == chains[0] for chain in chains)
    # Three calls of the line lead to exp, each of them another place of forward().
    assert len({chain for name, chain in chains[0] if name == "exp"}) == 3


def test_package_dir() -> None:
    assert package_dir(torch.nn.Linear(1, 1)).endswith("/torch/nn/")
    assert inspect.getsourcefile(Outer).startswith(package_dir(Outer()))  # type: ignore[union-attr]
    orphan = type("Orphan", (torch.nn.Module,), {"__module__": "nowhere.at.all"})
    assert package_dir(orphan()) == "<none>"
