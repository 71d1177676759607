"""The tree as rows: folded, sorted, cut; what is shown adds up."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import small_models as small

from lmp.link.numbers import CostNumbers, ModelNumbers
from lmp.link.values import values_for
from lmp.report.formats.base import Show
from lmp.report.formats.rows import Row, everything, rows


def found(show: Show, **model: Any) -> list[Row]:
    numbers = ModelNumbers(small.model(**model))
    return rows(numbers.model, numbers.tree(values_for(numbers.model, small.POINT)), show)


def names(shown: list[Row]) -> list[str]:
    return ["  " * row.depth + row.name for row in shown]


def test_a_small_tree_is_shown_with_its_operators() -> None:
    shown = found(Show())
    assert names(shown) == [
        "Root",
        "  lookup",
        "  layers.0 Layer",
        "    add",
        "    proj Linear",
        "      matrix product",
    ]
    assert [row.place for row in shown] == ["", "models.py:10", "", "layers.py:21", "", "Linear:31"]
    assert shown[2].share == 1  # all FLOPs: 13,056
    assert shown[3].share == Fraction(768, 13_056)
    assert [row.runs for row in shown] == [1, 1, 3, 3, 3, 3]


def test_levels_below_the_depth_are_folded() -> None:
    assert names(found(Show(depth=0))) == ["Root"]
    assert names(found(Show(depth=1, kernels=False))) == ["Root", "  layers.0 Layer", "  1 operator of its own"]
    assert names(found(Show(depth=2, kernels=True)))[-1] == "    proj Linear"


def test_operators_are_summed_up_where_they_do_not_stand_alone() -> None:
    shown = found(Show(kernels=False))
    assert names(shown) == [
        "Root",
        "  layers.0 Layer",
        "    proj Linear",
        "    1 operator of its own",
        "  1 operator of its own",
    ]
    assert shown[3].cost == CostNumbers(768, 0, 3_072, 1_536)
    assert shown[4].cost == CostNumbers(0, 0, 768, 512)


def test_sorting_keeps_the_tree() -> None:
    shown = found(Show(sort="flops"))
    assert names(shown) == [
        "Root",
        "  layers.0 Layer",
        "    proj Linear",
        "      matrix product",
        "    add",
        "  lookup",
    ]
    # add moves 3,072 + 1,536 bytes, proj 1,920 + 1,536
    by_bytes = [row.name for row in found(Show(sort="bytes")) if row.depth == 2]
    assert by_bytes == ["add", "proj Linear"]
    by_intensity = [row.name for row in found(Show(sort="intensity")) if row.depth == 2]
    assert by_intensity == ["proj Linear", "add"]


def test_the_dearest_and_the_sum_of_the_others() -> None:
    shown = found(Show(top=1))
    assert names(shown) == [
        "Root",
        "  layers.0 Layer",
        "    proj Linear",
        "      matrix product",
        "    1 more",
        "  1 more",
    ]
    assert shown[4].cost == CostNumbers(768, 0, 3_072, 1_536)
    assert [row.name for row in found(Show(top=1, by="bytes")) if row.depth == 2] == ["add", "1 more"]


def test_what_is_shown_adds_up_at_every_level() -> None:
    for show in (Show(), Show(top=1), Show(kernels=False), Show(depth=1), Show(sort="bytes", kernels=True)):
        shown = found(show)
        for index, row in enumerate(shown):
            below = []
            for other in shown[index + 1 :]:
                if other.depth <= row.depth:
                    break
                if other.depth == row.depth + 1:
                    below.append(other.cost)
            if below:
                total = CostNumbers()
                for cost in below:
                    total = total.plus(cost)
                assert total == row.cost


def test_everything_has_what_costs_nothing_as_well() -> None:
    numbers = ModelNumbers(small.model())
    tree = numbers.tree(values_for(numbers.model, small.POINT))
    assert [row.name for row in everything(numbers.model, tree, Show())][-2:] == ["attention", "view"]


def test_shares_of_nothing() -> None:
    kernels = [small.basic(1, "0", "{batch_size}", "0")]
    assert [row.share for row in found(Show(), kernels=kernels)] == [None, None]
