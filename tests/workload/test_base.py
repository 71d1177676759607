"""The defaults of every workload."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch

from lmp.trace.runs import NO_SIZES, Runs
from lmp.workload import base
from lmp.workload.base import Workload, fewest_layers, refusal
from lmp.workload.inputs import InputsWorkload
from lmp.workload.live import LiveWorkload
from lmp.workload.model import ModelWorkload
from lmp.workload.spec import Spec, parse_inputs
from lmp.workload.standalone import StandaloneWorkload


class Least(Workload):
    """A workload that says nothing but how it is built and run."""

    def build(self, values: Mapping[str, Any]) -> torch.nn.Module:
        return torch.nn.Identity()

    def run(
        self,
        module: torch.nn.Module,
        values: Mapping[str, Any],
        observer: AbstractContextManager[Any],
        before: AbstractContextManager[Any] | None = None,
    ) -> None:
        with before or nullcontext(), observer:
            module(torch.empty(values["batch_size"], values["seq_len"], device="meta"))


def test_what_a_workload_does_not_say_has_a_default() -> None:
    least = Least(dtype=torch.float32)
    assert (least.model_class, least.config, least.attention, least.module) == (None, None, None, None)
    assert (least.asked, least.chosen, least.refused) == ({}, None, {})
    assert (least.fixed, least.fixable, least.fewest_tokens) == ({}, (), 1)
    with pytest.raises(LookupError, match="bias"):
        least.fix("bias")
    assert refusal(least, {"batch_size": 1, "seq_len": 1, "cache_len": 0}) is None


def test_no_two_workloads_share_a_default() -> None:
    one, other = Least(dtype=torch.float32), Least(dtype=torch.float32)
    one.hints["n"] = 2
    one.stacks.add("layers")
    assert not other.hints
    assert not other.stacks
    assert one != other


def test_the_engine_runs_a_workload_of_defaults() -> None:
    runs = Runs(Least(dtype=torch.float32), "/nowhere")
    # Nothing is required: as little may be symbolic as for a model. Without a cache the first tokens are all there are.
    assert runs.most_specialised == NO_SIZES
    assert runs.start_point() == {"batch_size": 2, "seq_len": 5, "cache_len": 0}
    assert runs.at({"batch_size": 1, "seq_len": 3, "cache_len": 0}) is not None


def test_fewest_layers_are_those_of_the_hints_or_the_first_in_order() -> None:
    least = Least(dtype=torch.float32, hints={"layers": 2, "stages": 3}, in_order={"layers": 5})
    assert fewest_layers(least, "layers") == 5
    assert fewest_layers(least, "stages") == 3


def test_every_attribute_says_what_it_is() -> None:
    (node,) = (n for n in ast.parse(inspect.getsource(base)).body if getattr(n, "name", "") == "Workload")
    assert isinstance(node, ast.ClassDef)
    fields = [i for i, n in enumerate(node.body) if isinstance(n, ast.AnnAssign)]
    said = [isinstance(node.body[i + 1], ast.Expr) for i in fields]
    # The dtype alone needs no telling and has no default.
    assert said == [False, *(True for _ in fields[1:])]
    assert all(n.value is not None for n in node.body[2:] if isinstance(n, ast.AnnAssign))


def test_a_module_by_itself() -> None:
    linear = StandaloneWorkload(torch.nn.Linear)
    assert linear.standalone
    assert not linear.vary
    assert linear.fixable == ("bias",)
    linear.fix("bias")
    assert linear.fixable == ("bias",)
    assert linear.fixed["bias"] == "True"


def test_a_class_and_an_instance_of_the_users_own() -> None:
    spec = Spec(parse_inputs("input: float[batch_size, seq_len, 8]"), {"in_features": 8, "out_features": 4})
    given = InputsWorkload(torch.nn.Linear, spec, torch.float32)
    assert given.vary
    assert not given.standalone
    assert given.source_modules == ()
    assert given.module is None
    # Of Linear's arguments the two sizes were given; bias has a default that is a truth value.
    assert set(given.fixable) == {"in_features", "out_features", "bias"}
    live = LiveWorkload(torch.nn.Linear(8, 4), Spec(spec.inputs, {}))
    assert isinstance(live.module, torch.nn.Linear)
    assert live.module.weight.is_meta


def test_a_model() -> None:
    from transformers import LlamaConfig, LlamaModel

    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3, "vocab_size": 11}
    config = LlamaConfig(num_attention_heads=2, num_key_value_heads=2, **sizes)  # type: ignore[arg-type]
    model = ModelWorkload(LlamaModel, config)
    assert (model.model_class, model.config, model.attention) == (LlamaModel, config, "sdpa")
    assert (model.standalone, model.vary) == (False, False)
    assert model.fixable == ()
    assert model.source_modules is None
