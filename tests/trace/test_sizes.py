"""Conversion of PyTorch's size expressions to formulas, and the divisibility that they rely on."""

from __future__ import annotations

from typing import Any

import pytest
import sympy
from torch.utils._sympy.functions import (
    CeilToInt,
    CleanDiv,
    FloorDiv,
    FloorToInt,
    IntTrueDiv,
    Max,
    Min,
    Mod,
    PythonMod,
    ToFloat,
    TruncToInt,
)

from lmp.formula import equal, evaluate, evaluate_condition, num, parse, parse_condition, to_text, var
from lmp.trace.sizes import Sizes

NUMBERS = {"hidden_size": 48, "num_heads": 4, "num_key_value_heads": 2, "head_dim": 12, "seq_len": 5, "batch_size": 2}
H, N, K, D, S, B = (sympy.Symbol(name, integer=True, positive=True) for name in NUMBERS)


@pytest.fixture
def sizes() -> Sizes:
    return Sizes({symbol: NUMBERS[symbol.name] for symbol in (H, N, K, D, S, B)})


def text(formula: Any) -> str:
    return to_text(formula) if not isinstance(formula, int) else str(formula)


def assumed(sizes: Sizes, formula: Any) -> set[str]:
    return {str(condition) for condition in sizes.relied.get(formula, set())}


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (7, "7"),
        (sympy.Integer(7), "7"),
        (S, "{seq_len}"),
        (B * S, "{batch_size} * {seq_len}"),
        (2 * S + 1, "2 * {seq_len} + 1"),
        (S - 1, "{seq_len} - 1"),
        (S**2, "{seq_len} ** 2"),
        (H - H + 3, "3"),
        (ToFloat(S), "{seq_len}"),
        (Max(S, D), "max({seq_len}, {head_dim})"),
        (Min(S, 4), "min({seq_len}, 4)"),
        (Min(S, D, H), "min({seq_len}, {head_dim}, {hidden_size})"),
        (Mod(S, 4), "{seq_len} % 4"),
        (PythonMod(S, 4), "{seq_len} % 4"),
        (CeilToInt(IntTrueDiv(S, 4)), "ceil({seq_len} / 4)"),
        (FloorToInt(IntTrueDiv(S, 4)), "{seq_len} // 4"),
        (TruncToInt(IntTrueDiv(S, 4)), "{seq_len} // 4"),  # int(seq_len / 4)
    ],
)
def test_a_size_is_a_formula(sizes: Sizes, size: Any, expected: str):
    found = sizes.formula(size)
    assert equal(num(found) if isinstance(found, int) else found, parse(expected))
    assert not assumed(sizes, found)


def test_plain_numbers_stay_plain(sizes: Sizes):
    assert sizes.formula(7) == 7
    assert type(sizes.formula(sympy.Integer(7))) is int
    assert type(sizes.formula(S - S + 2)) is int


@pytest.mark.parametrize("kind", [FloorDiv, CleanDiv])
def test_a_division_that_comes_out_is_exact_and_says_so(sizes: Sizes, kind: Any):
    found = sizes.formula(kind(H, N))
    assert text(found) == "{hidden_size} / {num_heads}"
    assert assumed(sizes, found) == {"{hidden_size} % {num_heads} == 0"}
    # the condition is hidden_size % num_heads, not num_heads % hidden_size
    assert evaluate_condition(next(iter(sizes.relied[found])), {**NUMBERS, "hidden_size": 49}) is False


def test_int_of_a_quotient_is_that_division(sizes: Sizes):
    found = sizes.formula(TruncToInt(IntTrueDiv(H, N)))
    assert text(found) == "{hidden_size} / {num_heads}"
    assert assumed(sizes, found) == {"{hidden_size} % {num_heads} == 0"}
    floats = sizes.formula(TruncToInt(IntTrueDiv(ToFloat(H), ToFloat(K))))
    assert text(floats) == "{hidden_size} / {num_key_value_heads}"


def test_a_division_that_always_comes_out_assumes_nothing(sizes: Sizes):
    found = sizes.formula(FloorDiv(N * D, N))
    assert text(found) == "{head_dim}"
    assert not assumed(sizes, found)


def test_a_division_that_leaves_a_remainder_is_rounded_down(sizes: Sizes):
    found = sizes.formula(FloorDiv(S, 2))  # 5 // 2
    assert text(found) == "{seq_len} // 2"
    assert not assumed(sizes, found)
    assert [evaluate(found, {**NUMBERS, "seq_len": n}) for n in (4, 5, 6)] == [2, 2, 3]


def test_half_of_an_even_size_rounded_up_is_its_half(sizes: Sizes):
    # torch.arange(0, head_dim, 2) has (head_dim + 1) // 2 elements
    found = sizes.formula(FloorDiv(D + 1, 2))
    assert text(found) == "{head_dim} / 2"
    assert assumed(sizes, found) == {"{head_dim} % 2 == 0"}


def test_whole_parts_of_what_is_left_over_are_added(sizes: Sizes):
    # (12 + 3) // 2 is 6 and one more
    found = sizes.formula(FloorDiv(D + 3, 2))
    assert equal(found, parse("{head_dim} / 2 + 1"))
    assert evaluate(found, NUMBERS) == 15 // 2


def test_terms_that_do_not_divide_stay_under_the_division(sizes: Sizes):
    # 12 + 5 over 4: 5 is a separate size, so nothing is exact
    found = sizes.formula(FloorDiv(D + S, N))
    assert evaluate(found, NUMBERS) == 17 // 4
    assert evaluate(found, {**NUMBERS, "seq_len": 8}) == 20 // 4


def test_a_quotient_of_a_quotient(sizes: Sizes):
    inner = FloorDiv(H, N)  # the head dimension
    found = sizes.formula(FloorDiv(inner, 2))
    assert evaluate(found, NUMBERS) == 6
    assert all("/" not in c.split("%")[0] for c in assumed(sizes, found))  # a condition on integers
    for condition in sizes.relied[found]:
        assert evaluate_condition(condition, NUMBERS)
        assert not evaluate_condition(condition, {**NUMBERS, "hidden_size": 44})  # 11 per head has no half


def test_the_guard_for_empty_tensors_is_no_part_of_a_size(sizes: Sizes):
    assert text(sizes.formula(Max(sympy.Integer(1), S, evaluate=False))) == "{seq_len}"
    assert text(sizes.formula(Max(sympy.Integer(0), S, evaluate=False))) == "{seq_len}"
    assert equal(sizes.formula(Max(sympy.Integer(2), S)), parse("max(2, {seq_len})"))
    # a size that may be 0 keeps its guard
    assert evaluate(sizes.formula(Max(sympy.Integer(1), S - 5)), NUMBERS) == 1


def test_the_same_size_is_the_same_formula(sizes: Sizes):
    assert sizes.formula(FloorDiv(H, N)) is sizes.formula(FloorDiv(H, N))


@pytest.mark.parametrize(
    ("relation", "expected"),
    [
        (sympy.Eq(S, 1), "{seq_len} == 1"),
        (sympy.Ne(S, D), "{seq_len} != {head_dim}"),
        (sympy.Gt(S, D), "{seq_len} > {head_dim}"),
        (sympy.Le(S + 1, D), "{seq_len} + 1 <= {head_dim}"),
        # a quotient of sizes is compared by its products
        (sympy.Gt(FloorDiv(N, K), 1), "{num_heads} > {num_key_value_heads}"),
    ],
)
def test_conditions(sizes: Sizes, relation: Any, expected: str):
    found = sizes.condition(relation)
    assert found is not None
    wanted = parse_condition(expected)
    for s in (1, 2, 5, 12, 30):
        for n in (2, 4, 8):
            point = {**NUMBERS, "seq_len": s, "num_heads": n}
            assert evaluate_condition(found, point) == evaluate_condition(wanted, point)


def test_what_is_no_comparison_of_sizes_is_no_condition(sizes: Sizes):
    assert sizes.condition(sympy.true) is None
    assert sizes.condition(sympy.And(sympy.Gt(S, 1), sympy.Gt(D, 1))) is None


def test_an_expression_without_a_formula_is_refused(sizes: Sizes):
    with pytest.raises(TypeError, match="no formula for"):
        sizes.formula(sympy.sin(S))


def test_a_share_of_a_size_is_a_fraction() -> None:
    """partial_rotary_factor: int(head_dim * 0.75) with a decimal factor."""
    size = sympy.Symbol("head_dim", integer=True, positive=True)
    sizes = Sizes({size: 128})
    assert sizes.formula(size * sympy.Float(1.0)) == var("head_dim")
    assert to_text(sizes.formula(size * sympy.Float(0.75))) == "3 * {head_dim} / 4"
    with pytest.raises(TypeError, match="no exact formula"):
        sizes.formula(size * sympy.Float(0.1234567))


def test_a_quotient_that_is_not_exact_in_the_config_is_rounded_everywhere() -> None:
    """96 heads of 4096 // 96 = 42, in a run with 64 of exactly 64 each."""
    symbols = {symbol: {"hidden_size": 4096, "num_heads": 64}[symbol.name] for symbol in (H, N)}
    sizes = Sizes(symbols, {"hidden_size": 4096, "num_heads": 96})
    found = sizes.formula(FloorDiv(H, N))
    assert evaluate(found, {"hidden_size": 4096, "num_heads": 96}) == 42
    assert evaluate(found, {"hidden_size": 4096, "num_heads": 64}) == 64
    assert assumed(sizes, found) == set()
    # If the config's own sizes divide, the quotient is exact, and an assumption.
    sizes = Sizes(symbols, {"hidden_size": 4096, "num_heads": 32})
    assert assumed(sizes, sizes.formula(FloorDiv(H, N))) == {"{hidden_size} % {num_heads} == 0"}
    # The config itself may have no divisor: one group has no other group.
    sizes = Sizes(symbols, {"hidden_size": 4096, "num_heads": 1})
    assert evaluate(sizes.formula(FloorDiv(H, N - 1)), {"hidden_size": 4096, "num_heads": 64}) == 4096 // 63
