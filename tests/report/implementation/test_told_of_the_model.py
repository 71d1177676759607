"""What is said of a model's parts: what they are not given, what fusion saves, layers of several kinds, nested configs.

Expected values come from the sources, read by a person, and from arithmetic on the fixtures' configs.
"""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
from written_reports import appendix_of, component_text, text_of

from lmp.observe.inspecting import _spans
from lmp.report.facts import ModelFacts
from lmp.report.implementation import dataflow
from lmp.report.implementation.classes import (
    ATTENTION,
    LAYER,
    MIXTURE,
    MODEL,
    NORM,
    PLAIN_FEED_FORWARD,
    ROUTER,
    STACK,
    SUBLAYER,
    _role,
)
from lmp.report.implementation.constraints import _with_pinned

# --- interface and purpose -------------------------------------------------------------------------------------------


def test_a_mask_that_the_runs_do_not_have_is_told_so(small_llama: ModelFacts) -> None:
    text = component_text(small_llama, "attention")
    # masking_utils.py: create_causal_mask() returns None for sdpa without padding, in prefill and for a single token.
    assert "None in these runs: attention_mask OUTPUTS:" in text
    # past_key_values is given in both.
    assert "past_key_values: DynamicCache; " in text


def test_the_purpose_of_attention_is_of_this_model(small_llama: ModelFacts) -> None:
    text = appendix_of(small_llama)
    # Its docstring names a paper, and that of Linear says what a product is.
    assert "Its docstring: “Multi-headed attention from" not in text
    assert "Applies an affine linear transformation" not in text


# --- layers ----------------------------------------------------------------------------------------------------------


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
    assert _role([], {STACK}, 0, False) == MODEL
    assert _role([], {MODEL, "embedding"}, 0, False) == MODEL


def test_what_lies_in_a_list_in_a_layer_is_a_part_of_it() -> None:
    # A block of an encoder-decoder has a list of its own: attention with its norm, and a feed-forward with its norm.
    assert _role([], {ATTENTION, NORM}, 0, True) == SUBLAYER
    assert _role([], {PLAIN_FEED_FORWARD, NORM}, 0, True) == SUBLAYER
    assert _role([], {SUBLAYER}, 0, False) == LAYER
    assert _role([], {ATTENTION, NORM}, 0, False) == LAYER
    assert _role([], {LAYER, NORM}, 0, False) == STACK


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
    rows = {line.split("|")[1].strip(): line for line in appendix_of(nested).splitlines() if line.startswith("| `")}
    row = rows["`num_heads` (`text_config.num_attention_heads`)"]
    assert "| 4 (default of the class" in row  # the config.json above has hidden_size alone
    assert "modeling_llama.py" in row
    assert "default of the class" not in rows["`hidden_size` (`text_config.hidden_size`)"]
    assert "is a model of 3 layers of attention" in text_of(nested)


def test_values_that_classes_share_with_the_model_are_told_once(nested: ModelFacts) -> None:
    blocks = text_of(nested).partition("## 1. ")[0]
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


def test_what_calls_a_router_is_a_mixture_of_experts() -> None:
    assert _role([], {ROUTER, "module"}, 0, False) == MIXTURE
