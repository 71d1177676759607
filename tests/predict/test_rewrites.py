"""Rewrites of a model's kernels: small lists with the arithmetic beside, random lists, and formulas at tiny sizes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmp.errors import InvalidAnalysis, UsageError
from lmp.link.numbers import ModelNumbers
from lmp.link.records import EvaluatedKernel
from lmp.link.values import values_for
from lmp.predict.devices import device_named
from lmp.predict.prediction import Predictor
from lmp.predict.rewrite.profiles import profile_named, profiles
from lmp.predict.rewrite.rewriting import RULES, Rewritten, rewritten
from lmp.predict.rewrite.timing import OfEngine, Step, time_of_step
from lmp.predict.rows import row_of
from lmp.records import MATMUL_CATEGORIES, ModelAnalysis, Operand, Operands

RESULTS = Path(__file__).parents[2] / "analysis_results"
SIZES = {"w_bytes": 2, "a_bytes": 2, "kv_bytes": 2, "batch_size": 2, "seq_len": 1}
SERVING = profiles()["vllm"].rules
H100 = device_named("h100-sxm")
ROLES = {"w": "weight", "a": "activation", "kv": "cache", "i": "index"}


def tensor(text: str) -> Operand:
    """``w 8 4``: a weight of 8 times 4; ``f`` has 4 bytes an element."""
    kind, *sizes = text.split()
    role = ROLES.get(kind, "activation")
    width = {"i": 8, "f": 4}.get(kind, kind)
    return Operand(name="x", shape=[*map(int, sizes)], width=width, role=role)  # type: ignore[arg-type]


def size_of(operand: Operand) -> int:
    width = operand.width if isinstance(operand.width, int) else 2
    return math.prod(map(int, operand.shape)) * width


def kernel(id_: str, operator: str, category: str, sources: str, tensors: str, **more: Any) -> EvaluatedKernel:
    """``tensors``: inputs -> outputs, separated by commas."""
    ins, outs = ([tensor(t) for t in side.split(",") if t.strip()] for side in tensors.split("->"))
    about = {"path": more.pop("path", "layer"), "repeat": more.pop("repeat", 1), "flops": more.pop("flops", 1)}
    return EvaluatedKernel(
        id=id_, class_name="a.B", line=int(more.pop("line", 1)), operation=operator, category=category,
        inputs_from=sources.split(), read=sum(map(size_of, ins)), write=sum(map(size_of, outs)),
        operands=Operands(operator=operator, inputs=ins, outputs=outs, **more), **about,
    )  # fmt: skip


def product(id_: str, sources: str, m: int, n: int, k: int, **more: Any) -> EvaluatedKernel:
    flops = more.pop("flops", 2 * m * n * k)
    return kernel(
        id_, "mm", "matmul", sources, f"a {m} {k}, w {k} {n} -> a {m} {n}", flops=flops, batch=1, m=m, n=n, k=k, **more
    )


def after(kernels: list[EvaluatedKernel], *rules: str, dtype: str = "bfloat16", **values: int) -> Rewritten:
    return rewritten(kernels, rules or SERVING, {**SIZES, **values}, dtype)


def launched(found: Rewritten) -> list[tuple[str | None, str]]:
    return [(launch.rule, launch.kernel.operation) for launch in found.launches]


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
        kernel("i", "arange", "factory", "", "-> i 4"),
        kernel("j", "le", "elementwise", "i", "i 4 -> a 4"),
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


# --- models at tiny sizes --------------------------------------------------------------------------------------------


def evaluated(name: str, **sizes: int) -> tuple[list[EvaluatedKernel], dict[str, Any]]:
    """The kernels of a stored model, its formulas evaluated at these sizes."""
    (file,) = RESULTS.glob(f"*.{name}@*/model_analysis.json")
    model = ModelAnalysis.model_validate_json(file.read_text(encoding="utf-8"))
    numbers, values = ModelNumbers(model), values_for(model, sizes)
    return numbers.evaluation(values, numbers.tree(values)).kernels, dict(values)


TINY = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_heads": 4, "num_key_value_heads": 2,
        "head_dim": 16, "vocab_size": 1000}  # fmt: skip
LAYER = ["add_rms_norm", "matrix multiplication, 3 weights", "rotary embedding", "write of new tokens to the cache",
         "scaled dot product attention", "matrix multiplication", "add_rms_norm"]  # fmt: skip


def test_a_dense_model_in_decode() -> None:
    kernels, values = evaluated("LlamaForCausalLM", batch_size=2, seq_len=1, cache_len=9, **TINY)
    found = rewritten(kernels, SERVING, values)
    mlp = ["matrix multiplication, 2 weights", "gated activation", "matrix multiplication"]
    names = [launch.kernel.operation for launch in found.launches]
    assert names == ["row lookup", *LAYER, *mlp, "rms_norm", "matrix multiplication"]
    assert {launch.kernel.repeat for launch in found.launches[1:-2]} == {4}
    merged, attends = found.launches[2].kernel, found.launches[5].kernel
    assert merged.operands is not None
    # (4 + 2 * 2) heads of 16 columns.
    assert (merged.operands.m, merged.operands.n, merged.operands.k) == (2, 128, 64)
    # Keys and values of 10 tokens, 2 * (2 * 2 * 10 * 16) * 2 bytes, and queries, 2 * 4 * 16 * 2.
    assert attends.read == 2560 + 256


def test_a_dense_model_in_prefill_keeps_the_logits_of_the_last_token() -> None:
    kernels, values = evaluated("LlamaForCausalLM", batch_size=2, seq_len=8, cache_len=0, **TINY)
    found = rewritten(kernels, SERVING, values)
    # 2 * (16 - 2) rows * 1000 words * 64.
    assert found.saved == 2 * 14 * 1000 * 64
    assert "write of new tokens to the cache" in [launch.kernel.operation for launch in found.launches]
    assert "copy to contiguous memory" not in [launch.kernel.operation for launch in found.launches]


def test_a_mixture_of_experts_is_one_operator() -> None:
    sizes = {"moe_intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 2, "decoder_sparse_step": 1}
    kernels, values = evaluated("Qwen3MoeForCausalLM", batch_size=2, seq_len=1, cache_len=9, **TINY, **sizes)
    found = rewritten(kernels, SERVING, values)
    (one,) = [launch for launch in found.launches if launch.rule == "moe"]
    assert one.row == {"op": "moe", "dtype": "bfloat16", "tokens": 2, "hidden": 64, "inter": 32, "topk": 2,
                       "experts": 8, "gated": True}  # fmt: skip
    # 2 tokens * 2 experts, three matrices of 64 times 32.
    assert one.matmul_flops == 2 * 2 * 2 * 3 * 64 * 32
    # Weights of 2 * 2 experts of 8, 4 * 3 * 64 * 32 * 2 bytes; tokens and their scores: 2 * 64 * 2 and 2 * 8 * 2.
    assert one.kernel.read == 49152 + 256 + 32
    names = [launch.kernel.operation for launch in found.launches]
    # Queries and keys have norms of their own; the router's product stays by itself.
    layer = [*LAYER[:2], "rms_norm", "rms_norm", *LAYER[2:]]
    tail = ["matrix multiplication", "mixture of experts"]
    assert names == ["row lookup", *layer, *tail, "rms_norm", "matrix multiplication"]


def test_attention_with_sinks_and_windows_is_rewritten_too() -> None:
    kernels, values = evaluated("GptOssForCausalLM", batch_size=2, seq_len=1, cache_len=500)
    found = rewritten(kernels, SERVING, values)
    attends = [launch.kernel.operands for launch in found.launches if launch.kernel.operation == "attention"]
    # Of its two kinds of layers one sees a window of 128 tokens, the other all 501.
    assert [one.kv_len for one in attends if one is not None] == [128, 501]
    assert {(one.heads, one.kv_heads, one.head_dim) for one in attends if one is not None} == {(64, 8, 64)}
    eager = {launch.kernel.operation for launch in found.launches if launch.rule is None}
    assert eager == {"row lookup", "matrix multiplication"}


# --- profiles and time -----------------------------------------------------------------------------------------------


def test_a_step_has_the_profiles_overhead_and_is_shorter_than_eager() -> None:
    kernels, values = evaluated("LlamaForCausalLM", batch_size=16, seq_len=1, cache_len=8192)
    step = Step(kernels, values)
    predictor = Predictor()
    times = {
        name: time_of_step(step, profile, OfEngine(predictor, profile.kernels), H100)
        for name, profile in profiles().items()
    }
    # 32 layers of 10 kernels, and the lookup, the last norm and the logits.
    assert times["vllm"].call.launches == 32 * 10 + 3
    assert times["vllm"].us[0] < times["transformers-compiled"].us[0] < times["transformers-eager"].us[0]
    more = profiles()["vllm"].model_copy(update={"overhead_us": 250.0})
    with_overhead = time_of_step(step, more, OfEngine(predictor, more.kernels), H100)
    assert with_overhead.us[0] == pytest.approx(times["vllm"].us[0] + 250)


def test_a_mixture_is_what_predict_op_says_of_it() -> None:
    kernels, values = evaluated("Qwen3MoeForCausalLM", batch_size=16, seq_len=1, cache_len=64)
    found = time_of_step(Step(kernels, values), profile_named("vllm"), OfEngine(Predictor(), "vllm"), H100)
    row = {"op": "moe", "device": "h100-sxm", "engine": "vllm", "tokens": 16, "hidden": 2048, "inter": 768, "topk": 8,
           "experts": 128, "gated": True}  # fmt: skip
    (alone,) = Predictor().predict([row_of(row)])
    assert alone in [one.time for one in found.call.operators]


def test_a_slow_path_of_the_measurements_stands_for_no_engine() -> None:
    row = {"op": "moe", "device": "h100-sxm", "dtype": "fp8", "tokens": 16, "hidden": 2048, "inter": 768, "topk": 8,
           "experts": 128}  # fmt: skip
    assert OfEngine(Predictor(), "vllm").predict([row_of(row)]) == Predictor().predict([row_of(row)])


def test_a_profile_with_an_unknown_rule_names_the_known_ones(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[mine]\nrules = ["norm", "ropes"]\n')
    with pytest.raises(UsageError, match="mine names the unknown rule 'ropes'\nknown are bias, norm, rope_table,"):
        profile_named(str(file))
    file.write_text('[mine]\nrules = ["norm"]\ncache_bytes = 1\noverhead_us = 300\n')
    assert profile_named(str(file)).overhead_us == 300


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a]\nrules = []\n[b]\nrules = []\n", "has 2 profiles"),
        ("[a]\n", "a.rules: Field required"),
        ("[a]\nrules = []\noverhead_us = -1\n", "a.overhead_us"),
        ("rules = ", "is no TOML"),
    ],
)
def test_a_profile_that_cannot_be_read_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(UsageError, match=message):
        profile_named(str(tmp_path / "mine.toml"))


def test_a_name_that_is_nearly_right() -> None:
    with pytest.raises(UsageError, match="no profile of the engine 'vlm'\ndid you mean vllm"):
        profile_named("vlm")
    with pytest.raises(UsageError, match="cannot be read"):
        profile_named("nowhere.toml")


def test_every_rule_is_in_a_profile() -> None:
    assert {rule for profile in profiles().values() for rule in profile.rules} == set(RULES)
