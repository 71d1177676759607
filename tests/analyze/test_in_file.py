"""A class given as FILE.py:Class: which one it is, and whether lmp knows how it is called."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import analyses
import pytest

from lmp.analyze.own_file import in_file
from lmp.analyze.session import Options
from lmp.errors import NotFound, UsageError
from lmp.store.results import Store

BLOCK = "class Block(nn.Module):\n    def forward(self, x): return x\n"
OTHER = BLOCK.replace("Block", "Other")
MODEL = "class Model(PreTrainedModel):\n    def __init__(self, config): ...\n    def forward(self, x): return x\n"
HEAD = "from torch import nn\nfrom transformers import PreTrainedModel\nraise RuntimeError('imported')\n"


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Options:
    monkeypatch.chdir(tmp_path)
    return Options(results=tmp_path / "results")


def write(*classes: str) -> Path:
    file = Path("blocks.py")
    file.write_text(HEAD + "".join(classes))
    return file


def test_a_class_that_is_told_is_chosen(options: Options, tmp_path: Path) -> None:
    file = write(BLOCK, OTHER)
    told = replace(options, inputs="x: float[2]")
    found = in_file(file, "Other", told)
    assert (found.class_path, found.root, found.classes) == ("blocks.Other", tmp_path.resolve(), ())
    with pytest.raises(UsageError, match=r"blocks\.py has 2 classes: Block, Other\nname one, as in blocks\.py:Block"):
        in_file(file, None, told)


def test_the_only_class_needs_no_name(options: Options) -> None:
    assert in_file(write(BLOCK), None, replace(options, inputs="x: float[2]")).class_path == "blocks.Block"


def test_a_class_that_is_not_told_is_shown(options: Options) -> None:
    found = in_file(write(BLOCK, OTHER), "Other", options)
    assert (found.class_path, [one.name for one in found.classes]) == (None, ["Other"])
    found = in_file(write(BLOCK, OTHER), None, options)
    assert (found.class_path, [one.name for one in found.classes]) == (None, ["Block", "Other"])


def test_a_stored_analysis_tells(options: Options) -> None:
    file = write(BLOCK)
    assert in_file(file, "Block", options).class_path is None
    Store(options.results).save(analyses.linear().model_copy(update={"class_name": "blocks.Block"}))
    assert in_file(file, "Block", options).class_path == "blocks.Block"


def test_a_model_of_transformers_is_built_from_its_config(options: Options) -> None:
    assert in_file(write(MODEL), None, options).class_path == "blocks.Model"


def test_a_file_without_module_classes(options: Options) -> None:
    with pytest.raises(
        NotFound, match=r"blocks\.py defines no nn\.Module with a forward\(\): blocks\.A is not a torch"
    ):
        in_file(write("class A:\n    pass\n"), None, options)
