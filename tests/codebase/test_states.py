"""Recurrent states: each row follows from reading the few lines here."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmp.codebase.facts import Selection
from lmp.codebase.reading import read_repository
from lmp.codebase.roles.reach import Reading
from lmp.codebase.roles.states import state_rows


def found(folder: Path, text: str) -> dict[tuple[str, int], str]:
    """Symbol and line -> role."""
    (folder / "net.py").write_text(text)
    reading = Reading(read_repository(folder, Selection(), lambda at, of, file: None))
    return {(row.symbol, row.place.line): row.role for row in state_rows(reading)}


def line(text: str, part: str) -> int:
    return text[: text.index(part)].count("\n") + 1


CARRIED = """import torch

LayerState = tuple[torch.Tensor, torch.Tensor]


def decay(a, b, x):
    a = a * 0.5 + x
    return a, b + a


def report(x):
    print(x)


def moved(window, x):
    window = torch.roll(window, -1)
    return window


class Mixer(torch.nn.Module):
    def zeros(self, x):
        return torch.zeros(x.shape)

    def forward(self, x, state: LayerState | None = None):
        if state is None:
            state = self.zeros(x)
        first, second = state
        first, second = decay(first, second, x)
        report(first)
        return x * first, (first, second), state


class Net(torch.nn.Module):
    def __init__(self):
        self.mixer = Mixer()

    def forward(self, x, state):
        if state is None:
            state = [None] * 2
            state[0] = torch.zeros(4)
        x, state[1] = self.mixer(x, state[1])
        return x, state

    def short(self, x, held):
        x, conv_state = self.convolve(x, held.conv_state)
        return x

    def convolve(self, x, window):
        return x, moved(window, x)

    def remember(self, x, past_state):
        if "sum" in past_state:
            before = past_state["sum"]
        past_state["sum"] = x
        return x

    def step(self, x, **more):
        x, state = self.mixer(x, **more)
        return x, state


def reference(net, x, state):
    return net(x), state
"""


def test_a_state_is_followed_around(tmp_path: Path) -> None:
    rows = found(tmp_path, CARRIED)

    def at(symbol: str, text: str) -> tuple[str, int]:
        return symbol, line(CARRIED, text)

    # Net and Mixer take a state and give it back beside their result; ``zeros`` makes the first one. ``decay`` gives
    # back what is put in its place under other names; ``report`` keeps nothing. ``convolve`` is given the state that
    # its object holds, and ``remember`` writes what it read under the same key. Of the state of Net one part is made,
    # and one is what the mixer gives. ``reference`` only says the same again.
    assert rows == {
        at("LayerState", "LayerState ="): "layout",
        at("decay", "def decay"): "update",
        at("Mixer.zeros", "def zeros"): "allocate",
        at("Mixer.forward", "def forward(self, x, state: L"): "update",
        at("Net.forward", "def forward(self, x, state):"): "update",
        at("Net.forward.state", "state[0] = torch"): "allocate",
        at("Net.forward.state", "x, state[1] ="): "update",
        at("Net.short", "def short"): "update",
        at("Net.convolve", "def convolve"): "update",
        at("Net.remember", "def remember"): "update",
        at("Net.remember.past_state", 'past_state["sum"] = x'): "layout",
        at("Net.step", "def step"): "update",
    }


NONE = {
    "goes first": "def forward(self, state, x):\n        state = self.mix(state)\n        return state, x",
    "of one step": "def forward(self, hidden_states, residual):\n        return residual, hidden_states",
    "a record": "def forward(self, x, state):\n        at = state.count\n        return x + at, state",
    "another key": 'def forward(self, x, state):\n        state["b"] = state["a"]\n        return x',
    "is trained": "def forward(self, x, state):\n        x.backward()\n        return x, state",
}


@pytest.mark.parametrize("text", NONE.values(), ids=NONE)
def test_what_goes_no_round(tmp_path: Path, text: str) -> None:
    assert not found(tmp_path, f"class Net:\n    {text}\n\n    def mix(self, x):\n        return x\n")


def test_what_no_module_calls(tmp_path: Path) -> None:
    """What an optimizer keeps from step to step is no model's: the same function is, where a module calls it."""
    update = "def update(x, state):\n    state = state * 0.5 + x\n    return x, state\n"
    assert not found(tmp_path, update)
    module = "\n\nclass Net:\n    def forward(self, x, last):\n        return update(x, last)\n"
    assert found(tmp_path, update + module) == {("update", 1): "update"}
