"""Every module class that a forward of these models reaches, and the whole models, compared with execution.

The expected values are independent of the engine: torch's FlopCounterMode, the model's own parameters, and the source
files. There is one test per family, because its classes share one traced model.
"""

from __future__ import annotations

import contextlib
import importlib
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from evaluation import evaluate_analysis
from lmp.analyze.models import expand_model
from lmp.analyze.modules import load_for_evaluation
from lmp.analyze.session import Options, Session
from lmp.link.numbers import ModelNumbers
from lmp.link.values import values_for
from lmp.records import ModelAnalysis, ModuleAnalysis
from lmp.source.lines import forward_lines
from lmp.source.locate import locate
from lmp.source.trees import find_trees
from lmp.verify.counter import Counter
from lmp.verify.operators import grouped_mm_mapping
from shared_results import Analysed

FAMILIES = {
    "llama": "LlamaForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "qwen3": "Qwen3ForCausalLM",
    "mistral": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "opt": "OPTForCausalLM",
    "falcon": "FalconForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "bert": "BertForMaskedLM",
    "t5": "T5ForConditionalGeneration",
    "whisper": "WhisperForConditionalGeneration",
}
SMALL = {"small-llama": "llama", "small-latent": "deepseek_v3", "small-mixture": "qwen3_moe"}
"""Config of tests/data/configs -> its family."""
ENCODER_TOKENS = {"t5": 19}

ELEMENT_SIZES = {"w_bytes": 4, "a_bytes": 6, "kv_bytes": 9}
"""Unequal, so that weights, activations and the KV cache are told apart."""

# New tokens, cached tokens; no formula was derived from them, and none verified at them.
SHAPES = [(5, 13, 0), (3, 1, 29), (2, 4, 17)]


def meta(*shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype, device="meta")


def inputs(family: str, batch: int, tokens: int) -> dict[str, torch.Tensor]:
    """Inputs of a call without a cache."""
    if family == "t5":
        return {"input_ids": meta(batch, ENCODER_TOKENS[family]), "decoder_input_ids": meta(batch, tokens)}
    if family == "whisper":
        # whisper-tiny: 80 mel bins, and two frames per position of 1,500
        return {
            "input_features": meta(batch, 80, 3000, dtype=torch.bfloat16),
            "decoder_input_ids": meta(batch, tokens),
        }
    return {"input_ids": meta(batch, tokens)}


def run(family: str, model: torch.nn.Module, shape: tuple[int, int, int], observer: Any) -> None:
    """One call of ``shape`` (batch, new tokens, cached tokens), observed."""
    batch, new, cached = shape
    with torch.no_grad():
        given: dict[str, Any] = inputs(family, batch, new)
        if cached:
            filled = model(**inputs(family, batch, cached), use_cache=True)
            given["past_key_values"] = filled.past_key_values
            if "decoder_input_ids" in given:
                encoded = (filled.encoder_last_hidden_state,)
                given = {"encoder_outputs": encoded, **{n: given[n] for n in ("decoder_input_ids", "past_key_values")}}
        with observer:
            model(**given)


def executed_classes(family: str, model: torch.nn.Module) -> set[str]:
    """Classes whose forward() runs in the model."""
    found: set[str] = set()
    handles = [
        m.register_forward_hook(lambda m, a, o: found.add(f"{type(m).__module__}.{type(m).__qualname__}"))
        for m in model.modules()
    ]
    run(family, model, (1, 3, 0), contextlib.nullcontext())
    for handle in handles:
        handle.remove()
    return found


def build(path: str, options: Options) -> torch.nn.Module:
    """The model as transformers builds it, at the options' config."""
    module, _, name = path.rpartition(".")
    model_class = getattr(importlib.import_module(module), name)
    config = model_class.config_class()
    if options.found_config is not None:
        config = model_class.config_class.from_dict(dict(options.found_config.content))
    with torch.device("meta"):
        model = model_class._from_config(config, dtype=torch.bfloat16).eval()
    return model.requires_grad_(False)


LONG = {"deepseek_v3", "mistral", "mixtral", "phi3", "qwen3", "whisper"}
"""Families that are much as another one, or as one of `SMALL`."""


def in_its_group(family: str) -> Any:
    """One process analyses a family."""
    marks = [pytest.mark.xdist_group(family), *([pytest.mark.long] if family in LONG else [])]
    return pytest.param(family, marks=marks)


@pytest.mark.parametrize("family", list(map(in_its_group, FAMILIES)))
def test_every_class_of_the_family_is_verified(family: str, default_family: None, shared_options: Options) -> None:
    check_family(family, shared_options)


@pytest.mark.parametrize("config", SMALL)
def test_every_class_of_a_small_model_is_verified(config: str, small: Callable[[str], Options]) -> None:
    check_family(SMALL[config], small(config))


def check_family(family: str, options: Options) -> None:
    path = f"transformers.models.{family}.modeling_{family}.{FAMILIES[family]}"
    expanded = expand_model(path, options, lambda name, stage: None).model
    model = build(path, options)
    session = Session(options, lambda name, stage: None)
    for class_path in sorted(executed_classes(family, model) | expanded.parts.keys()):
        analysis = session.load(class_path)
        assert analysis is not None, class_path
        assert analysis.verification.status == "verified", class_path
        assert analysis.verification.points >= 5, class_path
        assert not analysis.uncounted
        check_lines(analysis)
        if options.found_config is None:  # small sizes are factors of operators too
            check_numbers(analysis)
    check_whole_model(family, expanded, model)


def check_whole_model(family: str, expanded: ModelAnalysis, model: torch.nn.Module) -> None:
    """All layers: matmul_flops by torch's counter, bytes by the judge's, and parameters."""
    numbers = ModelNumbers(expanded)
    for shape in SHAPES:
        if shape[2] and "cache_len" not in expanded.parameters:
            continue
        given = dict(zip(("batch_size", "seq_len", "cache_len"), shape, strict=True))
        if family in ENCODER_TOKENS:
            given["encoder_seq_len"] = ENCODER_TOKENS[family]
        totals = numbers.totals(values_for(expanded, {**given, **ELEMENT_SIZES}))
        flops = FlopCounterMode(display=False, custom_mapping=grouped_mm_mapping())
        run(family, model, shape, flops)
        counter = Counter(model, torch.bfloat16)
        run(family, model, shape, counter)
        assert totals.matmul_flops == flops.get_total_flops(), shape
        assert totals.read == sum(c.read.bytes(*ELEMENT_SIZES.values()) for c in counter.counts), shape
        assert totals.write == sum(c.write.bytes(*ELEMENT_SIZES.values()) for c in counter.counts), shape
        assert totals.flops == sum(c.flops for c in counter.counts), shape
        assert totals.parameters_count == sum(p.numel() for p in model.parameters())


def check_lines(analysis: ModuleAnalysis) -> None:
    """Quoted lines equal those of the files, and every computational statement of forward() is covered."""
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


def test_formulas_name_what_the_config_names(shared_options: Options) -> None:
    """2 * B * S * H * I for each of three projections, as written by hand."""
    path = "transformers.models.llama.modeling_llama.LlamaMLP"
    analysis, lookup = load_for_evaluation(path, shared_options, lambda name, stage: None)
    linear = lookup("torch.nn.modules.linear.Linear")
    assert linear.kernels[0].flops == "2 * {batch_size} * {seq_len} * {in_features} * {out_features}"
    assert set(analysis.parameters) == {"batch_size", "seq_len", "hidden_size", "intermediate_size"}
    product = next(k for k in analysis.kernels if k.kernel_type == "basic")
    assert product.flops == "{batch_size} * {seq_len} * {intermediate_size}"
    assert product.memory_access.read == "2 * {batch_size} * {seq_len} * {intermediate_size} * {a_bytes}"
    # 3 matmuls of 2*2*16*4096*11008; silu 4 per element, product 1 per element: on 2*16*11008 elements.
    found = evaluate_analysis(analysis, lookup, {"batch_size": 2, "seq_len": 16})
    assert found.totals.matmul_flops == 3 * 2 * 2 * 16 * 4096 * 11008
    assert found.totals.flops == found.totals.matmul_flops + 5 * 2 * 16 * 11008


@pytest.mark.parametrize(
    "class_path",
    [
        *(f"transformers.models.llama.modeling_llama.Llama{name}" for name in ("MLP", "RMSNorm")),
        *(f"torch.nn.{name}" for name in ("LayerNorm", "Embedding", "MultiheadAttention")),
    ],
)
def test_no_formula_holds_a_size_of_the_config_as_a_number(class_path: str, analysed: Analysed) -> None:
    for analysis in analysed(class_path).values():
        check_numbers(analysis)


def check_numbers(analysis: ModuleAnalysis) -> None:
    """Numbers in formulas are factors of operators and bytes of dtypes: none is a size of a default config."""
    texts = [t for k in analysis.kernels for t in (k.flops, k.memory_access.read, k.memory_access.write)]
    numbers = {int(n) for t in texts for n in re.findall(r"(?<![\w{.])\d+(?![\w}])", t)}
    # 256 is a literal in sdpa_attention.py: heads up to that size share keys and values.
    assert not numbers & (set(analysis.values.values()) - set(range(17)) - {256}), analysis.class_name
