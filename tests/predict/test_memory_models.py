"""Memory of models of transformers: parameters exactly, and what an engine logged of 39 runs."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from statistics import mean, median

import pytest

from lmp.analyze.session import Options
from lmp.predict.devices import device_named
from lmp.predict.memory import Asked, memory
from project_scripts import program

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "tests" / "data" / "configs"
TRUTH = ROOT.parent / "shared" / "data" / "memory_truth.csv"


@pytest.mark.parametrize("name", ["small-llama", "small-mixture", "small-latent"])
def test_parameter_bytes_are_the_meta_models(transformers_tree: Path, tmp_path: Path, name: str) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from lmp.observe.holding import hold

    file = CONFIGS / f"{name}.json"
    content = json.loads(file.read_text())
    config = AutoConfig.for_model(**content)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    held = hold(None, Options(results=tmp_path, config_file=file), "bfloat16")
    found = memory(held, device_named("h100-sxm"), Asked(chunk=64))
    assert found.stage.weight_bytes == sum(p.numel() * p.element_size() for p in model.parameters())


def test_what_layers_keep_is_what_their_caches_hold(transformers_tree: Path, tmp_path: Path) -> None:
    from lmp.observe.holding import hold

    file = CONFIGS / "small-llama.json"
    config = json.loads(file.read_text())
    (kept,) = hold(None, Options(results=tmp_path, config_file=file)).kept
    heads = config["num_key_value_heads"]
    width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    assert kept.indices == tuple(range(config["num_hidden_layers"]))
    assert (kept.heads, kept.elements) == (heads, 2 * heads * width)
    assert (kept.window, kept.other_bytes, kept.state_bytes) == (None, 0, 0)


def test_attention_scores_are_no_part_of_an_engines_activations(transformers_tree: Path, tmp_path: Path) -> None:
    """Gemma-2's own attention has the scores of all pairs: 8 heads * 8,192^2 alone are 1 GiB in 16 bits."""
    from lmp.observe.holding import hold
    from lmp.predict.engines import GIB, Settings

    file = ROOT / "tests" / "data" / "memory" / "google--gemma-2-2b-it.json"
    held = hold(None, Options(results=tmp_path, config_file=file))
    alone = memory(held, device_named("h100-sxm"), Asked()).stage.activation_bytes
    engine = memory(held, device_named("h100-sxm"), Asked(engine=Settings(max_model_len=8192)))
    assert alone > 8 * 8192**2 * 2
    # Twice 9,216 inner values and their product, and less than 16 hidden ones.
    layers = engine.stage.activations["layers"]["layers"]
    assert 3 * 8192 * 9216 * 2 <= layers <= 8192 * (3 * 9216 + 16 * 2304) * 2 < Fraction(1) * GIB


@pytest.mark.skipif(not TRUTH.is_file(), reason="the logged runs are not beside this checkout")
def test_memory_is_what_an_engine_logged(default_family: None, tmp_path: Path) -> None:
    """The aims of the issue. A pipeline's row joins lines of several stages: docs/prediction.md says how."""
    found = list(program("benchmarks/memory_truth.py").compared(TRUTH, tmp_path))
    whole = [one for one in found if one.whole]
    assert (len(found), len(whole)) == (39, 37)
    single = [one for one in found if one.row["pp"] == "1"]
    assert max(abs(one.token_error) for one in single) <= 0.05
    assert mean(abs(one.error("weights_memory_gib")) for one in whole) <= 0.5
    assert mean(abs(one.error("kv_cache_memory_gib")) for one in whole) <= 2.5
    assert median(abs(one.error("activation_memory_gib")) for one in whole) <= 20
    assert max(abs(one.error("max_concurrency")) for one in whole) <= 2.5
