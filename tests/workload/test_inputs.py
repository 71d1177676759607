"""The grammar of --inputs and --init, and the workload that runs what they say."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from torch import nn

from lmp.errors import TraceFailed, UsageError
from lmp.workload.inputs import InputsWorkload
from lmp.workload.spec import Construct, Dim, Spec, TensorInput, TupleInput, parse_init, parse_inputs, parse_tensor

# --- the grammar -----------------------------------------------------------------------------------------------------


def test_inputs() -> None:
    found = parse_inputs("x: float[batch_size, seq_len, 16], pair: (bool[seq_len], int32[]), causal=true")
    assert found == {
        "x": TensorInput("float", (Dim("batch_size"), Dim("seq_len"), Dim(16))),
        "pair": TupleInput((TensorInput("bool", (Dim("seq_len"),)), TensorInput("int32", ()))),
        "causal": True,
    }


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2 * a + 3", 13),
        ("a - 1 - 1", 3),
        ("a - (1 - 1)", 5),
        ("7 // 2 * a", 15),
        ("2 * (a + b)", 24),
        ("a + b // 2", 8),
    ],
)
def test_a_dimension_is_arithmetic(text: str, size: int) -> None:
    tensor = parse_tensor(f"float[{text}]")
    assert isinstance(tensor, TensorInput)
    # With a = 5 and b = 7: products before sums, equals from left to right.
    assert tensor.dims[0].size({"a": 5, "b": 7}) == size
    assert parse_tensor(str(tensor)) == tensor


def test_init() -> None:
    text = "n=256, bias=False, eps=1e-5, low=-2, act='silu', sizes=(2, 3), one=(1,), none=None, c=pkg.Config(n=3)"
    found = parse_init(text)
    assert found == {
        "n": 256, "bias": False, "eps": 1e-5, "low": -2, "act": "silu", "sizes": (2, 3), "one": (1,), "none": None,
        "c": Construct("pkg.Config", {"n": 3}),
    }  # fmt: skip
    assert parse_init(Spec({}, found).init_text()) == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", "--inputs, character 2: expected ':', found the end"),
        ("x: floot[a]", "character 4: expected a dtype"),
        ("x: float[a", r"character 11: expected '\]', found the end"),
        ("x: float[0]", "character 10: expected a dimension of at least 1, found '0'"),
        ("x: float[1.5]", "character 10: expected a dimension of at least 1"),
        ("x: float[a] y", "character 13: expected ',' or the end, found 'y'"),
        ("x: float[a], x: int[a]", "character 14: x is given twice"),
        ("x: float[$]", "character 10: '\\$' cannot be read"),
        ("a.b: float[c]", "character 1: expected the name of an argument"),
    ],
)
def test_inputs_that_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_inputs(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a", "--init, character 2: expected '=', found the end"),
        ("a=silu", "character 3: silu is not a value: text needs quotes, as 'silu'"),
        ("a=1 b=2", "character 5: expected ',' or the end"),
        ("a=__import__('os')", r"expected the name of a constructor's argument"),
        ("a=1, a=2", "character 6: a is given twice"),
    ],
)
def test_init_that_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_init(text)


# --- the workload ----------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, hidden_size: int, bias: bool = True, eps: float = 1e-5, layers: int = 2, off: int = 0) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(hidden_size, hidden_size, bias=bias) for _ in range(layers)])
        self.seen: list[tuple[int, ...]] = []

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        self.seen.append(tuple(x.shape))
        for layer in self.layers:
            x = layer(x)
        return x if mask is None else x * mask


class Branch(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if (x == x).all():  # holds for numbers, whichever they are
            x = x * 2
        while x.sum() != 0:
            x = x * 0
        return x


class Selected(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[x > 0]


def workload(cls: Any, inputs: str, init: str = "") -> InputsWorkload:
    return InputsWorkload(cls, Spec(parse_inputs(inputs), parse_init(init)), torch.float32)


X = "x: float[batch_size, seq_len, hidden_size]"


def test_variables_are_the_sizes_of_the_constructor_and_the_inputs() -> None:
    found = workload(Block, f"{X}, mask: float[batch_size, seq_len, width]", "hidden_size=24")
    assert {n: v.path for n, v in found.variables.items()} == {
        "hidden_size": "init.hidden_size", "bias": "init.bias", "layers": "init.layers",
        "width": "inputs.mask.shape[2]",
    }  # fmt: skip
    assert found.flags == {"bias"}
    assert found.required == {"width"}
    assert found.fixed == {"off": "0", "eps": "1e-05"}
    assert not found.has_cache


def test_it_runs_with_the_values_that_it_is_given() -> None:
    found = workload(Block, X, "hidden_size=24")
    values = {"hidden_size": 40, "bias": 0, "layers": 3, "batch_size": 3, "seq_len": 7, "cache_len": 0}
    module = found.build(values)
    assert [tuple(p.shape) for p in module.parameters()] == [(40, 40)] * 3
    assert all(p.is_meta for p in module.parameters())
    assert not module.training
    found.run(module, values, contextlib.nullcontext())
    assert module.seen == [(3, 7, 40)]


def test_a_cache_is_an_input_with_cache_len() -> None:
    assert workload(Branch, "x: float[batch_size, cache_len]").has_cache


@pytest.mark.parametrize(
    ("inputs", "init", "message"),
    [
        ("y: float[2]", "hidden_size=8", r"Block\.forward\(\) takes no y\nit takes x, mask: name these in --inputs"),
        ("mask: float[2]", "hidden_size=8", r"needs x, which --inputs does not name"),
        (X, "", r"Block\(\) needs hidden_size, which --init does not name"),
        (X, "hiden_size=8", r"Block\(\) takes no hiden_size: did you mean hidden_size\?"),
        ("x: float[batch_size, 2 * n]", "hidden_size=8", r"n stands only in 2 \* n of x"),
        ("x: float[w_bytes]", "hidden_size=8", "w_bytes is the size of an element in bytes"),
        (
            "x: float[batch_size, seq_len, 9]",
            "hidden_size=8",
            r"Block\.forward\(\) does not run with x: float32\[2, 5, 9\]: .*\[10, 9\] X \[8, 8\]"
            r"\. \(test_inputs\.py:\d+\)\ngive other shapes in --inputs",
        ),
        (X, "hidden_size='wide'", r"Block\(\) cannot be constructed on the meta device with hidden_size='wide'"),
        (X, "hidden_size=Size(n=3)", "there is no class Size"),
    ],
)
def test_a_spec_that_does_not_fit(inputs: str, init: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        workload(Block, inputs, init)


def test_a_size_that_depends_on_values() -> None:
    with pytest.raises(TraceFailed, match=r"depends on the values of a tensor \(test_inputs\.py:\d+\)"):
        workload(Selected, "x: float[batch_size]")


def test_decisions_on_values_are_rehearsed_and_repeated() -> None:
    state = torch.get_rng_state()
    found = workload(Branch, "x: float[batch_size, seq_len]")
    assert torch.equal(torch.get_rng_state(), state)
    # Doubled, then made zero once: the loop asks twice.
    assert [found.decisions.described(place) for place in found.decisions.answers] == [
        ("if (x == x).all():  # holds for numbers, whichever they are", ["true"]),
        ("while x.sum() != 0:", ["true", "false"]),
    ]
    for _ in range(2):
        found.run(found.build({}), {"batch_size": 4, "seq_len": 9}, contextlib.nullcontext())


def test_a_decision_in_a_module_too_large_to_be_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmp.workload.inputs.MOST_REHEARSED", -1)
    with pytest.raises(TraceFailed, match=r"test_inputs\.py:\d+, and is too large to be run with values here"):
        workload(Branch, "x: float[batch_size, seq_len]")


class Grouped(nn.Module):
    """Takes multiples of a number of tokens only."""

    def __init__(self, dim: int = 8, group: int = 20) -> None:
        super().__init__()
        self.group = group

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[0], -1, self.group, x.shape[2]).mean(2)


class Windowed(nn.Module):
    """Needs a whole window of tokens."""

    def __init__(self, window: int = 45) -> None:
        super().__init__()
        self.window = window

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.unfold(1, self.window, 7).sum(-1)


def test_a_module_that_takes_multiples_of_tokens_is_told_so() -> None:
    spec = Spec(parse_inputs("x: float[batch_size, seq_len, dim]"))
    with pytest.raises(UsageError, match=r"Grouped takes multiples of 20 tokens only: pad them .* such as 80 in place"):
        InputsWorkload(Grouped, spec)


@pytest.mark.parametrize("window", [45, 7, 3, 600])
def test_more_tokens_are_tried_than_the_usual_ones(window: int) -> None:
    spec = Spec(parse_inputs("x: float[batch_size, seq_len, 8]"), {"window": window})
    assert InputsWorkload(Windowed, spec).fewest_tokens == window
