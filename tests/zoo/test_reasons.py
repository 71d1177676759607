"""Exceptions are sorted: the default config, a missing package, lmp; with the innermost line of a model."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from analyses import MLP, kernel, layer, linear, mlp

from lmp.errors import InconsistentDefault, MissingDependency, TraceFailed, VerificationFailed
from lmp.link.link import link
from lmp.records import Verification
from lmp.source.trees import find_trees
from lmp.zoo.reasons import line_of_class, reason_for, reason_unverified
from lmp.zoo.requests import Request


@pytest.fixture
def raised(tmp_path: Path) -> Callable[[str], BaseException]:
    """What code raises that stands in a model's file."""
    file = tmp_path / "transformers" / "models" / "a" / "modeling_a.py"
    file.parent.mkdir(parents=True)

    def run(source: str) -> BaseException:
        file.write_text(source)
        spec = importlib.util.spec_from_file_location("modeling_a", file)
        assert spec is not None
        assert spec.loader is not None
        try:
            spec.loader.exec_module(importlib.util.module_from_spec(spec))
        except Exception as error:
            return error
        raise AssertionError

    return run


def test_a_none_where_a_number_is_needed_is_of_the_config(raised: Any) -> None:
    found = reason_for(raised("def __init__():\n    return None ** -0.5\n__init__()"))
    assert found.cause == "config"
    assert found.place == "src/transformers/models/a/modeling_a.py:2"
    assert found.text.startswith("TypeError: unsupported operand")


def test_a_missing_package_is_named(raised: Any) -> None:
    found = reason_for(raised("raise ImportError('A requires the timm library but it was not found')"))
    assert (found.cause, found.text) == ("dependency", "the package timm is not installed")
    assert (
        reason_for(MissingDependency("A needs the package timm, which is not installed.", "timm")).cause == "dependency"
    )


def test_what_the_code_cannot_do_without_data_is_lmps(raised: Any) -> None:
    found = reason_for(raised("def forward():\n    raise NotImplementedError('no data')\nforward()"))
    assert (found.cause, found.place) == ("lmp", "src/transformers/models/a/modeling_a.py:2")


def test_an_error_of_lmp_keeps_its_words_and_the_line_of_its_cause(raised: Any) -> None:
    error = TraceFailed("lmp has no rule for this\nplease report\nmore")
    error.__cause__ = raised("\n\ndef forward():\n    raise RuntimeError('x')\nforward()")
    told = "lmp has no rule for this\nplease report"
    assert reason_for(error) == ("lmp", "src/transformers/models/a/modeling_a.py:4", told, False)
    assert reason_for(InconsistentDefault("it contradicts itself")).cause == "config"


def test_formulas_that_differ_are_told_apart_from_none() -> None:
    assert reason_for(VerificationFailed("flops of line 3 is 1 by formula and 2 executed")).differs
    assert not reason_for(TraceFailed("no rule")).differs


def test_the_line_that_an_error_is_about_is_its_place() -> None:
    error = VerificationFailed("flops of line 3 is 1 by formula and 2 executed")
    assert reason_for(error).place is None
    file = "/somewhere/site-packages/transformers/models/a/modeling_a.py"
    assert reason_for(error.at(file, 3)).place == "src/transformers/models/a/modeling_a.py:3"
    assert (
        reason_for(error.at("src/transformers/models/a/modeling_a.py", 4)).place
        == "src/transformers/models/a/modeling_a.py:4"
    )
    assert reason_for(error.at("torch/nn/modules/linear.py", 5)).place == "torch/nn/modules/linear.py:5"
    # No path of a machine is written down.
    assert reason_for(error.at("/somewhere/torch/nn/modules/linear.py", 5)).place == "torch/nn/modules/linear.py:5"
    assert (
        reason_for(error.at("/home/transformers/torch/nn/modules/linear.py", 5)).place == "torch/nn/modules/linear.py:5"
    )
    assert reason_for(error.at("/home/me/blocks.py", 6)).place == "blocks.py:6"


def test_where_no_line_is_known_it_is_that_of_the_class() -> None:
    trees = find_trees()
    if trees.pytorch is None:
        pytest.skip("no sources are vendored here")
    request = Request("alpha", "base", "AlphaModel", "results", None, None, None, "bfloat16", "0")
    place = line_of_class("torch.nn.Linear", request)
    assert place is not None
    file, _, line = place.rpartition(":")
    assert (trees.pytorch.root / file).read_text().splitlines()[int(line) - 1].startswith("class Linear(")
    assert line_of_class("torch.nn.Nothing", request) is None


def test_operators_without_a_rule_are_named_with_their_first_line() -> None:
    unruled = Verification(status="unverified", reason="operators without a rule: frob; their FLOPs are not counted")
    kernels = [kernel(170, "1", "0", "0"), kernel(171, "0", "0", "0", operation="frob"), *mlp().kernels]
    part = mlp(uncounted=["frob"], verification=unruled, kernels=kernels)
    model = link(layer(), {a.class_name: a for a in (part, linear())}.__getitem__)
    assert reason_unverified(model, [layer(), part, linear()]) == (
        "lmp",
        "src/transformers/models/llama/modeling_llama.py:171",
        f"not every part is verified: {MLP} (unverified); operators without a rule: frob; their FLOPs are not counted",
        False,
    )


def test_what_is_not_verified_for_another_reason_has_no_line() -> None:
    by_hand = mlp(verification=Verification(status="unverified", reason="by hand"))
    model = link(layer(), {a.class_name: a for a in (by_hand, linear())}.__getitem__)
    found = reason_unverified(model, [layer(), by_hand, linear()])
    assert (found.place, found.text) == (None, f"not every part is verified: {MLP} (unverified); by hand")


@pytest.mark.parametrize("error", [KeyError("x"), MemoryError(), RecursionError("deep")])
def test_anything_can_be_sorted(error: BaseException) -> None:
    assert reason_for(error).cause == "lmp"
    assert reason_for(error).place is None


def test_a_model_whose_package_is_missing_says_which(transformers_tree: Path) -> None:
    if importlib.util.find_spec("timm"):
        pytest.skip("timm is installed")
    from lmp.workload.load import load_class
    from lmp.workload.parent_models import find_parent_model

    with pytest.raises(MissingDependency) as caught:
        find_parent_model(load_class("transformers.models.gemma3n.modeling_gemma3n.Gemma3nForConditionalGeneration"))
    assert caught.value.package == "timm"
    assert reason_for(caught.value).cause == "dependency"
