"""Rules on norms, states, mixtures and what engines do not run: small lists with the arithmetic beside."""

from __future__ import annotations

import pytest

from kernel_lists import after, kernel, launched, product
from lmp.link.records import EvaluatedKernel

# --- norms -----------------------------------------------------------------------------------------------------------


def norm(id_: str, source: str, root: str = "rsqrt", repeat: int = 1, path: str = "layer") -> list[EvaluatedKernel]:
    """An RMS norm of 4 rows of 8 elements in 32 bits: its input, its root, its scale."""
    n = [f"{id_}{i}" for i in range(5)]
    found = [
        kernel(n[0], "pow", "elementwise", source, "a 4 8 -> f 4 8"),
        kernel(n[1], "mean", "reduction", n[0], "f 4 8 -> f 4 1"),
        kernel(n[2], root, "elementwise", n[1], "f 4 1 -> f 4 1"),
        kernel(n[3], "mul", "elementwise", f"{source} {n[2]}", "a 4 8, f 4 1 -> a 4 8"),
        kernel(n[4], "mul", "elementwise", n[3], "w 8, a 4 8 -> a 4 8"),
    ]
    return [one.model_copy(update={"repeat": repeat, "path": path}) for one in found]


@pytest.mark.parametrize("root", ["rsqrt", "pow"])
def test_a_root_is_a_reciprocal_root_or_a_power(root: str) -> None:
    found = after([product("p", "x", 4, 8, 8), *norm("n", "p", root), product("q", "n4", 4, 8, 8)], "norm")
    assert launched(found)[1] == ("norm", "rms_norm")
    # The input twice through one border, 64 bytes, and the weight, 16.
    assert (found.launches[1].kernel.read, found.launches[1].kernel.write) == (80, 64)


@pytest.mark.parametrize("where", ["before", "behind"])
def test_a_gate_beside_a_norm_is_a_part_of_it(where: str) -> None:
    first, last = ("m", "n4") if where == "before" else ("p", "m")
    gate = [
        kernel("s", "silu", "activation", "z", "a 4 8 -> a 4 8"),
        kernel("m", "mul", "elementwise", "p s" if where == "before" else "n4 s", "a 4 8, a 4 8 -> a 4 8"),
    ]
    kernels = [product("p", "x", 4, 8, 8), product("z", "y", 4, 8, 8), *norm("n", first), *gate]
    found = after([*kernels, product("q", last, 4, 8, 8)], "norm")
    (one,) = [launch.kernel for launch in found.launches if launch.rule == "norm"]
    # The input and the gate's, 64 + 64, and the weight, 16.
    assert (one.operation, one.read, one.write) == ("gated rms_norm", 144, 64)


def test_a_gate_of_another_size_is_no_part_of_a_norm() -> None:
    gate = [
        kernel("s", "sigmoid", "activation", "z", "a 4 1 -> a 4 1"),
        kernel("m", "mul", "elementwise", "n4 s", "a 4 8, a 4 1 -> a 4 8"),
    ]
    found = after([product("p", "x", 4, 8, 8), product("z", "y", 4, 1, 8), *norm("n", "p"), *gate], "norm")
    assert [launch.kernel.operation for launch in found.launches] == ["mm", "mm", "rms_norm", "sigmoid", "mul"]


def test_sums_and_norms_of_kinds_of_layers_that_alternate_are_paired() -> None:
    # Two kinds: 2 layers of the first, 1 of the second. Each ends with a sum, each begins with a norm.
    kernels = [
        kernel("e", "embedding", "gather", "", "i 4 -> a 4 8"),
        *norm("n", "e r s", repeat=2),
        product("p", "n4", 4, 8, 8, repeat=2),
        kernel("r", "add", "elementwise", "e p", "a 4 8, a 4 8 -> a 4 8", repeat=2),
        *norm("o", "r", path="other"),
        product("q", "o4", 4, 8, 8),
        kernel("s", "add", "elementwise", "r q", "a 4 8, a 4 8 -> a 4 8"),
    ]
    found = after(kernels, "norm")
    names = [(launch.kernel.operation, launch.kernel.repeat) for launch in found.launches]
    assert names == [("embedding", 1), ("add_rms_norm", 2), ("mm", 2), ("add_rms_norm", 1), ("mm", 1)]
    # Both summands and the weight, 64 + 64 + 16, whichever layers the sum is named in; the sum and the output.
    assert {(one.kernel.read, one.kernel.write) for one in found.launches if one.rule == "norm"} == {(144, 128)}


def test_an_operator_that_is_a_norm_takes_the_sum_before_it() -> None:
    add = kernel("r", "add", "elementwise", "p q", "a 4 8, a 4 8 -> a 4 8")
    one = kernel("n", "rms_norm", "normalization", "r", "a 4 8, w 8 -> a 4 8")
    found = after([product("p", "x", 4, 8, 8), product("q", "y", 4, 8, 8), add, one], "norm")
    assert launched(found)[-1] == ("norm", "add_rms_norm")
    layer = kernel("n", "native_layer_norm", "normalization", "r", "a 4 8, w 8, w 8 -> a 4 8")
    found = after([product("p", "x", 4, 8, 8), product("q", "y", 4, 8, 8), add, layer], "norm")
    assert launched(found)[-2:] == [(None, "add"), ("norm", "layer_norm")]


# --- states ----------------------------------------------------------------------------------------------------------


def test_a_convolution_over_its_state_is_one_kernel() -> None:
    # One new token of 2 sequences, 6 channels, behind a state of 3 tokens.
    kernels = [
        product("p", "x", 2, 6, 8),
        kernel("c", "cat", "copy", "p", "a 2 6 3, a 2 6 1 -> a 2 6 4"),
        kernel("k", "copy", "copy", "c", "a 2 6 3 -> a 2 6 3"),
        kernel("v", "convolution", "convolution", "c", "a 2 6 4, w 6 1 4 -> a 2 6 1", flops=96),
        kernel("s", "silu", "activation", "v", "a 2 6 1 -> a 2 6 1"),
    ]
    found = after(kernels, "causal_conv", "kv_append")
    assert launched(found) == [(None, "mm"), ("causal_conv", "causal convolution")]
    one = found.launches[1]
    # The state, 72 bytes, the token, 24, the weight, 48; the new state, 72, and the output, 24.
    assert (one.kernel.read, one.kernel.write, one.matmul_flops) == (144, 96, 96)


def step(repeat: int) -> list[EvaluatedKernel]:
    """A step of a state of 2 sequences, 4 by 8 in 32 bits, which decays, and a product that runs ``repeat`` times."""
    found = [
        kernel("g", "exp", "elementwise", "p", "a 2 4 -> f 2 4"),
        kernel("m", "mul", "elementwise", "g", "f 2 4 8, f 2 4 -> f 2 4 8"),
        kernel("n", "add", "elementwise", "m p", "f 2 4 8, a 2 4 8 -> f 2 4 8"),
        kernel("w", "copy", "copy", "n", "f 2 4 8 -> f 2 4 8"),
        kernel("o", "bmm", "matmul", "n p", "f 2 4 8, a 2 8 1 -> a 2 4 1", flops=128, repeat=repeat),
    ]
    return [product("p", "x", 2, 44, 8), *found, product("q", "o", 2, 8, 4)]


@pytest.mark.parametrize("repeat", [1, 3])
def test_a_step_of_a_state_that_decays_is_one_kernel(repeat: int) -> None:
    found = after(step(repeat), "scan")
    assert launched(found) == [(None, "mm"), ("scan", "scan of a state"), (None, "mm")]
    one = found.launches[1]
    # A loop's product runs several times in one kernel.
    assert (one.kernel.repeat, one.matmul_flops, found.saved) == (1, 128 * repeat, 0)
    # The new state, 2 * 4 * 8 * 4 bytes, and the output, 2 * 4 * 2.
    assert one.kernel.write == 256 + 16


def test_a_copy_without_a_decay_is_no_scan() -> None:
    found = after([one for one in step(1) if one.id != "g"], "scan")
    assert found.firings == ()


# --- products --------------------------------------------------------------------------------------------------------


def test_a_product_of_converted_operands_reads_them_in_16_bits() -> None:
    kernels = [
        kernel("h", "relu", "elementwise", "", "a 4 8 -> a 4 8"),
        kernel("a", "_to_copy", "copy", "h", "a 4 8 -> f 4 8"),
        kernel("b", "_to_copy", "copy", "", "w 6 8 -> f 6 8"),
        kernel("p", "mm", "matmul", "a b", "f 4 8, f 8 6 -> f 4 6", flops=2 * 4 * 6 * 8, batch=1, m=4, n=6, k=8),
    ]
    found = after(kernels, "wide_product")
    one = found.launches[1]
    assert (found.launches[0].rule, one.rule, len(found.launches)) == (None, "wide_product", 2)
    # 4 * 8 and 6 * 8 elements of 2 bytes; it writes 4 * 6 of 4.
    assert (one.kernel.read, one.kernel.write) == (64 + 96, 96)
    assert one.row == {"op": "gemm", "dtype": "bfloat16", "m": 4, "n": 6, "k": 8}


def test_what_is_made_of_weights_alone_is_made_once() -> None:
    kernels = [
        kernel("a", "exp", "elementwise", "", "w 8 -> f 8"),
        kernel("b", "neg", "elementwise", "a", "f 8 -> f 8"),
        kernel("c", "mul", "elementwise", "b x", "f 8, a 4 8 -> a 4 8"),
    ]
    assert launched(after(kernels, "constant")) == [(None, "mul")]


def all_experts(experts: int) -> list[EvaluatedKernel]:
    """4 tokens times all experts of 8 by 6, gated: the rows of experts that were not selected are times 0."""
    rows = 4 * experts
    up, down = 2 * rows * 12 * 8, 2 * rows * 8 * 6
    return [
        kernel("h", "relu", "elementwise", "", "a 4 8 -> a 4 8", path="before", repeat=2),
        product("r", "h", 4, experts, 8),
        kernel("t", "topk", "sort", "r", f"a 4 {experts} -> a 4 1, i 4 1", flops=0),
        kernel("s", "scatter", "scatter", "t", f"a 4 1 -> a 4 {experts}", flops=0),
        kernel("v", "repeat", "copy", "h", f"a 4 8 -> a {rows} 8", flops=0),
        kernel("m", "mul", "elementwise", "s v", f"a {rows} 8, a {rows} 1 -> a {rows} 8", flops=0),
        kernel("u", "bmm", "matmul", "m", f"a {experts} 4 8, w {experts} 8 12 -> a {experts} 4 12", flops=up,
               batch=experts, m=4, n=12, k=8),
        kernel("a", "silu", "activation", "u", f"a {rows} 6 -> a {rows} 6", flops=0),
        kernel("g", "mul", "elementwise", "a u", f"a {rows} 6, a {rows} 6 -> a {rows} 6", flops=0),
        kernel("d", "bmm", "matmul", "g", f"a {experts} 4 6, w {experts} 6 8 -> a {experts} 4 8", flops=down,
               batch=experts, m=4, n=8, k=6),
        kernel("e", "sum", "reduction", "d", f"a {rows} 8 -> a 4 8", flops=0),
    ]  # fmt: skip


def test_a_mixture_that_multiplies_all_experts_is_one_of_the_selected() -> None:
    found = after(all_experts(16), "moe")
    assert launched(found) == [(None, "relu"), (None, "mm"), ("moe", "mixture of experts")]
    one = found.launches[2]
    # One of 16 experts a token: 2 * 4 * (12 * 8 + 8 * 6) FLOPs stay, 15 times as many are saved.
    assert (one.matmul_flops, found.saved) == (1152, 15 * 1152)
    assert one.row == {"op": "moe", "dtype": "bfloat16", "hidden": 8, "inter": 6, "gated": True, "tokens": 4,
                       "topk": 1, "experts": 16}  # fmt: skip
    # 4 tokens reach 4 of 16 experts at most, 4 * (8 * 12 + 6 * 8) * 2 bytes; tokens, 64, and scores, 4 * 16 * 2.
    assert one.kernel.read == 4 * 288 + 64 + 4 * 16 * 2


def test_scores_between_two_products_stay_in_one_kernel() -> None:
    # 2 sequences: 4 heads of 8 over 16 tokens, then the sum over the heads with weights.
    kernels = [
        product("q", "x", 2, 32, 8),
        kernel("c", "_to_copy", "copy", "q", "a 2 4 8 -> f 2 4 8", flops=0),
        kernel("k", "relu", "elementwise", "", "f 2 8 16 -> f 2 8 16", flops=0),
        kernel("b", "bmm", "matmul", "c k", "f 2 4 8, f 2 8 16 -> f 2 4 16", flops=2048, batch=2, m=4, n=16, k=8),
        kernel("r", "relu", "activation", "b", "f 2 4 16 -> f 2 4 16", flops=0),
        kernel("w", "relu", "elementwise", "", "f 2 1 4 -> f 2 1 4", flops=0),
        kernel("s", "bmm", "matmul", "w r", "f 2 1 4, f 2 4 16 -> f 2 1 16", flops=256, batch=2, m=1, n=16, k=4),
    ]
    found = after(kernels, "chained_products")
    one = next(launch for launch in found.launches if launch.rule == "chained_products")
    # 2 * 2 * 4 * 16 * 8 and 2 * 2 * 1 * 16 * 4.
    assert one.matmul_flops == 2048 + 256
    # Queries in 16 bits, 2 * 4 * 8 * 2, keys, 2 * 8 * 16 * 4, and weights, 2 * 4 * 4; the result, 2 * 16 * 4.
    assert (one.kernel.read, one.kernel.write) == (128 + 1024 + 32, 128)


def test_what_follows_the_logits_is_of_the_last_token_too() -> None:
    # 2 sequences of 4 tokens, 10 words.
    cap = kernel("t", "tanh", "activation", "h", "a 8 10 -> a 8 10", flops=80)
    found = after([product("h", "x", 8, 10, 16), cap], "last_token_logits", seq_len=4)
    assert [rule for rule, _ in launched(found)] == ["last_token_logits"] * 2
    # 2 rows of 10.
    assert (found.launches[1].kernel.flops, found.launches[1].kernel.read) == (20, 40)


# --- attention -------------------------------------------------------------------------------------------------------


def test_queries_of_a_group_that_a_class_folds_are_heads_again() -> None:
    # One token of 2 sequences: 2 heads of the cache, 3 queries each.
    one = kernel("s", "sdpa", "attention", "q k", "a 2 2 3 8, a 2 2 4 8 -> a 2 2 3 8", flops=2 * 2 * 2 * 3 * 4 * 16,
                 batch=2, q_len=3, kv_len=4, heads=2, kv_heads=2, head_dim=8, v_head_dim=8, causal=0)  # fmt: skip
    found = after([product("q", "x", 2, 48, 8), product("k", "y", 2, 16, 8), one], "flash")
    operands = found.launches[-1].kernel.operands
    assert operands is not None
    assert (operands.q_len, operands.heads, operands.kv_heads) == (1, 6, 2)


@pytest.mark.parametrize(("window", "seen"), [(2, 2), (0, None)])
def test_a_mask_with_a_lower_end_is_a_window(window: int, seen: int | None) -> None:
    sizes = {"batch": 4, "m": 4, "n": 4, "k": 8}
    kernels = [
        kernel("i", "arange", "factory", "", "-> i 4", flops=0),
        kernel("g", "gt", "elementwise", "i", "i 4 -> i 4 4", flops=0),
        kernel("l", "le", "elementwise", "i g", "i 4 -> i 4 4", flops=0),
        product("q", "x", 4, 32, 8),
        kernel("b", "bmm", "matmul", "q", "a 4 4 8, a 4 8 4 -> a 4 4 4", flops=1024, **sizes),
        kernel("m", "add", "elementwise", "b l", "a 4 4 4, i 4 4 -> a 4 4 4"),
        kernel("t", "_softmax", "softmax", "m", "a 4 4 4 -> a 4 4 4"),
        kernel("o", "bmm", "matmul", "t q", "a 4 4 4, a 4 4 8 -> a 4 4 8", flops=1024, **{**sizes, "n": 8, "k": 4}),
    ]
    found = after(kernels, "flash", batch_size=1, seq_len=4, sliding_window=window)
    (one,) = [launch.kernel.operands for launch in found.launches if launch.rule == "flash"]
    assert one is not None
    assert (one.window, one.causal) == (seen, 1)
