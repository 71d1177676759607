"""Every module class that a forward of eight language models reaches, analysed and held against execution.

The expected values come from outside of the engine: torch's FlopCounterMode, the model's own parameters, and the
source files. One test a family, because its classes share one traced model.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from lmp.expand.evaluation import evaluate_analysis
from lmp.pipeline.module import Options, analyze_modules, load_for_evaluation
from lmp.records import ModuleAnalysis
from lmp.source.lines import forward_lines
from lmp.source.locate import locate
from lmp.source.trees import find_trees
from lmp.verify.operators import grouped_mm_mapping

FAMILIES = {
    "llama": "LlamaForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "qwen3": "Qwen3ForCausalLM",
    "mistral": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "bert": "BertForMaskedLM",
}

# New tokens, cached tokens; none of them a point that formulas are derived from or verified at.
SHAPES = [(5, 13, 0), (3, 1, 29), (2, 4, 17)]


def executed_classes(model: torch.nn.Module) -> set[str]:
    """Classes whose forward() runs when the model does."""
    found: set[str] = set()
    handles = [
        m.register_forward_hook(lambda m, a, o: found.add(f"{type(m).__module__}.{type(m).__qualname__}"))
        for m in model.modules()
    ]
    with torch.no_grad():
        model(input_ids=torch.zeros(1, 3, dtype=torch.int64, device="meta"))
    for handle in handles:
        handle.remove()
    return found


def build(model_class: Any, layers: int) -> torch.nn.Module:
    config = model_class.config_class()
    config.num_hidden_layers = layers
    for name, value in list(vars(config).items()):
        if isinstance(value, list) and len(value) > layers:
            setattr(config, name, value[:layers])
    with torch.device("meta"):
        return model_class._from_config(config, dtype=torch.bfloat16).eval()


@pytest.mark.parametrize("family", FAMILIES)
def test_every_class_of_the_family_is_verified(family: str, shared_options: Options) -> None:
    path = f"transformers.models.{family}.modeling_{family}.{FAMILIES[family]}"
    outcomes = analyze_modules([path], shared_options, lambda name, stage: None)
    analyses = {o.analysis.class_name: o.analysis for o in outcomes}
    model_class = getattr(importlib.import_module(path.rpartition(".")[0]), FAMILIES[family])
    layers = 4  # deepseek_v3 has its first sparse layer at index 3
    model = build(model_class, layers)

    assert executed_classes(model) <= set(analyses)
    for analysis in analyses.values():
        assert analysis.verification.status == "verified", analysis.class_name
        assert analysis.verification.points >= 5, analysis.class_name
        assert not analysis.uncounted
        check_lines(analysis)
    check_matmul_flops(path, shared_options, model, layers)


def check_lines(analysis: ModuleAnalysis) -> None:
    """Quoted lines are the files' own, and every computational statement of forward() is accounted for."""
    trees = find_trees()
    for kernel in analysis.kernels:
        file = kernel.file or analysis.source.file
        root = trees.need("pytorch" if file.startswith("torch/") else "transformers").root
        assert (root / file).read_text().splitlines()[kernel.line - 1].strip() == kernel.code
    source = locate(analysis.class_name, trees)
    known = {k.line for k in analysis.kernels if k.file is None}
    known |= set(analysis.free_lines) | set(analysis.not_taken_lines)
    for statement in forward_lines(source).statements:
        lines = range(statement.first, statement.last + 1)
        assert known & set(lines), f"{analysis.class_name}: line {statement.first} {statement.code}"


def check_matmul_flops(path: str, shared_options: Options, model: torch.nn.Module, layers: int) -> None:
    """Evaluated matmul_flops equal what FlopCounterMode counts, and parameters_count what the model has."""
    analysis, lookup = load_for_evaluation(path, shared_options, lambda name, stage: None)
    for batch, new, cached in SHAPES:
        if cached and "cache_len" not in analysis.parameters:
            continue
        given = {"batch_size": batch, "seq_len": new, "num_hidden_layers": layers}
        if cached:
            given["cache_len"] = cached
        totals = evaluate_analysis(analysis, lookup, given).totals
        with torch.no_grad():
            past = {}
            if cached:
                ids = torch.zeros(batch, cached, dtype=torch.int64, device="meta")
                past = {"past_key_values": model(input_ids=ids, use_cache=True).past_key_values}
            counter = FlopCounterMode(display=False, custom_mapping=grouped_mm_mapping())
            with counter:
                model(input_ids=torch.zeros(batch, new, dtype=torch.int64, device="meta"), **past)
        assert totals.matmul_flops == counter.get_total_flops(), (batch, new, cached)
    assert totals.parameters_count == sum(p.numel() for p in model.parameters())


def test_formulas_name_what_the_config_names(shared_options: Options) -> None:
    """2 * B * S * H * I for each of three projections, as a person would write it."""
    path = "transformers.models.llama.modeling_llama.LlamaMLP"
    analysis, lookup = load_for_evaluation(path, shared_options, lambda name, stage: None)
    linear = lookup("torch.nn.modules.linear.Linear")
    assert linear.kernels[0].flops == "2 * {batch_size} * {seq_len} * {in_features} * {out_features}"
    assert set(analysis.parameters) == {"batch_size", "seq_len", "hidden_size", "intermediate_size"}
    product = next(k for k in analysis.kernels if k.kernel_type == "basic")
    assert product.flops == "{batch_size} * {seq_len} * {intermediate_size}"
    assert product.memory_access.read == "2 * {batch_size} * {seq_len} * {intermediate_size} * {a_bytes}"
    # 3 matmuls of 2*2*16*4096*11008, silu 4 an element, product 1 an element: on 2*16*11008 elements.
    found = evaluate_analysis(analysis, lookup, {"batch_size": 2, "seq_len": 16})
    assert found.totals.matmul_flops == 3 * 2 * 2 * 16 * 4096 * 11008
    assert found.totals.flops == found.totals.matmul_flops + 5 * 2 * 16 * 11008


def test_no_formula_holds_a_size_of_the_config_as_a_number(shared_options: Options) -> None:
    """Numbers in formulas are factors of operators and bytes of dtypes: none is a size of a default config."""
    stored = sorted(Path(shared_options.results).glob("*/module_analysis.json"))
    assert stored
    for file in stored:
        analysis = ModuleAnalysis.model_validate_json(file.read_text())
        texts = [t for k in analysis.kernels for t in (k.flops, k.memory_access.read, k.memory_access.write)]
        numbers = {int(n) for t in texts for n in re.findall(r"(?<![\w{.])\d+(?![\w}])", t)}
        # 256 is written so in sdpa_attention.py: heads up to that size share keys and values.
        assert not numbers & (set(analysis.values.values()) - set(range(17)) - {256}), analysis.class_name
