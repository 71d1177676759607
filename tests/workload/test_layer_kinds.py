"""What makes layers alike, and how their kinds come again in a stack."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from lmp.workload.base import LayerPattern
from lmp.workload.kinds import (
    COUNTED_ALIKE,
    RUN_ALIKE,
    SAME_INSTANCE,
    SHOWN_ALIKE,
    Facts,
    kind_of,
    kinds_of,
    pattern_of,
)


@pytest.mark.parametrize(
    ("kinds", "pattern"),
    [
        ([0, 0, 0, 0], LayerPattern(0, 1)),
        ([0, 1, 0, 1], LayerPattern(0, 2)),
        ([0, 1, 1, 1] * 3, LayerPattern(0, 4)),
        ([0, 0, 1, 1, 1, 1], LayerPattern(2, 1)),  # dense ones first
        (
            [0, 1, 1, 2, 1, 1, 1, 2, 1, 1, 1, 2],
            LayerPattern(1, 4),
        ),  # a dense one, then three windows and one without
        ([0, 1, 2, 0, 1, 2, 0], LayerPattern(0, 3)),  # the last period is cut off
        ([0, 1, 2, 3], None),
        ([0, 1], None),  # nothing is seen twice
        ([0, 1, 1, 1, 0], None),  # the last layer is a case of its own
    ],
)
def test_pattern_of_kinds(kinds: list[int], pattern: LayerPattern | None) -> None:
    assert pattern_of(kinds) == pattern


def test_layers_are_alike_whatever_their_index_is_called() -> None:
    layers = torch.nn.ModuleList(torch.nn.Linear(4, 4, bias=i % 3 != 2) for i in range(6))
    for index, layer in enumerate(layers):
        layer.my_place = index  # type: ignore[assignment]
        layer.window = 128 if index % 3 else 0  # type: ignore[assignment]
    # the third has a window as the second, and no bias
    assert kinds_of(layers) == [0, 1, 2, 0, 1, 2]
    assert pattern_of(kinds_of(layers)) == LayerPattern(0, 3)


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


ALL = frozenset({RUN_ALIKE, COUNTED_ALIKE, SHOWN_ALIKE, SAME_INSTANCE})


def _set(name: str, value: object) -> Callable[[torch.nn.Module], object]:
    return lambda module: setattr(module, name, value)


@pytest.mark.parametrize(
    ("change", "alike"),
    [
        (_set("training", False), ALL),
        (_set("window", None), frozenset()),  # a switch that is off, and not a number
        (_set("window", 256), {COUNTED_ALIKE}),  # another size
        (_set("scale", 0.25), {COUNTED_ALIKE}),
        (_set("causal", 1), ALL - {SAME_INSTANCE}),  # equal to True, and of another type
        (_set("layer_idx", 7), {RUN_ALIKE, COUNTED_ALIKE, SHOWN_ALIKE}),
        (_set("_kept", 2), {COUNTED_ALIKE, SAME_INSTANCE}),
        (_set("attention_dropout", 0.1), {RUN_ALIKE, COUNTED_ALIKE}),
        (_set("kernel", (3, 5)), {COUNTED_ALIKE, SAME_INSTANCE}),
        (_set("names", ("a", "c")), {RUN_ALIKE, COUNTED_ALIKE, SAME_INSTANCE}),
        (_set("weight", torch.nn.Parameter(torch.empty(4, 8))), {COUNTED_ALIKE}),
        (lambda module: module.to(torch.bfloat16), {RUN_ALIKE, COUNTED_ALIKE}),
        (lambda module: module.register_buffer("table", torch.empty(3)), {RUN_ALIKE, COUNTED_ALIKE}),
        (_set("inner", torch.nn.ReLU()), frozenset()),  # another class
    ],
)
def test_which_facts_make_a_difference(change: Callable[[torch.nn.Module], object], alike: frozenset[Facts]) -> None:
    def made() -> torch.nn.Module:
        module = torch.nn.Linear(4, 4)
        for name, value in {"window": 128, "scale": 0.5, "causal": True, "layer_idx": 0, "_kept": 1}.items():
            setattr(module, name, value)
        module.attention_dropout, module.kernel, module.names = 0.0, (3, 3), ("a", "b")  # type: ignore[assignment]
        module.inner = torch.nn.GELU()
        return module

    other = made()
    change(other)
    assert {facts for facts in ALL if kind_of(made(), facts) == kind_of(other, facts)} == set(alike)


def test_what_is_shared_counts_where_it_is_asked_for() -> None:
    shared = torch.nn.Linear(4, 4).weight
    one, other = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    other.weight = shared

    def owner(parameter: torch.nn.Parameter) -> str:
        return "elsewhere" if parameter is shared else "here"

    assert kind_of(one, SHOWN_ALIKE) == kind_of(other, SHOWN_ALIKE)
    assert kind_of(one, SHOWN_ALIKE, owner=owner) != kind_of(other, SHOWN_ALIKE, owner=owner)
