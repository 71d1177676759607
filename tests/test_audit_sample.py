"""A sample of `make audit`: 300 points, drawn over all that assumptions allow, are executed and equal the formulas."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from project_scripts import program

ROOT = Path(__file__).parents[1]

SAMPLE = {
    "loops.ChunkedFFN": 20,
    "branches.BeyondTokens": 20,
    "buffers.PaddedBlocks": 20,
    "caches.CompressedMemory": 20,
    "shapes.TransposedLinear": 20,
    "bert.modeling_bert.BertModel": 100,
    "bloom.modeling_bloom.BloomForCausalLM": 50,
    "opt.modeling_opt.OPTForCausalLM": 50,
}
"""Class -> number of points. 300 in all."""

SEED = 11


@pytest.fixture(scope="module")
def audit() -> Iterator[ModuleType]:
    before = list(sys.path)
    script = program("scripts/audit.py")
    yield script
    sys.path[:] = before
    del sys.modules["audit"]


def test_the_sample_has_300_points() -> None:
    assert sum(SAMPLE.values()) == 300


BLOOM = "bloom.modeling_bloom.BloomForCausalLM"
"""It takes longest; OPT is much as it is."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name == BLOOM else pytest.mark.slow) for name in SAMPLE]
)
def test_no_drawn_point_differs(audit: ModuleType, name: str, tmp_path: Path, derivation: None) -> None:
    (subject,) = (one for one in audit.subjects() if one.class_path.endswith(name))
    (row,) = audit.audited([subject], tmp_path, SAMPLE[name], SEED)
    assert row.get("crashed") is None
    assert row.get("without_formulas") is None
    assert (row["different"], row["drawn"]) == ([], SAMPLE[name])
    # What the module refuses is counted and named; most drawn points run.
    assert row["equal"] == row["executed"] >= 0.8 * SAMPLE[name]
    assert row["positions_inside"] is not False
