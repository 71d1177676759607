"""A result is current while its files and lmp's rules are what they were."""

from __future__ import annotations

import os
from pathlib import Path

import analyses
import pytest

from lmp.expand.link import link
from lmp.records import ModelAnalysis, ModuleAnalysis
from lmp.source.trees import Tree, Trees
from lmp.store import fingerprint as fingerprints
from lmp.store.fingerprint import LINKED, fingerprint, is_current, is_model_current, linked_fingerprint


@pytest.fixture
def trees(tmp_path: Path) -> Trees:
    found = []
    for name, package in (("transformers", "src/transformers"), ("pytorch", "torch")):
        package_dir = tmp_path / name / package
        package_dir.mkdir(parents=True)
        (package_dir / "a.py").write_text(f"# {name}\n")
        found.append(Tree(name, tmp_path / name, package_dir, name, "1.0"))
    return Trees(found[0], found[1], (), tmp_path)


@pytest.fixture
def analysis(trees: Trees) -> ModuleAnalysis:
    return analyses.mlp(fingerprint=fingerprint((tree, tree.package_dir / "a.py") for tree in trees))


def test_keys_are_the_rules_and_files_relative_to_their_trees(analysis: ModuleAnalysis) -> None:
    assert list(analysis.fingerprint) == ["lmp", "src/transformers/a.py", "torch/a.py"]


def test_current_until_a_file_changes(analysis: ModuleAnalysis, trees: Trees) -> None:
    assert is_current(analysis, trees)
    assert trees.pytorch is not None
    path = trees.pytorch.package_dir / "a.py"
    text = path.read_text()
    path.write_text("# other\n")
    assert not is_current(analysis, trees)
    path.write_text(text)
    os.utime(path, ns=(0, 0))  # touched, with the content that it had
    assert is_current(analysis, trees)
    path.unlink()
    assert not is_current(analysis, trees)


def test_not_current_when_a_rule_changes(
    analysis: ModuleAnalysis, trees: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fingerprints, "rules_fingerprint", lambda: "other rules")
    assert not is_current(analysis, trees)


@pytest.mark.parametrize("key", ["../secret.py", "/etc/passwd", "elsewhere/a.py", "src/transformers/../a.py"])
def test_a_file_outside_the_trees_is_never_current(analysis: ModuleAnalysis, trees: Trees, key: str) -> None:
    assert not is_current(analysis.model_copy(update={"fingerprint": {**analysis.fingerprint, key: "0"}}), trees)


def test_without_a_fingerprint_nothing_is_current(trees: Trees) -> None:
    assert not is_current(analyses.mlp(), trees)


def test_every_source_of_rules_is_there() -> None:
    package = Path(fingerprints.__file__).parents[1]
    assert [name for name in fingerprints.RULE_SOURCES if not (package / name).exists()] == []


def linked(trees: Trees, **more: object) -> ModelAnalysis:
    files = fingerprint((tree, tree.package_dir / "a.py") for tree in trees)
    made_with = {LINKED: linked_fingerprint("sdpa", "bfloat16")}
    return link(analyses.linear(), {}.__getitem__).model_copy(update={"fingerprint": files | made_with | more})


def test_a_model_is_current_until_a_file_or_what_was_asked_changes(trees: Trees) -> None:
    model = linked(trees)
    asked = linked_fingerprint("sdpa", "bfloat16")
    assert is_model_current(model, trees, asked)
    assert not is_model_current(model, trees, linked_fingerprint("eager", "bfloat16"))
    assert not is_model_current(linked(trees, lmp="other rules"), trees, asked)
    assert trees.pytorch is not None
    (trees.pytorch.package_dir / "a.py").write_text("# other\n")
    assert not is_model_current(model, trees, asked)


def test_a_model_of_parts_without_sources_is_current(trees: Trees) -> None:
    asked = linked_fingerprint()
    model = linked(trees)
    assert is_model_current(model.model_copy(update={"fingerprint": {LINKED: asked}}), trees, asked)
    assert not is_model_current(model.model_copy(update={"fingerprint": {}}), trees, asked)


def test_linking_and_deriving_have_rules_of_their_own() -> None:
    assert linked_fingerprint() != linked_fingerprint("")
    assert fingerprints.sources_fingerprint(("expand",)) != fingerprints.sources_fingerprint(("trace",))
