"""How many experts are read, and what is bound by what, against numbers worked out by hand."""

from __future__ import annotations

from fractions import Fraction

import pytest

from lmp.formula import parse
from lmp.link.numbers import CostNumbers, KernelNumbers
from lmp.records import MemoryAccess, ModelKernel
from lmp.report.bounds import is_wide, limit_of
from lmp.report.devices import device_named
from lmp.report.routing import Choice, Routing, distinct


@pytest.mark.parametrize(
    ("experts", "rows", "tokens", "most", "uniform", "least"),
    [
        # Two tokens, one of two experts each: 2 * (1 - (1/2) ** 2).
        (2, 2, 2, 2, Fraction(3, 2), 1),
        # Three tokens, two of four: 4 * (1 - (1/2) ** 3).
        (4, 6, 3, 4, Fraction(7, 2), 2),
        # One token reads what it chooses.
        (256, 8, 1, 8, 8, 8),
        # Every token chooses all.
        (4, 12, 3, 4, 4, 4),
        # 32 tokens, 8 of 256: 256 * (1 - (31/32) ** 32), in millionths.
        (256, 256, 32, 256, Fraction(int(Fraction(256 * (32**32 - 31**32), 32**32) * 10**6), 10**6), 8),
    ],
)
def test_different_experts(experts: int, rows: int, tokens: int, most: int, uniform: Fraction, least: int) -> None:
    assert distinct(experts, rows, tokens, "most") == most
    assert distinct(experts, rows, tokens, "uniform") == uniform
    assert distinct(experts, rows, tokens, "least") == least


def test_a_long_prefill_reads_all_and_takes_no_time() -> None:
    # (1 - 8/256) ** 65536 is below a millionth: what is left out is the rounding.
    assert 256 - distinct(256, 65536 * 8, 65536, "uniform") <= Fraction(1, 10**6)


def test_formulas_with_other_numbers_of_experts() -> None:
    choice = Choice(parse("{experts}"), parse("{batch_size} * {seq_len} * {chosen}"))
    values = {"batch_size": 3, "seq_len": 1, "chosen": 2, "experts": 4, "wide": 10, "words": 1000}
    routing = Routing((choice,), values)
    # 3.5 of 4 experts; a table of 20 numbers an expert is read as far; one of words is not of experts.
    assert routing.worth("{wide} * min({experts}, {batch_size} * {seq_len} * {chosen})", "uniform") == 35
    gathered = "min(2 * {batch_size} * {seq_len} * {wide} * {chosen}, 2 * {wide} * {experts})"
    assert routing.worth(gathered, "uniform") == 70
    assert routing.worth(gathered, "most") == 80
    words = "min({batch_size} * {seq_len} * {wide}, {wide} * {words})"
    assert routing.worth(words, "uniform") == 30
    assert not routing.touches(words)


def product(read: str, write: str) -> KernelNumbers:
    kernel = ModelKernel(
        kernel_type="basic", operation="matrix multiplication", line=1, code="", analysis="aten.mm", category="matmul",
        flops="10 ** 12", memory_access=MemoryAccess(read=read, write=write),
    )  # fmt: skip
    cost = CostNumbers(10**12, 10**12, 1, 1)
    return KernelNumbers(kernel, "", "a.B", 1, 1, cost, cost)


def test_a_float32_product_runs_at_the_vector_rate() -> None:
    device = device_named("H100")
    wide = product("4 * {batch_size}", "4 * {batch_size}")
    assert is_wide(wide.kernel)
    # 10 ** 12 FLOPs at 66.9 * 10 ** 12 a second.
    assert limit_of(wide, device) == ("vector", Fraction(10, 669))
    usual = product("{batch_size} * {w_bytes}", "{batch_size} * {a_bytes}")
    assert not is_wide(usual.kernel)
    assert limit_of(usual, device) == ("compute", Fraction(10, 9894))
    to_wide = product("{batch_size} * {a_bytes}", "4 * {batch_size}")
    assert not is_wide(to_wide.kernel)
