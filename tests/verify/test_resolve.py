"""Values of all parameters of an analysis at a call."""

from __future__ import annotations

import torch

from lmp.verify.resolve import contradicted, resolve_all
from lmp.workload.arguments import recording
from lmp.workload.calls import Call


class Block(torch.nn.Module):
    def __init__(self, width: int, bias: bool = False) -> None:
        super().__init__()
        self.groups = 4


def call_of(width: int) -> Call:
    with recording():
        return Call(Block(width), "block", 0, None)


def test_resolve_all_keeps_what_it_can() -> None:
    found, failed = resolve_all({"a": "self.groups", "b": "self.none"}, call_of(32), {})
    assert found == {"a": 4}
    assert failed == {"b": "self.none: there is no .none in a Block"}


def test_a_variable_under_an_arguments_name_has_the_arguments_value() -> None:
    point = {"batch_size": 2, "seq_len": 5, "cache_len": 7}
    assert contradicted({"width": 32, "bias": 0, "groups": 4}, call_of(32), point) == {}
    assert contradicted({"width": 64}, call_of(32), point) == {
        "width": "it is 64, and the constructor was given width=32"
    }
    assert contradicted({"cache_len": 5}, call_of(32), point) == {"cache_len": "it is 5, and the cache holds 7 tokens"}
    swapped = contradicted({"batch_size": 5, "seq_len": 2}, call_of(32), point)
    assert swapped == {"batch_size": "it is 5, which is seq_len at this point, and seq_len is the batch's 2"}
