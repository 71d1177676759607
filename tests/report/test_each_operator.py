"""The flat list of operators: sizes of products in words, most expensive first."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import analyses
import pytest

from lmp.link.link import link
from lmp.link.numbers import CostNumbers, ModelNumbers
from lmp.link.values import values_for
from lmp.records import Operand, Operands
from lmp.report.formats.base import Result, Show
from lmp.report.formats.each import _operators, places, sizes_text
from lmp.report.formats.table import point
from lmp.report.terminal import Column, Line, fitted
from lmp.source.trees import Trees, find_trees


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"batch": 1, "m": 4, "n": 4096, "k": 14336}, "4 x 4,096 x 14,336"),
        ({"batch": 96, "m": 11, "n": 11, "k": 128}, "96 of 11 x 11 x 128"),
        ({"tokens": 4, "top_k": 2, "experts": 8, "n": 28672, "k": 4096},
         "4 tokens x 2 of 8 experts, n 28,672 x k 4,096"),
        ({"batch": 4, "q_len": 1, "kv_len": 101, "heads": 32, "kv_heads": 8, "head_dim": 128, "v_head_dim": 128},
         "batch 4, q 1, kv 101, heads 32 (KV 8), dim 128"),
        ({"batch": 4, "q_len": 1, "kv_len": 101, "heads": 32, "kv_heads": 8, "head_dim": 128, "v_head_dim": 128,
          "window": 4096}, "batch 4, q 1, kv 101, heads 32 (KV 8), dim 128, window 4,096"),
        ({"batch": 1, "q_len": 8, "kv_len": 8, "heads": 16, "kv_heads": 16, "head_dim": 64, "v_head_dim": 64},
         "batch 1, q 8, kv 8, heads 16, dim 64"),
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
    return listed_as("operator", **show)


def test_the_most_expensive_operators_come_first() -> None:
    lines = listed(top=2)
    rows = [line for line in lines if "_proj:" in line]
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


def kernel(path: str, operation: str = "matrix multiplication", line: int = 134, runs: int = 4, flops: int = 10) -> Any:
    """An operator of which all runs are one repeat."""
    own = SimpleNamespace(operation=operation, file=None, function=None, line=line)
    once = CostNumbers(flops, flops, 2, 1)
    return SimpleNamespace(
        kernel=own, path=path, class_name="a.B", runs=runs, repeat=runs, once=once, total=once.times(runs)
    )


def sized(*shape: int) -> Operands:
    out = Operand(name="0", shape=list(shape), width="a", role="activation")
    return Operands(operator="op", inputs=[], outputs=[out])


def test_operators_that_are_alike_are_one_row() -> None:
    one, other = kernel("model.layers.0.attn.q_proj"), kernel("model.layers.3.attn.q_proj", runs=5)
    (row,) = _operators([(one, sized(2, 3)), (other, sized(2, 3))])
    # 4 and 5 runs of 10 FLOPs, 2 bytes read and 1 written.
    assert (row.name, row.about) == ("matrix multiplication q_proj:134", ("[2, 3]", "9"))
    assert row.cost == CostNumbers(90, 90, 18, 9)


@pytest.mark.parametrize(
    "other",
    [
        (kernel("model.layers.3.attn.q_proj"), sized(2, 4)),
        (kernel("model.layers.3.attn.q_proj", line=135), sized(2, 3)),
        (kernel("model.layers.3.attn.q_proj", flops=11), sized(2, 3)),
        (kernel("model.layers.3.attn.q_proj", operation="sum"), sized(2, 3)),
        (kernel("model.layers.3.attn.k_proj"), sized(2, 3)),
    ],
)
def test_operators_that_differ_are_not(other: Any) -> None:
    assert len(_operators([(kernel("model.layers.0.attn.q_proj"), sized(2, 3)), other])) == 2


def test_a_place_is_as_long_as_it_must_be() -> None:
    paths = ["layers.0.mlp.up", "layers.3.mlp.shared.up", "layers.3.mlp.shared.down", "", "layers.0.attn"]
    found = [(kernel(path), sized(1)) for path in paths]
    assert places(found) == ["mlp.up:134", "shared.up:134", "down:134", "(the model):134", "attn:134"]
    # Alike but for their cost: the layer tells them apart.
    alike = [(kernel("layers.0.attn"), sized(1)), (kernel("layers.1.attn", flops=11), sized(1))]
    assert places(alike) == ["layers.0.attn:134", "layers.1.attn:134"]
    # Alike but for their sizes, which stand beside them.
    sizes = [(kernel("layers.0.attn"), sized(1)), (kernel("layers.1.attn", flops=11), sized(2))]
    assert places(sizes) == ["attn:134", "attn:134"]


def test_a_long_name_keeps_its_place() -> None:
    rows = [Line("scaled dot product attention self_attn:193", ["4"], end=" self_attn:193")]
    found = fitted("operator", [Column("runs", "runs", 79)], rows, 36)
    # 36 cells less 4 of the column and 2 between them; the end has 14, an ellipsis 1.
    assert found.lines[1].plain == "scaled dot prod… self_attn:193     4"
    assert found.notes() == ["names are cut in the middle; --format csv has them whole"]


def test_runs_are_shown_in_a_terminal_of_120() -> None:
    head = next(line for line in listed(width=120) if line.startswith("operator"))
    assert head.split()[:3] == ["operator", "sizes", "runs"]


# --- categories, modules, lines --------------------------------------------------------------------------------------


def flat(each: str, *head: str, **show: Any) -> list[list[str]]:
    lines = [line.split() for line in listed_as(each, **show)]
    first = next(i for i, words in enumerate(lines) if words[: len(head)] == [*head])
    return lines[first + 1 :]


def listed_as(each: str, trees: Trees | None = None, **show: Any) -> list[str]:
    parts = {a.class_name: a for a in (analyses.layer(), analyses.mlp(), analyses.linear())}
    model = link(analyses.layer(), parts.__getitem__)
    numbers = ModelNumbers(model)
    at = values_for(model, {"batch_size": 2, "seq_len": 16})
    tree = numbers.tree(at)
    out = io.StringIO()
    result = Result(numbers, tree, numbers.evaluation(at, tree), [], trees=trees)
    point(result, Show(each=each, exact=True, **show), out)
    return out.getvalue().splitlines()


def test_categories() -> None:
    rows = flat("category", "category", "operators")
    # Three layers of three Linears of 16,384 FLOPs; 256 of the sum, and 3 * 5 * 1,024 of activation and product.
    assert rows[0][:2] == ["matmul", "3"]
    assert "147,456" in rows[0]
    assert rows[1][:2] == ["elementwise", "3"]
    assert "15,616" in rows[1]


def test_modules_have_their_own_operators_only() -> None:
    rows = flat("module", "module", "class")
    found = {row[0]: row for row in rows if row}
    assert found["mlp.gate_proj"][1:3] == ["Linear", "3"]
    assert "49,152" in found["mlp.gate_proj"]
    assert "15,360" in found["mlp"]  # 3 * 5 * 1,024, without its Linears
    assert "256" in found["(the"]


def test_the_top_of_a_flat_list() -> None:
    lines = listed_as("module", top=2)
    assert any("3 more modules: --top" in line for line in lines)


def test_lines_without_a_source() -> None:
    lines = listed_as("line", width=160)
    title = next(line for line in lines if line.startswith("LlamaMLP.forward"))
    # 3 * 54,272 of 163,072 FLOPs.
    assert title.split()[1:6] == ["99.8%", "162,816", "in", "3", "runs"]
    row = next(line for line in lines if line.split()[:1] == ["175"])
    assert row.split()[1] == "99.8%"
    assert "162,816" in row
    assert "down_proj = self.down_proj(" in row
    assert any("source not at hand" in line and "LlamaMLP" in line for line in lines)


def test_the_top_lines_in_the_order_of_the_source() -> None:
    lines = listed_as("line", top=2)
    numbers = [line.split()[0] for line in lines if line[:5].strip().isdigit()]
    # The call of the MLP and its one line; the sum at line 320 and the Linear's line are left out.
    assert numbers == ["324", "175"]
    assert any("2 more lines with a cost: --top" in line for line in lines)


def test_lines_of_the_source(transformers_tree: Any) -> None:
    lines = listed_as("line", trees=find_trees(), width=160)
    title = next(i for i, line in enumerate(lines) if line.startswith("LlamaMLP.forward"))
    assert "def forward(self, x)" in lines[title + 1]
    assert lines[title + 1].split()[1] == "def"  # it costs nothing: no number beside it
