"""Formulas of the atlas beside real expansions: of other configs of a family, and of an entry that is made again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lmp.analyze.models import expand_model
from lmp.analyze.session import Options, class_of_config
from lmp.atlas.archive import PACKAGED, Atlas
from lmp.atlas.asking import with_atlas
from lmp.atlas.making import Compared, check, targets
from lmp.atlas.models import expand_model as answered
from lmp.link.numbers import ModelNumbers
from lmp.link.records import EvaluatedKernel
from lmp.link.values import values_for
from lmp.records import ModelAnalysis
from lmp.source.catalogue import catalogued

CALLS = (
    {"batch_size": 2, "seq_len": 24, "cache_len": 0},
    {"batch_size": 5, "seq_len": 1, "cache_len": 40},
    {"batch_size": 3, "seq_len": 7, "cache_len": 13},
)

SMALL: dict[str, dict[str, Any]] = {
    "openai-community/gpt2": {"n_layer": 3, "n_embd": 48, "n_head": 3, "vocab_size": 1009, "n_positions": 128},
    "google-bert/bert-base-uncased": {"num_hidden_layers": 3, "hidden_size": 48, "num_attention_heads": 3,
                                      "intermediate_size": 80, "vocab_size": 1009},
    "google/gemma-7b": {"num_hidden_layers": 3, "hidden_size": 40, "intermediate_size": 72, "num_attention_heads": 6,
                        "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 1009},
    "Qwen/Qwen3-8B": {"num_hidden_layers": 5, "max_window_layers": 5, "hidden_size": 40, "intermediate_size": 72,
                      "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 16, "vocab_size": 1009},
    "meta-llama/Meta-Llama-3.1-8B": {"num_hidden_layers": 3, "hidden_size": 96, "intermediate_size": 72,
                                     "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": 1009},
}  # fmt: skip
"""Model of the catalogue -> integers of another config of its family. Llama's head_dim follows from two of them."""


def nothing(class_path: str, stage: str) -> None:
    """Progress that is not shown."""


def kernels(model: ModelAnalysis, call: dict[str, int]) -> list[EvaluatedKernel]:
    numbers = ModelNumbers(model)
    given = call if "cache_len" in model.parameters else {**call, "cache_len": 0}
    return [in_order(kernel) for kernel in numbers.evaluation(values_for(model, given)).kernels]


def in_order(kernel: EvaluatedKernel) -> EvaluatedKernel:
    """The kernel with its inputs by name: where runs differ in them, their order is that of the first run."""
    operands = kernel.operands
    if operands is None:
        return kernel
    inputs = sorted(operands.inputs, key=lambda one: (one.name, str(one)))
    return kernel.model_copy(update={"operands": operands.model_copy(update={"inputs": inputs})})


@pytest.mark.parametrize("model_id", SMALL)
def test_family_formulas_are_those_of_a_real_expansion(
    model_id: str, tmp_path: Path, transformers_tree: Path, default_family: None
) -> None:
    known = catalogued(model_id)
    assert known is not None
    file = tmp_path / "small.json"
    file.write_text(json.dumps({**known.config, **SMALL[model_id]}))
    options = Options(results=tmp_path / "results", config_file=file)
    name = class_of_config(options)
    ours = answered(name, with_atlas(options, PACKAGED), nothing, keep=False).model
    assert ours.verification.status == "unverified"
    assert ours.verification.reason == f"family formulas; this config itself was not executed: lmp expand {file}"
    assert not (tmp_path / "results").exists()
    theirs = expand_model(name, options, nothing).model
    assert theirs.verification.status == "verified"
    assert ours.config == theirs.config
    for call in CALLS:
        assert kernels(ours, call) == kernels(theirs, call)
        totals = [ModelNumbers(one).totals(values_for(one, call)) for one in (ours, theirs)]
        assert totals[0] == totals[1]
    # Own results come first now: the same config is verified.
    again = answered(name, with_atlas(options, PACKAGED), nothing, keep=False).model
    assert again.verification.status == "verified"


def test_an_entry_is_made_again(tmp_path: Path, transformers_tree: Path, default_family: None) -> None:
    wanted = targets(["google-bert/bert-base-uncased"])
    made = list(check(Atlas(PACKAGED), wanted, Options(results=tmp_path), jobs=1))
    assert made == [Compared("google-bert/bert-base-uncased", None)]
