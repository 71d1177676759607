"""Two models side by side: the one that tests/store/small_models.py works out, and changed copies of it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
import small_models as small
from small_models import LAYER, LINEAR, POINT, ROOT, basic, module

from lmp.errors import InvalidAnalysis, UsageError
from lmp.link.compare import Side, compare, exceeded, known_to_one, unsaid, values_of_both
from lmp.link.difference import Costs, Difference
from lmp.records import ModelAnalysis, ModelKernel, Part, Totals

SIZE = "{batch_size} * {seq_len} * {hidden_size}"
ROW = f"{SIZE} * {{a_bytes}}"


def compared(a: ModelAnalysis, b: ModelAnalysis, **given: int) -> Difference:
    """At the point of the small models; with ``given`` alone where that is given."""
    ours, theirs = values_of_both(a, b, given or POINT)
    return compare(Side("a", a, ours), Side("b", b, theirs))


def of_formulas(a: ModelAnalysis, b: ModelAnalysis) -> Difference:
    return compare(Side("a", a), Side("b", b))


def with_kernels(*kernels: ModelKernel, **more: Any) -> ModelAnalysis:
    """The small model with these kernels; its totals are not theirs."""
    return small.model(kernels=list(kernels), **more)


def line(number: int, flops: str, code: str, operation: str = "product", **more: Any) -> ModelKernel:
    return basic(number, flops, "0", "0", code=code, operation=operation, **more)


def states(found: Difference) -> list[tuple[str, int | None, int | None]]:
    return [(k.state, k.a and k.a.line, k.b and k.b.line) for k in found.kernels]


# --- nothing changed -------------------------------------------------------------------------------------------------


def test_a_model_and_itself() -> None:
    found = compared(small.model(), small.model())
    assert (found.kernels, found.lines, found.modules) == ([], [], [])
    assert found.unchanged == 5
    assert found.values_differ == {}
    assert {name: (total.change, total.same_formula) for name, total in found.totals.items()} == dict.fromkeys(
        ("flops", "matmul_flops", "read", "write", "compulsory", "parameters_count"), (0, True)
    )
    total = found.totals["flops"]
    assert total.a is not None
    assert (total.a.value, total.relative) == (small.FLOPS, 0.0)


def test_formulas_that_are_written_differently_are_the_same() -> None:
    a = with_kernels(line(1, "2 * {seq_len} * {hidden_size} + 2 * {seq_len}", "x"))
    b = with_kernels(line(1, "{seq_len} * ({hidden_size} + 1) * 2", "x"))
    assert (of_formulas(a, b).kernels, of_formulas(a, b).unchanged) == ([], 1)


def test_lines_that_moved_are_the_same() -> None:
    texts = ("q = a", "k = b", "v = c")
    a = with_kernels(*(line(n, "{seq_len}", text) for n, text in enumerate(texts, 1)))
    b = with_kernels(*(line(n, "{seq_len}", f"  {text} ") for n, text in enumerate(texts, 40)))
    assert (of_formulas(a, b).kernels, of_formulas(a, b).unchanged) == ([], 3)
    turned = with_kernels(*(line(n, "{seq_len}", text) for n, text in enumerate(reversed(texts), 1)))
    assert of_formulas(a, turned).kernels == []


def test_one_loop_and_its_body_written_out_cost_the_same() -> None:
    loop = with_kernels(module(1, "step", LAYER, [line(2, "{seq_len}", "x")], repeat=4))
    once = with_kernels(module(1, "step", LAYER, [line(2, "4 * {seq_len}", "x")]))
    assert of_formulas(loop, once).kernels == []  # 4 * seq_len = 1 * (4 * seq_len)


def test_modules_of_another_class_at_the_same_place_are_compared() -> None:
    a = with_kernels(module(1, "mlp", "a.models.MLP", [line(2, "{seq_len}", "x")]))
    b = with_kernels(module(1, "mlp", "b.models.MLP", [line(9, "{seq_len}", "x")]))
    assert (of_formulas(a, b).kernels, of_formulas(a, b).unchanged) == ([], 1)


def test_a_module_under_another_name_is_found_by_its_class() -> None:
    a = with_kernels(module(1, "mlp", LAYER, [line(2, "{seq_len}", "x")]), module(3, "out", LINEAR, []))
    b = with_kernels(module(1, "feed_forward", LAYER, [line(2, "{seq_len}", "x")]), module(3, "out", LINEAR, []))
    assert (of_formulas(a, b).kernels, of_formulas(a, b).unchanged) == ([], 1)


# --- what changed ----------------------------------------------------------------------------------------------------


def test_a_dearer_kernel() -> None:
    twice = [basic(21, f"2 * {SIZE}", f"2 * {ROW}", ROW, operation="add"), *small.model().kernels[1].kernels[1:]]
    layers = small.model().kernels[1].model_copy(update={"kernels": twice})
    kernels = [small.model().kernels[0], layers, *small.model().kernels[2:]]
    found = compared(small.model(), with_kernels(*kernels))
    (change,) = found.kernels
    assert (change.state, change.same_formulas) == ("changed", False)
    assert change.a is not None
    assert change.b is not None
    assert (change.a.path, change.a.class_name, change.a.file) == ("layers.0", LAYER, "src/a/layers.py")
    assert (change.a.flops, change.b.flops, change.b.runs) == (SIZE, f"2 * {SIZE}", "{num_hidden_layers}")
    # 2*16*8 = 256 an activation, three layers: 768 before, 1,536 after; bytes as they were
    assert (change.a.cost, change.b.cost) == (
        Costs(flops=768, matmul_flops=0, read=3_072, write=1_536),
        Costs(flops=1_536, matmul_flops=0, read=3_072, write=1_536),
    )
    assert change.change == Costs(flops=768, matmul_flops=0, read=0, write=0)
    (around,) = found.modules
    assert (around.state, around.outermost) == ("changed", False)
    assert around.a is not None
    assert around.a.cost == Costs(flops=13_056, matmul_flops=12_288, read=4_992, write=3_072)
    assert around.change == change.change
    # Line 11 of the model calls the layers, line 21 of the layer has the kernel.
    assert [(c.a and c.a.line, c.change and c.change.flops) for c in found.lines] == [(21, 768), (11, 768)]


def test_other_values_of_the_same_formulas() -> None:
    found = compared(small.model(), small.model(values={"hidden_size": 16, "num_hidden_layers": 3}))
    assert found.values_differ == {"hidden_size": (8, 16)}
    assert {(k.state, k.same_formulas) for k in found.kernels} == {("changed", True)}
    # lookup, add and product; attention and view cost 0 in both
    assert [k.a and k.a.line for k in found.kernels] == [10, 21, 31]
    flops = found.totals["flops"]
    # 3 * (2*16*16 + 2*2*16*16*16) = 3 * (512 + 16,384) = 50,688; less 13,056, over 13,056
    assert (flops.change, flops.same_formula) == (50_688 - 13_056, True)
    assert flops.relative == pytest.approx(37_632 / 13_056)
    assert of_formulas(small.model(), small.model(values={"hidden_size": 16, "num_hidden_layers": 3})).kernels == []


def test_added_and_removed_kernels() -> None:
    a = with_kernels(line(1, "{seq_len}", "x = a"), line(2, "{seq_len}", "y = something(else_)", "sum"))
    b = with_kernels(line(1, "{seq_len}", "x = a"), line(2, "{batch_size}", "z = q @ k", "matmul"))
    assert states(of_formulas(a, b)) == [("removed", 2, None), ("added", None, 2)]
    found = compared(a, b)
    assert [k.change and k.change.flops for k in found.kernels] == [-16, 2]
    # Both are of a line 2, but of no line that both have.
    assert [(c.state, c.a and c.a.line, c.b and c.b.line) for c in found.lines] == [
        ("removed", 2, None),
        ("added", None, 2),
    ]


def test_an_edited_line_is_one_change() -> None:
    a = with_kernels(line(7, "{seq_len}", "weights = softmax(scores, dim=-1)", "softmax"))
    b = with_kernels(line(9, "2 * {seq_len}", "weights = softmax(scores.float(), dim=-1)", "softmax"))
    assert states(of_formulas(a, b)) == [("changed", 7, 9)]
    other = with_kernels(line(9, "2 * {seq_len}", "return head(gates)", "softmax"))
    assert states(of_formulas(a, other)) == [("removed", 7, None), ("added", None, 9)]


def test_an_operator_that_came_to_a_line_belongs_to_it() -> None:
    a = with_kernels(line(5, "{seq_len}", "x = f(x)"))
    b = with_kernels(line(6, "{seq_len}", "x = f(x)"), line(6, "{batch_size}", "x = f(x)", "sum"))
    (change,) = compared(a, b).lines
    assert (change.state, change.a and change.a.line, change.b and change.b.line) == ("changed", 5, 6)
    assert change.change == Costs(flops=2, matmul_flops=0, read=0, write=0)


def test_a_new_module_is_outermost_and_those_in_it_are_not() -> None:
    inner = module(30, "moe.experts", LINEAR, [line(31, "{seq_len}", "x")])
    b = with_kernels(*small.model().kernels, module(14, "moe", LAYER, [inner]))
    found = compared(small.model(), b)
    assert [(m.state, m.outermost, m.b and m.b.path) for m in found.modules] == [
        ("added", True, "moe"),
        ("added", False, "moe.experts"),
    ]
    assert [m.change and m.change.flops for m in found.modules] == [16, 16]
    assert states(found) == [("added", None, 31)]


def test_more_runs_of_the_same() -> None:
    a = with_kernels(module(1, "layers.0", LAYER, [line(2, "{seq_len}", "x")], repeat=2))
    b = with_kernels(module(1, "layers.0", LAYER, [line(2, "{seq_len}", "x")], repeat=3))
    (change,) = compared(a, b).kernels
    assert (change.a and change.a.runs, change.b and change.b.runs) == ("2", "3")
    assert change.change is not None
    assert change.change.flops == 16  # 3 * 16 - 2 * 16


def test_what_costs_nothing_is_only_counted() -> None:
    a = with_kernels(line(1, "{seq_len}", "x"))
    b = with_kernels(line(1, "{seq_len}", "x"), line(2, "0", "y = x.view(1)", "view"))
    found = of_formulas(a, b)
    assert (found.kernels, found.modules, found.lines, found.free) == ([], [], [], 1)


def test_without_a_point_there_are_formulas_only() -> None:
    found = of_formulas(small.model(), with_kernels(line(1, "{seq_len}", "x")))
    assert found.a.values is None
    assert all(k.change is None and (k.a or k.b).cost is None for k in found.kernels)  # type: ignore[union-attr]
    assert all(total.change is None and total.relative is None for total in found.totals.values())


def test_assumptions_and_statuses_of_each() -> None:
    parts = {ROOT: Part(status="failed", sha256="0" * 64, uncounted=["aten::frob"])}
    b = small.model(assumptions=["{seq_len} < 9"], parts=parts)
    found = compared(small.model(), b)
    assert (found.a.assumptions, found.b.assumptions) == ([], ["{seq_len} < 9"])
    assert [broken.assumption for broken in found.b.violated_assumptions] == ["{seq_len} < 9"]
    assert (found.a.verification, found.b.verification) == ("verified", "failed")
    assert (found.b.not_verified, found.b.uncounted) == ({ROOT: "failed"}, {ROOT: ["aten::frob"]})


def test_a_formula_that_cannot_be_read() -> None:
    with pytest.raises(InvalidAnalysis, match="a formula cannot be read"):
        of_formulas(small.model(), with_kernels(line(1, "{seq_len} +", "x")))


# --- points ----------------------------------------------------------------------------------------------------------


def test_values_of_each() -> None:
    b = small.model(
        parameters={**small.model().parameters, "window": "config.window"}, values={**small.model().values, "window": 4}
    )
    ours, theirs = values_of_both(small.model(), b, {**POINT, "window": 7})
    assert "window" not in ours
    assert theirs["window"] == 7
    assert known_to_one(small.model(), b, {**POINT, "window": 7}) == {"window": "B"}
    assert known_to_one(b, small.model(), ["window", "cache_len"]) == {"window": "A"}
    found = compare(Side("a", small.model(), ours), Side("b", b, theirs))
    assert found.values_differ == {"window": (None, 7)}


def test_a_name_that_neither_has() -> None:
    with pytest.raises(
        UsageError, match="neither of the two has a parameter 'heads'\nthe names are batch_size, seq_len"
    ):
        values_of_both(small.model(), small.model(), {**POINT, "heads": 2})
    b = small.model(parameters={"window": "config.window"})
    with pytest.raises(UsageError, match=r"\nA has batch_size.*; B has batch_size.*window"):
        values_of_both(small.model(), b, {"heads": 2})


def test_a_value_that_is_missing() -> None:
    with pytest.raises(UsageError, match="seq_len has no value"):
        values_of_both(small.model(), small.model(), {"batch_size": 1})


# --- limits ----------------------------------------------------------------------------------------------------------


def constant(flops: int, read: int, write: int, parameters: int | None) -> ModelAnalysis:
    totals = Totals(
        flops=str(flops),
        matmul_flops="0",
        read=str(read),
        write=str(write),
        parameters_count=None if parameters is None else str(parameters),
    )
    return small.model(kernels=[], totals=totals)


@pytest.mark.parametrize(
    ("limit", "quantities"),
    [
        # flops 1,000 -> 1,010 is 1%; bytes 300 -> 306 is 2%; parameters 50 -> 50
        ("0", ["flops", "bytes"]),
        ("0.0099999", ["flops", "bytes"]),
        ("0.01", ["bytes"]),
        ("0.02", []),
    ],
)
def test_what_rose_by_more_than_a_limit(limit: str, quantities: list[str]) -> None:
    found = compared(constant(1_000, 200, 100, 50), constant(1_010, 190, 116, 50))
    assert [rise.quantity for rise in exceeded(found, Fraction(limit))] == quantities
    assert exceeded(compared(constant(1_010, 200, 116, 51), constant(1_000, 200, 100, 50)), Fraction(0)) == []


def test_anything_is_above_nothing() -> None:
    (rise,) = exceeded(compared(constant(0, 1, 1, 1), constant(1, 1, 1, 1)), Fraction(100))
    assert (rise.quantity, rise.a, rise.b, rise.relative) == ("flops", 0, 1, None)


def test_what_is_not_said_is_not_held() -> None:
    found = compared(constant(1, 1, 1, None), constant(1, 1, 1, 9))
    assert exceeded(found, Fraction(0)) == []
    assert unsaid(found) == ["parameters"]
    assert found.totals["parameters_count"].same_formula is False
    assert unsaid(compared(constant(1, 1, 1, 9), constant(1, 1, 1, 9))) == []


def test_numbers_beyond_a_float() -> None:
    found = compared(constant(1, 1, 1, 1), constant(10**400, 1, 1, 1))
    assert found.totals["flops"].relative is None
    (rise,) = exceeded(found, Fraction(1))
    assert (rise.b, rise.relative) == (10**400, None)
