"""Drafts that are right at small points and wrong at an executable one: a sample of `scripts/wrong_drafts.py`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from gate_classes import LINEAR, MLP, NORM

from lmp.analyze.session import Options

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import wrong_drafts

LLAMA_ATTENTION = "transformers.models.llama.modeling_llama.LlamaAttention"


@pytest.mark.parametrize("name", [LINEAR, NORM, MLP, pytest.param(LLAMA_ATTENTION, marks=pytest.mark.long)])
def test_right_drafts_are_taken_and_wrong_ones_refused(options: Options, name: str, default_family: None) -> None:
    right, *wrong = wrong_drafts.Study(options.results).of(name, number=12, seed=11)
    assert (right.kind, right.refused) == ("right", False)
    assert [(r.kind, r.at, r.finding) for r in wrong if not r.refused] == []
    assert len(wrong) == 12
    assert len({r.kind for r in wrong}) >= 8
