"""What of a class runs in the model, and the numbers of one call: of a small Llama and a small mixture of experts.

Expected values come from the sources, read by a person, and from arithmetic on the fixtures' configs.
"""

from __future__ import annotations

from written_reports import appendix_of, component, component_text, text_of

from lmp.formula import parse, to_text
from lmp.report.document.amounts import Number, Term
from lmp.report.document.markdown import plain
from lmp.report.facts import ModelFacts
from lmp.report.implementation.classes import components as components_of
from lmp.report.implementation.components import calls_of, insights
from lmp.report.implementation.compulsory import compulsory_of, one_call
from lmp.report.implementation.drawing import pieces_of
from lmp.report.implementation.plans import Plans
from lmp.report.implementation.ran import gate_of, instance_of, items_of
from lmp.report.implementation.reads import reads_of
from lmp.report.implementation.sources import sources_of
from lmp.report.implementation.split_weights import split_weights

PREFILL = "prefill-b1-s2048"
TOKENS, HIDDEN, WIDE, LAYERS = 2048, 64, 96, 3
"""Of the stated prefill, and of the fixture's config."""


# --- operators that run ----------------------------------------------------------------------------------------------


def test_what_runs_only_with_a_mask_is_left_out_with_its_condition(small_llama: ModelFacts) -> None:
    text = component_text(small_llama, "attention")
    # sdpa_attention.py: without a mask enable_gqa is set and nothing is repeated; a mask is made for several new
    # tokens after cached ones.
    assert "[batch_size, num_key_value_heads, num_heads / num_key_value_heads" not in text
    assert "Left out, only where seq_len > 1 and cache_len != 0, at none of the stated points" in text
    keys = "[batch_size, num_key_value_heads, cache_len + 1, head_dim]"
    assert f"in decode [batch_size, num_heads, 1, head_dim], {keys}, {keys} -> [batch_size, num_heads, 1" in text


def test_the_product_is_the_one_that_runs_without_a_bias(small_llama: ModelFacts) -> None:
    assert small_llama.settings["attention_bias"] is False
    text = component_text(small_llama, "linear projection")
    assert "aten.mm: [batch_size * seq_len, hidden_size], [hidden_size, head_dim * num_heads] ->" in text
    assert "addmm" not in text
    assert "addmm" not in text_of(small_llama)


def test_shapes_are_in_the_models_symbols(small_llama: ModelFacts) -> None:
    text = component_text(small_llama, "activation")
    assert "aten.silu: [batch_size, seq_len, intermediate_size] -> [batch_size, seq_len, intermediate_size]" in text
    assert "reads at least batch_size * seq_len * intermediate_size * a_bytes bytes" in text


def test_what_runs_in_one_phase_alone_says_when(small_llama: ModelFacts) -> None:
    # sdpa_attention.py: transpose(1, 2).contiguous() copies nothing of a single token.
    text = component_text(small_llama, "attention")
    assert "[batch_size, seq_len, num_heads, head_dim]; only where seq_len > 1" in text


def test_operators_stand_below_the_lines_that_lead_to_them(small_llama: ModelFacts) -> None:
    attention = component(small_llama, "attention")
    items = items_of(attention, instance_of(attention))
    negated = [item for item in items if item.op.words == "negation"]
    # apply_rotary_pos_emb() calls rotate_half() for queries and for keys.
    assert [[line.function for line in item.chain] for item in negated] == [
        ["forward", "apply_rotary_pos_emb", "rotate_half"]
    ] * 2


def test_a_condition_is_found_as_a_factor() -> None:
    gate = gate_of(parse("where({n} > 1, {a}, 0) * {b}"))
    assert gate is not None
    assert to_text(gate) == "{n} > 1"
    assert gate_of(parse("where({n} > 1, {a}, 1) * {b}")) is None


# --- numbers of one call ---------------------------------------------------------------------------------------------


def test_the_bytes_of_one_call_are_those_of_that_module(small_llama: ModelFacts) -> None:
    found = one_call(small_llama, "torch.nn.modules.linear.Linear", "model.layers.0.mlp.down_proj")
    assert found is not None
    # Its weight and its input once, 2 bytes each.
    assert small_llama.value(Term(point=PREFILL, formula=to_text(found[0]))) == 2 * (HIDDEN * WIDE + TOKENS * WIDE)
    assert small_llama.value(Term(point=PREFILL, formula=to_text(found[1]))) == 2 * TOKENS * HIDDEN


def test_calls_together_and_one_of_them(small_llama: ModelFacts) -> None:
    mlp = component(small_llama, "gated feed-forward")
    calls = calls_of(mlp, small_llama.point(PREFILL))
    assert calls is not None
    assert calls.value == LAYERS
    first = "".join(map(plain, pieces_of(next(insights(mlp)))))
    # Three products of 2048 x 64 x 96, 2 a multiply-add, silu 4 and a product 1 an element: 76.48 MFLOP.
    one = 2 * 3 * TOKENS * HIDDEN * WIDE + 5 * TOKENS * WIDE
    assert one == 76_480_512
    assert first.startswith(f"prefill, batch 1, 2,048 tokens, 3 calls: {3 * one / 10**6:.1f} MFLOP (")


def test_what_decorators_of_forward_read_is_found(small_llama: ModelFacts) -> None:
    reads = reads_of(small_llama, sources_of(small_llama))
    # merge_with_config_defaults() and can_return_tuple() of utils/generic.py.
    for name in ("use_cache", "return_dict"):
        assert any(pointer.file.endswith("utils/generic.py") for pointer in reads[name]), name


# --- a mixture of experts --------------------------------------------------------------------------------------------


def test_the_classes_of_a_mixture(small_mixture: ModelFacts) -> None:
    assert {c.name.removeprefix("Qwen3Moe"): c.role for c in components_of(small_mixture)} == {
        "ForCausalLM": "model with output head",
        "Model": "stack of layers",
        "Embedding": "embedding",
        "RotaryEmbedding": "rotary position embedding",
        "DecoderLayer": "layer",
        "RMSNorm": "RMS normalization",
        "Attention": "attention",
        "Linear": "linear projection",
        "SparseMoeBlock": "mixture of experts",
        "TopKRouter": "router",
        "Experts": "routed experts",
        "SiLUActivation": "activation",
    }


def test_bytes_of_a_routers_call_grow_with_the_tokens(small_mixture: ModelFacts) -> None:
    router = component(small_mixture, "router")
    found = one_call(small_mixture, router.class_name, instance_of(router))
    assert found is not None
    # Weight of 8 x 64 and 2,048 tokens of 64, 2 bytes each; not 1 row, which is what the class sees.
    assert small_mixture.value(Term(point=PREFILL, formula=to_text(found[0]))) == 2 * (8 * 64 + 2048 * 64)


def test_compulsory_bytes_are_known_of_every_class(small_mixture: ModelFacts) -> None:
    assert set(compulsory_of(small_mixture)) == set(small_mixture.analyses)


def test_a_value_that_no_layer_of_the_config_uses_says_so(small_mixture: ModelFacts) -> None:
    rows = appendix_of(small_mixture).splitlines()
    # decoder_sparse_step 1: every layer has experts of moe_intermediate_size, none a Qwen3MoeMLP of intermediate_size.
    assert "No cost of this config depends on it" in next(r for r in rows if r.startswith("| `intermediate_size`"))
    assert "No cost of this config" not in next(r for r in rows if r.startswith("| `moe_intermediate_size`"))


def test_what_no_rule_of_tensor_parallelism_names_is_on_every_device(small_mixture: ModelFacts) -> None:
    """The rules for ``layers.*.mlp.gate_proj`` are for dense layers, which this config has none of."""
    others = split_weights(small_mixture, Plans(small_mixture))[-1]
    router, norms, heads = 8 * HIDDEN, 2 * HIDDEN, 2 * 16  # of a layer; those of queries and keys are not divided
    assert isinstance(others, Number)
    assert others.value == LAYERS * (router + norms + heads) + HIDDEN


def test_a_layers_time_is_told_in_the_order_in_which_it_runs(small_mixture: ModelFacts) -> None:
    names = list(small_mixture.bounds.inside(PREFILL, "model.layers.0"))
    # sdpa_attention_forward() copies its result after attention; the activation is a module inside of the experts.
    attention = names.index("self_attn: attention")
    assert names[attention + 1 : attention + 3] == ["self_attn: sdpa_attention_forward()", "self_attn.o_proj"]
    assert "mlp.experts.act_fn" in names
