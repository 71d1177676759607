"""The answer card: what a call costs and must cost, why they differ, what is held, and how far it is proven."""

from __future__ import annotations

from typing import Any

import small_models as small
from small_models import basic

from lmp.link.held import cache_bytes, weight_bytes
from lmp.link.numbers import ModelNumbers
from lmp.link.values import values_for
from lmp.records import MemoryAccess, ModelKernel, Operand, Operands, Part, Quantization, Verification
from lmp.report.formats.base import Result, Show
from lmp.report.formats.card import CardLine, call_in_words, card
from lmp.report.formats.causes import causes
from lmp.report.terminal import GLUE
from lmp.report.warnings import of_costs

CACHE = "2 * {batch_size} * {cache_len} * {kv_bytes}"
"""Two elements a token, as one head of one key and one value."""


def result_of(model: dict[str, Any] | None = None, **given: int) -> Result:
    numbers = ModelNumbers(small.model(**(model or {})))
    at = values_for(numbers.model, {**small.POINT, **given})
    tree = numbers.tree(at)
    return Result(numbers, tree, numbers.evaluation(at, tree), [])


def text_of(line: CardLine) -> str:
    return " · ".join((*line.parts, line.words)).replace(GLUE, " ")


def told(model: dict[str, Any] | None = None, **given: int) -> dict[str, str]:
    return {line.label: text_of(line) for line in card(result_of(model, **given), Show())}


def with_cache(**more: Any) -> dict[str, Any]:
    return {"compulsory": MemoryAccess(read=f"100 * {{w_bytes}} + {CACHE}", write="{kv_bytes}"), **more}


def tensor(role: str, width: Any, *shape: int) -> Operand:
    return Operand(name="0", role=role, width=width, shape=list(shape))


def copied(operator: str, inputs: list[Operand], outputs: list[Operand], moved: int, category: str) -> ModelKernel:
    operands = Operands(operator=operator, inputs=inputs, outputs=outputs)
    return basic(7, "0", str(moved), "0", operands=operands, category=category, id=f"1.{operator}")


# --- the call --------------------------------------------------------------------------------------------------------


def test_the_call_in_words() -> None:
    def words(**given: int) -> str:
        found = result_of(**given)
        return call_in_words(found.evaluation.values, found.model.parameters).replace(GLUE, " ")

    assert words() == "prefill of 16 tokens at batch 2"
    assert words(seq_len=1, cache_len=8192) == "decode of 1 token at batch 2 on a cache of 8,192"
    assert words(cache_len=100) == "chunked prefill of 16 tokens at batch 2 on a cache of 100"


def test_flops_and_bytes_a_call_and_a_token() -> None:
    lines = told()
    # 13,056 FLOPs and 5,760 + 3,584 = 9,344 bytes, of 2 * 16 = 32 tokens; 1,280 / 32 = 40.
    assert lines["FLOPs"].startswith("13.06 kFLOP a call · 408 FLOP a token")
    assert lines["bytes eager"].startswith("9.344 kB a call · 292 B a token · as PyTorch runs it")
    assert lines["compulsory"].startswith("1.280 kB a call · 40 B a token · what no engine can avoid")


def test_decode_is_a_step() -> None:
    assert " a step · " in told(seq_len=1, cache_len=5)["FLOPs"]


def test_what_is_not_known_is_said() -> None:
    lines = told({"compulsory": None})
    assert "unknown" in lines["compulsory"]
    assert "KV cache unknown" in lines["held"]


# --- why -------------------------------------------------------------------------------------------------------------


def test_why_stands_only_above_twice() -> None:
    assert told()["why"].startswith("eager is 7.30 x compulsory")  # 9,344 / 1,280
    # 9,344 bytes are exactly twice 4,672.
    assert "why" not in told({"compulsory": MemoryAccess(read="4672", write="0")})


def test_causes_are_told_by_what_the_operators_do() -> None:
    cache, rows = tensor("cache", "kv", 100, 8), tensor("activation", "a", 1, 8)
    wide = tensor("activation", "a", 400, 8)
    kernels = [
        copied("cat", [cache, rows], [cache], 3000, "copy"),
        copied("clone", [cache], [wide], 2000, "copy"),
        copied("_to_copy", [rows], [rows], 1000, "copy"),
        # 100 * 8 elements of the cache at 2 bytes are compulsory: 1,900 - 1,600 = 300 are left.
        copied("scaled_dot_product_attention", [rows, cache], [rows], 1900, "attention"),
        # 8 * 8 weights at 2 bytes: 228 - 128 = 100 are left.
        copied("mm", [rows, tensor("weight", "w", 8, 8)], [rows], 228, "matmul"),
    ]
    result = result_of({"kernels": kernels})
    found = causes([*result.operators()], result.evaluation.values)
    assert [(cause.name, cause.operators, cause.moved) for cause in found] == [
        ("the cache copied whole to append to it", ("cat",), 3000),
        ("the cache copied for the heads of attention", ("clone",), 2000),
        ("conversions of dtype", ("_to_copy",), 1000),
        ("inputs and outputs of attention", ("scaled_dot_product_attention",), 300),
        ("inputs and outputs of matrix products", ("mm",), 100),
    ]


def test_a_norm_is_told_by_its_reciprocal_root() -> None:
    rows = tensor("activation", 4, 1, 8)
    names = ("pow", "mean", "add", "rsqrt", "mul", "_to_copy")
    kernels = [copied(name, [rows], [rows], 100, "elementwise") for name in names]
    result = result_of({"kernels": kernels})
    (cause,) = causes([*result.operators()], result.evaluation.values)
    assert (cause.name, cause.moved) == ("norms in 6 operators", 600)


# --- what is held ----------------------------------------------------------------------------------------------------


def test_weights_and_cache() -> None:
    # 192 parameters at 2 bytes; after 16 tokens on 84: 2 * 2 * 100 elements of 2 bytes, half of it a sequence.
    held = told(with_cache(), cache_len=84)["held"]
    assert held == "weights 384 B (192 parameters at 2 B) · KV cache 800 B after it (400 B a sequence) · "
    assert (
        "weights 192 B (192 parameters at 1 B) · KV cache 400 B"
        in told(with_cache(), cache_len=84, w_bytes=1, kv_bytes=1)["held"]
    )


def test_states_of_a_recurrence_are_held_too() -> None:
    """They are there once there is a cache, whatever its length, and have a size of their own."""
    read = f"{CACHE} + where({{cache_len}} > 0, {{batch_size}} * 30 * 4, 0)"
    # 800 bytes as above, and 2 * 30 elements of 4 bytes
    assert (
        "KV cache 1.040 kB after it (520 B a sequence)"
        in told({"compulsory": MemoryAccess(read=read, write="0")}, cache_len=84)["held"]
    )


def test_a_cache_that_the_formulas_do_not_name() -> None:
    result = result_of({"compulsory": MemoryAccess(read="1", write="1")})
    assert cache_bytes(result.numbers, result.evaluation.values) is None


def test_weights_of_a_quantised_checkpoint() -> None:
    """Routed experts are read in part at small batches, and held whole: 8 experts of 10 elements."""
    read = "10 * min(8, {batch_size} * {seq_len})"
    own = MemoryAccess(read=f"{read} * 0.5", write="0")
    method = Quantization(config={}, whole=True, applied="mxfp4")
    result = result_of({"compulsory": own, "quantization": method})
    plain = small.model(compulsory=MemoryAccess(read=f"{read} * {{w_bytes}}", write="0"))
    # 192 parameters at 2 bytes, of which 80 have 0.5 in place of 2: 384 - 120.
    assert weight_bytes(result.numbers, result.evaluation.values, plain) == 264
    assert weight_bytes(result.numbers, result.evaluation.values, None) is None


# --- proof -----------------------------------------------------------------------------------------------------------


def test_how_far_it_is_proven() -> None:
    verified = Verification(status="verified", points=31)
    assert "verified at 31 points · " in told({"verification": verified}).values()
    parts = {small.ROOT: Part(status="unverified", sha256="0" * 64, uncounted=["aten::frob"])}
    unverified = Verification(status="unverified", reason="no time")
    lines = [text_of(line) for line in card(result_of({"parts": parts, "verification": unverified}), Show())]
    assert "UNVERIFIED: no time · " in lines
    assert "UNCOUNTED, their cost is missing: aten::frob · " in lines
    (broken,) = (text_of(line) for line in card(result_of({"assumptions": ["{seq_len} < 8"]}), Show())[-1:])
    assert broken == "NOT verified at these values: 1 assumption does not hold here, see the warnings · "
    conditional = {"assumptions": ["{hidden_size} >= 2", "{seq_len} <= 8000"], "verification": verified}
    both = [text_of(line) for line in card(result_of({**conditional, "pinned": {"heads": 8}}), Show())]
    assert "verified at 31 points, where seq_len <= 8000; heads = 8; hidden_size >= 2 · " in both
    also = {**conditional, "assumptions": ["{seq_len} < 8"], "verification": unverified}
    assert text_of(card(result_of(also), Show())[-1]).startswith("UNVERIFIED: no time; 1 assumption does not hold")


# --- what is counted by convention -----------------------------------------------------------------------------------


def with_product(**sizes: Any) -> dict[str, Any]:
    operands = Operands(operator="product", inputs=[], outputs=[], **sizes)
    return {"kernels": [basic(7, "1000", "8", "8", operands=operands, category="attention", id="1.1")]}


def test_attention_is_counted_in_full() -> None:
    attention = {"batch": 2, "heads": 4, "kv_len": 16, "head_dim": 8, "v_head_dim": 8}
    assert told(with_product(q_len="{seq_len}", **attention))["counted"].startswith(
        "attention in full, 1.000 kFLOP, whatever a mask leaves out"
    )
    # One new token: a causal mask leaves nothing out.
    assert "counted" not in told(with_product(q_len="{seq_len}", **attention), seq_len=1, cache_len=5)


def test_experts_that_tokens_share_are_counted_for_each() -> None:
    experts = {"top_k": 2, "n": 8, "k": 8}
    # 3 tokens with 2 experts each reach at most 6 of 64; 40 tokens reach all 64.
    few, all_ = (told(with_product(tokens=tokens, experts=64, **experts))["counted"] for tokens in (3, 40))
    assert few.startswith("6 of 64 experts read, the most that 3 tokens reach; fewer where they share experts")
    assert all_.startswith("64 of 64 experts read, the most that 40 tokens reach; fewer where they share experts")
    assert "counted" not in told(with_product(tokens=1, experts=64, **experts))


def test_an_operator_below_nothing_is_wrong_whatever_is_verified() -> None:
    wrong = {"kernels": [basic(7, "10 - {cache_len}", "8", "8", id="1.1")]}
    assert told(wrong, cache_len=10)[""].startswith("verified")  # 10 - 10 = 0
    assert told(wrong, cache_len=11)[""].startswith("WRONG at these values")  # 10 - 11 = -1
    (said,) = of_costs(result_of(wrong, cache_len=11).tree.kernels())
    assert said.startswith("the formulas are WRONG at these values, verified or not: kernel of line 7 in line 7 of ")
