"""Where the values of parameters come from."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lmp.workload.arguments import recording
from lmp.workload.calls import Call
from lmp.workload.paths import Unresolvable, forward_arguments, is_kv_cache, resolve


class Config:
    attribute_map = {"hidden_size": "n_embd"}  # noqa: RUF012 - as transformers has it
    n_embd = 48
    tie = True
    sliding_window = None
    rope: dict[str, Any] = {"dim": 6}  # noqa: RUF012


class Block(torch.nn.Module):
    def __init__(self, width: int, kernel: tuple[int, int] = (3, 5), bias: bool = False) -> None:
        super().__init__()
        self.config = Config()
        self.groups = 4
        self.inner = torch.nn.Linear(width, 2, device="meta")

    def forward(self, x: Any, positions: Any = None, scale: int = 7, **kwargs: Any) -> Any:
        return x


@pytest.fixture
def call() -> Call:
    with recording():
        block = Block(32)
    x, a, b = torch.empty(2, 3), torch.empty(1, 9), torch.empty(4)
    return Call(block, "block", 0, None, (x,), {"positions": (a, b), "mask": torch.empty(5, 6)})


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("config.n_embd", 48),
        ("config.hidden_size", 48),
        ("config.tie", 1),
        ("config.sliding_window", 0),
        ("config.rope.dim", 6),
        ("self.groups", 4),
        ("self.inner.out_features", 2),
        ("self.inner.weight.shape[1]", 32),
        ("self.inner.bias", 1),
        ("init.width", 32),
        ("init.kernel[1]", 5),
        ("init.bias", 0),
        ("inputs.x.shape[0]", 2),
        ("inputs.x.shape[-1]", 3),
        ("inputs.positions[0].shape[1]", 9),
        ("inputs.scale", 7),
        ("inputs.mask.shape[1]", 6),
        ("cache_len", 11),
    ],
)
def test_paths(path: str, value: int, call: Call) -> None:
    assert resolve("name", path, call, {"cache_len": 11}, int) == value


def test_a_module_without_config_takes_the_points_value_then_the_models_config() -> None:
    call = Call(torch.nn.Linear(2, 2), "", 0, None)
    assert resolve("vocab_size", "config.vocab_size", call, {"vocab_size": 100}, int) == 100
    assert resolve("hidden_size", "config.hidden_size", call, {}, int, Config()) == 48


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("config.missing", "config.missing: there is no .missing in a Config"),
        ("self.inner.nothing", "self.inner.nothing: there is no .nothing in a Linear"),
        ("init.nothing", "init.nothing: Block was not constructed with nothing (arguments: width, kernel, bias)"),
        ("inputs.y.shape[0]", "inputs.y.shape[0]: this call has no input y (inputs: x, positions, scale, mask)"),
        ("inputs.x.shape[2]", "inputs.x.shape[2]: there is no [2] in a Size"),
        ("inputs.x.dtype", "inputs.x.dtype is torch.float32, not an integer"),
        ("elsewhere.x", "elsewhere.x starts with elsewhere: expected config, self, init or inputs"),
        ("config", "config names nothing: expected config.X, self.X, init.X or inputs.NAME.shape[I]"),
        ("inputs.x.shape[n]", "inputs.x.shape[n] cannot be read at '[n]'"),
        ("seq_len", "seq_len is not given at this point"),
    ],
)
def test_a_path_that_leads_nowhere_says_where_it_ends(path: str, message: str, call: Call) -> None:
    with pytest.raises(Unresolvable) as caught:
        resolve("name", path, call, {}, int)
    assert str(caught.value) == message


class Cross(torch.nn.Module):
    def forward(self, x: Any, states: Any = None) -> Any:
        return x


def test_an_input_that_is_not_given_has_no_tokens() -> None:
    x = torch.empty(2, 3)
    inside = Call(Cross(), "cross", 1, Call(Cross(), "", 0, None), (x,))
    assert resolve("encoder_seq_len", "inputs.states.shape[1]", inside, {"encoder_seq_len": 9}, int) == 0
    assert resolve("has_states", "inputs.states", inside, {}, int) == 0
    given = Call(Cross(), "cross", 1, Call(Cross(), "", 0, None), (x, torch.empty(2, 9, 4)))
    assert resolve("encoder_seq_len", "inputs.states.shape[1]", given, {"encoder_seq_len": 9}, int) == 9
    assert resolve("has_states", "inputs.states", given, {}, int) == 1


def test_the_outermost_call_is_made_with_what_the_point_says() -> None:
    # an encoder's input went in with an earlier call
    outermost = Call(Cross(), "", 0, None, (torch.empty(2, 3),))
    assert resolve("encoder_seq_len", "inputs.states.shape[1]", outermost, {"encoder_seq_len": 9}, int) == 9


class Layer(torch.nn.Module):
    """Attention or a convolution, as layers of hybrid models are."""

    def __init__(self, attends: bool) -> None:
        super().__init__()
        if attends:
            self.attention = torch.nn.Module()
            self.attention.window = 256  # type: ignore[assignment]
        else:
            self.conv = torch.nn.Module()


def test_what_a_part_has_is_nothing_where_the_part_is_not_there() -> None:
    model = torch.nn.ModuleList([Layer(attends=False), Layer(attends=True)])
    whole = Call(model, "", 0, None)
    without, attending = (Call(layer, str(i), i + 1, whole) for i, layer in enumerate(model))
    assert resolve("window", "self.attention.window", attending, {}, int) == 256
    assert resolve("window", "self.attention.window", without, {}, int) == 0
    # what no layer has is a wrong path, and not nothing
    with pytest.raises(Unresolvable, match="attn"):
        resolve("window", "self.attn.window", without, {}, int)
    with pytest.raises(Unresolvable, match="width"):
        resolve("width", "self.attention.width", without, {}, int)


def test_a_part_that_is_none_is_not_there() -> None:
    model = torch.nn.ModuleList([Layer(attends=False), Layer(attends=True)])
    model[0].attention = None  # type: ignore[assignment]
    without = Call(model[0], "0", 1, Call(model, "", 0, None))
    assert resolve("window", "self.attention.window", without, {}, int) == 0


def test_an_input_that_is_not_given_has_no_dimensions_and_no_bytes() -> None:
    x = torch.empty(2, 3)
    inside = Call(Cross(), "cross", 1, Call(Cross(), "", 0, None), (x,))
    assert resolve("states_dims", "inputs.states.ndim", inside, {}, int) == 0
    assert resolve("states_bytes", "inputs.states.dtype.itemsize", inside, {}, int) == 0
    given = Call(Cross(), "cross", 1, Call(Cross(), "", 0, None), (x, torch.empty(2, 9, 4, dtype=torch.bfloat16)))
    # [2, 9, 4] has three dimensions; bfloat16 is 16 bits
    assert resolve("states_dims", "inputs.states.ndim", given, {}, int) == 3
    assert resolve("states_bytes", "inputs.states.dtype.itemsize", given, {}, int) == 2


class Cache:
    """A KV cache, as far as lmp asks."""

    layers = (torch.empty(2, 4, 12, 8),)

    def get_seq_length(self) -> int:
        return 12


def test_the_tokens_of_a_cache_are_those_before_the_call() -> None:
    # The cache holds 12 tokens once the call has run, of which 5 are new.
    inside = Call(Cross(), "cross", 1, Call(Cross(), "", 0, None), (torch.empty(2, 5), Cache()))
    values = {"seq_len": 5, "cache_len": 7}
    assert resolve("cache_len", "inputs.states.layers[0].shape[2]", inside, values, int) == 7
    assert is_kv_cache(Cache())
    assert not is_kv_cache(torch.empty(2))


def test_sizes_may_be_formulas() -> None:
    # `size` reads every integer of the run: here as text, as the engine reads symbolic ones as formulas.
    call = Call(torch.nn.Linear(6, 24), "", 0, None)
    assert resolve("width", "self.in_features", call, {"seq_len": "s"}, str) == "6"
    assert resolve("seq_len", "seq_len", call, {"seq_len": "s"}, str) == "s"
    assert resolve("bias", "self.bias", call, {"seq_len": "s"}, str) == 1
    # without a config of its own, the point's value under the contract's name
    assert resolve("heads", "config.num_attention_heads", call, {"num_heads": "h"}, str) == "h"


def test_arguments_by_name(call: Call) -> None:
    assert list(forward_arguments(call)) == ["x", "positions", "mask"]
    with_defaults = forward_arguments(call, defaults=True)
    assert list(with_defaults) == ["x", "positions", "scale", "mask"]
    assert with_defaults["scale"] == 7
    assert forward_arguments(Call(Cross(), "", 0, None), defaults=True) == {"states": None}
