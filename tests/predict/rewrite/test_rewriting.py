"""Rewrites of a model's kernels: small lists with the arithmetic beside, random lists, and formulas at tiny sizes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_lists import after, kernel, launched, product
from lmp.errors import InvalidAnalysis
from lmp.link.records import EvaluatedKernel
from lmp.predict.rewrite.profiles import profiles
from lmp.records import MATMUL_CATEGORIES


def norm(id_: str, source: str) -> list[EvaluatedKernel]:
    """An RMS norm of 4 rows of 8 elements, computed in float32."""
    n = [f"{id_}{i}" for i in range(8)]
    return [
        kernel(n[0], "_to_copy", "copy", source, "a 4 8 -> f 4 8"),
        kernel(n[1], "pow", "elementwise", n[0], "f 4 8 -> f 4 8"),
        kernel(n[2], "mean", "reduction", n[1], "f 4 8 -> f 4 1"),
        kernel(n[3], "add", "elementwise", n[2], "f 4 1 -> f 4 1"),
        kernel(n[4], "rsqrt", "elementwise", n[3], "f 4 1 -> f 4 1"),
        kernel(n[5], "mul", "elementwise", f"{n[0]} {n[4]}", "f 4 8, f 4 1 -> f 4 8"),
        kernel(n[6], "_to_copy", "copy", n[5], "f 4 8 -> a 4 8"),
        kernel(n[7], "mul", "elementwise", n[6], "w 8, a 4 8 -> a 4 8", line=9),
    ]


def test_a_norm_is_one_kernel_with_the_bytes_that_pass_its_border() -> None:
    found = after([product("p", "inputs.x", 4, 8, 8), *norm("n", "p"), product("q", "n7", 4, 8, 8)])
    assert launched(found) == [(None, "mm"), ("norm", "rms_norm"), (None, "mm")]
    one = found.launches[1].kernel
    # The input, 4 * 8 * 2 = 64 bytes, and the weight, 8 * 2 = 16; the output, 64.
    assert (one.read, one.write, one.flops) == (80, 64, 8)
    assert found.firings[0].lines == ("a.B:1", "a.B:9")


def test_a_residual_before_a_norm_is_a_part_of_it() -> None:
    add = kernel("r", "add", "elementwise", "e p", "a 4 8, a 4 8 -> a 4 8")
    more = kernel("s", "add", "elementwise", "r q", "a 4 8, a 4 8 -> a 4 8")
    first = kernel("e", "embedding", "gather", "", "i 4 -> a 4 8")
    found = after([first, product("p", "e", 4, 8, 8), add, *norm("n", "r"), product("q", "n7", 4, 8, 8), more])
    one = next(launch.kernel for launch in found.launches if launch.rule == "norm")
    # Both summands and the weight, 64 + 64 + 16; the sum, which the next residual reads, and the output, 64 + 64.
    assert (one.operation, one.read, one.write) == ("add_rms_norm", 144, 128)


def test_products_of_one_input_are_one() -> None:
    kernels = [product("q", "x", 4, 8, 8), product("k", "x", 4, 4, 8), product("v", "x", 4, 4, 8)]
    found = after([kernel("x", "relu", "elementwise", "", "a 4 8 -> a 4 8"), *kernels])
    one = found.launches[1]
    assert one.kernel.operands is not None
    # 8 + 4 + 4 columns: 2 * 4 * 16 * 8 FLOPs; weights 8 * 16 * 2 = 256 bytes, the input once, 64.
    assert (one.kernel.operands.n, one.matmul_flops, one.kernel.read, one.kernel.write) == (16, 1024, 320, 128)


@pytest.mark.parametrize(
    "other",
    [
        product("k", "y", 4, 4, 8),  # of another input
        product("k", "x", 4, 4, 8, repeat=2),  # in other layers
        product("k", "x", 2, 4, 8),  # of other rows
    ],
)
def test_products_that_differ_stay_apart(other: EvaluatedKernel) -> None:
    first = [kernel(name, "relu", "elementwise", "", "a 4 8 -> a 4 8") for name in ("x", "y")]
    assert after([*first, product("q", "x", 4, 8, 8), other]).firings == ()


def test_a_gated_activation_is_one() -> None:
    act = kernel("s", "silu", "activation", "g", "a 4 8 -> a 4 8", flops=7)
    mul = kernel("m", "mul", "elementwise", "s u", "a 4 8, a 4 8 -> a 4 8", flops=5)
    found = after([product("g", "x", 4, 8, 8), act, product("u", "y", 4, 8, 8), mul, product("d", "m", 4, 8, 8)])
    (one,) = [launch.kernel for launch in found.launches if launch.rule == "gated_act"]
    # Gate and up, 64 + 64 bytes; 64 written.
    assert (one.read, one.write, one.flops) == (128, 64, 12)


def cat(id_: str, source: str) -> EvaluatedKernel:
    """One new token behind 3 of 2 sequences, 2 heads of 8."""
    return kernel(id_, "cat", "copy", f"cache {source}", "kv 2 2 3 8, a 2 2 1 8 -> kv 2 2 4 8")


def attended(**more: Any) -> EvaluatedKernel:
    # 2 sequences * 4 heads * 1 query * 4 keys * (8 + 8) * 2.
    return kernel(
        "s", "sdpa", "attention", "q c d", "a 2 4 1 8, kv 2 2 4 8, kv 2 2 4 8 -> a 2 4 1 8",
        batch=2, q_len=1, kv_len=4, heads=4, kv_heads=2, head_dim=8, v_head_dim=8, causal=0,
        **{"flops": 1024, **more},
    )  # fmt: skip


def projections() -> list[EvaluatedKernel]:
    return [product(name, f"x{name}", 2, n, 32) for name, n in (("q", 32), ("k", 16), ("v", 16))]


def test_attention_reads_the_cache_and_only_new_tokens_are_written() -> None:
    found = after([*projections(), cat("c", "k"), cat("d", "v"), attended()])
    writes, attends = (launch.kernel for launch in found.launches if launch.rule == "flash")
    # New keys and values: 2 * (2 * 2 * 1 * 8) * 2 bytes. Queries and outputs: 2 * 4 * 8 * 2 bytes.
    assert (writes.read, writes.write) == (128, 128)
    # Keys and values of 4 tokens: 2 * (2 * 2 * 4 * 8) * 2 bytes.
    assert (attends.read, attends.write) == (128 + 512, 128)


def test_a_narrow_cache_is_written_in_its_own_elements() -> None:
    found = after([*projections(), cat("c", "k"), cat("d", "v"), attended()], kv_bytes=1)
    writes, attends = (launch.kernel for launch in found.launches if launch.rule == "flash")
    assert (writes.read, writes.write, attends.read) == (128, 64, 128 + 256)


def test_attention_that_is_written_out_is_the_same_attention() -> None:
    clone = "kv 2 2 2 4 8 -> a 2 2 2 4 8"
    scores = {"batch": 8, "m": 1, "n": 4, "k": 8}
    values = {"batch": 8, "m": 1, "n": 8, "k": 4}
    kernels = [
        *projections(), cat("c", "k"), cat("d", "v"),
        kernel("ck", "clone", "copy", "c", clone), kernel("cv", "clone", "copy", "d", clone),
        # 2 * 8 * 1 * 4 * 8 FLOPs each.
        kernel("b", "bmm", "matmul", "q ck", "a 8 1 8, a 8 8 4 -> a 8 1 4", flops=512, **scores),
        kernel("m", "mul", "elementwise", "b", "a 8 1 4 -> a 8 1 4"),
        kernel("t", "_softmax", "softmax", "m", "a 8 1 4 -> a 8 1 4"),
        kernel("o", "bmm", "matmul", "t cv", "a 8 1 4, a 8 4 8 -> a 8 1 8", flops=512, **values),
    ]  # fmt: skip
    found = after(kernels)
    attends = found.launches[-1]
    same = after([*projections(), cat("c", "k"), cat("d", "v"), attended()]).launches[-1]
    assert attends.kernel.operands is not None
    assert same.kernel.operands is not None
    for name in ("batch", "q_len", "kv_len", "heads", "kv_heads", "head_dim", "v_head_dim", "causal"):
        assert getattr(attends.kernel.operands, name) == getattr(same.kernel.operands, name), name
    assert (attends.kernel.read, attends.kernel.write) == (same.kernel.read, same.kernel.write)
    assert attends.matmul_flops == 1024


def test_logits_of_the_last_token_save_what_the_rule_says() -> None:
    # 2 sequences of 4 tokens, 10 words: 2 * 8 * 10 * 16 FLOPs, of which 2 * 2 * 10 * 16 stay.
    found = after([product("h", "x", 8, 10, 16)], seq_len=4)
    assert (found.matmul_flops_before, found.saved, found.matmul_flops) == (2560, 1920, 640)
    one = found.launches[0].kernel
    # The weight, 320 bytes, and 2 rows of 16; 2 rows of 10.
    assert (one.read, one.write) == (320 + 64, 40)


def test_masks_of_positions_vanish_with_the_attention_that_reads_its_cache() -> None:
    mask = [
        kernel("i", "arange", "factory", "", "-> i 4", flops=0),
        kernel("j", "le", "elementwise", "i", "i 4 -> a 4", flops=0),
    ]
    attends = attended().model_copy(update={"inputs_from": ["q", "c", "d", "j"]})
    found = after([*mask, *projections(), cat("c", "k"), cat("d", "v"), attends])
    assert "arange" not in {launch.kernel.operation for launch in found.launches}
    kept = after([*mask, kernel("u", "mul", "elementwise", "j x", "a 4, a 4 -> a 4")])
    assert [launch.rule for launch in kept.launches] == [None, None, None]


def test_fp8_products_quantise_what_no_fused_kernel_wrote() -> None:
    kernels = [*norm("n", "inputs.x"), product("p", "n7", 4, 8, 8), product("q", "p", 4, 8, 8)]
    assert [rule for rule, _ in launched(after(kernels, dtype="fp8"))] == ["norm", None, "quantise", None]
    one = after(kernels, dtype="fp8").launches[2]
    assert one.row == {"op": "quantise", "m": 4, "k": 8, "scale": "static"}
    assert "quantise" not in [rule for rule, _ in launched(after(kernels))]


def test_a_compiler_fuses_no_chain_across_a_product() -> None:
    kernels = [
        kernel("a", "relu", "elementwise", "", "a 4 8 -> a 4 8"),
        kernel("b", "neg", "elementwise", "a", "a 4 8 -> a 4 8"),
        product("p", "b", 4, 8, 8),
        kernel("c", "add", "elementwise", "p b", "a 4 8, a 4 8 -> a 4 8"),
        kernel("d", "neg", "elementwise", "c", "a 4 8 -> a 4 8"),
    ]
    found = after(kernels, *profiles()["transformers-compiled"].rules)
    assert [launch.members for launch in found.launches] == [(0, 1), (2,), (3, 4)]
    # The product's output and the residual, 64 + 64 bytes; 64 written.
    assert (found.launches[2].kernel.read, found.launches[2].kernel.write) == (128, 64)


def test_shapes_that_contradict_the_flops_are_refused() -> None:
    kernels = [product("q", "x", 4, 8, 8, flops=500), product("k", "x", 4, 4, 8)]
    with pytest.raises(InvalidAnalysis, match=r"merge_same_input at a\.B:1 changed the matrix FLOPs: 768 for 756"):
        after(kernels)


# --- random lists ----------------------------------------------------------------------------------------------------

OPERATORS = (
    "mul",
    "add",
    "_to_copy",
    "cat",
    "neg",
    "rsqrt",
    "mean",
    "pow",
    "silu",
    "cos",
    "clone",
    "sum",
    "topk",
    "mm",
)
CATEGORY = {"rsqrt": "elementwise", "mean": "reduction", "sum": "reduction", "silu": "activation", "topk": "sort",
            "_to_copy": "copy", "cat": "copy", "mm": "matmul"}  # fmt: skip


@st.composite
def lists(draw: st.DrawFn) -> list[EvaluatedKernel]:
    found: list[EvaluatedKernel] = []
    for number in range(draw(st.integers(1, 25))):
        names = [str(n) for n in range(number)] + ["cache", "inputs.x"]
        sources = " ".join(draw(st.lists(st.sampled_from(names), max_size=3, unique=True)))
        operator, repeat = draw(st.sampled_from(OPERATORS)), draw(st.sampled_from([1, 3]))
        if operator == "mm":
            m, n, k = (draw(st.sampled_from([2, 4, 8])) for _ in range(3))
            found.append(product(str(number), sources, m, n, k, repeat=repeat))
        else:
            tensors = draw(st.sampled_from(["a 4 8 -> a 4 8", "a 4 8, a 4 8 -> a 4 8", "w 8, f 4 8 -> f 4 8"]))
            category = CATEGORY.get(operator, "elementwise")
            found.append(kernel(str(number), operator, category, sources, tensors, repeat=repeat))
    return found


@settings(max_examples=150, deadline=None)
@given(lists(), st.sampled_from(sorted(profiles())), st.integers(1, 4), st.sampled_from(["bfloat16", "fp8"]))
def test_matrix_flops_are_conserved_and_no_kernel_is_lost(
    kernels: list[EvaluatedKernel], profile: str, seq_len: int, dtype: str
) -> None:
    found = after(kernels, *profiles()[profile].rules, dtype=dtype, seq_len=seq_len)
    before = sum(k.flops * k.repeat for k in kernels if k.category in MATMUL_CATEGORIES)
    products = [launch.kernel for launch in found.launches if launch.kernel.category in MATMUL_CATEGORIES]
    # From the shapes of what is launched, not from what the rules say of themselves.
    made = sum(
        2 * int(k.operands.m or 0) * int(k.operands.n or 0) * int(k.operands.k or 0) * k.repeat
        for k in products if k.operands is not None
    )  # fmt: skip
    assert made == before - found.saved
    taken = [k.id for firing in found.firings if firing.rule != "quantise" for k in firing.members]
    eager = [launch.kernel.id for launch in found.launches if launch.rule is None]
    assert sorted([*taken, *eager], key=str) == sorted((k.id for k in kernels), key=str)
    for firing in found.firings:  # a fused kernel moves no more than those in whose place it is
        if firing.rule != "quantise":
            assert sum(int(k.read) for k in firing.launches) <= sum(int(k.read) for k in firing.members)
            assert sum(int(k.write) for k in firing.launches) <= sum(int(k.write) for k in firing.members)
