"""What has to be done with a stored result, by what it was made from and what is there now."""

from __future__ import annotations

import ast
import importlib.util
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import analyses
import pytest

from lmp.link.link import link
from lmp.records import ModelAnalysis, ModuleAnalysis
from lmp.source.trees import Tree, Trees
from lmp.store import fingerprint as fingerprints
from lmp.store.fingerprint import (
    DERIVING,
    JUDGING,
    LINKED_BY,
    LINKING,
    fingerprint,
    is_model_current,
    judged_now,
    linked_by,
    standing,
    submission_fingerprint,
)

PACKAGE = Path(fingerprints.__file__).parents[1]


@pytest.fixture
def trees(tmp_path: Path) -> Trees:
    found = []
    for name, package in (("transformers", "src/transformers"), ("pytorch", "torch")):
        package_dir = tmp_path / name / package
        package_dir.mkdir(parents=True)
        (package_dir / "a.py").write_text(f"# {name}\n")
        found.append(Tree(name, tmp_path / name, package_dir, name, "1.0"))
    return Trees(found[0], found[1], (), tmp_path)


def files_of(trees: Trees) -> list[tuple[Tree, Path]]:
    return [(tree, tree.package_dir / "a.py") for tree in trees]


@pytest.fixture
def analysis(trees: Trees) -> ModuleAnalysis:
    return analyses.mlp(fingerprint=fingerprint(files_of(trees)))


@pytest.fixture
def handed_in(trees: Trees) -> ModuleAnalysis:
    return analyses.mlp(engine="agent", fingerprint=submission_fingerprint(files_of(trees)))


def with_fingerprint(analysis: ModuleAnalysis, **changed: str) -> ModuleAnalysis:
    return analysis.model_copy(update={"fingerprint": {**analysis.fingerprint, **changed}})


def other_rules(monkeypatch: pytest.MonkeyPatch, *keys: str) -> None:
    for key in keys:
        monkeypatch.setattr(fingerprints, key, lambda: "other rules")


# --- analyses --------------------------------------------------------------------------------------------------------


def test_keys_are_two_parts_of_lmp_and_files_relative_to_their_trees(
    analysis: ModuleAnalysis, handed_in: ModuleAnalysis
) -> None:
    assert list(analysis.fingerprint) == ["derived_by", "judged_by", "src/transformers/a.py", "torch/a.py"]
    assert list(handed_in.fingerprint) == ["judged_by", "src/transformers/a.py", "torch/a.py"]


def test_current_until_a_file_changes(analysis: ModuleAnalysis, trees: Trees) -> None:
    assert standing(analysis, trees) == "current"
    assert trees.pytorch is not None
    path = trees.pytorch.package_dir / "a.py"
    text = path.read_text()
    path.write_text("# other\n")
    assert standing(analysis, trees) == "derive again"
    path.write_text(text)
    os.utime(path, ns=(0, 0))  # touched, with the content that it had
    assert standing(analysis, trees) == "current"
    path.unlink()
    assert standing(analysis, trees) == "derive again"


@pytest.mark.parametrize(
    ("changed", "own", "others"),
    [
        (("judged_by",), "judge again", "judge again"),
        (("derived_by",), "derive again", "current"),
        (("derived_by", "judged_by"), "derive again", "judge again"),
    ],
)
def test_what_is_done_when_lmp_changes(
    changed: tuple[str, ...],
    own: str,
    others: str,
    analysis: ModuleAnalysis,
    handed_in: ModuleAnalysis,
    trees: Trees,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other_rules(monkeypatch, *changed)
    assert standing(analysis, trees) == own
    assert standing(handed_in, trees) == others


def test_a_changed_file_outweighs_a_changed_judge(
    handed_in: ModuleAnalysis, trees: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_rules(monkeypatch, "judged_by")
    assert standing(with_fingerprint(handed_in, **{"torch/a.py": "0"}), trees) == "derive again"


def test_judging_again_renews_the_judge_alone(
    analysis: ModuleAnalysis, trees: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = analysis.fingerprint
    other_rules(monkeypatch, "judged_by")
    after = judged_now(before)
    assert after == {**before, "judged_by": "other rules"}
    assert list(after) == list(before)
    assert standing(analysis.model_copy(update={"fingerprint": after}), trees) == "current"


@pytest.mark.parametrize("key", ["../secret.py", "/etc/passwd", "elsewhere/a.py", "src/transformers/../a.py"])
def test_a_file_outside_the_trees_is_never_current(analysis: ModuleAnalysis, trees: Trees, key: str) -> None:
    assert standing(with_fingerprint(analysis, **{key: "0"}), trees) == "derive again"


@pytest.mark.parametrize("engine", ["trace", "agent", "by hand"])
def test_without_a_fingerprint_nothing_is_current(trees: Trees, engine: str) -> None:
    assert standing(analyses.mlp(engine=engine), trees) == "derive again"
    no_files = {"derived_by": fingerprints.derived_by(), "judged_by": fingerprints.judged_by()}
    assert standing(analyses.mlp(engine=engine, fingerprint=no_files), trees) == "derive again"


# --- files of an older lmp -------------------------------------------------------------------------------------------


def former(fingerprint: dict[str, str], key: str) -> dict[str, str]:
    """The fingerprint in the form that it had before derived and judged were kept apart: one key of lmp's own."""
    files = {name: digest for name, digest in fingerprint.items() if "/" in name}
    return {key: "0" * 64, **files}


def test_an_analysis_of_the_former_form_is_derived_again(analysis: ModuleAnalysis, trees: Trees) -> None:
    old = former(analysis.fingerprint, "lmp")
    assert standing(analysis.model_copy(update={"fingerprint": old}), trees) == "derive again"
    # Not even with the digest that is due now: what it was made of is not what the key says today.
    old["lmp"] = fingerprints.derived_by()
    assert standing(analysis.model_copy(update={"fingerprint": old}), trees) == "derive again"


def test_what_was_handed_in_in_the_former_form_is_judged_again(handed_in: ModuleAnalysis, trees: Trees) -> None:
    old = former(handed_in.fingerprint, "lmp.verify")
    assert standing(handed_in.model_copy(update={"fingerprint": old}), trees) == "judge again"
    old["lmp.verify"] = fingerprints.judged_by()
    assert standing(handed_in.model_copy(update={"fingerprint": old}), trees) == "judge again"
    assert judged_now(old) == handed_in.fingerprint
    # lmp's own engine never wrote that key.
    own = handed_in.model_copy(update={"engine": "trace", "fingerprint": old})
    assert standing(own, trees) == "derive again"


# --- models ----------------------------------------------------------------------------------------------------------


def linked(trees: Trees, **more: object) -> ModelAnalysis:
    made_with = {LINKED_BY: linked_by("sdpa", "bfloat16")}
    files = fingerprint(files_of(trees))
    return link(analyses.linear(), {}.__getitem__).model_copy(update={"fingerprint": files | made_with | more})


def test_a_model_is_current_until_a_file_or_what_was_asked_changes(trees: Trees) -> None:
    model = linked(trees)
    asked = linked_by("sdpa", "bfloat16")
    assert is_model_current(model, trees, asked)
    assert not is_model_current(model, trees, linked_by("eager", "bfloat16"))
    assert trees.pytorch is not None
    (trees.pytorch.package_dir / "a.py").write_text("# other\n")
    assert not is_model_current(model, trees, asked)


@pytest.mark.parametrize("key", ["derived_by", "judged_by", "linked_by"])
def test_a_model_is_no_longer_current_than_what_derived_judged_and_linked_it(trees: Trees, key: str) -> None:
    assert not is_model_current(linked(trees, **{key: "other rules"}), trees, linked_by("sdpa", "bfloat16"))


@pytest.mark.parametrize("key", ["lmp.link", "lmp.expand"])
def test_a_model_of_the_former_form_is_linked_again(trees: Trees, key: str) -> None:
    asked = linked_by("sdpa", "bfloat16")
    old = {key: asked, **former(fingerprint(files_of(trees)), "lmp")}
    assert not is_model_current(linked(trees).model_copy(update={"fingerprint": old}), trees, asked)
    # One that some lmp between the two may have written, with both forms.
    both = {**linked(trees).fingerprint, "lmp": fingerprints.derived_by()}
    assert not is_model_current(linked(trees).model_copy(update={"fingerprint": both}), trees, asked)


def test_a_model_of_parts_without_sources_is_current(trees: Trees) -> None:
    asked = linked_by()
    model = linked(trees)
    assert is_model_current(model.model_copy(update={"fingerprint": {LINKED_BY: asked}}), trees, asked)
    assert not is_model_current(model.model_copy(update={"fingerprint": {}}), trees, asked)


# --- which parts of lmp ----------------------------------------------------------------------------------------------


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package's sources in a folder of their own, to be changed."""
    return Path(shutil.copytree(PACKAGE, tmp_path / "lmp", ignore=shutil.ignore_patterns("__pycache__", "static")))


def fingerprints_of(package: Path) -> ModuleType:
    """The module under test as it stands in that copy, whose sources are the ones that it looks at."""
    spec = importlib.util.spec_from_file_location("fingerprint_of_a_copy", package / "store" / "fingerprint.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("verify/judge.py", "judge again"),
        ("verify/points.py", "judge again"),
        ("verify/operators.py", "judge again"),
        ("trace/rules.py", "derive again"),
        ("workload/base.py", "derive again"),
        ("formula/simplify.py", "derive again"),
        ("flops.py", "derive again"),
        ("records.py", "derive again"),
        ("analyze/own.py", "derive again"),
        ("report/index.py", "current"),
        ("cli/main.py", "current"),
        ("link/link.py", "current"),
    ],
)
def test_one_changed_byte_of_lmp(copy: Path, trees: Trees, analysis: ModuleAnalysis, file: str, expected: str) -> None:
    assert fingerprints_of(copy).standing(analysis, trees) == "current"
    with (copy / file).open("ab") as source:
        source.write(b"\n")
    assert fingerprints_of(copy).standing(analysis, trees) == expected


@pytest.mark.parametrize(("file", "expected"), [("verify/judge.py", "judge again"), ("trace/rules.py", "current")])
def test_one_changed_byte_and_what_was_handed_in(
    copy: Path, trees: Trees, handed_in: ModuleAnalysis, file: str, expected: str
) -> None:
    with (copy / file).open("ab") as source:
        source.write(b"\n")
    assert fingerprints_of(copy).standing(handed_in, trees) == expected


def imported(files: Iterable[Path]) -> set[Path]:
    """The files of lmp that these files import, wherever in the file they do so."""
    found: set[Path] = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lmp."):
                place = PACKAGE.joinpath(*str(node.module).split(".")[1:])
                inside = [place / f"{alias.name}.py" for alias in node.names]
                one = place.with_suffix(".py")
                found |= {one} if one.is_file() else {path for path in inside if path.is_file()} or {place}
    return found


@pytest.mark.parametrize("rooms", [("trace", "workload", "formula"), ("verify", "workload", "formula")])
def test_nothing_that_decides_is_left_out(rooms: tuple[str, ...]) -> None:
    """What the engine imports is in one fingerprint, what the judge imports in the other."""
    sources = DERIVING if "trace" in rooms else JUDGING
    assert set(rooms) <= set(sources)
    # Errors decide on exit codes. Of the trees, and of what is installed, the workload uses only where they are.
    exempt = {PACKAGE / "errors.py", PACKAGE / "source" / "trees.py", PACKAGE / "source" / "installed.py"}
    files = [file for room in rooms for file in (PACKAGE / room).rglob("*.py")]
    listed = [PACKAGE / name for name in sources]
    left_out = {p for p in imported(files) - exempt if not any(p.is_relative_to(place) for place in listed)}
    assert left_out == set()


def test_every_source_that_is_listed_is_there() -> None:
    assert [name for name in (*DERIVING, *JUDGING, *LINKING) if not (PACKAGE / name).exists()] == []


def test_linking_has_sources_of_its_own() -> None:
    assert linked_by() != linked_by("")
    digests = {fingerprints.sources_fingerprint((name,)) for name in ("link", "trace", "verify")}
    assert len(digests) == 3
