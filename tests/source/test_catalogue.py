"""The catalogue: complete, sourced, and of the same architecture as the files that it was read from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lmp.source.catalogue import Entry, catalogued, close_ids, entries

SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "model_configs"
FILES = sorted(SHARED.glob("*.json"))


def test_there_are_enough_and_all_are_sourced() -> None:
    assert len(entries()) >= 24
    for entry in entries():
        assert set(entry.source) == {"repository", "path", "state", "licence"}, entry.id
        assert entry.architecture.isidentifier()
        assert "model_type" in entry.config
        assert "auto_map" not in entry.config


def test_ids_are_unique_in_any_case() -> None:
    names = [name.lower() for entry in entries() for name in (entry.id, *entry.aliases)]
    assert len(set(names)) == len(names)


def test_found_by_id_and_alias_in_any_case() -> None:
    for entry in entries():
        for name in (entry.id, entry.id.upper(), *entry.aliases):
            assert catalogued(name) == entry
    assert catalogued("meta-llama/llama-3.1-8b") == catalogued("meta-llama/Meta-Llama-3.1-8B")
    assert catalogued("nobody/nothing") is None


def test_close_ids() -> None:
    assert close_ids("Qwen/Qwen3-9B")[0] == "Qwen/Qwen3-8B"
    assert close_ids("mixtral-8x7b-v0.1") == ["mistralai/Mixtral-8x7B-v0.1"]
    assert close_ids("zzzz/zzzz") == []


def _parameters(config: dict[str, Any]) -> int:
    """Counted by PyTorch, of the model on the meta device: nothing of lmp's is in it."""
    import torch
    import transformers
    from transformers import initialization

    model_class = getattr(transformers, config["architectures"][0])
    with torch.device("meta"), initialization.no_init_weights():
        model = model_class._from_config(model_class.config_class.from_dict(config), dtype=torch.bfloat16)
        model.tie_weights()
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.skipif(not FILES, reason="the shared configs are not here")
@pytest.mark.usefixtures("transformers_tree")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_as_many_parameters_as_by_the_original_file(file: Path) -> None:
    entry = catalogued(file.stem.replace("--", "/"))
    assert isinstance(entry, Entry)
    original = json.loads(file.read_text())
    assert _parameters(entry.config) == _parameters(original)


@pytest.mark.usefixtures("transformers_tree")
@pytest.mark.parametrize(
    ("model_id", "count"),
    [
        # A layer of width d has 12 d^2 + 13 d parameters: (50257 + 1024) * 768 + 12 * (12 * 768^2 + 13 * 768) + 2 * 768
        ("openai-community/gpt2", 124_439_808),
        # Embeddings (30522 + 512 + 2) * 768 + 2 * 768 = 23,837,184; 12 * (12 * 768^2 + 13 * 768) = 85,054,464;
        # head 768^2 + 768 + 2 * 768 + 30522 = 622,650
        ("google-bert/bert-base-uncased", 109_514_298),
        # 32128 * 512; encoder 6 * (4 * 512^2 + 2 * 512 * 2048 + 2 * 512) + 32 * 8 + 512;
        # decoder 6 * (8 * 512^2 + 2 * 512 * 2048 + 3 * 512) + 32 * 8 + 512
        ("google-t5/t5-small", 60_506_624),
        # vocabulary 51865 * 384, positions (448 + 1500) * 384, convolutions 384 * (80 * 3 + 384 * 3 + 2) = 535,296,
        # a block of attention 4 * 384^2 + 3 * 384 (no bias of keys), MLP 8 * 384^2 + 5 * 384, norms 2 * 384 each:
        # 4 * (1,774,080 of the encoder's layer + 2,365,824 of the decoder's) + 4 * 384 for the last norms
        ("openai/whisper-tiny", 37_760_640),
        # 256000 * 3072 + 28 * (4 * 3072 * 4096 + 3 * 3072 * 24576 + 2 * 3072) + 3072
        ("google/gemma-7b", 8_537_680_896),
    ],
)
def test_what_transformers_itself_states(transformers_tree: Path, model_id: str, count: int) -> None:
    entry = catalogued(model_id)
    assert entry is not None
    place, _, what = entry.source["path"].partition(", ")
    file, _, line = place.rpartition(":")
    stated = (transformers_tree.parents[1] / file).read_text().splitlines()[int(line) - 1]
    assert (stated, what) == (f'@auto_docstring(checkpoint="{model_id}")', "the class's defaults")
    assert _parameters(entry.config) == count
