"""Sections 1 to 4, 10 and 11 of a small Llama, against numbers worked out by hand and the source text itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from written_reports import appendix_of, component, component_text, report, section_text, text_of, whole

from lmp.report.document.amounts import Term
from lmp.report.document.parts import Document, Pointer
from lmp.report.facts import ModelFacts
from lmp.report.implementation.classes import components as components_of
from lmp.report.implementation.compulsory import compulsory_of
from lmp.report.implementation.reads import reads_of
from lmp.report.implementation.sources import sources_of

PREFILL, DECODE = "prefill-b1-s2048", "decode-b1-c2048"
TOKENS, HIDDEN, WIDE, LAYERS = 2048, 64, 96, 3
"""Of the stated prefill, and of the fixture's config."""


# --- what classes are ------------------------------------------------------------------------------------------------


def test_the_classes_are_told_by_what_they_do(small_llama: ModelFacts) -> None:
    assert {c.name: c.role for c in components_of(small_llama)} == {
        "LlamaForCausalLM": "model with output head",
        "LlamaModel": "stack of layers",
        "Embedding": "embedding",
        "LlamaRotaryEmbedding": "rotary position embedding",
        "LlamaDecoderLayer": "layer",
        "LlamaRMSNorm": "RMS normalization",
        "LlamaAttention": "attention",
        "Linear": "linear projection",
        "LlamaMLP": "gated feed-forward",
        "SiLUActivation": "activation",
    }


def test_a_measure_is_of_all_places_of_a_class(small_llama: ModelFacts) -> None:
    point = small_llama.point(PREFILL)
    mlp = component(small_llama, "gated feed-forward").measure
    # Three products of 2048 x 64 x 96, 2 a multiply-add, in each of 3 layers.
    products = 2 * 3 * TOKENS * HIDDEN * WIDE * LAYERS
    assert mlp.amount("matmul_flops", point).value == products
    # silu is 4 an element, the product 1.
    assert mlp.amount("flops", point).value == products + 5 * TOKENS * WIDE * LAYERS


def test_launches_are_operators_that_move_bytes(small_llama: ModelFacts) -> None:
    norm = component(small_llama, "RMS normalization").measure
    # to float32, pow, mean, add, rsqrt, mul, to bfloat16, mul; two norms a layer and one at the end.
    assert norm.amount("launches", small_llama.point(PREFILL)).value == 8 * (2 * LAYERS + 1)


def test_compulsory_bytes_are_put_into_the_models_variables(small_llama: ModelFacts) -> None:
    formula = compulsory_of(small_llama)["transformers.models.llama.modeling_llama.LlamaMLP"]
    value = small_llama.value(Term(point=PREFILL, formula=formula))
    # Weights once, input and output once; 2 bytes each; in every layer.
    assert value == 2 * LAYERS * (3 * HIDDEN * WIDE + 2 * TOKENS * HIDDEN)


# --- the sections ----------------------------------------------------------------------------------------------------


def test_the_summary_has_the_cache_and_the_heads(small_llama: ModelFacts) -> None:
    text = section_text(report(small_llama), "1. ")
    # Keys and values of 2 heads x 16, 2 bytes, 3 layers.
    assert f"keeps {2 * 2 * 16 * 2 * LAYERS} B of KV cache: grouped-query attention (4 query heads on 2)" in text


def test_the_tree_has_the_parameters(small_llama: ModelFacts) -> None:
    text = appendix_of(small_llama)
    # 96 x 64
    assert re.search(r"gate_proj: Linear  weight \[96, 64\] +6\.144 kparams$", text, re.MULTILINE)
    # q and o 64 x 64, k and v 32 x 64, three of 96 x 64, two norms of 64; embedding and head of 1000 x 64, a norm.
    layer = 2 * 64 * 64 + 2 * 32 * 64 + 3 * 96 * 64 + 2 * 64
    assert layer * LAYERS + 2 * 64_000 + 64 == 220_608
    assert re.search(r"^LlamaForCausalLM +220\.6 kparams$", text, re.MULTILINE)
    assert "layers.0-2: LlamaDecoderLayer (×3)" in text


def test_the_rows_of_the_template_come_first_with_the_configs_own_names(small_llama: ModelFacts) -> None:
    table = section_text(report(small_llama), "3.1")
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    assert [row.split(" | ")[:2] for row in rows[:7]] == [
        ["| `hidden_size`", "64"],
        ["| `num_layers` (`num_hidden_layers`)", "3"],
        ["| `num_heads` (`num_attention_heads`)", "4"],
        ["| `head_dim`", "16"],
        ["| `intermediate_size`", "96"],
        ["| `vocab_size`", "1,000"],
        ["| `max_seq_len` (`max_position_embeddings`)", "4,096"],
    ]


def test_the_kernel_table_says_where_tiles_were_looked_for(small_llama: ModelFacts) -> None:
    text = text_of(small_llama)
    assert re.search(r"`BLOCK_M`, .*`NUM_WARPS` \| none found \(searched: modeling_llama\.py, ", text)


def test_the_interface_has_symbolic_shapes(small_llama: ModelFacts) -> None:
    assert "k_proj.weight: [head_dim * num_key_value_heads, hidden_size] bfloat16" in component_text(
        small_llama, "attention"
    )
    head = component_text(small_llama, "model with output head")
    assert "OUTPUTS: logits: [batch_size, seq_len, vocab_size] bfloat16" in head


def test_every_class_has_all_parts_of_the_template(small_llama: ModelFacts) -> None:
    for found in components_of(small_llama):
        text = component_text(small_llama, found.role)
        for name in ("Purpose", "Interface", "Pseudocode", "Data Flow", "Key Insights"):
            assert f"**{name}:**" in text, (found.name, name)


def test_the_words_explained_are_those_of_the_model(small_llama: ModelFacts) -> None:
    text = section_text(report(small_llama), "11.")
    assert "| grouped-query attention |" in text
    assert "RoFormer" in text
    assert "expert" not in text
    assert "latent" not in text
    assert "YaRN" not in text


# --- places ----------------------------------------------------------------------------------------------------------


def _pointers(value: object) -> Iterator[Pointer]:
    if isinstance(value, Pointer):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _pointers(item)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from _pointers(getattr(value, name))


@pytest.mark.parametrize("write", [report, whole])
def test_a_symbol_stands_at_its_line(small_llama: ModelFacts, write: Callable[[ModelFacts], Document]) -> None:
    found = list(_pointers(write(small_llama)))
    assert found
    for pointer in found:
        label, _, rest = pointer.file.partition("/")
        lines = (small_llama.roots[label] / rest).read_text(encoding="utf-8").splitlines()
        near = "\n".join(lines[max(0, pointer.line - 4) : (pointer.end or pointer.line) + 3])
        assert pointer.symbol is None or pointer.symbol.rpartition(".")[2] in near, pointer


def test_a_read_stands_at_the_line_itself(small_llama: ModelFacts) -> None:
    reads = reads_of(small_llama, sources_of(small_llama))
    assert {"hidden_size", "rms_norm_eps", "rope_parameters.rope_type"} <= reads.keys()
    for name, places in reads.items():
        for pointer in places:
            label, _, rest = pointer.file.partition("/")
            lines = (small_llama.roots[label] / rest).read_text(encoding="utf-8").splitlines()
            assert (pointer.symbol or "") in lines[pointer.line - 1], (name, pointer)
