"""Models of transformers, cut to the layers that differ, with variables by their canonical names."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lmp.errors import TraceFailed
from lmp.workload.load import load_class
from lmp.workload.model import ModelWorkload
from lmp.workload.parent_models import find_parent_model, takes_config

pytestmark = pytest.mark.usefixtures("transformers_tree")

SMALL = {"vocab_size": 101, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4}
DEEPSEEK = {
    **SMALL, "moe_intermediate_size": 32, "num_key_value_heads": 4, "q_lora_rank": 24, "kv_lora_rank": 16,
    "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 12, "n_routed_experts": 16, "n_group": 4,
}  # fmt: skip


def workload_of(model_type: str, cls: str, options: dict[str, Any], **more: Any) -> ModelWorkload:
    from transformers import CONFIG_MAPPING

    model_class = load_class(f"transformers.models.{model_type}.modeling_{model_type}.{cls}")
    return ModelWorkload(model_class, CONFIG_MAPPING[model_type](**options), **more)


@pytest.fixture(scope="module")
def llama() -> ModelWorkload:
    options = {**SMALL, "num_key_value_heads": 2, "num_hidden_layers": 6}
    return workload_of("llama", "LlamaModel", options)


def run(
    workload: ModelWorkload, batch: int, new: int, cached: int, **changed: int
) -> list[tuple[str, tuple[int, ...]]]:
    """Class and input shape of each module that was called with a tensor as its first argument."""
    values = {**workload.defaults, **changed, "batch_size": batch, "seq_len": new, "cache_len": cached}
    model = workload.build(values)
    seen: list[tuple[str, tuple[int, ...]]] = []

    @contextlib.contextmanager
    def observe() -> Any:
        hook = torch.nn.modules.module.register_module_forward_pre_hook(
            lambda m, args: seen.append((type(m).__name__, tuple(args[0].shape))) if args else None
        )
        try:
            yield
        finally:
            hook.remove()

    workload.run(model, values, observe())
    return seen


def layers(workload: ModelWorkload) -> list[torch.nn.Module]:
    return list(workload.build(workload.defaults).layers)


def test_layers_that_are_alike_stand_once(llama: ModelWorkload) -> None:
    assert llama.full_layers == {"num_hidden_layers": 6}
    assert llama.variables["num_hidden_layers"].default == 1
    assert len(layers(llama)) == 1
    assert llama.config.num_hidden_layers == 6  # the config itself is as it was given


def test_dense_and_sparse_layers_both_stay() -> None:
    options = {**DEEPSEEK, "num_hidden_layers": 6, "first_k_dense_replace": 2}
    kinds = [type(layer.mlp).__name__ for layer in layers(workload_of("deepseek_v3", "DeepseekV3Model", options))]
    assert kinds == ["DeepseekV3MLP", "DeepseekV3MLP", "DeepseekV3MoE"]


def test_sliding_and_full_layers_both_stay() -> None:
    types = ["sliding_attention"] * 2 + ["full_attention"] + ["sliding_attention"] * 2
    options = {**SMALL, "num_key_value_heads": 2, "head_dim": 16, "num_hidden_layers": 5, "layer_types": types}
    workload = workload_of("gemma2", "Gemma2Model", options)
    kept = layers(workload)
    assert [layer.self_attn.sliding_window is None for layer in kept] == [False, True]  # one of each kind
    assert workload.in_order == {"num_hidden_layers": 3}
    # as many as have both kinds in the model's own order, and more, are the config's own, repeated
    first = workload.build({**workload.defaults, "num_hidden_layers": 3})
    assert list(first.config.layer_types) == types[:3]
    more = workload.build({**workload.defaults, "num_hidden_layers": 7})
    assert list(more.config.layer_types) == (types * 2)[:7]


def test_variables_have_canonical_names(llama: ModelWorkload) -> None:
    paths = {name: variable.path for name, variable in llama.variables.items()}
    assert paths["num_heads"] == "config.num_attention_heads"
    assert paths["hidden_size"] == "config.hidden_size"
    assert paths["num_key_value_heads"] == "config.num_key_value_heads"
    assert llama.variables["hidden_size"].default == 64
    assert not {"num_attention_heads", "bos_token_id", "use_cache", "pad_token_id"} & paths.keys()


def test_a_configs_own_names_are_mapped() -> None:
    workload = workload_of("gpt2", "GPT2Model", {"n_embd": 64, "n_head": 4, "n_layer": 3, "vocab_size": 101})
    paths = {name: variable.path for name, variable in workload.variables.items()}
    assert paths["hidden_size"] == "config.hidden_size"
    assert paths["num_heads"] == "config.num_attention_heads"
    assert paths["num_hidden_layers"] == "config.num_hidden_layers"
    assert not {"n_embd", "n_head", "n_layer"} & paths.keys()
    # and a value reaches the attribute that the model reads
    model = workload.build({**workload.defaults, "hidden_size": 32})
    assert model.wte.weight.shape[1] == model.config.n_embd == 32


@pytest.mark.parametrize(
    ("new", "cached", "keys"),
    [(5, 0, 5), (1, 7, 8), (5, 7, 12)],
    ids=["prefill", "decode", "chunked"],
)
def test_phases(llama: ModelWorkload, new: int, cached: int, keys: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []
    attention = torch.nn.functional.scaled_dot_product_attention

    def remember(query: torch.Tensor, key: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        lengths.append(key.shape[2])
        return attention(query, key, *args, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", remember)
    assert llama.has_cache
    seen = run(llama, 2, new, cached)
    assert ("LlamaMLP", (2, new, 64)) in seen
    # only the measured call is observed; the call that fills the cache comes before it, once for the same sizes
    assert [name for name, _ in seen].count("LlamaMLP") == 1
    assert lengths in ([keys], [cached, keys])
    filled = len(lengths)
    run(llama, 2, new, cached)
    assert lengths[filled:] == [keys]


def test_a_model_without_a_cache() -> None:
    workload = workload_of("bert", "BertModel", {**SMALL, "num_hidden_layers": 2})
    assert not workload.has_cache
    assert ("BertIntermediate", (2, 5, 64)) in run(workload, 2, 5, 0)


def test_models_are_built_without_memory(llama: ModelWorkload) -> None:
    model = llama.build(llama.defaults)
    assert {p.device.type for p in model.parameters()} == {"meta"}
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert not model.training
    assert model.config._attn_implementation == "sdpa"


def test_the_smallest_model_of_the_file_is_the_host() -> None:
    workload = find_parent_model(load_class("transformers.models.llama.modeling_llama.LlamaMLP"))
    assert workload.model_class.__name__ == "LlamaModel"
    model = load_class("transformers.models.llama.modeling_llama.LlamaForCausalLM")
    assert find_parent_model(model).model_class is model


def test_a_class_that_no_model_of_its_file_has() -> None:
    from transformers.models.llama import modeling_llama

    orphan = type("LlamaOrphan", (torch.nn.Module,), {"__module__": modeling_llama.__name__})
    with pytest.raises(TraceFailed, match=r"no model of .*modeling_llama can be run with a LlamaOrphan in it") as error:
        find_parent_model(orphan)
    assert "LlamaModel: has no LlamaOrphan in it" in str(error.value)


@pytest.mark.parametrize(
    ("path", "takes"),
    [
        ("transformers.models.llama.modeling_llama.LlamaMLP", True),
        ("transformers.models.llama.modeling_llama.LlamaModel", True),
        ("transformers.models.llama.modeling_llama.LlamaRMSNorm", False),
        ("torch.nn.modules.linear.Linear", False),
    ],
)
def test_takes_config(path: str, takes: bool) -> None:
    assert takes_config(load_class(path)) is takes


def test_one_process_runs_one_copy(transformers_tree: Path, make_other: Callable[[], Path]) -> None:
    from lmp.workload.load import use_transformers_tree

    use_transformers_tree(transformers_tree.parent)  # the same one again is no matter
    with pytest.raises(TraceFailed, match="this process has imported transformers from"):
        use_transformers_tree(make_other())


@pytest.fixture
def make_other(tmp_path: Path) -> Callable[[], Path]:
    def make() -> Path:
        (tmp_path / "transformers").mkdir()
        (tmp_path / "transformers" / "__init__.py").write_text("")
        return tmp_path

    return make


def test_a_model_that_was_tried_is_as_new() -> None:
    from transformers import CTRLConfig, CTRLLMHeadModel

    config = CTRLConfig(n_embd=16, n_layer=2, n_head=2, dff=24, vocab_size=64, n_positions=64)
    workload = ModelWorkload(CTRLLMHeadModel, config)
    # Its first call converts the table of positions to bfloat16, and keeps that.
    assert workload.build(workload.defaults).transformer.pos_encoding.dtype == torch.float32
