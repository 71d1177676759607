"""What sections 5 to 9 say of what their figures count, against the sources and numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from written_reports import report, section_text, text_of, whole

from lmp.report.document.amounts import Number
from lmp.report.facts import ModelFacts
from lmp.report.implementation.actions import actions
from lmp.report.implementation.drawing import pieces_of
from lmp.report.implementation.expanding import growing_products
from lmp.report.implementation.figures import over_devices
from lmp.report.implementation.parallel import host_waits
from lmp.report.implementation.performance import masked
from lmp.report.implementation.plans import Plans
from lmp.report.implementation.searching import Function, Searched, reached_functions

PREFILL, DECODE = "prefill-b1-s2048", "decode-b1-c2048"


def line_with(tree: Path, file: str, text: str) -> int:
    """The last line of a file that has a text."""
    lines = (tree / file).read_text(encoding="utf-8").splitlines()
    return max(number for number, line in enumerate(lines, 1) if text in line)


# --- bounds ----------------------------------------------------------------------------------------------------------


def test_masked_products_are_stated(small_llama: ModelFacts) -> None:
    share = masked(small_llama)[0].share
    # 3 layers: queries with keys and scores with values, 4 heads of 16. The products beside: q and o are 64 x 64, k and
    # v 64 x 32, three of 64 x 96; the head 64 x 1000. Of 2048 ** 2 pairs 2048 * 2047 / 2 have a later key.
    n = 2048
    attention = 3 * 2 * n * n * 4 * (16 + 16)
    others = 3 * 2 * n * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96) + 2 * n * 64 * 1000
    assert share.value == Fraction(100 * attention * (n - 1), 2 * n * (attention + others))


def test_what_logits_of_one_position_save(small_llama: ModelFacts, transformers_tree: Path) -> None:
    action = next(a for a in actions(small_llama) if "logits" in str(a.do))
    first = next(s for s in action.savings if s.point.key == PREFILL)
    flops, before, after = (piece for piece in pieces_of(first.amount) if isinstance(piece, Number))
    assert flops.value == 2 * 2047 * 64 * 1000  # the head of 64 x 1000, all positions but one
    assert (before.value, after.value) == (
        small_llama.flows.peaks[PREFILL].activations,
        small_llama.flows.kept[PREFILL].activations,
    )
    # The logits were the peak, 2048 * 1000 * 2 bytes of it; now it is elsewhere.
    assert after.value < before.value
    assert small_llama.flows.kept[PREFILL].frames[0].path != "lm_head"
    lines = (transformers_tree / "models/llama/modeling_llama.py").read_text(encoding="utf-8").splitlines()
    line = next(n for n, text in enumerate(lines, 1) if "logits_to_keep: int" in text)
    assert f"modeling_llama.py:{line}" in str(action.where) or f"line={line}" in str(action.where)


def test_router_in_float32(small_latent: ModelFacts) -> None:
    gate = next(k for k in small_latent.kernels(small_latent.point(PREFILL)) if k.path.endswith(".mlp.gate")
                and k.kernel.category == "matmul")  # fmt: skip
    group = small_latent.bounds.groups(PREFILL)["mlp.gate (matmul)"]
    assert group.compute == 0
    assert gate.once.matmul_flops == 2 * 2048 * 64 * 16


def test_experts_under_uniform_routing(small_latent: ModelFacts) -> None:
    key = "decode-b32-c2048"
    named = small_latent.named
    # 32 tokens choose 2 of 16 experts: 16 * (1 - (7/8) ** 32).
    expected = Fraction(16 * (8**32 - 7**32), 8**32)
    assert [named[f"routed.{key}.{way}.experts.0"] for way in ("most", "uniform", "least")] == [
        16 * 10**6, int(expected * 10**6), 2 * 10**6,
    ]  # fmt: skip
    # Two layers with experts of 3 * 64 * 32 weights of 2 bytes.
    expert = 2 * 3 * 64 * 32 * 2
    assert named[f"routed.{key}.most.read"] - named[f"routed.{key}.least.read"] == expert * (16 - 2)
    assert named[f"routed.{key}.most.compulsory"] - named[f"routed.{key}.least.compulsory"] == expert * (16 - 2)
    assert named[f"routed.{key}.most.read"] == small_latent.amount("read", small_latent.point(key)).value
    assert named[f"bound.{key}.most.total"] == named[f"bound.{key}.total"] > named[f"bound.{key}.uniform.total"]
    assert "as if no two tokens shared an expert" in text_of(small_latent)


def test_bounds_over_the_devices_that_are_named(small_llama: ModelFacts) -> None:
    point = small_llama.point(DECODE)
    tight = replace(small_llama, device=replace(small_llama.device, memory=250_000))
    held = tight.named["weight_bytes"] + tight.flows.peaks[DECODE].total
    devices = -(-held // 250_000)
    assert devices > 1
    spread = over_devices(tight, point)
    assert spread is not None
    assert spread.value == Fraction(tight.named[f"bound.{DECODE}.total"], devices * 10**12)


# --- the cache -------------------------------------------------------------------------------------------------------


def test_a_cache_that_is_expanded(small_latent: ModelFacts, small_llama: ModelFacts) -> None:
    # modeling_deepseek_v3.py: expand_kv() gives kv_b_proj the updated cache; the other projections take the new token.
    (growing,) = growing_products(small_latent).items()
    assert growing[0] == "self_attn.kv_b_proj"
    # kv_b_proj of 20 x 4 * (16 + 12) over 2048 + 1 tokens, in 3 layers.
    terms = growing[1].terms(small_latent.point(DECODE)).values()
    assert sum(map(small_latent.value, terms)) == 3 * 2 * 2049 * 20 * 4 * (16 + 12)
    assert growing_products(small_llama) == {}


def test_a_product_that_no_formula_has_is_no_zero(small_latent: ModelFacts) -> None:
    flow = small_latent.flows.phases["decode"]
    nowhere = [replace(op, frames=tuple(replace(f, class_name="a.Class") for f in op.frames)) for op in flow.ops]
    flows = replace(small_latent.flows, phases={"decode": replace(flow, ops=tuple(nowhere))})
    (growing,) = growing_products(replace(small_latent, flows=flows)).values()
    assert growing.terms(small_latent.point(DECODE)) == {}


def test_keys_and_values_are_told_apart(small_llama: ModelFacts, small_latent: ModelFacts) -> None:
    assert "layers.0-2: `[batch_size, num_key_value_heads, cache_len + 1" in section_text(report(small_llama), "9.")
    text = section_text(report(small_latent), "9.")
    assert "`[batch_size, 1, cache_len + 1, kv_lora_rank] bfloat16`" in text
    assert "`[batch_size, 1, cache_len + 1, qk_rope_head_dim] bfloat16`" in text


# --- what is searched ------------------------------------------------------------------------------------------------


def test_callees_are_searched(small_llama: ModelFacts, small_latent: ModelFacts, transformers_tree: Path) -> None:
    names = {function.name for function in reached_functions(small_llama) if function.called}
    assert {"use_gqa_in_sdpa", "create_causal_mask", "find_packed_sequence_indices"} <= names
    text = text_of(small_llama)
    packed = line_with(transformers_tree, "masking_utils.py", "find_packed_sequence_indices(position")
    assert f"masking_utils.py:{packed}" in text
    assert "is_causal = q_length > 1 and attention_mask is None and is_causal" in section_text(whole(small_llama), "9.")
    generation = line_with(transformers_tree, "integrations/moe.py", "get_device_capability")
    assert f"moe.py:{generation}" in text_of(small_latent)


def test_names_are_whole_and_comments_are_not_code(small_llama: ModelFacts, tmp_path: Path) -> None:
    file = tmp_path / "code.py"
    file.write_text("def f():\n    # is_cuda .item()\n    is_cuda_platform()\n    return x.is_cuda  # is_cuda\n")
    function = Function("code.py", file, "f", (1, 4))
    assert [line for _, line, _ in Searched(small_llama, [function], ("is_cuda", ".item(")).places] == [4]


# --- several devices -------------------------------------------------------------------------------------------------


def test_rules_of_parameters_send_nothing(small_latent: ModelFacts) -> None:
    strategy = section_text(whole(small_latent), "7.")
    # DeepseekV3NaiveMoe holds gate_up_proj and down_proj as parameters: only modules have hooks that send.
    assert "`layers.*.mlp.experts.down_proj` (a parameter: it is split, and sends nothing)" in strategy
    assert "`layers.*.mlp.experts.gate_up_proj` (a parameter)," in strategy or (
        "`layers.*.mlp.experts.gate_up_proj` (a parameter) |" in strategy
    )


def test_weights_that_each_device_holds(small_llama: ModelFacts) -> None:
    text = section_text(report(small_llama), "7.2")
    # Two devices, as there are 2 heads of keys and values. Split: a table and a head of 1000 x 64, and in 3 layers q
    # and o of 64 x 64, k and v of 64 x 32, three of 64 x 96; on both: 2 norms a layer and the last, of 64. 2 bytes
    # each.
    split = 2 * 1000 * 64 + 3 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96)
    each = 2 * (split / 2 + 7 * 64)
    assert f"tensor parallelism over 2, where each holds {each / 1000:.1f} kB of the weights:" in text
    assert "more devices" not in text


@pytest.fixture(scope="module")
def patterns(small_latent: ModelFacts) -> str:
    return section_text(report(small_latent), "7.2")


def test_exchanges_between_experts(patterns: str) -> None:
    # Counts of 16 experts as int64, in 2 layers; 2048 tokens * 2 experts * 64 numbers of 2 bytes, as often.
    assert "prefill, batch 1, 2,048 tokens: 128 B, together 256 B" in patterns
    assert patterns.count("prefill, batch 1, 2,048 tokens: 524.3 kB, together 1.049 MB") == 2
    assert patterns.count("`batch_size * seq_len * num_experts_per_tok * hidden_size * a_bytes` each; ") == 2


def test_where_the_host_waits(small_latent: ModelFacts, transformers_tree: Path) -> None:
    waits = host_waits(Plans(small_latent))
    line = line_with(transformers_tree, "distributed/expert_parallel.py", "]).tolist()")
    assert [(way, wait.line, wait.symbol) for way, wait in waits] == [("all_to_all", line, "tolist")]
    assert f"expert_parallel.py:{line}" in section_text(report(small_latent), "7.3")


def test_logits_and_not_their_shape_are_broadcast(small_latent: ModelFacts, transformers_tree: Path) -> None:
    sent = [stage.line for stage in Plans(small_latent).stages if stage.primitive == "broadcast"]
    file = "distributed/pipeline_parallel.py"
    assert sent == [line_with(transformers_tree, file, "dist.broadcast(logits,")]


# --- what stands beside the runs -------------------------------------------------------------------------------------


def test_what_loading_leaves_out(small_latent: ModelFacts, small_llama: ModelFacts, transformers_tree: Path) -> None:
    line = line_with(transformers_tree, "models/deepseek_v3/modeling_deepseek_v3.py", "_keys_to_ignore_on_load")
    text = text_of(small_latent)
    assert r"under `model\.layers\.61.*` (`transformers/src/transformers/models/deepseek_v3/" in text
    assert f"modeling_deepseek_v3.py:{line}` (`_keys_to_ignore_on_load_unexpected`)" in text
    assert "loading leaves out" not in text_of(small_llama)
