"""Operands and product sizes of single operators, on plain shapes. FLOPs from them equal those of the rules."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest

from lmp.formula import num, parse, var
from lmp.trace.operands import PRESENT, TensorKey, record, sizes, tensors
from lmp.trace.rules import Operator, Tensor, cost


def t(*shape: int, unit: str | int = "a_bytes", **more: Any) -> Tensor:
    return Tensor(shape, unit, isinstance(unit, str), **more)


def w(*shape: int) -> Tensor:
    return t(*shape, unit="w_bytes", weight=True)


def product(operator: Operator) -> dict[Any, Any]:
    return {name: size for (key, name), size in sizes(operator).items() if key is None}


MM = Operator("mm", {"self": t(10, 4), "mat2": w(4, 3)}, (t(10, 3),))
BMM = Operator("bmm", {"self": t(5, 10, 4), "mat2": t(5, 4, 3)}, (t(5, 10, 3),))
ADDMM = Operator("addmm", {"self": w(3), "mat1": t(10, 4), "mat2": w(4, 3)}, (t(10, 3),))
# A kernel of 3 x 2 over 7 x 9: 5 x 8 positions.
CONVOLUTION = Operator("convolution", {"input": t(2, 6, 7, 9), "weight": w(4, 3, 3, 2)}, (t(2, 4, 5, 8),))
TRANSPOSED = Operator("convolution", {"input": t(2, 6, 7), "weight": w(6, 5, 3), "transposed": True}, (t(2, 5, 9),))
GROUPED = Operator("_grouped_mm", {"self": t(12, 4), "mat2": w(8, 4, 3), "offs": t(8, unit=4)}, (t(12, 3),))
ATTENTION = Operator(
    "scaled_dot_product_attention",
    {"query": t(2, 8, 5, 16), "key": t(2, 4, 7, 16), "value": t(2, 4, 7, 12), "attn_mask": None, "is_causal": True},
    (t(2, 8, 5, 12),),
)


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        (MM, {"batch": 1, "m": 10, "n": 3, "k": 4}),
        (BMM, {"batch": 5, "m": 10, "n": 3, "k": 4}),
        (ADDMM, {"batch": 1, "m": 10, "n": 3, "k": 4}),
        # Two groups: each output channel has 3 of the 6 input channels, 3 * 2 of each. Rows: 2 * 5 * 8.
        (CONVOLUTION, {"batch": 1, "m": 80, "n": 4, "k": 18}),
        # Each of 2 * 7 input positions makes 5 * 3 values from 6 channels.
        (TRANSPOSED, {"batch": 1, "m": 14, "n": 15, "k": 6}),
        (GROUPED, {"rows": 12, "experts": 8, "n": 3, "k": 4}),
        (
            ATTENTION,
            {"batch": 2, "q_len": 5, "kv_len": 7, "heads": 8, "kv_heads": 4, "head_dim": 16, "v_head_dim": 12,
             "window": 0, "causal": 1},
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Operator) else "",
)  # fmt: skip
def test_sizes_of_products(operator: Operator, expected: dict[str, int]) -> None:
    found = product(operator)
    assert found == expected
    names = ("batch", "heads", "q_len", "kv_len") if "q_len" in found else ("batch", "rows", "m", "n", "k")
    terms = prod(found[name] for name in names if name in found)
    if "q_len" in found:
        terms *= found["head_dim"] + found["v_head_dim"]
    assert 2 * terms == cost(operator).matmul_flops


def test_tensors_have_names_widths_and_roles() -> None:
    index = Operator(
        "index",
        {"self": t(9, 4, unit="kv_bytes", cached=True), "indices": [None, t(3, unit=8)], "mask": t(9, unit=1)},
        (t(9, 3),),
    )
    assert [key for key, _ in tensors(index)] == [
        TensorKey("self", "kv", "cache", 2),
        TensorKey("indices[1]", 8, "index", 1),
        TensorKey("mask", 1, "activation", 1),
        TensorKey("0", "a", "activation", 2, output=True),
    ]


def test_the_record_of_a_product() -> None:
    found = {key: num(size) for key, size in sizes(MM).items()}
    found[None, "m"] = var("batch_size") * var("seq_len")
    stored = record(MM, found)
    assert (stored.operator, stored.m, stored.n, stored.k, stored.batch) == ("mm", "{batch_size} * {seq_len}", 3, 4, 1)
    assert [(one.name, one.shape, one.width, one.role, one.present) for one in (*stored.inputs, *stored.outputs)] == [
        ("self", [10, 4], "a", "activation", 1),
        ("mat2", [4, 3], "w", "weight", 1),
        ("0", [10, 3], "a", "activation", 1),
    ]
    assert stored.q_len is None
    assert stored.causal is None


@pytest.mark.parametrize(
    ("rows", "tokens", "top_k"),
    [
        ("{batch_size} * {seq_len} * {num_experts_per_tok}", "{batch_size} * {seq_len}", "{num_experts_per_tok}"),
        ("{batch_size} * {num_experts_per_tok}", "{batch_size}", "{num_experts_per_tok}"),
        ("{batch_size} * {seq_len} + {extra}", "{batch_size} * {seq_len} + {extra}", 1),
    ],
)
def test_rows_of_experts_are_tokens_times_experts_per_token(rows: str, tokens: str, top_k: str | int) -> None:
    found = {key: num(size) for key, size in sizes(GROUPED).items()}
    found[None, "rows"] = parse(rows)
    stored = record(GROUPED, found)
    assert (stored.tokens, stored.top_k, stored.experts) == (tokens, top_k, 8)


def test_an_absent_window_is_not_stored() -> None:
    found = {key: num(size) for key, size in sizes(ATTENTION).items()}
    assert record(ATTENTION, found).window is None
    found[None, "window"] = var("sliding_window")
    assert record(ATTENTION, found).window == "{sliding_window}"


def test_presence_is_a_size() -> None:
    assert sizes(MM)[TensorKey("mat2", "w", "weight", 2), PRESENT] == 1
