"""What is said of a model's parts: what they are not given, what fusion saves, layers of several kinds, nested configs.

Expected values come from the sources, read by a person, and from arithmetic on the fixtures' configs.
"""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from lmp.observe.inspecting import _spans
from lmp.report.document.amounts import Number
from lmp.report.document.markdown import plain, to_markdown
from lmp.report.document.parts import Document, Section
from lmp.report.facts import ModelFacts
from lmp.report.implementation import components, configuration, dataflow, head, summary
from lmp.report.implementation.classes import MIXTURE, MODEL, ROUTER, STACK, Component, _role
from lmp.report.implementation.classes import components as components_of
from lmp.report.implementation.compulsory import compulsory_of
from lmp.report.implementation.constraints import _with_pinned
from lmp.report.implementation.flowing import drawn
from lmp.report.implementation.insights import insights, over_cache


def text_of(section: Section) -> str:
    return to_markdown(Document("t", [], [section]))


def component(facts: ModelFacts, role: str) -> Component:
    return next(c for c in components_of(facts) if c.role == role)


def drawing(facts: ModelFacts, role: str) -> str:
    found = drawn(component(facts, role))
    assert found is not None
    return "\n".join("".join(map(plain, row)) for row in found[1])


# --- interface and purpose -------------------------------------------------------------------------------------------


def test_a_mask_that_the_runs_do_not_have_is_told_so(small_llama: ModelFacts) -> None:
    text = text_of(components.section(small_llama))
    # masking_utils.py: create_causal_mask() returns None for sdpa without padding, in prefill and for a single token.
    line = next(line for line in text.splitlines() if line.startswith("  - attention_mask:"))
    assert line.endswith("bool; None in the runs shown below")
    # past_key_values is given in both.
    assert "past_key_values: DynamicCache; None" not in text


def test_the_purpose_of_attention_is_of_this_model(small_llama: ModelFacts) -> None:
    text = text_of(components.section(small_llama))
    # 4 query heads, 2 of keys and values. Its docstring names a paper, and that of Linear says what a product is.
    assert "Grouped-query attention (4 query heads on 2 key and value heads, 2 to 1)" in text
    assert "Its docstring: “Multi-headed attention from" not in text
    assert "Applies an affine linear transformation" not in text


# --- what fusion saves -----------------------------------------------------------------------------------------------


def test_the_time_that_fusion_saves_is_that_of_its_bytes(small_llama: ModelFacts) -> None:
    norm = component(small_llama, "RMS normalization")
    told = ["".join(map(plain, line)) for line in insights(norm, compulsory_of(small_llama))]
    # A call on T x H numbers, line by line: to float32 6TH, square 8TH, mean 4TH + 4T, sum 8T, root 8T, product
    # 8TH + 4T, to bfloat16 6TH, product with the weight 4TH + 2H: 36TH + 24T + 2H; at least 4TH + 2H.
    tokens, hidden, calls = 2048, 64, 2 * 3 + 1
    seconds = calls * (32 * tokens * hidden + 24 * tokens) / 3.35e12
    assert f"{seconds * 1e6:.3f}" == "8.867"
    assert any("the bound of prefill falls by at most 8.867 µs of the model's " in line for line in told)


def test_places_that_are_alike_are_not_told_apart(small_llama: ModelFacts) -> None:
    # Every norm is of 64 numbers a token: shares would say how often each runs, and no more.
    told = ["".join(map(plain, line)) for line in insights(component(small_llama, "RMS normalization"), {})]
    assert not any(line.startswith("Largest parts") for line in told)


# --- layers ----------------------------------------------------------------------------------------------------------


def test_a_box_says_how_many_layers_it_stands_for(small_latent: ModelFacts) -> None:
    text = drawing(small_latent, "stack of layers")
    # One dense layer, and two with experts that follow one another.
    assert "layers.0: DeepseekV3DecoderLayer " in text
    assert "layers.1-2: DeepseekV3DecoderLayer ×2" in text
    assert text.count("after the first: the layer before") == 1
    assert "in turn with" not in text


@pytest.mark.parametrize(
    ("indices", "told"),
    [
        (list(range(32)), "0-31"),
        ([0, 2, 4], "0,2,4"),
        (list(range(0, 24, 2)), "0,2,...,22"),
        ([n for n in range(48) if n % 4 != 3], "0-2,4-6,...,44-46"),
        ([0, 1, 2, 4, 5, 6, 8, 9, 10, 13], "0-2,4-6,8-10,13"),
    ],
)
def test_indices_of_layers_in_a_few_words(indices: list[int], told: str) -> None:
    assert _spans(indices) == told


def test_what_calls_a_model_with_output_head_is_one_too() -> None:
    assert _role([], {STACK}, 0) == MODEL
    assert _role([], {MODEL, "embedding"}, 0) == MODEL


# --- long shapes -----------------------------------------------------------------------------------------------------


def test_a_long_shape_takes_several_lines_and_is_whole() -> None:
    shape = f"[batch_size, {' + '.join(['kernel_size'] * 20)}]"
    step: Any = SimpleNamespace(number=1, label="convolution", shape=shape, depends=(), before=["input"])
    step.from_layer_before = False
    lines = list(dataflow._step_lines(step))
    assert max(map(len, lines)) <= 96
    assert shape in " ".join(line.strip() for line in lines)


# --- nested configs --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nested(small_llama: ModelFacts) -> ModelFacts:
    """The same model as if its config were the part of another one."""
    parameters = {
        name: path.replace("config.", "config.text_config.") for name, path in small_llama.model.parameters.items()
    }
    pinned = {"hidden_size": 64, "LlamaAttention.hidden_size": 64, "LlamaAttention.head_dim": 16}
    model = small_llama.model.model_copy(update={"parameters": parameters, "pinned": pinned})
    settings = {f"text_config.{name}": value for name, value in small_llama.settings.items()}
    return dataclasses.replace(small_llama, model=model, settings=settings, config={"text_config": {"hidden_size": 64}})


def test_the_part_of_a_config_is_found_by_where_sizes_come_from(nested: ModelFacts, small_llama: ModelFacts) -> None:
    assert small_llama.part == ""
    assert nested.part == "text_config."
    assert nested.named["config.hidden_size"] == nested.named["config.text_config.hidden_size"] == 64


def test_values_of_a_nested_config_are_told_with_their_reads(nested: ModelFacts) -> None:
    rows = {
        line.split("|")[1].strip(): line for line in text_of(configuration.section(nested)).splitlines() if "|" in line
    }
    row = rows["`num_heads` (`text_config.num_attention_heads`)"]
    assert "| 4 (default of the class" in row  # the config.json above has hidden_size alone
    assert "modeling_llama.py" in row
    assert "default of the class" not in rows["`hidden_size` (`text_config.hidden_size`)"]
    assert "a decoder of 3 layers" in text_of(summary.section(nested))


def test_values_that_classes_share_with_the_model_are_told_once(nested: ModelFacts) -> None:
    blocks = to_markdown(Document("t", [], [Section("s", list(head.opening(nested)))]))
    assert "hidden_size = 64, LlamaAttention.head_dim = 16" in blocks
    assert "LlamaAttention.hidden_size" not in blocks


# --- conditions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("assumption", "told"),
    [
        # Of 3 layers one is dense: the other two are there, and what holds for them is the condition.
        ("max({num_hidden_layers} - {first_k_dense_replace}, 0) == 0 or {n_group} > 1", "n_group > 1"),
        # No layer of the kind: nothing has to hold for it.
        ("max({num_hidden_layers} - 3 * {first_k_dense_replace}, 0) == 0 or {n_group} > 1", None),
        # A remainder is a condition, also where it is 0 at this config.
        (
            "{num_hidden_layers} - 1 == 0 or {num_heads} % {num_key_value_heads} == 0",
            "num_heads % num_key_value_heads == 0",
        ),
    ],
)
def test_conditions_are_those_of_the_layers_that_the_config_has(
    small_latent: ModelFacts, assumption: str, told: str | None
) -> None:
    assert _with_pinned(small_latent, assumption) == told


def test_products_over_the_whole_cache_are_named(small_latent: ModelFacts) -> None:
    # modeling_deepseek_v3.py: expand_kv() gives kv_b_proj the updated cache; the other projections take the new token.
    (line,) = over_cache(component(small_latent, "attention"))
    assert "".join(map(plain, line)).partition(" runs")[0] == "kv_b_proj"
    share = next(piece for piece in line if isinstance(piece, Number))
    decodes = [p for p in small_latent.points if p.phase == "decode"]
    point = max(decodes, key=lambda p: (p.values["cache_len"], -p.values["batch_size"]))
    tokens, whole = point.values["cache_len"] + 1, small_latent.amount("flops", point).value
    # 20 x 4 * (16 + 12) over all tokens, in 3 layers.
    assert share.value == 100 * point.values["batch_size"] * 3 * 2 * tokens * 20 * 4 * (16 + 12) / whole
    assert "`kv_b_proj` runs over all tokens of the cache in every decode step" in text_of(
        summary.section(small_latent)
    )


def test_no_product_of_llama_is_over_the_cache(small_llama: ModelFacts) -> None:
    assert not list(over_cache(component(small_llama, "attention")))


def test_what_calls_a_router_is_a_mixture_of_experts() -> None:
    assert _role([], {ROUTER, "module"}, 0) == MIXTURE
