"""Symbolic sizes: comparisons are evaluated at the values of the run, and expressions are kept."""

from __future__ import annotations

import numbers
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sympy
import torch

from lmp.trace.recording import run_symbolic
from lmp.trace.symbols import (
    ConcolicShapeEnv,
    SymbolicInteger,
    expression,
    fake_mode,
    symbolic_int,
    symbolic_range,
)

SOURCE = """
def asks(size, other):
    if size > other:
        return "more"
    return "less"

def asks_twice(size):
    return (size == 1, bool(size == 1), bool(size == 1))

def counts(size):
    return [i for i in range(size)]

def halves(size, parts):
    return int(size / parts)

def as_number(size):
    return int(size)

def kernels(x, y):
    return (x @ y).transpose(0, 1).contiguous().reshape(-1)

def is_int(value):
    return isinstance(value, int)
"""


@pytest.fixture
def env() -> ConcolicShapeEnv:
    return ConcolicShapeEnv()


@pytest.fixture
def source(tmp_path: Path, env: ConcolicShapeEnv) -> Iterator[types.ModuleType]:
    """A module in the analysed tree."""
    file = tmp_path / "analysed" / "modeling_small.py"
    file.parent.mkdir()
    file.write_text(SOURCE)
    module = types.ModuleType("analysed_small")
    exec(compile(SOURCE, str(file), "exec"), vars(module))
    env.source_root = str(file.parent)
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


def asked(env: ConcolicShapeEnv) -> list[tuple[str, bool]]:
    return [(str(c.expression), c.holds) for c in env.conditions.values()]


def test_a_size_is_its_symbol_and_its_number(env: ConcolicShapeEnv) -> None:
    size = env.size("seq_len", 5)
    assert isinstance(size, torch.SymInt)
    assert isinstance(size, numbers.Integral)
    assert str(expression(size)) == "seq_len"
    assert str(expression(2 * size + 1)) == "2*seq_len + 1"
    assert (size > 4, size > 5, size + 1 == 6) == (True, False, True)
    assert expression(7) == 7


def test_arithmetic_with_sizes_stays_an_expression(env: ConcolicShapeEnv) -> None:
    hidden, heads = env.size("hidden_size", 48), env.size("num_heads", 4)
    assert {str(s) for s in expression(hidden // heads).free_symbols} == {"hidden_size", "num_heads"}
    assert {str(s) for s in expression(max(hidden, heads)).free_symbols} == {"hidden_size"}  # decided by their values
    assert {str(s) for s in expression(torch.sym_max(hidden, heads)).free_symbols} == {"hidden_size", "num_heads"}


def test_sizes_with_equal_numbers_are_not_merged(env: ConcolicShapeEnv) -> None:
    a, b = env.size("a", 4), env.size("b", 4)
    assert a == b  # recorded with its result: the values are equal
    assert str(expression(a + b)) == "a + b"
    with fake_mode(env):
        x, y = torch.empty(a, 3, device="meta"), torch.empty(b, 3, device="meta")
        both = torch.cat([x, x + y])
        product = torch.empty(7, a, device="meta") @ torch.empty(b, 9, device="meta")
    assert str(expression(x.shape[0])) == "a"
    assert str(expression(y.shape[0])) == "b"
    assert expression(both.shape[0]).free_symbols <= {sympy.Symbol(n, integer=True, positive=True) for n in "ab"}
    assert [int(d) if isinstance(d, int) else str(expression(d)) for d in product.shape] == [7, 9]


def test_a_size_of_one_stays_a_size(env: ConcolicShapeEnv) -> None:
    one = env.size("seq_len", 1)
    with fake_mode(env):
        x = torch.empty(2, one, 3, device="meta")
    assert str(expression(x.shape[1])) == "seq_len"
    assert one == 1


def test_what_the_source_decides_on_is_kept(env: ConcolicShapeEnv, source: types.ModuleType) -> None:
    size, other = env.size("seq_len", 5), env.size("window", 8)
    assert source.asks(size, other) == "less"
    assert asked(env) in ([("seq_len > window", False)], [("window < seq_len", False)])
    condition = next(iter(env.conditions.values()))
    assert Path(condition.file).name == "modeling_small.py"
    assert SOURCE.splitlines()[condition.line - 1].strip() == "if size > other:"


def test_a_comparison_that_nobody_decides_on_is_none(env: ConcolicShapeEnv, source: types.ModuleType) -> None:
    source.asks_twice(env.size("seq_len", 1))
    assert len(env.conditions) == 1  # the same comparison twice is one condition
    assert [holds for _, holds in asked(env)] == [True]


def test_a_question_about_plain_numbers_is_none(env: ConcolicShapeEnv, source: types.ModuleType) -> None:
    source.asks(env.size("seq_len", 5) * 0 + 3, 8)
    assert asked(env) == []


def test_questions_of_other_files_are_not_kept(env: ConcolicShapeEnv, source: types.ModuleType) -> None:
    size = env.size("seq_len", 5)
    assert size > 2  # this file is not in the tree
    assert asked(env) == []
    env.source_root = ""  # there is no analysed tree
    source.asks(size, 8)
    assert asked(env) == []


def test_questions_of_kernels_are_not_kept(env: ConcolicShapeEnv, source: types.ModuleType) -> None:
    rows, inner, columns = env.size("rows", 5), env.size("inner", 4), env.size("columns", 4)
    with fake_mode(env):
        found = source.kernels(torch.empty(rows, inner, device="meta"), torch.empty(inner, columns, device="meta"))
    assert asked(env) == []  # although they compared inner dimensions and strides
    assert {str(s) for s in expression(found.shape[0]).free_symbols} == {"rows", "columns"}


def test_a_size_that_is_made_a_number_is_pinned(env: ConcolicShapeEnv, source: types.ModuleType) -> None:
    size = env.size("num_layers", 3)
    assert source.counts(size) == [0, 1, 2]
    assert {str(e): n for e, n in env.pinned.items()} == {"num_layers": 3}
    assert asked(env) == []  # a number is no comparison


def test_int_of_a_size_stays_a_size_only_where_int_is_replaced(env: ConcolicShapeEnv, source: types.ModuleType) -> None:
    hidden, heads = env.size("hidden_size", 48), env.size("num_heads", 4)
    with symbolic_int([source.__name__]):
        found = source.halves(hidden, heads)
        assert isinstance(found, torch.SymInt)
        assert {str(s) for s in expression(found).free_symbols} == {"hidden_size", "num_heads"}
        assert found == 12
        assert source.as_number(hidden) is hidden
        assert (source.as_number("7"), source.as_number(7.9), source.as_number(True)) == (7, 7, 1)
        assert [source.is_int(v) for v in (hidden, 7, True, 7.0, "7")] == [True, True, True, False, False]
        assert env.pinned == {}
    assert type(source.as_number(hidden)) is int
    assert not source.is_int(hidden)


def test_symbolic_int_leaves_modules_as_they_were(source: types.ModuleType) -> None:
    before = dict(vars(source))
    own = types.ModuleType("has_its_own_int")
    own.int = marker = object()  # type: ignore[attr-defined]

    def fails() -> None:
        with symbolic_int([source.__name__, own.__name__, "absent"]):
            assert vars(source)["int"] is SymbolicInteger
            assert own.int is marker  # type: ignore[attr-defined]
            raise RuntimeError("in the middle")

    sys.modules[own.__name__] = own
    try:
        with pytest.raises(RuntimeError, match="in the middle"):
            fails()
    finally:
        del sys.modules[own.__name__]
    assert own.int is marker  # type: ignore[attr-defined]
    assert dict(vars(source)) == before


def test_subclasses_of_int_are_still_known() -> None:
    assert issubclass(bool, SymbolicInteger)
    assert not issubclass(str, SymbolicInteger)


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x, s: x.view(-1), "6*seq_len"),
        (lambda x, s: x[:, : s - 1], "seq_len - 1"),
        (lambda x, s: torch.cat([x, x], dim=1), "2*seq_len"),
        (lambda x, s: x.repeat_interleave(3, dim=1), "3*seq_len"),
        (lambda x, s: x.reshape(2 * s, 3), "2*seq_len"),
        (lambda x, s: torch.arange(s, device="meta"), "seq_len"),
    ],
)
def test_operators_carry_expressions(env: ConcolicShapeEnv, function: Callable[..., Any], shape: str) -> None:
    size = env.size("seq_len", 5)
    with fake_mode(env):
        out = function(torch.empty(2, size, 3, device="meta"), size)
    assert shape in [str(expression(d)) for d in out.shape]


def test_complex_numbers_of_two_parts_keep_their_sizes(env: ConcolicShapeEnv) -> None:
    # torch's kernels for these would turn each size into a number.
    with fake_mode(env):
        batch, seq, dim = env.size("batch_size", 2), env.size("seq_len", 5), env.size("head_dim", 8)
        length, angle = torch.empty(1, seq, dim, device="meta"), torch.empty(batch, 1, dim, device="meta")
        for make in (torch.ops.aten.polar.default, torch.ops.aten.complex.default):
            made = run_symbolic(make, (length, angle), {})
            assert [str(expression(s)) for s in made.shape] == ["batch_size", "seq_len", "head_dim"]
            assert made.dtype == torch.complex64
    assert env.pinned == {}


def test_what_is_the_same_is_worked_out_once(env: ConcolicShapeEnv) -> None:
    a, b = env.size("seq_len", 5), env.size("cache_len", 7)
    assert torch.sym_sum([a, b]).node is torch.sym_sum([a, b]).node
    assert str(expression(torch.sym_sum([a, b]))) == "cache_len + seq_len"
    assert torch.sym_max(a, b).node is torch.sym_max(a, b).node
    assert a.node.wrap_bool(True) is b.node.wrap_bool(True)
    assert a.node.wrap_int(1) is not a.node.wrap_float(1.0)
    # 0.0 and -0.0 are equal, but distinct constants
    assert a.node.wrap_float(0.0) is not a.node.wrap_float(-0.0)


def test_a_range_downwards_counts_from_the_size(env: ConcolicShapeEnv) -> None:
    size = env.size("seq_len", 17)
    with symbolic_range():
        rounds = list(range(size, 0, -5))
    # 17, 12, 7 and 2 are 0, 5, 10 and 15 less than the size
    assert [str(expression(one)) for one in rounds] == ["seq_len", "seq_len - 5", "seq_len - 10", "seq_len - 15"]


def test_a_remainder_of_a_negated_quotient_keeps_its_size(env: ConcolicShapeEnv) -> None:
    size = env.size("height", 23)
    blocks = (size + -size % 4) // 4
    padded = blocks + -blocks % 7
    # 23 + 1 are 6 blocks of 4, and 6 + 1 are whole sevens
    assert env.evaluate_expr(expression(padded)) == 7
    assert "height" in str(expression(padded))
