"""The atlas of the package: current, whole, and right where one entry's formulas meet another entry's config."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from lmp.atlas.archive import PACKAGED, Atlas, Entry
from lmp.atlas.families import Unlike, at_config
from lmp.link.numbers import ModelNumbers
from lmp.link.values import values_for
from lmp.source.catalogue import catalogued, entries
from lmp.source.configs import resolve_config

MOST_BYTES = 10 * 10**6
CALLS = (
    {"batch_size": 2, "seq_len": 96, "cache_len": 0},
    {"batch_size": 16, "seq_len": 1, "cache_len": 4096},
    {"batch_size": 3, "seq_len": 7, "cache_len": 130},
)


@pytest.fixture(scope="module")
def atlas() -> Atlas:
    return Atlas(PACKAGED)


def of(atlas: Atlas, model_id: str) -> Entry:
    return atlas.load(atlas.named(model_id))


def config_of(model_id: str) -> dict[str, Any]:
    found = catalogued(model_id)
    assert found is not None
    return found.config


def test_its_size(atlas: Atlas) -> None:
    assert sum(file.stat().st_size for file in atlas.folder.iterdir()) <= MOST_BYTES


def test_its_files_are_those_of_its_index(atlas: Atlas) -> None:
    named = {f"{entry.name}.zip" for entry in atlas.index.entries}
    assert {file.name for file in atlas.folder.iterdir()} == {*named, "index.json"}


def test_every_entry_is_whole_and_verified(atlas: Atlas) -> None:
    for listed in atlas.index.entries:
        entry = atlas.load(listed)
        assert entry.model.verification.status == listed.status == "verified"
        assert entry.model.class_name == listed.class_name
        assert entry.modules.keys() == entry.model.parts.keys()
        assert entry.facts.resolved
        assert entry.held is None or entry.held.class_name == listed.class_name
        assert entry.model.fingerprint["derived_by"] == listed.derived_by


def test_the_catalogue_is_in_it_or_left_out_with_a_reason(atlas: Atlas) -> None:
    there = {entry.model_id for entry in atlas.index.entries}
    assert {entry.id for entry in entries()} - there == {name for name in atlas.index.left_out if "/" in name}


def test_an_entry_of_the_catalogue_has_its_config(atlas: Atlas) -> None:
    for listed in atlas.index.entries:
        if listed.model_id is not None:
            found = resolve_config(None, listed.model_id)
            assert found is not None
            assert found.sha256 == listed.origin.sha256


# --- families --------------------------------------------------------------------------------------------------------


def pairs(atlas: Atlas) -> list[tuple[Entry, Entry]]:
    """Two entries of the catalogue of one class, in both orders."""
    known = [entry for entry in atlas.index.entries if entry.model_id is not None]
    return [(atlas.load(a), atlas.load(b)) for a, b in permutations(known, 2) if a.class_name == b.class_name]


def test_formulas_of_one_entry_are_those_of_another_at_its_config(atlas: Atlas) -> None:
    """Each of the two was expanded and verified by itself, at its own config."""
    classes = set()
    for one, other in pairs(atlas):
        try:
            values = at_config(one.model, one.facts, config_of(str(other.listed.model_id)))
        except Unlike:
            continue
        assert values == other.model.values
        classes.add(one.listed.class_name)
        ours = ModelNumbers(one.model.model_copy(update={"values": values}))
        theirs = ModelNumbers(other.model)
        for call in CALLS:
            assert ours.totals(values_for(ours.model, call)) == theirs.totals(values_for(theirs.model, call))
    assert len(classes) >= 3


QWEN = "Qwen/Qwen3-8B"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu', and 'silu' in the atlas"),
        ({"rope_theta": 10000}, "rope_theta is 10000, and 1000000 in the atlas"),
        ({"attention_bias": True}, "attention_bias is True, and False in the atlas"),
        ({"tie_word_embeddings": True}, "tie_word_embeddings is True, and False in the atlas"),
        ({"use_sliding_window": True, "sliding_window": 4096}, "is "),
        ({"layer_types": ["full_attention", "sliding_attention"] * 18}, "layer_types is "),
        ({"layer_types": ["full_attention"] * 35}, "layer_types is "),
        ({"head_dim": 127}, "the assumption {head_dim} % 2 == 0 does not hold"),
        ({"num_key_value_heads": 5}, "the assumption {num_heads} % {num_key_value_heads} == 0 does not hold"),
        ({"pad_token_id": 0}, "pad_token_id is 0, and None in the atlas"),
    ],
)
def test_a_config_for_which_the_formulas_do_not_hold(atlas: Atlas, changed: dict[str, object], why: str) -> None:
    entry = of(atlas, QWEN)
    assert at_config(entry.model, entry.facts, config_of(QWEN)) == entry.model.values
    with pytest.raises(Unlike) as error:
        at_config(entry.model, entry.facts, {**config_of(QWEN), **changed})
    assert why in str(error.value)


def test_layers_that_alternate_are_not_taken_for_another_number_of_layers(atlas: Atlas) -> None:
    entry, config = of(atlas, "openai/gpt-oss-20b"), config_of("openai/gpt-oss-20b")
    changed = {**config, "num_hidden_layers": 12, "layer_types": config["layer_types"][:12]}
    with pytest.raises(Unlike):
        at_config(entry.model, entry.facts, changed)


def test_heads_that_are_not_stated_follow_from_others(atlas: Atlas) -> None:
    entry, config = of(atlas, "meta-llama/Meta-Llama-3.1-8B"), config_of("meta-llama/Meta-Llama-3.1-8B")
    less = {name: value for name, value in config.items() if name not in ("head_dim", "num_key_value_heads")}
    values = at_config(entry.model, entry.facts, {**less, "hidden_size": 2048, "num_attention_heads": 16})
    # Llama's config: head_dim = hidden_size / num_attention_heads, and as many KV heads as heads.
    assert (values["head_dim"], values["num_key_value_heads"]) == (128, 16)
