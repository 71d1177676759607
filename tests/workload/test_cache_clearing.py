"""What functions of a model's source remember is forgotten before a call is counted, and after it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from lmp.workload.cache_clearing import caches_cleared

made: list[str] = []


def remembered(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that hides what remembers, as that of transformers does."""
    kept = functools.lru_cache(maxsize=4)(function)

    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return kept(*args)

    return wrapper


@functools.lru_cache
def grid(size: int) -> torch.Tensor:
    made.append("grid")
    return torch.zeros(size, device="meta")


@remembered
def hidden(size: int) -> torch.Tensor:
    made.append("hidden")
    return torch.zeros(size, device="meta")


class Positions(torch.nn.Module):
    @staticmethod
    @functools.lru_cache(maxsize=1)
    def static(size: int) -> torch.Tensor:
        made.append("static")
        return torch.zeros(size, device="meta")

    @remembered
    def method(self, size: int) -> torch.Tensor:
        made.append("method")
        return torch.zeros(size, device="meta")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + grid(3) + hidden(3) + self.static(3) + self.method(3)


class Inherits(Positions):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(super().forward(x))


EACH = ["grid", "hidden", "static", "method"]


def test_each_call_makes_what_the_first_one_makes() -> None:
    made.clear()
    model, x = torch.nn.Sequential(Positions()), torch.zeros(3, device="meta")
    for _ in range(2):
        with caches_cleared(model):
            model(x)
    assert made == EACH * 2


def test_what_is_kept_within_one_call_is_made_once() -> None:
    made.clear()
    model = Inherits()
    with caches_cleared(model):
        model(torch.zeros(3, device="meta"))
    assert made == EACH


def test_nothing_without_data_is_left_to_others() -> None:
    model = Positions()
    with caches_cleared(model):
        model(torch.zeros(3, device="meta"))
        assert grid.cache_info().currsize == 1
    assert grid.cache_info().currsize == 0
