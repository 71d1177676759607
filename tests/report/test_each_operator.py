"""The flat list of operators: sizes of products in words, most expensive first."""

from __future__ import annotations

import io
from typing import Any

import analyses
import pytest

from lmp.link.link import link
from lmp.link.numbers import ModelNumbers
from lmp.link.values import values_for
from lmp.records import Operand, Operands
from lmp.report.formats.base import Result, Show
from lmp.report.formats.table import point, sizes_text


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"batch": 1, "m": 4, "n": 4096, "k": 14336}, "4 x 4,096 x 14,336"),
        ({"batch": 96, "m": 11, "n": 11, "k": 128}, "96 of 11 x 11 x 128"),
        ({"tokens": 4, "top_k": 2, "experts": 8, "n": 28672, "k": 4096},
         "4 tokens x 2 of 8 experts, n 28,672 x k 4,096"),
        ({"batch": 4, "q_len": 1, "kv_len": 101, "heads": 32, "kv_heads": 8, "head_dim": 128, "v_head_dim": 128},
         "batch 4, q 1, kv 101, heads 32, KV heads 8, dim 128"),
        ({"batch": 4, "q_len": 1, "kv_len": 101, "heads": 32, "kv_heads": 8, "head_dim": 128, "v_head_dim": 128,
          "window": 4096}, "batch 4, q 1, kv 101, heads 32, KV heads 8, dim 128, window 4,096"),
        ({}, "[2, 5, 8]"),
    ],
)  # fmt: skip
def test_sizes_in_words(fields: dict[str, Any], text: str) -> None:
    out = Operand(name="0", shape=[2, 5, 8], width="a", role="activation")
    assert sizes_text(Operands(operator="op", inputs=[], outputs=[out], **fields)) == text


def test_no_operands_and_no_outputs() -> None:
    assert sizes_text(None) == "-"
    assert sizes_text(Operands(operator="op", inputs=[], outputs=[])) == "-"


def listed(**show: Any) -> list[str]:
    parts = {a.class_name: a for a in (analyses.layer(), analyses.mlp(), analyses.linear())}
    model = link(analyses.layer(), parts.__getitem__)
    numbers = ModelNumbers(model)
    at = values_for(model, {"batch_size": 2, "seq_len": 16})
    tree = numbers.tree(at)
    out = io.StringIO()
    point(Result(numbers, tree, numbers.evaluation(at, tree), []), Show(each="operator", exact=True, **show), out)
    return out.getvalue().splitlines()


def test_the_most_expensive_operators_come_first() -> None:
    lines = listed(top=2)
    rows = [line for line in lines if "mlp" in line]
    # 3 layers, each 2 * 2 * 16 * 8 * 32 = 16,384 FLOPs in gate, up and down.
    assert len(rows) == 2
    assert all(("49,152" in row and "gate_proj" in row) or "up_proj" in row for row in rows)
    # The third product, the activation, the product of two and the sum.
    assert any("4 more operators: --top" in line for line in lines)
    assert any("most expensive first, by FLOPs; figures are of all runs" in line for line in lines)


def test_nothing_is_left_out_without_a_word() -> None:
    lines = listed(top=6, by="bytes")
    assert not any("more operators" in line for line in lines)
    assert any("by bytes read and written" in line for line in lines)
