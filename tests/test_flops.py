"""The table of scalar operations: its definitions say what its numbers are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lmp.flops import FREE, GELU_TANH, TABLE, pow_operations
from lmp.trace.rules import RULES, definitions
from project_scripts import program

ROOT = Path(__file__).parents[1]


def test_every_entry_says_what_it_counts():
    for name, entry in TABLE.items():
        assert entry.definition.strip(), name
        assert min(entry.per_input, entry.per_output, entry.per_row) >= 0, name


def test_an_operator_has_one_definition():
    stated = {name for name, rule in RULES.items() if rule.definition}
    assert "mse_loss" in stated
    assert not stated & TABLE.keys()
    assert all(RULES[name].scalar_flops for name in stated)


def test_a_number_stands_for_one_kind_of_element():
    # elementwise operators count outputs, reductions count inputs: none counts both, but for a division a result
    for name, entry in TABLE.items():
        if entry.per_input and entry.per_output:
            assert re.search(r"(a|one \w+ a|two \w+ a) result|a result", entry.definition), name


@pytest.mark.parametrize(
    ("name", "each", "operations"),
    [
        # the contract's own
        ("_softmax", 5, ["max", "subtract", "exp", "sum", "divide"]),
        ("silu", 4, ["negate", "exp", "add", "divide"]),
        # by the same principle
        ("sigmoid", 4, ["negate", "exp", "add", "divide"]),
        ("gelu", 5, ["x / sqrt(2)", "erf", "1 +", "0.5 *", "x *"]),
        ("elu", 4, ["max(x, 0)", "exp", "- 1", "a *"]),
        ("softplus", 3, ["exp", "1 +", "log"]),
        ("log_sigmoid_forward", 4, ["-x", "exp", "1 +", "log"]),
        ("mish", 5, ["exp", "1 +", "log", "tanh", "x *"]),
        ("hardswish", 5, ["+ 3", "max", "min", "x *", "/ 6"]),
        ("hardsigmoid", 4, ["+ 3", "max", "min", "/ 6"]),
        ("glu", 5, ["-b", "exp", "1 +", "1 /", "a *"]),
        ("relu", 1, ["max"]),
        ("relu6", 2, ["max", "min"]),
        ("leaky_relu", 2, ["max", "slope *"]),
        ("expm1", 2, ["exp", "- 1"]),
        ("log1p", 2, ["1 +", "log"]),
        ("asinh", 5, ["x * x", "+ 1", "sqrt", "x +", "log"]),
        ("addcmul", 3, ["b * c", "value *", "a +"]),
        ("lerp", 3, ["b - a", "w *", "a +"]),
        ("polar", 4, ["cos", "sin", "r *", "r *"]),
        ("mv", 2, ["product", "addition"]),
        ("dot", 2, ["product", "addition"]),
        ("logsumexp", 4, ["max", "subtract", "exp", "sum"]),
        ("var", 4, ["add", "subtract", "square", "add"]),
        ("linalg_vector_norm", 2, ["square", "add"]),
        ("native_layer_norm", 5, ["add", "subtract", "square", "add", "scale"]),
        ("_fused_rms_norm", 3, ["square", "add", "scale"]),
        ("native_batch_norm", 2, ["subtract", "scale"]),
    ],
)
def test_numbers_are_spelled_out(name: str, each: int, operations: list[str]):
    entry = TABLE[name]
    # a division or a root a result, counted on outputs, comes on top of what each input costs
    assert (entry.per_input or entry.per_output) == each == len(operations)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "neg", "exp", "log", "tanh", "erf", "sqrt", "rsqrt",
                                  "sin", "cos", "maximum"])  # fmt: skip
def test_every_scalar_operation_of_the_principle_is_one(name: str):
    assert (TABLE[name].per_output, TABLE[name].per_input) == (1, 0)


def test_gelu_in_its_tanh_form():
    cube, scaled, inside, outside = 2, 1, 2, 2  # x * x * x; d * x**3; x + .. and c * ..; 0.5 * x * ..
    tanh, one_more = 1, 1  # tanh(..); 1 + ..
    assert cube + scaled + inside + tanh + one_more + outside == GELU_TANH


def test_powers():
    assert [pow_operations(e) for e in (0, 1, 2, 3, 4, 5)] == [0, 0, 1, 2, 3, 3]
    assert [pow_operations(e) for e in (0.5, -0.5, -1, 1.5, None)] == [1, 1, 1, 3, 3]
    assert TABLE["pow"].per_output == pow_operations(2)


@pytest.mark.parametrize("name", ["embedding", "index", "take", "index_put", "index_fill", "masked_scatter", "scatter",
                                  "_to_copy", "cat", "where", "eq", "arange", "topk"])  # fmt: skip
def test_moves_are_free(name: str):
    assert TABLE[name] == FREE


def test_the_page_is_the_table():
    script = program("scripts/flop_table.py")
    page = script.PAGE.read_text(encoding="utf-8")
    assert page == script.text(), "run `python scripts/flop_table.py`"
    assert all(f"`{name}`" in page for name in definitions())
    # every source that the page names is linked, and every link is used
    links = set(re.findall(r"^\[([\w-]+)\]: https://", page, re.MULTILINE))
    assert links == set(re.findall(r"\]\[([\w-]+)\]", page))
