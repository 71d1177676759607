"""Which part of each weight a GPU has under tensor parallelism."""

from __future__ import annotations

from fractions import Fraction

import pytest
from holdings import held, kept, weight

from lmp.predict.sharding import kv_heads_on_one, share_by_engine, share_by_plan


def bytes_at(tp: int, **changed: object) -> Fraction:
    model = held(**changed)
    share, _ = share_by_plan(model, tp)
    return sum((one.stored * share(one) for one in model.weights), Fraction(0))


def test_the_plan_divides_what_it_names_and_nothing_else() -> None:
    # A layer: q 16*8 + k 8*8 + v 8*8 + o 8*16 + up 16*8 + down 8*16 = 640 elements are divided; the bias of o and the
    # norm, 16, are not. Embedding and head 64*8 each and the last norm 8 are whole: 1,032.
    assert bytes_at(1) == 2 * (2 * (640 + 16) + 1032)
    assert bytes_at(2) == 2 * (2 * (640 // 2 + 16) + 1032)


def test_kv_heads_are_held_more_than_once_on_more_gpus_than_heads() -> None:
    # 2 KV heads on 4 GPUs: each has one, so half of k and v: (q + o + up + down) / 4 + (k + v) / 2 = 128 + 64.
    assert bytes_at(4) == 2 * (2 * (512 // 4 + 128 // 2 + 16) + 1032)
    assert [kv_heads_on_one(8, tp) for tp in (1, 2, 8, 16)] == [8, 4, 1, 1]


def test_without_a_plan_every_weight_is_divided_evenly() -> None:
    assert bytes_at(2, plan={}) == bytes_at(1) / 2
    assert share_by_plan(held(plan={}), 2)[1] == "even: the class has no plan"


@pytest.mark.parametrize(
    ("path", "name", "part"),
    [
        ("model.embed_tokens", "weight", Fraction(1, 2)),
        ("lm_head", "weight", Fraction(1, 2)),
        ("model.layers.0.mlp.experts", "gate_up_proj", Fraction(1, 2)),
        ("vision.layers.0.self_attn.q_proj.linear", "weight", Fraction(1, 2)),
        ("model.layers.0.self_attn.kv_a_proj_with_mqa", "weight", Fraction(1)),
        ("model.layers.0.mlp.gate", "weight", Fraction(1)),
        ("model.layers.0.self_attn.o_proj", "bias", Fraction(1)),
        ("model.layers.0.norm", "weight", Fraction(1)),
    ],
)
def test_an_engine_divides_heads_inner_sizes_and_the_vocabulary(path: str, name: str, part: Fraction) -> None:
    share = share_by_engine(held(plan={}, kept=(kept(range(2)),)), 2)
    assert share(weight(path, 6, 6, name=name)) == part
