"""Facts of small models: enough of a model for every section, small enough to work out by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lmp.analyze.session import Options
from lmp.report.devices import device_named
from lmp.report.facts import ModelFacts
from lmp.report.gathering import gather

Small = Callable[[str], Options]


def facts_of(class_name: str, options: Options) -> ModelFacts:
    return gather(f"transformers.models.{class_name}", options, lambda *_: None, device_named("H100"))


@pytest.fixture(scope="session")
def small_llama(small: Small) -> ModelFacts:
    return facts_of("llama.modeling_llama.LlamaForCausalLM", small("small-llama"))


@pytest.fixture(scope="session")
def small_latent(small: Small) -> ModelFacts:
    """A cache that is expanded in every step, and experts: one dense layer and two with experts."""
    return facts_of("deepseek_v3.modeling_deepseek_v3.DeepseekV3ForCausalLM", small("small-latent"))


@pytest.fixture(scope="session")
def small_mixture(small: Small) -> ModelFacts:
    """Experts in each of three layers, with attention of two key/value heads."""
    return facts_of("qwen3_moe.modeling_qwen3_moe.Qwen3MoeForCausalLM", small("small-mixture"))
