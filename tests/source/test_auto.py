"""Families from transformers' auto mappings, read from a small tree, and from the vendored one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lmp.errors import NotFound, UsageError
from lmp.source.auto import AUTO, TASKS, Family, chosen, class_path_of, families
from lmp.source.names import Names
from lmp.source.trees import Trees, find_trees

PROJECT = Path(__file__).parents[2]

MAPPINGS = """
from collections import OrderedDict
raise SystemExit("this file is read, never run")
MODEL_MAPPING_NAMES = OrderedDict([("alpha", "AlphaModel"), ("funnel", ("FunnelModel", "FunnelBaseModel"))])
MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES = OrderedDict([("seer", "SeerForConditionalGeneration")])
MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES = OrderedDict(
    [*list(MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.items()), ("hearer", "HearerForConditionalGeneration")]
)
"""

MODELING = """
__all__ = ["AlphaModel"]
class AlphaModel: ...
"""


@pytest.fixture
def trees(tmp_path: Path) -> Trees:
    package = tmp_path / "src" / "transformers"
    for name, text in {
        "__init__.py": "",
        str(AUTO): MAPPINGS,
        "models/__init__.py": "",
        "models/alpha/__init__.py": "from .modeling_alpha import *",
        "models/alpha/modeling_alpha.py": MODELING,
    }.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    return find_trees(tmp_path, tmp_path)


def test_a_mapping_is_read_and_not_run(trees: Trees) -> None:
    assert families(trees, "base") == [Family("alpha", "base", "AlphaModel"), Family("funnel", "base", "FunnelModel")]


def test_a_mapping_may_take_in_another_one(trees: Trees) -> None:
    assert [family.name for family in families(trees, "multimodal")] == ["seer", "hearer"]


def test_a_mapping_that_is_missing_is_said_to_be(trees: Trees) -> None:
    with pytest.raises(NotFound, match="has no MODEL_FOR_CAUSAL_LM_MAPPING_NAMES"):
        families(trees, "causal-lm")


def test_a_class_is_found_where_it_is_defined(trees: Trees) -> None:
    found = class_path_of(Family("alpha", "base", "AlphaModel"), Names(trees))
    assert found == "transformers.models.alpha.modeling_alpha.AlphaModel"
    with pytest.raises(NotFound, match="no source defines FunnelModel"):
        class_path_of(Family("funnel", "base", "FunnelModel"), Names(trees))


def test_patterns_choose_families(trees: Trees) -> None:
    known = families(trees, "base")
    assert [f.name for f in chosen(known, ["al*"])] == ["alpha"]
    assert chosen(known, []) == chosen(known, ["all"]) == known
    with pytest.raises(UsageError, match="did you mean alpha"):
        chosen(known, ["alfa"])


@pytest.mark.usefixtures("transformers_tree")
def test_every_task_has_the_families_that_its_source_lists() -> None:
    """Counted a second time by the text of the file: a line of a mapping is ``("key", ...),``."""
    trees = find_trees(PROJECT)
    text = (trees.need("transformers").package_dir / AUTO).read_text()
    for task in ("causal-lm", "base", "masked-lm", "seq2seq", "vision"):
        (mapping,) = TASKS[task]
        body = text.split(f"\n{mapping} = OrderedDict(", 1)[1].split("\n)\n", 1)[0]
        keys = set(re.findall(r'^\s+\(\s*"([\w.-]+)"', body, re.MULTILINE))
        assert {family.name for family in families(trees, task)} == keys
