"""Models looked at: parameters against PyTorch's own count and arithmetic, caches against the caches themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lmp.analyze.session import Options
from lmp.errors import UsageError
from lmp.observe.inspection import Inspection, Module
from lmp.source.catalogue import catalogued, entries
from lmp.store.schemas import problem

PROJECT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.usefixtures("transformers_tree"),
    pytest.mark.skipif(not (PROJECT / "pytorch" / "torch").is_dir(), reason="nothing is vendored here"),
]


@pytest.fixture(autouse=True)
def _in_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PROJECT)


def inspected(tmp_path: Path, content: dict[str, Any], class_path: str | None = None, **more: Any) -> Inspection:
    from lmp.observe.inspecting import inspect_model

    file = tmp_path / "mine.json"
    file.write_text(json.dumps(content))
    return inspect_model(class_path, Options(results=tmp_path, config_file=file), **more)


def of_catalogue(tmp_path: Path, model_id: str, **more: Any) -> Inspection:
    entry = catalogued(model_id)
    assert entry is not None
    return inspected(tmp_path, entry.config, **more)


def module_at(tree: Module, path: str) -> Module:
    found = [m for m in every(tree) if m.path == path]
    assert len(found) == 1, path
    return found[0]


def every(module: Module) -> list[Module]:
    return [module, *(found for inner in module.modules for found in every(inner))]


def built(content: dict[str, Any]) -> Any:
    """The model as transformers builds it, by nothing of lmp's."""
    import torch
    import transformers
    from transformers import initialization

    model_class = getattr(transformers, content["architectures"][0])
    with torch.device("meta"), initialization.no_init_weights():
        model = model_class._from_config(model_class.config_class.from_dict(content), dtype=torch.bfloat16)
        model.tie_weights()
    return model.eval()


def cache_bytes(model: Any, tokens: int) -> int:
    """Bytes in the cache after a call of the whole model."""
    import torch

    with torch.no_grad():
        ids = torch.empty((1, tokens), dtype=torch.int64, device="meta")
        layers = model(input_ids=ids, use_cache=True).past_key_values.layers
    held = [value for layer in layers for value in vars(layer).values()]
    while any(isinstance(value, dict) for value in held):
        held = [v for value in held for v in (value.values() if isinstance(value, dict) else [value])]
    tensors = {id(t): t for t in held if isinstance(t, torch.Tensor) and t.dim()}
    return sum(t.numel() * t.element_size() for t in tensors.values())


def stated_bytes(found: Inspection, tokens: int) -> float:
    assert found.cache is not None
    segments = [s for s in found.cache.segments if s.from_tokens <= tokens <= (s.to_tokens or tokens)]
    assert len(segments) == 1
    return segments[0].constant_bytes + segments[0].bytes_per_token * tokens


def test_llama_8b(tmp_path: Path) -> None:
    found = of_catalogue(tmp_path, "meta-llama/Llama-3.1-8B")
    # 2 * 128256 * 4096 for the embeddings, 4096 for the last norm, and 32 layers of
    # 2 * 4096^2 + 2 * 4096 * 1024 for attention, 3 * 4096 * 14336 for the MLP, 2 * 4096 for norms = 218,112,000
    assert found.totals.parameters_count == 8_030_261_248
    assert found.totals.active_parameters_count == 8_030_261_248
    assert found.totals.weight_bytes == 2 * 8_030_261_248
    assert (found.dtype, found.dtype_from, found.quantised) == ("bfloat16", "config", None)
    # keys and values of 32 layers: 2 * 32 * 8 heads * 128 * 2 bytes
    assert [s.model_dump(exclude_none=True) for s in found.cache.segments] == [  # type: ignore[union-attr]
        {"from_tokens": 1, "bytes_per_token": 131_072, "constant_bytes": 0}
    ]
    layer = module_at(found.tree, "model.layers.0")
    assert (layer.name, layer.repeat, layer.parameters_count) == ("layers.0-31", 32, 218_112_000)
    assert layer.class_name == "transformers.models.llama.modeling_llama.LlamaDecoderLayer"
    projection = module_at(found.tree, "model.layers.0.self_attn.k_proj")
    assert projection.class_name == "torch.nn.modules.linear.Linear"
    assert [(w.name, w.shape, w.dtype) for w in projection.weights] == [("weight", [1024, 4096], "bfloat16")]
    rotary = module_at(found.tree, "model.rotary_emb")
    assert [(b.name, b.shape, b.dtype) for b in rotary.buffers][:1] == [("inv_freq", [64], "float32")]
    assert problem(Inspection, json.loads(found.model_dump_json(exclude_none=True))) is None


def test_a_quantised_checkpoint_has_the_published_size(tmp_path: Path) -> None:
    found = of_catalogue(tmp_path, "openai/gpt-oss-20b")
    # Experts, of 24 layers with 32 experts of 5,760 * 2,880 and 2,880 * 2,880 weights: 19,110,297,600 weights of
    # 17/32 bytes (4 bits, and 8 bits for 32 of them) are 10,152,345,600 bytes. The other parameters are
    # 20,914,757,184 - 19,110,297,600 = 1,804,459,584, of 2 bytes: 3,608,919,168.
    assert found.totals.checkpoint_bytes == 10_152_345_600 + 3_608_919_168
    # The three files of the model's page have 4,792,272,488 + 4,798,702,184 + 4,170,342,232 bytes. Each begins with a
    # JSON of a name, dtype, shape and two offsets for each of its tensors, about 114 bytes. Tensors: 19 a layer (8 of
    # attention, 1 of sinks, 2 norms, 2 of the router, 6 of experts), the table, the last norm and the output.
    published, tensors = 4_792_272_488 + 4_798_702_184 + 4_170_342_232, 24 * 19 + 3
    assert 100 * tensors < published - found.totals.checkpoint_bytes < 125 * tensors
    assert found.totals.weight_bytes == 2 * 20_914_757_184
    assert found.totals.checkpoint_reason is None


def test_a_quantisation_that_is_not_known_is_said(tmp_path: Path) -> None:
    entry = catalogued("Qwen/Qwen3-0.6B")
    assert entry is not None
    found = inspected(tmp_path, {**entry.config, "quantization_config": {"quant_method": "gptq", "bits": 5}})
    assert found.totals.checkpoint_bytes is None
    assert "bits is 5, not 2, 3, 4 or 8" in (found.totals.checkpoint_reason or "")
    plain = inspected(tmp_path, entry.config)
    assert (plain.totals.checkpoint_bytes, plain.totals.checkpoint_reason) == (None, None)


def test_tied_weights_count_once(tmp_path: Path) -> None:
    found = of_catalogue(tmp_path, "Qwen/Qwen3-0.6B")
    # 151936 * 1024 once; 28 layers of 1024 * (2 * 2048 + 2 * 1024) + 3 * 1024 * 3072 + 2 * 1024 + 2 * 128; 1024
    assert found.totals.parameters_count == 596_049_920
    head = module_at(found.tree, "lm_head")
    assert (head.parameters_count, head.weights[0].tied_to) == (0, "model.embed_tokens.weight")


@pytest.mark.parametrize(
    ("model_id", "active"),
    [
        # All but 6 of 8 experts of 3 * 4096 * 14336 in 32 layers: 46,702,792,704 - 32 * 6 * 176,160,768
        ("mistralai/Mixtral-8x7B-v0.1", 12_879_925_248),
        # All but 248 of 256 experts of 3 * 7168 * 2048 in 58 layers: 671,026,404,352 - 58 * 248 * 44,040,192
        ("deepseek-ai/DeepSeek-V3", 37_552_282_624),
        # All but 28 of 32 experts of 2880 * 5760 + 5760 + 2880 * 2880 + 2880 (they have biases) in 24 layers:
        # 20,914,757,184 - 24 * 28 * 24,891,840
        ("openai/gpt-oss-20b", 4_187_440_704),
        # All but 15 of 16 experts of 3 * 5120 * 8192 in 48 layers, which are one batched product:
        # 108,225,039,360 - 48 * 15 * 125,829,120
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", 17_628_072_960),
        # All but 122 of 128 experts of 2 * 2688 * 1856 in 23 layers: 31,577,937,344 - 23 * 122 * 9,977,856
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 3_580_073_408),
    ],
)
def test_active_parameters(tmp_path: Path, model_id: str, active: int) -> None:
    assert of_catalogue(tmp_path, model_id).totals.active_parameters_count == active


def test_layers_that_differ_stand_apart(tmp_path: Path) -> None:
    found = of_catalogue(tmp_path, "openai/gpt-oss-20b")
    layers = [m for m in every(found.tree) if m.class_name.endswith("DecoderLayer")]
    assert [(m.name, m.repeat) for m in layers] == [("layers.0,2,...,22", 12), ("layers.1,3,...,23", 12)]
    assert layers[1].indices == list(range(1, 24, 2))
    assert (found.quantised, found.dtype_from) == ("mxfp4", "assumed")
    # 24 layers of 2 * 8 * 64 * 2 = 2,048 bytes; half of them keep 127 tokens at most
    assert [s.model_dump(exclude_none=True) for s in found.cache.segments] == [  # type: ignore[union-attr]
        {"from_tokens": 1, "to_tokens": 127, "bytes_per_token": 49_152, "constant_bytes": 0},
        {"from_tokens": 128, "bytes_per_token": 24_576, "constant_bytes": 12 * 2_048 * 127},
    ]


LONG = "deepseek-ai/DeepSeek-V4-Flash"
"""Two caches that are compressed differently, at contexts that are multiples of both."""


@pytest.mark.parametrize(
    "model_id",
    [
        pytest.param(entry.id, marks=[pytest.mark.long] if entry.id == LONG else [])
        for entry in entries()
        if "encoder" not in str(entry.config)
    ],
)
def test_every_model_of_the_catalogue(tmp_path: Path, model_id: str, default_family: None) -> None:
    entry = catalogued(model_id)
    assert entry is not None
    found = inspected(tmp_path, entry.config)
    model = built(entry.config)
    assert found.totals.parameters_count == sum(p.numel() for p in model.parameters())
    assert 0 < (found.totals.active_parameters_count or 0) <= found.totals.parameters_count
    assert _count(found.tree) == len(list(model.parameters()))
    assert found.cache is not None
    if not found.cache.segments:
        assert found.cache.reason
        return
    part = model.get_submodule(found.cache.of) if found.cache.of else model
    if any(segment.steps_of for segment in found.cache.segments):
        # Compressed by 4 and by 128: the average is met at multiples of both.
        assert stated_bytes(found, 384) == cache_bytes(part, 384)
    else:
        assert stated_bytes(found, 37) == cache_bytes(part, 37)


def _count(module: Module) -> int:
    """Distinct parameters, folded layers unfolded."""
    own = sum(1 for weight in module.weights if weight.tied_to is None)
    return own + sum(inner.repeat * _count(inner) for inner in module.modules)


def test_beyond_the_window(tmp_path: Path) -> None:
    found = of_catalogue(tmp_path, "openai/gpt-oss-20b")
    entry = catalogued("openai/gpt-oss-20b")
    assert entry is not None
    model = built(entry.config)
    for tokens in (126, 127, 128, 129, 1000):
        assert stated_bytes(found, tokens) == cache_bytes(model, tokens)


def test_an_encoder_and_a_decoder(tmp_path: Path) -> None:
    found = of_catalogue(tmp_path, "google-t5/t5-small")
    # Keys and values of 6 layers, 8 heads of 64: 2 * 6 * 8 * 64 * 2 bytes, for a token of either side
    assert found.cache is not None
    assert found.cache.encoder_bytes_per_token == 12_288
    assert [(s.bytes_per_token, s.constant_bytes) for s in found.cache.segments] == [(12_288, 0)]
    whisper = of_catalogue(tmp_path, "openai/whisper-tiny")
    # 2 * 4 layers * 384 * 2 bytes; the encoder always has 1500 positions
    assert whisper.cache is not None
    assert [(s.bytes_per_token, s.constant_bytes) for s in whisper.cache.segments] == [(6_144, 1500 * 6_144)]


def test_a_model_without_a_cache_says_so(tmp_path: Path) -> None:
    found = of_catalogue(tmp_path, "google-bert/bert-base-uncased")
    assert found.cache is not None
    assert (found.cache.segments, found.cache.reason) == ([], "its forward() returns no cache")
    assert found.totals.active_parameters_count == found.totals.parameters_count


def test_a_module_of_a_model(tmp_path: Path) -> None:
    found = of_catalogue(
        tmp_path, "meta-llama/Llama-3.1-8B", class_path="transformers.models.llama.modeling_llama.LlamaMLP"
    )
    assert found.tree.path == "layers.0.mlp"
    assert found.totals.parameters_count == 3 * 4096 * 14336
    assert found.cache is None


def test_dtypes(tmp_path: Path) -> None:
    found = of_catalogue(tmp_path, "Qwen/Qwen3-0.6B", dtype="float32")
    assert (found.dtype, found.dtype_from) == ("float32", "option")
    assert found.totals.weight_bytes == 4 * 596_049_920
    # 2 * 28 layers * 8 * 128 * 4 bytes
    assert found.cache is not None
    assert found.cache.segments[0].bytes_per_token == 229_376


def test_what_is_no_model(tmp_path: Path) -> None:
    entry = catalogued("Qwen/Qwen3-0.6B")
    assert entry is not None
    with pytest.raises(UsageError, match="is not built from a config"):
        inspected(tmp_path, entry.config, "torch.nn.Linear")
    with pytest.raises(UsageError, match="num_attention_heads = 16 is not a multiple of num_key_value_heads = 5"):
        inspected(tmp_path, {**entry.config, "num_key_value_heads": 5})
