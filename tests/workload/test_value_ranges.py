"""Ranges of positions without data: an index fails beyond its table, as it does with data on the CPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from lmp.workload.value_ranges import TooManyOperators, ValueRanges

LOOKS: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    # the largest index is n - 1 in each: of a table of 12 rows, 12 fit and 13 do not
    "arange": lambda table, n: table[torch.arange(n)],
    "embedding": lambda table, n: torch.nn.functional.embedding(torch.arange(n).expand(3, n), table),
    "a shifted arange": lambda table, n: table.index_select(0, torch.arange(2, n + 2).unsqueeze(0)[0] - 2),
    "in steps": lambda table, n: table[torch.arange(n % 2, n + 1, 2) - 1],
    "a sum over a mask": lambda table, n: table[(torch.ones(2, n, dtype=torch.long).cumsum(1) * 1 - 1).long()],
    "a sum over a floating mask": lambda table, n: table[(torch.ones(2, n).cumsum(1) - 1).long()],
    "joined": lambda table, n: table[torch.cat([torch.zeros(3, dtype=torch.long), torch.arange(n)])],
    "clamped above": lambda table, n: table[torch.arange(40).clamp(max=n - 1)],
    "divided": lambda table, n: table[torch.arange(2 * n) // 2],
    "a remainder": lambda table, n: table[torch.arange(100) % n],
    "reversed": lambda table, n: table[(n - 1) - torch.arange(n)],
    "a gather": lambda table, n: table.gather(0, torch.arange(n).view(-1, 1).expand(n, 4)),
}


def look(name: str, device: str, rows: int) -> None:
    with torch.device(device), torch.no_grad(), ValueRanges(1000):
        LOOKS[name](torch.zeros(12, 4), rows)


@pytest.mark.parametrize("name", LOOKS)
def test_an_index_beyond_its_table_fails_without_data_too(name: str) -> None:
    for device in ("cpu", "meta"):  # on the CPU PyTorch itself says so
        look(name, device, 12)
        with pytest.raises((IndexError, RuntimeError)):
            look(name, device, 13)


def test_ids_of_tokens_have_no_known_range() -> None:
    with torch.device("meta"), ValueRanges(10) as ranges:
        ids = torch.empty(2, 5, dtype=torch.long)
        torch.zeros(3, 4)[ids]
        assert ranges.of(ids) is None
        assert ranges.of(ids + 1) is None
        assert ranges.of(ids > 3) == (0, 1)


def test_a_loop_over_tokens_ends() -> None:
    x = torch.zeros(1)
    with ValueRanges(10) as ranges:
        for _ in range(10):
            x.neg()
        assert not ranges.ended
        with pytest.raises(TooManyOperators):
            x.neg()
        assert ranges.ended


@pytest.mark.parametrize(
    "make",
    [
        lambda n: torch.ones(n, n),
        lambda n: torch.arange(n, device="cpu")[:, None] - torch.arange(n, device="cpu"),
        lambda n: torch.zeros(1, device="cpu").expand(n, n).clone(),
    ],
)
def test_no_large_tensor_with_data_is_made(make: Callable[[int], torch.Tensor]) -> None:
    """Some models build a mask of all pairs of tokens on the CPU: at 65,536 tokens it would take 16 GB."""
    with ValueRanges(100):
        make(100)
    with ValueRanges(100) as ranges, pytest.raises(TooManyOperators):
        make(1 << 16)
    assert ranges.ended
    with torch.device("meta"), ValueRanges(100):
        torch.ones(1 << 16, 1 << 16)
