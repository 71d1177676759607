"""Points that formulas are held against: which sizes lmp changes, and how."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch

from lmp.pipeline.points import (
    LONG,
    MAY_BE_REFUSED,
    changed,
    equalised,
    held_out_points,
    structural,
    what_to_hold,
    with_layers,
)
from lmp.workload.base import Variable, refusal


class Fake:
    """A workload that runs where ``runs`` says so, and has as many modules as ``modules`` says."""

    dtype = torch.bfloat16
    required: frozenset[str] = frozenset()
    fewest_tokens = 1
    flags: frozenset[str] = frozenset()
    has_cache, has_encoder, has_tokens = True, False, True

    def __init__(self, hints: dict[str, int], runs: Any = lambda v: True, modules: Any = lambda v: 1) -> None:
        self.hints, self.runs, self.modules = hints, runs, modules
        self.variables = {n: Variable(n, f"config.{n}", v) for n, v in hints.items()}
        self.full_layers: dict[str, int] = {}
        self.in_order: dict[str, int] = {}
        self.stacks: set[str] = set()

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
    # 2 can only be halved: to 1, which is a case of its own
    assert changed(Fake({"top_k": 2}, lambda v: v["top_k"] <= 2))["top_k"] == 2


def test_a_width_is_no_count() -> None:
    found = equalised(Fake({"hidden_size": 128, "num_heads": 4}))
    assert found == {"hidden_size": 128, "num_heads": 4}
    # heads that share keys and values get their own
    assert equalised(Fake({"num_heads": 8, "num_kv_heads": 2}))["num_kv_heads"] == 8


def test_a_long_prefill_need_not_run() -> None:
    short = Fake({"positions": 64}, lambda v: v["seq_len"] <= 64)
    points = dict(held_out_points(short))
    assert points["long prefill"]["seq_len"] == LONG[1]
    assert [label for label, values in points.items() if refusal(short, values)] == ["long prefill"]
    assert "long prefill".endswith(MAY_BE_REFUSED)


def without_cache(group: str, hints: dict[str, int]) -> Fake:
    """A model that pools as many tokens to one as ``group`` says, and has 24 layers in full."""
    made = Fake({**hints, "num_hidden_layers": 1}, lambda v: v["seq_len"] >= v.get(group, 1))
    made.has_cache, made.fewest_tokens = False, hints.get(group, 1)
    made.full_layers = {"num_hidden_layers": 24}
    return made


def test_a_model_without_a_cache_is_looked_at_with_more_layers() -> None:
    points = held_out_points(without_cache("group", {"width": 8}))
    found = {label: {(v["seq_len"], v["num_hidden_layers"]) for at, v in points if at == label} for label, _ in points}
    # 150 tokens in a long prefill; other configs have one layer more than the one that is left
    more = {(4, 4), (5, 4), (1, 4)}
    own = {"": {(11, 1), (9, 1), (1, 1)}, "long prefill": {(150, 1)}, "more layers": more}
    assert found == {**own, "other sizes": {(11, 2), (9, 2), (1, 2)}}


def test_a_model_with_a_cache_is_looked_at_with_more_layers_in_every_phase() -> None:
    made = without_cache("group", {"sliding_window": 16})
    made.has_cache = True
    found = {(v["batch_size"] > 1, v["seq_len"] > 1, v["cache_len"]) for _, v in held_out_points(made) if layered(v)}
    # one and several sequences, in prefill, decode and chunked prefill; 16 + 17 cached tokens are beyond the window
    assert {(several, new, cached > 0) for several, new, cached in found} >= {
        *((several, True, False) for several in (True, False)),
        *((several, new, True) for several in (True, False) for new in (True, False)),
    }
    assert (True, False, 33) in found


def layered(values: dict[str, int]) -> bool:
    return values["num_hidden_layers"] == 4


def test_layers_of_several_kinds_are_looked_at_in_full() -> None:
    for cached, label in ((False, "all layers"), (True, "prefill, all layers")):
        made = without_cache("group", {"width": 8})
        made.has_cache, made.hints = cached, {**made.hints, "num_hidden_layers": 2}
        made.in_order = {"num_hidden_layers": 6}
        assert [v["num_hidden_layers"] for at, v in held_out_points(made) if at == label] == [24]
        # and in each phase with 3 more than the 6 that it takes for every kind to come in the model's order
        assert {v["num_hidden_layers"] for at, v in held_out_points(made) if at.endswith("more layers")} == {9}


def test_pooled_tokens_are_several_wherever_layers_are_counted() -> None:
    points = held_out_points(without_cache("group", {"group": 4}))
    lengths = [(label, v["seq_len"], v["group"]) for label, v in points]
    # groups of 4: 47 tokens are eleven and a rest; a group of 8 by another config is more than a single one of 4
    assert lengths[:4] == [("", 47, 4), ("", 36, 4), ("", 4, 4), ("long prefill", 150, 4)]
    assert lengths[4:7] == [("more layers", 16, 4), ("more layers", 20, 4), ("more layers", 4, 4)]
    assert lengths[7:] == [("other sizes", 47, 8), ("other sizes", 36, 8), ("other sizes", 12, 8)]


def test_a_value_that_decides_on_modules_is_structural() -> None:
    workload = Fake({"step": 1, "width": 8}, modules=lambda v: v["step"])
    assert structural(workload, [{"step": 2, "width": 16}]) == {"step": 1}


def test_layers_in_the_models_own_order() -> None:
    workload = Fake({"num_hidden_layers": 2})
    workload.full_layers, workload.in_order = {"num_hidden_layers": 24}, {"num_hidden_layers": 6}
    at = lambda n, **how: with_layers(workload, {"num_hidden_layers": n}, **how)["num_hidden_layers"]  # noqa: E731
    # two layers stand for one of each kind; in the model's order it takes six, and one more is one more
    assert at(2, in_order=False, full=False) == 2
    assert at(2, in_order=True, full=False) == 6
    assert at(3, in_order=True, full=False) == 7
    assert at(24, in_order=True, full=False) == 24
    assert at(2, in_order=True, full=True) == 24


def test_one_head_that_all_share_is_looked_at_beyond_the_window_too() -> None:
    points = dict(held_out_points(Fake({"num_heads": 8, "num_kv_heads": 2, "sliding_window": 16})))
    shared = {label: v for label, v in points.items() if v["num_kv_heads"] == 1}
    assert all(v["num_heads"] == 8 for v in shared.values())
    # some without, and one with more tokens in the cache than the window of 16 keeps
    assert {v["cache_len"] > 16 for v in shared.values()} == {True, False}
    own = [v for label, v in points.items() if "beyond" in label and v["num_kv_heads"] == v["num_heads"]]
    assert [v["cache_len"] > 16 for v in own] == [True]


def test_one_is_no_point_where_the_module_does_not_run_so() -> None:
    points = dict(held_out_points(Fake({"num_heads": 8, "num_kv_heads": 2}, lambda v: v["num_kv_heads"] > 1)))
    assert all(v["num_kv_heads"] > 1 for v in points.values())


OWN = {"n_group": 1, "topk_group": 1, "hidden_size": 64}
POINT = {"n_group": 4, "topk_group": 2, "hidden_size": 128, "batch_size": 2}


def held(holds: Any, *points: dict[str, int], names: Any = tuple(OWN)) -> dict[str, int] | None:
    return what_to_hold(OWN, points or [POINT], names, holds)


def test_what_makes_a_point_differ_by_itself_is_held() -> None:
    # One group is a case of its own, whatever else changes.
    assert held(lambda v: v["n_group"] == 1) == {"n_group": 1}
    # Each of two is; the point's batch stays as it is.
    both = held(lambda v: v["batch_size"] == 2 and v["n_group"] == v["hidden_size"] // 64 == 1)
    assert both == {"n_group": 1, "hidden_size": 64}
    # Where every point holds, nothing is.
    assert held(lambda v: True) == {}


def test_what_differs_only_together_is_held_together() -> None:
    assert held(lambda v: v["n_group"] == 1 or v["topk_group"] == 1) == OWN

    # It differs for one more reason, which cannot be run alone.
    def more(v: Mapping[str, int]) -> bool | None:
        return None if v["topk_group"] > v["n_group"] else v["topk_group"] == 1 and v["hidden_size"] == 64

    assert held(more) == OWN

    # Without what differs alone, nothing is judged: that is no proof.
    def unjudged(v: Mapping[str, int]) -> bool | None:
        return None if v["hidden_size"] != 64 and v["n_group"] == 1 else v["n_group"] == 1

    assert held(unjudged) == OWN


def test_each_point_is_looked_at_with_what_is_held_already() -> None:
    second = {**POINT, "batch_size": 1}
    # At the second point the width differs, too: that the groups differ does not hide it.
    found = held(lambda v: v["n_group"] == 1 and (v["batch_size"] == 2 or v["hidden_size"] == 64), POINT, second)
    assert found == {"n_group": 1, "hidden_size": 64}


def test_what_is_not_what_makes_a_point_differ_is_not_held() -> None:
    assert held(lambda v: v["n_group"] == 1, names=["hidden_size"]) is None
    # It is the batch, which no config has.
    assert held(lambda v: v["batch_size"] == 1) is None
