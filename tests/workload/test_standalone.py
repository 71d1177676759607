"""PyTorch's modules on their own: which constructor sizes and input shapes were found, and that they run."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch

from lmp.errors import TraceFailed
from lmp.workload.arguments import constructor_arguments
from lmp.workload.load import quiet_warnings
from lmp.workload.standalone import StandaloneWorkload

TOKENS = ("batch_size", "seq_len")
IMAGE = ("height", "width")

FOUND: dict[str, tuple[set[str], tuple[tuple[str, ...], ...]]] = {
    # class: the sizes that its constructor requires, the shape of each tensor that forward() takes
    "Linear": ({"in_features", "out_features"}, ((*TOKENS, "in_features"),)),
    "Bilinear": ({"in1_features", "in2_features", "out_features"},
                 ((*TOKENS, "in1_features"), (*TOKENS, "in2_features"))),
    "Embedding": ({"num_embeddings", "embedding_dim"}, (TOKENS,)),
    "LayerNorm": ({"normalized_shape"}, ((*TOKENS, "normalized_shape"),)),
    "RMSNorm": ({"normalized_shape"}, ((*TOKENS, "normalized_shape"),)),
    "GroupNorm": ({"num_groups", "num_channels"}, (("batch_size", "num_channels", "length"),)),
    "BatchNorm1d": ({"num_features"}, (("batch_size", "num_features", "length"),)),
    "BatchNorm2d": ({"num_features"}, (("batch_size", "num_features", *IMAGE),)),
    "Conv1d": ({"in_channels", "out_channels", "kernel_size"}, (("batch_size", "in_channels", "length"),)),
    "Conv2d": ({"in_channels", "out_channels", "kernel_size"}, (("batch_size", "in_channels", *IMAGE),)),
    "Conv3d": ({"in_channels", "out_channels", "kernel_size"}, (("batch_size", "in_channels", "depth", *IMAGE),)),
    "ConvTranspose1d": ({"in_channels", "out_channels", "kernel_size"}, (("batch_size", "in_channels", "length"),)),
    "ConvTranspose2d": ({"in_channels", "out_channels", "kernel_size"}, (("batch_size", "in_channels", *IMAGE),)),
    "MaxPool2d": ({"kernel_size"}, (("batch_size", "channels", *IMAGE),)),
    "AvgPool2d": ({"kernel_size"}, (("batch_size", "channels", *IMAGE),)),
    "AdaptiveAvgPool2d": ({"output_size"}, (("batch_size", "channels", *IMAGE),)),
    "GELU": (set(), ((*TOKENS, "hidden_size"),)),
    "SiLU": (set(), ((*TOKENS, "hidden_size"),)),
    "ReLU": (set(), ((*TOKENS, "hidden_size"),)),
    "Softmax": (set(), ((*TOKENS, "hidden_size"),)),
    "Dropout": (set(), ((*TOKENS, "hidden_size"),)),
    "MultiheadAttention": ({"embed_dim", "num_heads"},
                           (("seq_len", "batch_size", "embed_dim"), *[("source_len", "batch_size", "embed_dim")] * 2)),
    "Identity": (set(), ((*TOKENS, "hidden_size"),)),
    "Upsample": ({"size"}, (("batch_size", "channels", *IMAGE),)),
}  # fmt: skip


def execute(workload: StandaloneWorkload, values: dict[str, int]) -> tuple[torch.nn.Module, list[torch.Tensor]]:
    """The module at these values, and the tensors that it was given."""
    module = workload.build(values)
    given: list[torch.Tensor] = []
    handle = module.register_forward_pre_hook(lambda m, args: given.extend(args))
    with quiet_warnings():
        workload.run(module, values, contextlib.nullcontext())
    handle.remove()
    return module, given


@pytest.fixture(params=FOUND)
def found(request: pytest.FixtureRequest) -> tuple[str, StandaloneWorkload]:
    with quiet_warnings():
        return request.param, StandaloneWorkload(getattr(torch.nn, request.param))


def test_what_was_found_lets_the_module_run(found: tuple[str, StandaloneWorkload]) -> None:
    name, workload = found
    sizes, shapes = FOUND[name]
    assert tuple(shape.dimensions for shape in workload.inputs.values()) == shapes
    assert sizes <= workload.required
    # beside the constructor's own, nothing is required but the lengths of inputs
    lengths = {d for shape in shapes for d in shape} - {"batch_size", "seq_len"}
    assert workload.required == sizes | lengths
    values = {**workload.hints, "batch_size": 3, "seq_len": 4}
    module, given = execute(workload, values)
    assert not module.training
    assert [tuple(t.shape) for t in given] == [tuple(values[d] for d in shape) for shape in shapes]
    assert {t.device.type for t in (*given, *module.parameters())} == {"meta"}
    assert {p.dtype for p in module.parameters()} <= {torch.bfloat16}


def test_hints_and_defaults(found: tuple[str, StandaloneWorkload]) -> None:
    name, workload = found
    assert workload.hints.keys() == workload.variables.keys()
    assert workload.flags <= workload.variables.keys()
    assert not workload.flags & workload.required
    for variable in workload.variables.values():
        assert variable.path.startswith(("init.", "inputs."))
    arguments = constructor_arguments(workload.build(workload.hints))
    for flag in workload.flags:
        assert arguments[flag] == bool(workload.variables[flag].default), (name, flag)


def test_other_sizes_run_too() -> None:
    workload = StandaloneWorkload(torch.nn.Linear)
    values = {"in_features": 7, "out_features": 9, "bias": 0, "batch_size": 1, "seq_len": 1}
    module, given = execute(workload, values)
    assert tuple(module.weight.shape) == (9, 7)
    assert module.bias is None
    assert tuple(given[0].shape) == (1, 1, 7)


def test_optional_sizes_take_values_that_show() -> None:
    workload = StandaloneWorkload(torch.nn.Conv1d)
    assert {n: workload.variables[n].default for n in ("stride", "padding", "dilation", "groups")} == {
        "stride": 1, "padding": 0, "dilation": 1, "groups": 1,
    }  # fmt: skip
    assert all(workload.hints[n] != workload.variables[n].default for n in ("stride", "padding", "dilation", "groups"))
    module, _ = execute(workload, {**workload.hints, "batch_size": 2, "seq_len": 5})
    assert tuple(module.stride) == (workload.hints["stride"],)


def test_indices_are_integers() -> None:
    workload = StandaloneWorkload(torch.nn.Embedding)
    _, given = execute(workload, {**workload.hints, "batch_size": 2, "seq_len": 5})
    assert given[0].dtype == torch.int64


def test_what_is_no_variable_is_said() -> None:
    assert StandaloneWorkload(torch.nn.Conv1d).fixed["padding_mode"] == "'zeros'"
    assert StandaloneWorkload(torch.nn.GELU).fixed == {"approximate": "'none'"}


def test_a_flag_may_be_fixed() -> None:
    workload = StandaloneWorkload(torch.nn.Linear)
    workload.fix("bias")
    assert "bias" not in workload.flags | workload.variables.keys() | workload.hints.keys()
    assert workload.fixed["bias"] == "True"
    assert execute(workload, {**workload.hints, "batch_size": 2, "seq_len": 5})[0].bias is not None


def test_another_dtype() -> None:
    workload = StandaloneWorkload(torch.nn.Linear, torch.float32)
    module, given = execute(workload, {**workload.hints, "batch_size": 2, "seq_len": 5})
    assert {module.weight.dtype, given[0].dtype} == {torch.float32}


class NeverRuns(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise ValueError("it never runs")


class NeverBuilt(torch.nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.size = config.hidden_size


@pytest.mark.parametrize(("cls", "why"), [(NeverRuns, "it never runs"), (NeverBuilt, "has no attribute")])
def test_a_class_that_cannot_run(cls: type[torch.nn.Module], why: str) -> None:
    with pytest.raises(TraceFailed, match=why) as error:
        StandaloneWorkload(cls)
    assert f"{cls.__qualname__} does not run on its own" in str(error.value)
    assert len(str(error.value).splitlines()) == 2


def test_torch_is_left_as_it_was() -> None:
    before = dict(vars(torch.nn.init)), torch.get_default_dtype(), torch.nn.Module.__init__
    StandaloneWorkload(torch.nn.Linear)
    with pytest.raises(TraceFailed):
        StandaloneWorkload(NeverBuilt)
    assert (dict(vars(torch.nn.init)), torch.get_default_dtype(), torch.nn.Module.__init__) == before
