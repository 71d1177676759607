"""Each rule on plain shapes. The arithmetic of each expected number is in a comment."""

from __future__ import annotations

from typing import Any

import pytest

from lmp.formula import equal, evaluate, minimum, var
from lmp.trace.rules import CATEGORIES, RULES, Cost, Move, Operator, Tensor, broadcast, cost, register

A, W = "a_bytes", "w_bytes"


def t(*shape: Any, unit: str | int = A, broadcast: tuple[int, ...] = (), floating: bool | None = None) -> Tensor:
    """A tensor. With a size in bytes as its unit it holds integers, unless ``floating`` is given."""
    return Tensor(shape, unit, isinstance(unit, str) if floating is None else floating, frozenset(broadcast))


def w(*shape: Any) -> Tensor:
    return t(*shape, unit=W)


def ids(*shape: Any) -> Tensor:
    return t(*shape, unit=8)


def run(name: str, out: Any = None, /, **arguments: Any) -> Cost:
    """The cost of an operator with these arguments. ``out``: the shape of its result, or its results."""
    outputs = out if isinstance(out, list) else [t(*out)] if isinstance(out, tuple) else [out] if out else []
    return cost(Operator(name, arguments, tuple(outputs)))


def flops(found: Cost) -> tuple[Any, Any]:
    assert found.counted
    return found.matmul_flops, found.scalar_flops


def moved(moves: tuple[Move, ...]) -> dict[Any, Any]:
    total: dict[Any, Any] = {}
    for move in moves:
        total[move.unit] = total.get(move.unit, 0) + move.elements
    return total


def read(found: Cost) -> dict[Any, Any]:
    return moved(found.reads)


def written(found: Cost) -> dict[Any, Any]:
    return moved(found.writes)


# -- matmuls -----------------------------------------------------------------------------------------------------------


def test_mm():
    found = run("mm", (10, 3), self=t(10, 4), mat2=w(4, 3))
    assert flops(found) == (240, 0)  # 2 * 10 * 4 * 3
    assert (read(found), written(found)) == ({A: 40, W: 12}, {A: 30})
    assert found.category == "matmul"


def test_bmm():
    found = run("bmm", (2, 3, 5), self=t(2, 3, 4), mat2=t(2, 4, 5))
    assert flops(found) == (240, 0)  # 2 * 2 * 3 * 4 * 5
    assert (read(found), written(found)) == ({A: 24 + 40}, {A: 30})


@pytest.mark.parametrize(
    ("beta", "alpha", "each"),
    [
        (1, 1, 1),  # a bias: one addition
        (1, 0.5, 2),  # alpha: one product more
        (0.5, 1, 2),  # beta: one product more
        (0.5, 0.5, 3),
        (0, 1, 0),  # no bias at all
        (0, 0.5, 1),
    ],
)
def test_a_bias_is_an_addition_and_scales_are_products(beta: float, alpha: float, each: int):
    # 10 * 3 = 30 results
    found = run("addmm", (10, 3), self=w(3), mat1=t(10, 4), mat2=w(4, 3), beta=beta, alpha=alpha)
    assert flops(found) == (240, 30 * each)
    # 2 * 3 * 5 = 30 results
    found = run("baddbmm", (2, 3, 5), self=t(2, 3, 5), batch1=t(2, 3, 4), batch2=t(2, 4, 5), beta=beta, alpha=alpha)
    assert flops(found) == (240, 30 * each)


def test_addmm_reads_its_bias():
    found = run("addmm", (10, 3), self=w(3), mat1=t(10, 4), mat2=w(4, 3))
    assert flops(found) == (240, 30)
    assert (read(found), written(found)) == ({A: 40, W: 3 + 12}, {A: 30})


def test_convolution():
    # 2 images, 8 positions, every weight at each of them: 2 * 2 * 8 * (6 * 4 * 3) = 2304
    found = run("convolution", (2, 6, 8), input=t(2, 4, 10), weight=w(6, 4, 3), bias=None, groups=1)
    assert flops(found) == (2304, 0)
    assert (read(found), written(found)) == ({A: 80, W: 72}, {A: 96})
    # a bias: one addition for each of 2 * 6 * 8 = 96 results
    found = run("convolution", (2, 6, 8), input=t(2, 4, 10), weight=w(6, 4, 3), bias=w(6), groups=1)
    assert flops(found) == (2304, 96)
    assert read(found) == {A: 80, W: 78}


def test_grouped_convolution():
    # the weight has only the channels of its group: 2 * 2 * 8 * (6 * 2 * 3) = 1152
    found = run("convolution", (2, 6, 8), input=t(2, 4, 10), weight=w(6, 2, 3), bias=None, groups=2)
    assert flops(found) == (1152, 0)
    # depthwise, 5 x 7 positions, 3 x 3 window: 2 * 1 * 35 * (4 * 1 * 9) = 2520
    found = run("convolution", (1, 4, 5, 7), input=t(1, 4, 7, 9), weight=w(4, 1, 3, 3), groups=4)
    assert flops(found) == (2520, 0)


def test_transposed_convolution_counts_the_positions_that_go_in():
    # 2 * 2 * 10 * (4 * 6 * 3) = 2880, though 21 positions come out; bias 2 * 6 * 21 = 252
    found = run("convolution", (2, 6, 21), input=t(2, 4, 10), weight=w(4, 6, 3), bias=w(6), transposed=True)
    assert flops(found) == (2880, 252)


@pytest.mark.parametrize(
    ("rows", "experts"),
    [(3, 3), (20, 8)],  # 3 rows reach at most 3 of 8 experts, 20 rows all 8
)
def test_grouped_matmul(rows: int, experts: int):
    ends = t(8, unit=4)
    found = run("_grouped_mm", (rows, 32), self=t(rows, 16), mat2=w(8, 16, 32), offs=ends)
    assert flops(found) == (2 * rows * 16 * 32, 0)
    assert (read(found), written(found)) == ({A: rows * 16, W: experts * 16 * 32, 4: 8}, {A: rows * 32})
    own = run("grouped_mm_fallback", (rows, 32), input=t(rows, 16), weight=w(8, 16, 32), offs=ends)
    assert (flops(own), read(own)) == (flops(found), read(found))


def test_grouped_matmul_of_batches():
    # one matmul each: 2 * 8 * 3 * 16 * 32, all weights
    found = run("_grouped_mm", (8, 3, 32), self=t(8, 3, 16), mat2=w(8, 16, 32))
    assert flops(found) == (24576, 0)
    assert read(found) == {A: 384, W: 4096}


# -- attention ---------------------------------------------------------------------------------------------------------


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Cost:
    out = (*q.shape[:-1], v.shape[-1])
    return run("scaled_dot_product_attention", out, query=q, key=k, value=v, attn_mask=mask)


def test_attention():
    # 2 * B 2 * H 4 * Sq 3 * Sk 7 * (8 + 8) = 5376
    found = attend(t(2, 4, 3, 8), t(2, 4, 7, 8), t(2, 4, 7, 8))
    assert flops(found) == (5376, 0)
    # q 192, k and v 448 each; output 192
    assert (read(found), written(found)) == ({A: 1088}, {A: 192})


def test_attention_with_fewer_key_heads_and_another_value_size():
    # FLOPs by the 4 query heads: 2 * 2 * 4 * 3 * 7 * (8 + 6) = 4704; k 2*2*7*8 = 224, v 2*2*7*6 = 168
    found = attend(t(2, 4, 3, 8), t(2, 2, 7, 8), t(2, 2, 7, 6))
    assert flops(found) == (4704, 0)
    assert (read(found), written(found)) == ({A: 192 + 224 + 168}, {A: 144})


def test_attention_reads_of_a_mask_what_is_there():
    mask = t(2, 4, 3, 7, unit=1, broadcast=(1, 2))
    assert read(attend(t(2, 4, 3, 8), t(2, 4, 7, 8), t(2, 4, 7, 8), mask)) == {A: 1088, 1: 2 * 7}


# -- gathers and scatters ----------------------------------------------------------------------------------------------


def test_gathers_read_rows_not_tables():
    # 6 ids, 6 rows of 4
    for found in (
        run("embedding", (2, 3, 4), weight=w(99, 4), indices=ids(2, 3)),
        run("index", (2, 3, 4), self=w(99, 4), indices=[ids(2, 3)]),
    ):
        assert (flops(found), read(found), written(found)) == ((0, 0), {8: 6, W: 24}, {A: 24})
        assert [m.whole for m in found.reads] == [True, False]
    found = run("index_select", (5, 4), self=t(99, 4), dim=0, index=ids(5))
    assert (read(found), written(found)) == ({8: 5, A: 20}, {A: 20})
    for name in ("gather", "take"):
        found = run(name, (2, 3), self=t(2, 99), dim=1, index=ids(2, 3))
        assert (read(found), written(found)) == ({8: 6, A: 6}, {A: 6})


def test_one_index_for_two_dimensions_is_read_once():
    rows = ids(5)
    assert read(run("index", (5,), self=t(9, 9), indices=[rows, rows])) == {8: 5, A: 5}
    assert read(run("index", (7, 5), self=t(7, 9), indices=[None, rows])) == {8: 5, A: 35}


def test_scatters_write_as_many_elements_as_there_are_values():
    expected = {8: 5, A: 20}, {A: 20}
    found = run("index_put", (9, 4), self=t(9, 4), indices=[ids(5)], values=t(5, 4))
    assert (flops(found), (read(found), written(found))) == ((0, 0), expected)
    found = run("index_copy", (9, 4), self=t(9, 4), dim=0, index=ids(5), source=t(5, 4))
    assert (read(found), written(found)) == expected
    found = run("scatter", (2, 9), self=t(2, 9), dim=1, index=ids(2, 3), src=t(2, 3))
    assert (read(found), written(found)) == ({8: 6, A: 6}, {A: 6})


def test_a_scalar_is_written_to_every_element_that_is_named():
    # 6 indices, each one element
    found = run("scatter", (2, 9), self=t(2, 9), dim=1, index=ids(2, 3), value=1.0)
    assert (read(found), written(found)) == ({8: 6}, {A: 6})
    # 5 rows of 4; the value is 0-dimensional, or a number
    found = run("index_put", (9, 4), self=t(9, 4), indices=[ids(5)], values=t())
    assert (read(found), written(found)) == ({8: 5}, {A: 20})
    found = run("index_fill", (9, 4), self=t(9, 4), dim=0, index=ids(5), value=1.0)
    assert (read(found), written(found)) == ({8: 5}, {A: 20})
    # 5 columns of 9
    found = run("index_fill", (9, 7), self=t(9, 7), dim=-1, index=ids(5), value=1.0)
    assert written(found) == {A: 45}


def test_a_broadcast_value_is_stored_once_for_each_index():
    # one row of 4 is read, 5 are written
    found = run("index_put", (9, 4), self=t(9, 4), indices=[ids(5)], values=t(4))
    assert (read(found), written(found)) == ({8: 5, A: 4}, {A: 20})
    # rows 5 x 1 and columns 1 x 3 broadcast to 15 elements
    found = run("index_put", (9, 4), self=t(9, 4), indices=[ids(5, 1), ids(1, 3)], values=t())
    assert (read(found), written(found)) == ({8: 8}, {A: 15})
    # a dimension without an index is used whole: 9 * 2
    found = run("index_put", (9, 4), self=t(9, 4), indices=[None, ids(2)], values=t())
    assert written(found) == {A: 18}


def test_a_mask_may_set_as_many_as_there_are_values():
    mask = t(9, unit=1)
    # the number of set entries is unknown: as many as values, or all 9
    found = run("index_put", (9, 4), self=t(9, 4), indices=[mask], values=t(2, 4))
    assert (read(found), written(found)) == ({1: 9, A: 8}, {A: 8})
    # one row of 4 for each of the 9 entries that the mask may have set
    found = run("index_put", (9, 4), self=t(9, 4), indices=[mask], values=t(4))
    assert (read(found), written(found)) == ({1: 9, A: 4}, {A: 36})
    found = run("index_put", (9, 4), self=t(9, 4), indices=[mask], values=t())
    assert (read(found), written(found)) == ({1: 9}, {A: 36})


def test_a_scatter_takes_only_the_values_that_it_has_indices_for():
    found = run("scatter", (2, 9), self=t(2, 9), dim=1, index=ids(2, 3), src=t(2, 5))
    assert (read(found), written(found)) == ({8: 6, A: 6}, {A: 6})


def test_scatters_that_add_read_their_destinations():
    # 20 values, 20 destinations, 5 indices; one addition a value
    added = (0, 20), {8: 5, A: 20 + 20}, {A: 20}
    source = t(5, 4)
    found = run("index_add", (9, 4), self=t(9, 4), dim=0, index=ids(5), source=source)
    assert (flops(found), read(found), written(found)) == added
    found = run("index_put", (9, 4), self=t(9, 4), indices=[ids(5)], values=source, accumulate=True)
    assert (flops(found), read(found), written(found)) == added
    # alpha is one product more
    found = run("index_add", (9, 4), self=t(9, 4), dim=0, index=ids(5), source=source, alpha=2)
    assert flops(found) == (0, 40)
    adding = (0, 6), {8: 6, A: 6 + 6}, {A: 6}
    found = run("scatter_add", (2, 9), self=t(2, 9), dim=1, index=ids(2, 3), src=t(2, 3))
    assert (flops(found), read(found), written(found)) == adding
    found = run("scatter", (2, 9), self=t(2, 9), dim=1, index=ids(2, 3), src=t(2, 3), reduce="add")
    assert (flops(found), read(found), written(found)) == adding


def test_a_scatter_into_a_copy_of_a_weight_writes_an_activation():
    found = run("index_put", (9, 4), self=w(9, 4), indices=[ids(5)], values=t(5, 4))
    assert written(found) == {A: 20}


# -- which elements are in memory --------------------------------------------------------------------------------------


def test_broadcast_dimensions_count_once():
    # 5 elements of mask in memory, 120 additions
    found = run("add", (2, 3, 4, 5), self=t(2, 3, 4, 5), other=t(2, 3, 4, 5, broadcast=(0, 1, 2)))
    assert (flops(found), read(found)) == ((0, 120), {A: 120 + 5})
    # a copy of an expanded tensor: 5 read, 40 written
    found = run("clone", (8, 5), self=t(8, 5, broadcast=(0,)))
    assert (read(found), written(found)) == ({A: 5}, {A: 40})


def test_zero_dimensional_tensors_are_free():
    found = run("mul", (3, 4), self=t(3, 4), other=t())
    assert (flops(found), read(found), written(found)) == ((0, 12), {A: 12}, {A: 12})
    # a sum of everything: 12 additions, nothing written
    found = run("sum", [t()], self=t(3, 4))
    assert (flops(found), written(found)) == ((0, 12), {})


def test_empty_tensors_are_free():
    assert read(run("cat", (3, 4), tensors=[t(0, 4), t(3, 4)])) == {A: 12}
    # a broadcast row copied to no rows: torch passes it as an empty tensor too
    assert read(run("copy", (0, 4), self=t(0, 4), src=t(0, 4, broadcast=(0,)))) == {}


def test_a_tensor_given_twice_is_read_once():
    x = t(3, 4)
    assert read(run("add", (3, 4), self=x, other=x)) == {A: 12}
    found = run("cat", (6, 4), tensors=[x, x])
    assert (read(found), written(found)) == ({A: 12}, {A: 24})
    # two tensors with the same shape are two
    assert read(run("add", (3, 4), self=x, other=t(3, 4))) == {A: 24}


def test_other_dtypes_cost_their_own_size():
    found = run("_to_copy", t(3, 4, unit=4, floating=True), self=t(3, 4))
    assert (flops(found), read(found), written(found)) == ((0, 0), {A: 12}, {4: 12})


@pytest.mark.parametrize("name", ["fill", "zero", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones"])
def test_what_only_writes(name: str):
    found = run(name, (3, 4), self=t(3, 4), value=t())
    assert (flops(found), read(found), written(found)) == ((0, 0), {}, {A: 12})


def test_factories_write():
    found = run("arange", ids(6), end=6)
    assert (flops(found), read(found), written(found)) == ((0, 0), {}, {8: 6})


def test_copy_reads_the_source_only():
    found = run("copy", (3, 4), self=t(3, 4), src=w(1, 4))
    assert (flops(found), read(found), written(found)) == ((0, 0), {W: 4}, {A: 12})


# -- scalar FLOPs that depend on an argument ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("exponent", "each"),
    [
        (0, 0), (1, 0),
        (2, 1), (2.0, 1),  # x * x
        (3, 2), (4, 3),  # one product more each
        (5, 3), (1.7, 3), (-2, 3),  # exp(e * log(x))
        (0.5, 1), (-0.5, 1), (-1, 1),  # sqrt, rsqrt, 1 / x
    ],
)  # fmt: skip
def test_powers(exponent: float, each: int):
    assert flops(run("pow", (3, 4), self=t(3, 4), exponent=exponent)) == (0, 12 * each)


def test_a_power_with_a_tensor_as_exponent():
    assert flops(run("pow", (3, 4), self=10000.0, exponent=t(3, 4))) == (0, 36)


@pytest.mark.parametrize(
    ("name", "arguments", "each"),
    [
        ("add", {}, 1),
        ("add", {"alpha": 2}, 2),
        ("sub", {"alpha": 2}, 2),
        ("rsub", {"alpha": 1}, 1),
        ("gelu", {}, 5),
        ("gelu", {"approximate": "none"}, 5),
        ("gelu", {"approximate": "tanh"}, 9),
        ("clamp", {"min": 0}, 1),
        ("clamp", {"max": 1}, 1),
        ("clamp", {"min": 0, "max": 1}, 2),
        ("silu", {}, 4),
        ("_softmax", {"dim": -1}, 5),
        ("where", {}, 0),
        ("polar", {}, 4),
    ],
)
def test_flops_an_element(name: str, arguments: dict[str, Any], each: int):
    assert flops(run(name, (3, 4), self=t(3, 4), **arguments)) == (0, 12 * each)


def test_reductions_count_what_goes_in():
    # 12 additions, 3 divisions
    assert flops(run("mean", (3, 1), self=t(3, 4), dim=[-1])) == (0, 15)
    # 12 comparisons
    assert flops(run("amax", (3, 1), self=t(3, 4), dim=[-1])) == (0, 12)
    # a product and an addition for each of 12 elements of the matrix, of 4 elements of a vector
    assert flops(run("mv", (3,), self=t(3, 4), vec=t(4))) == (0, 24)
    assert flops(run("dot", [t()], self=t(4), tensor=t(4))) == (0, 8)


@pytest.mark.parametrize(
    ("weight", "bias", "each"),
    [(None, None, 5), (w(4), None, 6), (w(4), w(4), 7)],
)
def test_layer_norm(weight: Tensor | None, bias: Tensor | None, each: int):
    # 24 elements, 6 rows with 4 operations each
    outputs = [t(2, 3, 4), t(2, 3, 1, unit=4, floating=True), t(2, 3, 1, unit=4, floating=True)]
    found = run("native_layer_norm", outputs, input=t(2, 3, 4), normalized_shape=[4], weight=weight, bias=bias)
    assert flops(found) == (0, 24 * each + 6 * 4)
    assert written(found) == {A: 24, 4: 12}


def test_layer_norm_over_two_dimensions():
    # 2 rows of 12 elements
    assert flops(run("native_layer_norm", (2, 3, 4), input=t(2, 3, 4), normalized_shape=[3, 4])) == (0, 24 * 5 + 2 * 4)


def test_rms_norm():
    # 24 elements: square, add, scale; 6 rows: divide, add, rsqrt; a weight one product more
    assert flops(run("_fused_rms_norm", (2, 3, 4), input=t(2, 3, 4), normalized_shape=[4])) == (0, 24 * 3 + 6 * 3)
    found = run("_fused_rms_norm", (2, 3, 4), input=t(2, 3, 4), normalized_shape=[4], weight=w(4))
    assert flops(found) == (0, 24 * 4 + 6 * 3)


def test_group_norm():
    # 2 samples x 3 groups = 6 rows of 2 channels x 5
    found = run("native_group_norm", (2, 6, 5), input=t(2, 6, 5), weight=w(6), bias=w(6), N=2, C=6, HxW=5, group=3)
    assert flops(found) == (0, 60 * 7 + 6 * 4)
    found = run("native_group_norm", (2, 6, 5), input=t(2, 6, 5), weight=None, bias=None, N=2, C=6, HxW=5, group=3)
    assert flops(found) == (0, 60 * 5 + 6 * 4)


@pytest.mark.parametrize(
    ("name", "each"), [("upsample_linear1d", 2 + 1), ("upsample_bilinear2d", 4 + 3), ("upsample_bicubic2d", 16 + 15)]
)
def test_interpolation(name: str, each: int):
    # 2 x 3 x 8 x 8 results, each a weighted sum of its neighbours: products, and one addition fewer
    found = run(name, (2, 3, 8, 8), self=t(2, 3, 4, 4), output_size=[8, 8], align_corners=False)
    assert flops(found) == (0, 2 * 3 * 8 * 8 * each)


@pytest.mark.parametrize(
    ("name", "before", "neighbours"),
    [
        ("_upsample_bilinear2d_aa", (4, 4), 2 * 2),  # twice as large: as without anti-aliasing
        ("_upsample_bilinear2d_aa", (16, 24), 4 * 6),  # half and a third: 2 * 2 rows, 2 * 3 columns
        ("_upsample_bilinear2d_aa", (12, 8), 3 * 2),
        ("_upsample_bicubic2d_aa", (4, 16), 4 * 8),
    ],
)
def test_a_resampling_that_shrinks_has_more_neighbours(name: str, before: tuple[int, int], neighbours: int):
    # 2 x 3 x 8 x 8 results: a product for each neighbour, and one addition fewer
    found = run(name, (2, 3, 8, 8), self=t(2, 3, *before), output_size=[8, 8], align_corners=False)
    assert flops(found) == (0, 2 * 3 * 8 * 8 * (neighbours + neighbours - 1))


def test_the_neighbours_of_a_size_that_is_a_formula():
    width = var("width")
    found = run("_upsample_bilinear2d_aa", (1, 1, 8, 8), self=t(1, 1, 8, width), output_size=[8, 8])
    # 2 rows; columns of half the size are 4 each: 64 * (8 products + 7 additions)
    assert evaluate(found.scalar_flops, {"width": 16}) == 64 * 15
    assert evaluate(found.scalar_flops, {"width": 5}) == 64 * 7


@pytest.mark.parametrize(("mode", "each"), [(0, 4 + 3), (1, 0), (2, 16 + 15)])
def test_samples_of_a_grid(mode: int, each: int):
    found = run("grid_sampler_2d", (2, 3, 5, 7), input=t(2, 3, 9, 9), grid=t(2, 5, 7, 2), interpolation_mode=mode)
    assert flops(found) == (0, 2 * 3 * 5 * 7 * each)


@pytest.mark.parametrize(("reduction", "expected"), [(0, 24 * 2), (1, 24 * 3 + 1), (2, 24 * 3)])
def test_squared_errors(reduction: int, expected: int):
    # 24 differences and squares; their sum is 24 additions, their mean a division more
    out = (4, 6) if reduction == 0 else ()
    assert flops(run("mse_loss", out, self=t(4, 6), target=t(4, 6), reduction=reduction)) == (0, expected)


def test_distances():
    # 3 x 5 pairs of rows of 4: subtract, square, add; then a square root
    assert flops(run("_euclidean_dist", (3, 5), x1=t(3, 4), x2=t(5, 4))) == (0, 3 * 5 * (3 * 4 + 1))


def test_weight_norm():
    # v of 4 x 6 with a norm a row: 24 squares, additions and products, 4 roots and quotients
    found = run("_weight_norm_interface", (4, 6), v=w(4, 6), g=w(4, 1), dim=0)
    assert flops(found) == (0, 24 * 3 + 4 * 2)


@pytest.mark.parametrize("name", ["native_batch_norm", "_native_batch_norm_legit_no_training"])
def test_batch_norm(name: str):
    # 60 elements: subtract, scale, weight, bias; 6 channels: add eps, rsqrt
    statistics = {"running_mean": w(6), "running_var": w(6)}
    found = run(name, (2, 6, 5), input=t(2, 6, 5), weight=w(6), bias=w(6), **statistics)
    assert flops(found) == (0, 60 * 4 + 6 * 2)
    assert read(found) == {A: 60, W: 24}
    found = run(name, (2, 6, 5), input=t(2, 6, 5), weight=None, bias=None, **statistics)
    assert flops(found) == (0, 60 * 2 + 6 * 2)


@pytest.mark.parametrize("kernel", [[2, 2], [2], (2, 2), 2])
def test_pooling_counts_its_windows(kernel: Any):
    # 2 * 3 * 4 * 4 = 96 results, windows of 4: a comparison each; an average divides once more
    outputs = [t(2, 3, 4, 4), ids(2, 3, 4, 4)]
    found = run("max_pool2d_with_indices", outputs, self=t(2, 3, 8, 8), kernel_size=kernel)
    assert (flops(found), written(found)) == ((0, 384), {A: 96, 8: 96})
    assert flops(run("avg_pool2d", (2, 3, 4, 4), self=t(2, 3, 8, 8), kernel_size=kernel)) == (0, 480)
    # one image without a batch: 48 results
    assert flops(run("avg_pool2d", (3, 4, 4), self=t(3, 8, 8), kernel_size=kernel)) == (0, 240)


def test_pooling_of_volumes():
    # 2 * 3 * 4 = 24 results, windows of 8
    assert flops(run("max_pool3d_with_indices", (1, 2, 3, 2, 2), self=t(1, 2, 6, 4, 4), kernel_size=[2])) == (0, 192)
    assert flops(run("avg_pool3d", (1, 2, 3, 2, 2), self=t(1, 2, 6, 4, 4), kernel_size=[2, 2, 2])) == (0, 216)
    # adaptive: 96 elements added, 8 results divided
    assert flops(run("_adaptive_avg_pool2d", (1, 2, 2, 2), self=t(1, 2, 6, 8))) == (0, 104)


def test_bilinear():
    # 10 rows meet 7 * 3 * 4 weights, two products and an addition each
    found = run("_trilinear", (10, 7), i1=t(10, 1, 3, 1), i2=w(1, 7, 3, 4), i3=t(10, 1, 1, 4))
    assert flops(found) == (0, 3 * 10 * 84)


# -- operators without FLOPs, and operators without a rule -------------------------------------------------------------


def test_integer_work_is_free_of_flops_but_not_of_bytes():
    found = run("add", ids(3, 4), self=ids(3, 4), other=ids(3, 4))
    assert (flops(found), read(found), written(found)) == ((0, 0), {8: 24}, {8: 12})
    # without an entry in the table too
    found = run("__lshift__", ids(3, 4), self=ids(3, 4), other=2)
    assert (flops(found), read(found)) == ((0, 0), {8: 12})


def test_a_comparison_of_floats_is_free():
    assert flops(run("gt", t(3, 4, unit=1), self=t(3, 4), other=0)) == (0, 0)


def test_an_operator_without_a_rule_is_not_counted():
    found = run("linalg_matrix_exp", (4, 4), self=t(4, 4))
    assert not found.counted
    assert (found.matmul_flops, found.scalar_flops) == (0, 0)
    assert (read(found), written(found)) == ({A: 16}, {A: 16})  # its bytes are known nevertheless


def test_complex_arithmetic():
    z = Tensor((3, 4), 8, floating=False, complex=True)
    assert not run("div", z, self=z, other=z).counted
    # 12 products of four products and two additions each; by a real number two products; a sum two additions
    assert flops(run("mul", z, self=z, other=z)) == (0, 72)
    assert flops(run("mul", z, self=z, other=t(3, 4))) == (0, 24)
    assert flops(run("add", z, self=z, other=z)) == (0, 24)
    assert flops(run("clone", z, self=z)) == (0, 0)
    # made from 12 radii and 12 angles: a sine, a cosine and two products each
    assert flops(run("polar", z, abs=t(3, 4), angle=t(3, 4))) == (0, 48)


def test_an_operator_is_registered_once():
    with pytest.raises(ValueError, match="operator mm has two rules"):
        register("mm", category="matmul")


def test_every_rule_has_a_category_of_its_own_or_of_the_table():
    assert not RULES.keys() & CATEGORIES.keys()
    assert all(rule.category for rule in RULES.values())
    assert run("silu", (3,), self=t(3)).category == "activation"
    assert run("mul", (3,), self=t(3)).category == "elementwise"


def test_broadcast():
    assert broadcast([(5, 1), (1, 3)]) == (5, 3)
    assert broadcast([(3,), (2, 1, 1)]) == (2, 1, 3)
    assert broadcast([()]) == ()


# -- sizes that are formulas -------------------------------------------------------------------------------------------

b, s, h, i, e, k = (var(n) for n in ("batch_size", "seq_len", "hidden_size", "intermediate_size", "experts", "top_k"))


def test_a_matmul_of_formulas():
    found = run("addmm", (b * s, i), self=w(i), mat1=t(b * s, h), mat2=w(h, i))
    assert equal(found.matmul_flops, 2 * b * s * h * i)
    assert equal(found.scalar_flops, b * s * i)
    assert equal(read(found)[A], b * s * h)
    assert equal(read(found)[W], i + h * i)


def test_attention_of_formulas():
    n, d, c = var("num_heads"), var("head_dim"), var("cache_len")
    found = attend(t(b, n, s, d), t(b, 2, s + c, d), t(b, 2, s + c, d))
    assert equal(found.matmul_flops, 4 * b * n * s * (s + c) * d)
    assert equal(read(found)[A], b * n * s * d + 4 * b * (s + c) * d)


def test_grouped_matmul_of_formulas():
    found = run("_grouped_mm", (s * k, i), self=t(s * k, h), mat2=w(e, h, i), offs=t(e, unit=4))
    assert equal(found.matmul_flops, 2 * s * k * h * i)
    assert equal(read(found)[W], minimum(e, s * k) * h * i)
    point = {"seq_len": 3, "top_k": 2, "experts": 8, "hidden_size": 5, "intermediate_size": 7}
    assert evaluate(read(found)[W], point) == 6 * 5 * 7


def test_other_rules_of_formulas():
    assert equal(run("native_layer_norm", (b, s, h), input=t(b, s, h), normalized_shape=[h], weight=w(h)).scalar_flops,
                 6 * b * s * h + 4 * b * s)  # fmt: skip
    found = run("embedding", (b, s, h), weight=w(99, h), indices=ids(b, s))
    assert equal(read(found)[W], b * s * h)
    found = run("index_put", (b, h), self=t(b, h), indices=[ids(s)], values=t(s, h))
    assert equal(written(found)[A], s * h)
    found = run("scatter_add", (b, h), self=t(b, h), dim=1, index=ids(b, k), src=t(b, k))
    assert equal(read(found)[A], 2 * b * k)
    found = run("convolution", (b, 6, s), input=t(b, 4, s + 2), weight=w(6, 4, 3), bias=w(6))
    assert equal(found.matmul_flops, 2 * b * s * 72)
    assert equal(run("mean", (b, s, 1), self=t(b, s, h)).scalar_flops, b * s * h + b * s)
