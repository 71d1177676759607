"""Held-out points: the sizes that lmp changes, and their values."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch

from lmp.formula import parse_condition
from lmp.verify.points import (
    LONG,
    HeldOut,
    PointKind,
    changed,
    compared_points,
    equalised,
    held_out_points,
    literal_points,
    one_for_all,
    structural,
    what_to_keep,
    with_layers,
)
from lmp.workload.base import Variable, Workload, refusal


class Fake(Workload):
    """A workload that runs where ``runs`` is true; ``modules`` gives its number of modules."""

    def __init__(self, hints: dict[str, int], runs: Any = lambda v: True, modules: Any = lambda v: 1) -> None:
        variables = {n: Variable(n, f"config.{n}", v) for n, v in hints.items()}
        super().__init__(dtype=torch.bfloat16, variables=variables, hints=hints, has_cache=True)
        self.runs, self.modules = runs, modules

    def build(self, values: Mapping[str, Any]) -> torch.nn.Module:
        return torch.nn.ModuleList(torch.nn.Identity() for _ in range(self.modules(values)))

    def run(
        self,
        module: torch.nn.Module,
        values: Mapping[str, Any],
        observer: AbstractContextManager[Any],
        before: AbstractContextManager[Any] | None = None,
    ) -> None:
        if not self.runs(values):
            raise ValueError


def test_sizes_that_must_stay_equal_move_together() -> None:
    found = changed(Fake({"num_heads": 4, "num_kv_heads": 4}, lambda v: v["num_heads"] == v["num_kv_heads"]))
    assert found["num_heads"] == found["num_kv_heads"] != 4


def test_no_size_becomes_one() -> None:
    # 2 can only be halved: to 1, which is a separate case
    assert changed(Fake({"top_k": 2}, lambda v: v["top_k"] <= 2))["top_k"] == 2


def test_a_width_is_no_count() -> None:
    found = equalised(Fake({"hidden_size": 128, "num_heads": 4}))
    assert found == {"hidden_size": 128, "num_heads": 4}
    # shared key and value heads become separate
    assert equalised(Fake({"num_heads": 8, "num_kv_heads": 2}))["num_kv_heads"] == 8


def test_a_long_prefill_need_not_run() -> None:
    short = Fake({"positions": 64}, lambda v: v["seq_len"] <= 64)
    points = held_out_points(short)
    (long,) = (point for point in points if point.kind is PointKind.LONG)
    assert long.values["seq_len"] == LONG[1]
    assert [point for point in points if refusal(short, point.values)] == [long]
    assert long.may_be_refused


def without_cache(group: str, hints: dict[str, int]) -> Fake:
    """A model that pools ``group`` tokens into one, and has 24 layers in full."""
    made = Fake({**hints, "num_hidden_layers": 1}, lambda v: v["seq_len"] >= v.get(group, 1))
    made.has_cache, made.fewest_tokens = False, hints.get(group, 1)
    made.full_layers = {"num_hidden_layers": 24}
    return made


def test_a_model_without_a_cache_is_looked_at_with_more_layers() -> None:
    points = held_out_points(without_cache("group", {"width": 8}))
    found: dict[str, set[tuple[int, int]]] = {}
    for point in points:
        found.setdefault(point.label, set()).add((point.values["seq_len"], point.values["num_hidden_layers"]))
    # 150 tokens in a long prefill; other configs have one layer more than the fewest, which is 1
    more = {(4, 4), (5, 4), (1, 4)}
    own = {"": {(11, 1), (9, 1), (1, 1)}, "long prefill": {(150, 1)}, "more layers": more}
    assert found == {**own, "other sizes": {(11, 2), (9, 2), (1, 2)}}


def test_a_model_with_a_cache_is_looked_at_with_more_layers_in_every_phase() -> None:
    made = without_cache("group", {"sliding_window": 16})
    made.has_cache = True
    layered = [p.values for p in held_out_points(made) if p.kind is PointKind.MORE_LAYERS]
    # 1 layer and 3 more, see MORE_LAYERS
    assert {v["num_hidden_layers"] for v in layered} == {4}
    found = {(v["batch_size"] > 1, v["seq_len"] > 1, v["cache_len"]) for v in layered}
    # one and several sequences, in prefill, decode and chunked prefill; 16 + 17 cached tokens are beyond the window
    assert {(several, new, cached > 0) for several, new, cached in found} >= {
        *((several, True, False) for several in (True, False)),
        *((several, new, True) for several in (True, False) for new in (True, False)),
    }
    assert (True, False, 33) in found


def test_layers_of_several_kinds_are_looked_at_in_full() -> None:
    for cached in (False, True):
        made = without_cache("group", {"width": 8})
        made.has_cache, made.hints = cached, {**made.hints, "num_hidden_layers": 2}
        made.in_order = {"num_hidden_layers": 6}
        points = held_out_points(made)
        assert [p.values["num_hidden_layers"] for p in points if p.kind is PointKind.ALL_LAYERS] == [24]
        # and in each phase 3 more than the 6 at which every kind is in the model's order
        assert {p.values["num_hidden_layers"] for p in points if p.kind is PointKind.MORE_LAYERS} == {9}


def test_pooled_tokens_are_several_wherever_layers_are_counted() -> None:
    points = held_out_points(without_cache("group", {"group": 4}))
    lengths = [(p.label, p.values["seq_len"], p.values["group"]) for p in points]
    # groups of 4: 47 tokens are eleven groups and a remainder; the other config's group of 8 is longer than 4 tokens
    assert lengths[:4] == [("", 47, 4), ("", 36, 4), ("", 4, 4), ("long prefill", 150, 4)]
    assert lengths[4:7] == [("more layers", 16, 4), ("more layers", 20, 4), ("more layers", 4, 4)]
    assert lengths[7:] == [("other sizes", 47, 8), ("other sizes", 36, 8), ("other sizes", 12, 8)]


def test_a_value_that_decides_on_modules_is_structural() -> None:
    workload = Fake({"step": 1, "width": 8}, modules=lambda v: v["step"])
    assert structural(workload, [{"step": 2, "width": 16}]) == {"step": 1}


def test_layers_in_the_models_own_order() -> None:
    workload = Fake({"num_hidden_layers": 2})
    workload.full_layers, workload.in_order = {"num_hidden_layers": 24}, {"num_hidden_layers": 6}

    def at(layers: int, in_order: bool, full: bool) -> int:
        point = HeldOut("", {"num_hidden_layers": layers})
        return with_layers(workload, point, in_order, full).values["num_hidden_layers"]

    # two layers represent one of each kind; the model's order needs six, and one extra layer adds one
    assert at(2, in_order=False, full=False) == 2
    assert at(2, in_order=True, full=False) == 6
    assert at(3, in_order=True, full=False) == 7
    assert at(24, in_order=True, full=False) == 24
    assert at(2, in_order=True, full=True) == 24


def test_one_head_that_all_share_is_looked_at_beyond_the_window_too() -> None:
    points = held_out_points(Fake({"num_heads": 8, "num_kv_heads": 2, "sliding_window": 16}))
    shared = [p.values for p in points if p.values["num_kv_heads"] == 1]
    assert all(v["num_heads"] == 8 for v in shared)
    # some inside the window of 16, and one with more cached tokens than it keeps
    assert {v["cache_len"] > 16 for v in shared} == {True, False}
    own = [p.values for p in points if p.values["num_kv_heads"] == p.values["num_heads"] == 8]
    assert [v["cache_len"] for v in own if v["cache_len"] > 16] == [16 + 7]


def test_one_is_no_point_where_the_module_does_not_run_so() -> None:
    points = held_out_points(Fake({"num_heads": 8, "num_kv_heads": 2}, lambda v: v["num_kv_heads"] > 1))
    assert all(p.values["num_kv_heads"] > 1 for p in points)


def test_what_a_label_says_decides_nothing() -> None:
    point = HeldOut("long prefill, other config", {"seq_len": 3})
    assert (point.synthetic, point.may_be_refused) == (False, False)
    named = HeldOut("anything", {"seq_len": 3}, PointKind.SYNTHETIC)
    assert (named.synthetic, named.may_be_refused) == (True, False)


OWN = {"n_group": 1, "topk_group": 1, "hidden_size": 64}
POINT = {"n_group": 4, "topk_group": 2, "hidden_size": 128, "batch_size": 2}


def held(holds: Any, *points: dict[str, int], names: Any = tuple(OWN)) -> dict[str, int] | None:
    return what_to_keep(OWN, points or [POINT], names, holds)


def test_what_makes_a_point_differ_by_itself_is_held() -> None:
    # One group is a separate case, whatever else changes.
    assert held(lambda v: v["n_group"] == 1) == {"n_group": 1}
    # Each of the two causes it; the point's batch stays unchanged.
    both = held(lambda v: v["batch_size"] == 2 and v["n_group"] == v["hidden_size"] // 64 == 1)
    assert both == {"n_group": 1, "hidden_size": 64}
    # If every point holds, nothing is kept.
    assert held(lambda v: True) == {}


def test_what_differs_only_together_is_held_together() -> None:
    assert held(lambda v: v["n_group"] == 1 or v["topk_group"] == 1) == OWN

    # It differs for a second reason, which cannot be run alone.
    def more(v: Mapping[str, int]) -> bool | None:
        return None if v["topk_group"] > v["n_group"] else v["topk_group"] == 1 and v["hidden_size"] == 64

    assert held(more) == OWN

    # With that value kept, nothing is judged: that is no proof.
    def unjudged(v: Mapping[str, int]) -> bool | None:
        return None if v["hidden_size"] != 64 and v["n_group"] == 1 else v["n_group"] == 1

    assert held(unjudged) == OWN


def test_each_point_is_looked_at_with_what_is_held_already() -> None:
    second = {**POINT, "batch_size": 1}
    # At the second point the width differs too. The groups, kept already, must not hide it.
    found = held(lambda v: v["n_group"] == 1 and (v["batch_size"] == 2 or v["hidden_size"] == 64), POINT, second)
    assert found == {"n_group": 1, "hidden_size": 64}


def test_what_is_not_what_makes_a_point_differ_is_not_held() -> None:
    assert held(lambda v: v["n_group"] == 1, names=["hidden_size"]) is None
    # The cause is the batch, which is in no config.
    assert held(lambda v: v["batch_size"] == 1) is None


def test_a_count_that_equals_another_one_is_set_to_one() -> None:
    # as many key and value heads as query heads by default: one for all must be judged too
    fake = Fake({"num_heads": 6, "num_kv_heads": 6}, lambda v: v["num_heads"] % v["num_kv_heads"] == 0)
    assert one_for_all(fake) == [("num_kv_heads", {"num_heads": 6, "num_kv_heads": 1})]


def test_sizes_that_a_constructor_compares_are_set_apart() -> None:
    fake = Fake({"embedding_size": 96, "hidden_size": 96}, lambda v: v["embedding_size"] % 8 == 0)
    equal = parse_condition("{embedding_size} == {hidden_size}")
    found = compared_points(fake, [equal], [])
    assert [(p.values["embedding_size"], p.values["hidden_size"]) for p in found] == [(192, 96), (96, 192)]
    assert all(point.synthetic for point in found)
    assert compared_points(fake, [equal], found[:1]) == []  # another point has the other result already


def test_each_number_of_the_source_is_met_by_tokens_batch_and_cache() -> None:
    fake = Fake({"hidden_size": 96})
    found = literal_points(fake, [20], [])
    # 19, 20, 21, 2 * 20 - 1, 2 * 20, 2 * 20 + 3, 3 * 20 + 1, 4 * 20, 5 * 20 + 1
    beside = {19, 20, 21, 39, 40, 43, 61, 80, 101}
    assert {p.values["seq_len"] for p in found if p.values["cache_len"] == 0} == beside
    assert {p.values["cache_len"] for p in found if p.values["seq_len"] == 1} == beside
    assert beside <= {p.values["batch_size"] for p in found}
    assert all(p.kind is PointKind.LITERAL for p in found)
    large = literal_points(fake, [700], [])
    assert {p.values["batch_size"] for p in large} <= {1, 2, 3}  # no module splits a batch of 700
