"""Sections 5 to 9 of a small Llama, against numbers worked out by hand."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from written_reports import appendix_of, text_of

from lmp.report.document.amounts import Number
from lmp.report.facts import ModelFacts
from lmp.report.implementation.operators import Catalogue, kinds_of
from lmp.report.implementation.parallel import degree_of, sent_of, total_rows
from lmp.report.implementation.plans import Plans
from lmp.report.implementation.stepping import steps_of

PREFILL, DECODE = "prefill-b1-s2048", "decode-b1-c2048"


def test_the_peak_of_prefill(small_llama: ModelFacts) -> None:
    peak = small_llama.flows.peaks[PREFILL]
    # At the head: logits of 2048 * 1000 * 2 bytes, the last norm's 2048 * 64 * 2, ids of 2048 * 8, and the cache:
    # 3 layers * keys and values * 2 heads * 16 * 2048 tokens * 2 bytes.
    logits, norm, ids, cache = 4_096_000, 262_144, 16_384, 786_432
    assert (peak.total, peak.cache, peak.activations) == (logits + norm + ids + cache, cache, logits + norm + ids)
    assert peak.frames[0].path == "lm_head"


def test_the_cache_grows_by_a_token(small_llama: ModelFacts) -> None:
    peak = small_llama.flows.peaks[DECODE]
    token = 3 * 2 * 2 * 16 * 2  # layers, keys and values, heads, head size, bytes
    assert (peak.cache_before, peak.cache_after) == (2048 * token, 2049 * token)
    assert small_llama.named["cache.0.bytes_per_token"] == token


def test_dependencies_are_those_of_the_source(small_llama: ModelFacts) -> None:
    every = steps_of(small_llama, small_llama.flows.phases["prefill"])
    steps = {step.label: step for step in every}
    first, second = (step for step in every if step.label == "element-wise sum")

    def sources(label: str) -> list[str]:
        return [step.label for step in steps[label].depends]

    # LlamaDecoderLayer.forward: residual + attention, residual + mlp; LlamaMLP: down(act(gate(x)) * up(x)).
    assert [step.label for step in first.depends] == ["model.embed_tokens", "self_attn.o_proj"]
    assert second.depends == [first, steps["mlp.down_proj"]]
    assert sources("self_attn.q_proj") == sources("self_attn.v_proj") == ["input_layernorm"]
    assert sources("mlp: element-wise product") == ["mlp.act_fn", "mlp.up_proj"]
    assert sources("mlp.down_proj") == ["mlp: element-wise product"]
    assert sources("mlp.act_fn") == ["mlp.gate_proj"]
    assert sources("lm_head") == ["model.norm"]
    assert sources("model.embed_tokens") == []
    assert steps["model.embed_tokens"].before == ["input"]


def test_shapes_of_products_are_formulas(small_llama: ModelFacts) -> None:
    rows = {row.label: row for row in Catalogue(small_llama).rows.values() if row.category == "matmul"}
    tokens = "{batch_size} * {seq_len}"
    assert rows["LlamaMLP.gate_proj"].first.product == ("1", tokens, "{intermediate_size}", "{hidden_size}")
    assert rows["LlamaAttention.o_proj"].first.product == ("1", tokens, "{hidden_size}", "{head_dim} * {num_heads}")
    kinds = kinds_of(small_llama, small_llama.flows.phases["prefill"])
    assert [(kind.name, kind.count) for kind in kinds] == [("layers.0-2", 3)]


def test_bytes_that_tensor_parallelism_sends(small_llama: ModelFacts) -> None:
    plans = Plans(small_llama)
    rows = total_rows(small_llama, list(sent_of(small_llama, plans)), degree_of(small_llama, plans))
    sent = rows[0]["bytes"]
    assert isinstance(sent, Number)
    # Prefill of 2048 tokens over 2 devices, as there are 2 heads of keys and values: all_reduce of 2048 * 64 * 2 bytes
    # after the embedding, 3 o_proj and 3 down_proj (twice around the ring), all_gather of the logits, 2048 * 1000 * 2
    # (once); 1/2 leaves a device.
    assert sent.value == Fraction(1, 2) * (2 * 7 * 262_144 + 4_096_000)


def test_bounds_of_the_head(small_llama: ModelFacts) -> None:
    device = small_llama.device
    bound = small_llama.bounds.parts(PREFILL)["lm_head"]
    # 2 * 2048 * 1000 * 64 FLOPs take 0.3 µs, (64 * 1000 + 2048 * 64 + 2048 * 1000) * 2 bytes take 1.3 µs.
    assert bound.memory == Fraction((64_000 + 131_072 + 2_048_000) * 2, device.bandwidth)
    assert bound.total == bound.memory > Fraction(262_144_000, device.matmul_flops)
    parts = small_llama.bounds.parts(PREFILL).values()
    assert sum(part.total for part in parts) == small_llama.bounds.of(PREFILL).total


def test_steps_are_named_by_what_they_do(small_latent: ModelFacts) -> None:
    steps = {step.label: step for step in steps_of(small_latent, small_latent.flows.phases["prefill"])}
    # integrations/moe.py: rows are sorted and gathered; gated between the products; weighted and put back in order.
    gate = "mlp.experts: _default_apply_gate()"
    first = "mlp.experts: sort … cumulative sum"
    last = "mlp.experts: element-wise product … conversion to bfloat16"
    products = [s for s in steps if s.startswith("mlp.experts: grouped matrix")]
    assert [label for label in steps if label.startswith("mlp.experts: ")] == [first, *products, gate, last]
    assert "self_attn: copy to contiguous memory" in steps  # after attention, in sdpa_attention_forward()
    # Keys of which expand_kv() writes the parts one by one: attention takes the whole.
    whole = "[batch_size, num_heads, seq_len, qk_nope_head_dim + qk_rope_head_dim]"
    assert steps["self_attn: expand_kv()"].shapes == [whole]
    update = steps["self_attn: update()"]
    assert update.keeps
    assert update.shapes == ["[batch_size, 1, seq_len, kv_lora_rank]", "[batch_size, 1, seq_len, qk_rope_head_dim]"]


def test_bytes_of_what_is_written_in_parts(small_latent: ModelFacts) -> None:
    text = appendix_of(small_latent)
    # 4 heads of 16 + 8 for each of 2048 tokens, 2 bytes.
    size = f"{2048 * 4 * (16 + 8) * 2 / 1000:.1f} kB"
    formula = "batch_size * seq_len * num_heads * (qk_nope_head_dim + qk_rope_head_dim) * a_bytes"
    assert f"copy into a tensor, bfloat16, {size} = `{formula}`" in text
    assert "KV cache, from this call on" in text
    # The call returns logits for every sequence and position, not the product's rows.
    assert "[batch_size, seq_len, vocab_size] and the KV cache" in text


def test_ends_of_lives_say_where(small_llama: ModelFacts) -> None:
    text = appendix_of(small_llama)
    embedded = next(line for line in text.splitlines() if line.startswith("| `embed_tokens` result"))
    # LlamaModel.forward() holds inputs_embeds until it returns: through the last norm, whose class runs in each layer.
    assert " in model.norm, " in embedded


def test_what_loading_keeps_in_float32_says_for_which_dtypes(small_latent: ModelFacts, transformers_tree: Path) -> None:
    """``_keep_in_fp32_modules_strict`` of DeepseekV3PreTrainedModel, which modeling_utils.py looks at by the dtype."""
    lines = (transformers_tree / "modeling_utils.py").read_text().splitlines()
    asked = next(n for n, text in enumerate(lines, 1) if "_strict is not None and dtype in (torch.float16" in text)
    text = text_of(small_latent)
    assert "loading keeps these in float32 where the dtype is float16 or bfloat16 (" in text
    assert f"modeling_utils.py:{asked}` (`_keep_in_fp32_modules_strict`)" in text
