"""How kinds of layers come again in a stack."""

import pytest
import torch

from lmp.workload.base import Turn
from lmp.workload.kinds import kinds_of, turn_of


@pytest.mark.parametrize(
    ("kinds", "turn"),
    [
        ([0, 0, 0, 0], Turn(0, 1)),
        ([0, 1, 0, 1], Turn(0, 2)),
        ([0, 1, 1, 1] * 3, Turn(0, 4)),
        ([0, 0, 1, 1, 1, 1], Turn(2, 1)),  # dense ones first
        ([0, 1, 1, 2, 1, 1, 1, 2, 1, 1, 1, 2], Turn(1, 4)),  # a dense one first, then three windows and one without
        ([0, 1, 2, 0, 1, 2, 0], Turn(0, 3)),  # the last turn is cut off
        ([0, 1, 2, 3], None),
        ([0, 1], None),  # nothing is seen twice
        ([0, 1, 1, 1, 0], None),  # the last layer is a case of its own
    ],
)
def test_turn_of_kinds(kinds: list[int], turn: Turn | None) -> None:
    assert turn_of(kinds) == turn


def test_layers_are_alike_whatever_their_index_is_called() -> None:
    layers = torch.nn.ModuleList(torch.nn.Linear(4, 4, bias=i % 3 != 2) for i in range(6))
    for index, layer in enumerate(layers):
        layer.my_place = index  # type: ignore[assignment]
        layer.window = 128 if index % 3 else 0  # type: ignore[assignment]
    # the third has a window as the second, and no bias
    assert kinds_of(layers) == [0, 1, 2, 0, 1, 2]
    assert turn_of(kinds_of(layers)) == Turn(0, 3)


def test_a_factor_made_from_the_place_makes_no_kind_of_layer() -> None:
    layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(6))
    for index, layer in enumerate(layers):
        layer.scale = 0.8 - 0.6 / (index + 1)  # type: ignore[assignment]
        layer.adds = 2 * index + 3  # type: ignore[assignment]
        layer.limit = float(index % 2)  # type: ignore[assignment]
    # The scales are all different, what adds grows evenly; the limits are two, and may be two paths of the source.
    assert kinds_of(layers) == [0, 1, 0, 1, 0, 1]


def test_widths_that_grow_evenly_make_kinds() -> None:
    layers = torch.nn.ModuleList(torch.nn.Linear(4 * (i + 1), 4) for i in range(4))
    assert kinds_of(layers) == [0, 1, 2, 3]
