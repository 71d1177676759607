"""Analyses made at default configs, evaluated at very different ones and compared with execution.

The judge's counter counts models that transformers builds from small configs. This uses neither the engine nor its
points.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

import pytest
import torch

from evaluation import evaluate_analysis
from lmp.analyze.modules import load_for_evaluation
from lmp.analyze.session import Options
from lmp.records import UNIVERSAL
from lmp.verify.counter import Counter

LLAMA = {"vocab_size": 96, "hidden_size": 64, "intermediate_size": 80, "num_hidden_layers": 3, "head_dim": 16}
MIXTRAL = {"vocab_size": 96, "hidden_size": 64, "intermediate_size": 80, "num_hidden_layers": 2, "num_local_experts": 4}
HEADS = ("num_attention_heads", "num_key_value_heads")

CASES = [
    *(
        ("llama.LlamaForCausalLM", {**LLAMA, **dict(zip(HEADS, heads, strict=True))})
        for heads in [(4, 4), (4, 2), (8, 1)]
    ),
    ("llama.LlamaForCausalLM", {**LLAMA, "head_dim": 272, **dict(zip(HEADS, (4, 2), strict=True))}),
    ("mistral.MistralForCausalLM", {**LLAMA, **dict(zip(HEADS, (4, 4), strict=True)), "sliding_window": 8}),
    ("mistral.MistralForCausalLM", {**LLAMA, **dict(zip(HEADS, (4, 2), strict=True)), "sliding_window": 8}),
    ("mixtral.MixtralForCausalLM", {**MIXTRAL, **dict(zip(HEADS, (4, 4), strict=True))}),
    ("mixtral.MixtralForCausalLM", {**MIXTRAL, **dict(zip(HEADS, (4, 1), strict=True)), "num_experts_per_tok": 2}),
    ("gemma2.Gemma2ForCausalLM", {**LLAMA, **dict(zip(HEADS, (4, 1), strict=True)), "sliding_window": 6}),
    ("gpt2.GPT2LMHeadModel", {"vocab_size": 96, "n_embd": 48, "n_layer": 2, "n_head": 3, "n_positions": 64}),
]
SHAPES = [(2, 7, 0), (1, 7, 0), (1, 1, 5), (2, 1, 12), (1, 3, 5), (2, 3, 12), (1, 12, 0), (2, 11, 9)]


def counted(name: str, settings: dict[str, int], shape: tuple[int, int, int]) -> Counter:
    """Cost of executing a model of this config. A separate call fills its cache."""
    family, _, class_name = name.partition(".")
    model_class = getattr(importlib.import_module(f"transformers.models.{family}.modeling_{family}"), class_name)
    with torch.device("meta"):
        # transformers' own choice: sdpa, or eager if the model has no sdpa.
        model = model_class._from_config(model_class.config_class(**settings), dtype=torch.bfloat16).eval()
    batch, new, cached = shape
    with torch.no_grad():
        past = {}
        if cached:
            ids = torch.zeros(batch, cached, dtype=torch.int64, device="meta")
            past = {"past_key_values": model(input_ids=ids, use_cache=True).past_key_values}
        ids = torch.zeros(batch, new, dtype=torch.int64, device="meta")
        with Counter(model, torch.bfloat16) as counter:
            model(input_ids=ids, use_cache=True, **past)
    return counter


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_evaluation_equals_execution(
    name: str, settings: dict[str, int], default_family: None, shared_options: Options
) -> None:
    check(name, settings, shared_options)


@pytest.mark.parametrize("settings", [settings for name, settings in CASES if name.startswith("llama.")])
def test_an_analysis_at_a_small_config_is_for_others_too(
    settings: dict[str, int], small: Callable[[str], Options]
) -> None:
    check("llama.LlamaForCausalLM", settings, small("small-llama"))


def check(name: str, settings: dict[str, int], options: Options) -> None:
    family, _, class_name = name.partition(".")
    path = f"transformers.models.{family}.modeling_{family}.{class_name}"
    analysis, lookup = load_for_evaluation(path, options, lambda n, s: None)
    canonical = {"num_attention_heads": "num_heads", "n_embd": "hidden_size", "n_head": "num_heads"}
    canonical |= {
        "num_local_experts": "num_experts",
        "n_layer": "num_hidden_layers",
        "n_positions": "max_position_embeddings",
    }
    values = {canonical.get(n, n): v for n, v in settings.items()}
    values = {n: v for n, v in values.items() if n in analysis.parameters}
    for shape in SHAPES:
        counter = counted(name, settings, shape)
        for sizes in ((2, 2, 2), (3, 5, 7)):
            given = {**values, **dict(zip(("batch_size", "seq_len", "cache_len"), shape, strict=True))}
            found = evaluate_analysis(analysis, lookup, {**given, **dict(zip(UNIVERSAL, sizes, strict=True))})
            assert not found.violated_assumptions, shape
            totals = found.totals
            assert (totals.flops, totals.matmul_flops) == (counter.flops, counter.matmul_flops), shape
            assert totals.read == counter.read.bytes(*sizes), shape
            assert totals.write == counter.write.bytes(*sizes), shape
