"""Plans and styles of parallelism as they are read, against the sources themselves."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from lmp.report.facts import ModelFacts
from lmp.report.implementation.plans import Plans
from lmp.report.implementation.styles import FOLDER, Registry


@pytest.fixture(scope="module")
def styles(transformers_tree: Path) -> dict[str, list[str]]:
    root = transformers_tree.parents[1]
    return {name: [c.primitive for c in style.collectives] for name, style in Registry(root / FOLDER, FOLDER).styles()}


def test_what_each_style_sends(styles: dict[str, list[str]]) -> None:
    """As read by a person in ``transformers/distributed/tensor_parallel.py``."""
    assert styles["colwise"] == []  # its output stays split
    assert styles["colwise_gather_output"] == ["all_gather"]  # Shard(-1) -> Replicate
    assert styles["rowwise"] == ["all_reduce"]  # dist.all_reduce(output)
    assert styles["embedding_rowwise"] == ["all_reduce"]  # shard_dim=0: Partial -> Replicate
    assert styles["embedding_colwise"] == ["all_gather"]  # shard_dim=1: Shard(-1) -> Replicate
    assert styles["moe_tp_experts"] == ["all_reduce"]  # _AllReduceForward.apply
    assert styles["replicated_with_grad_allreduce"] == []  # gradients only
    assert styles["packed_colwise"] == styles["grouped_gemm"] == []


def test_implementations_of_expert_parallelism(transformers_tree: Path) -> None:
    root = transformers_tree.parents[1]
    style = dict(Registry(root / FOLDER, FOLDER).styles())["ep_dispatch_experts"]
    found = {way.name: [c.primitive for c in way.collectives] for way in style.implementations}
    # Counts, tokens and results by all_to_all, then one all_gather over the tensor-parallel group.
    assert found["all_to_all"] == ["all_to_all", "all_to_all", "all_to_all", "all_gather"]
    assert found["all_reduce"] == ["all_reduce"]
    assert found["auto"] == []  # it hands on to another


def test_rules_are_those_of_the_config_class(small_llama: ModelFacts, transformers_tree: Path) -> None:
    text = (transformers_tree / "models/llama/configuration_llama.py").read_text()
    plan = next(
        ast.literal_eval(node.value)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "base_model_tp_plan"
    )
    rules = {rule.pattern: rule for rule in Plans(small_llama).rules["tensor"]}
    assert {name: rule.style for name, rule in rules.items()} == {**plan, "lm_head": "colwise_gather_output"}
    lines = text.splitlines()
    assert all(f'"{name}"' in lines[rules[name].line - 1] for name in plan)
