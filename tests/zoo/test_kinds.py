"""A family of each kind of architecture, through the zoo's own process: expanded, and verified in every phase.

The judge is the oracle: it counts the executed module by itself, and torch's flop counter counts it a third time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lmp.source.auto import families
from lmp.source.trees import find_trees
from lmp.zoo.fork_server import ForkServer
from lmp.zoo.requests import Limits, Request

PROJECT = Path(__file__).parents[2]

WITH_CACHE = ["prefill", "decode", "chunked prefill"]

KINDS = [
    pytest.param("causal-lm", "mamba", WITH_CACHE, id="a scan as a loop over the sequence, a convolution cache"),
    pytest.param("causal-lm", "mixtral", WITH_CACHE, id="experts, grouped attention"),
    pytest.param("causal-lm", "mistral", WITH_CACHE, id="sliding attention"),
    pytest.param("causal-lm", "deepseek_v2", WITH_CACHE, id="latent attention, rotation by complex numbers"),
    pytest.param("causal-lm", "musicgen", WITH_CACHE, id="several rows a sequence, one for each codebook"),
    pytest.param("causal-lm", "jetmoe", WITH_CACHE, id="experts whose numbers of tokens are read out of a tensor"),
    pytest.param("base", "gemma4_vision", WITH_CACHE[:1], id="pictures as rows of patches with places"),
    pytest.param("base", "deberta", WITH_CACHE[:1], id="a model that does not run in bfloat16"),
    pytest.param("base", "t5", WITH_CACHE[:2], id="encoder and decoder, cross-attention, relative positions"),
    pytest.param("base", "vit", WITH_CACHE[:1], id="pictures"),
    pytest.param("base", "hubert", WITH_CACHE[:1], id="sound"),
]


@pytest.fixture(scope="module")
def server(default_family: None) -> Iterator[ForkServer]:
    made = ForkServer(Limits(seconds=600))
    yield made
    made.close()


@pytest.mark.xdist_group("zoo")
@pytest.mark.parametrize(("task", "name", "phases"), KINDS)
def test_a_family_of_each_kind_is_verified(
    task: str, name: str, phases: list[str], server: ForkServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    trees = find_trees(PROJECT)
    if trees.transformers is None:
        pytest.skip("transformers is not vendored: run `lmp vendor`")
    family = next(family for family in families(trees, task) if family.name == name)
    results = str(tmp_path_factory.getbasetemp() / "kinds")
    root = str(trees.transformers.root)
    request = Request(name, task, family.class_name, results, root, None, None, "bfloat16", "")
    entry = server.run(request)
    assert (entry.status, entry.reason) == ("verified", None)
    assert set(phases) <= set(entry.phases)
    assert any(text.startswith("dtype = float32") for text in entry.adjustments) == (name == "deberta")
    if name == "musicgen":  # all rows are batch_size there, and one row is less than a sequence
        assert entry.totals == {}
    else:
        assert entry.totals["flops"] >= entry.totals["matmul_flops"] > 0
