"""Collectives: their rows, the faster library, and the order of layers over stages."""

from __future__ import annotations

import pytest

from lmp.errors import UsageError
from lmp.predict.devices import device_named, devices
from lmp.predict.eager import asked_of_call, times_of
from lmp.predict.prediction import Predictor
from lmp.predict.rewrite.rewriting import rewritten
from lmp.predict.rows import Collective as Row
from lmp.predict.shard.collectives import rows_of
from lmp.predict.shard.parallel import Parallel
from lmp.predict.shard.ranked import ranked
from lmp.predict.shard.records import Collective, collective_of
from lmp.predict.shard.stages import layers_of, stage_layers
from predict.shard.layers import VALUES, embedding, mlp, product

H100 = device_named("h100-sxm")


def test_an_all_reduce_has_two_rows_and_others_one() -> None:
    reduces = rows_of(Collective(kind="all_reduce", gpus=8, bytes=4096), H100)
    assert [(row.library, row.kind, row.gpus, row.bytes) for row in reduces] == [
        ("nccl", "all_reduce", 8, 4096), ("custom", "all_reduce", 8, 4096),
    ]  # fmt: skip
    gathers = rows_of(Collective(kind="all_gather", gpus=4, bytes=4096), H100)
    assert [row.library for row in gathers] == ["nccl"]


def test_a_send_is_half_of_an_all_gather_of_two() -> None:
    # An all-gather of two GPUs moves half of the message each way: 2 * 4096 / 2.
    (row,) = rows_of(Collective(kind="send", gpus=2, bytes=4096), H100)
    assert (row.kind, row.gpus, row.bytes) == ("all_gather", 2, 8192)


def test_a_device_without_a_link_is_refused() -> None:
    alone = next(device for device in devices().values() if device.link is None)
    with pytest.raises(UsageError, match=f"the datasheet of {alone.name} has no link between GPUs"):
        rows_of(Collective(kind="all_reduce", gpus=2, bytes=4096), alone)


def test_the_faster_library_is_taken() -> None:
    found = ranked(mlp("x", 64, 96), VALUES, Parallel(8))
    (sums,) = found.collectives
    collective = collective_of(sums)
    assert collective is not None
    predictor = Predictor()
    each = predictor.predict(rows_of(collective, H100))
    timed = times_of(asked_of_call(found.kernels, H100, VALUES), predictor, H100)
    (one,) = (op.time.us for op in timed if op.kernel.id == sums.id)
    assert one == min(made.us for made in each)  # type: ignore[union-attr]
    assert isinstance(rows_of(collective, H100)[0], Row)


def test_rewriting_leaves_collectives_and_scales_that_of_the_logits() -> None:
    # 101 rows are one sequence of 101 tokens: engines keep the logits of its last one.
    kernels = [embedding("e", 64, 1000), *mlp("e", 64, 96), product("h", "f.5", 1000, 64, path="head")]
    found = ranked(kernels, VALUES, Parallel(4))
    values = {**VALUES, "batch_size": 1, "seq_len": 101}
    launches = rewritten(found.kernels, ["last_token_logits"], values).launches
    sizes = [(one.kernel.id, made.bytes) for one in launches if (made := collective_of(one.kernel)) is not None]
    assert sizes == [("e.all_reduce", 2 * 101 * 64), ("f.4.all_reduce", 2 * 101 * 64), ("h.all_gather", 2 * 1000)]


def test_layers_in_blocks_and_layers_that_alternate() -> None:
    def of(*places: tuple[int, int]) -> tuple[int, ...]:
        """``places``: the first layer of those that are alike, and how many they are."""
        kernels = [
            kernel.model_copy(update={"path": f"layers.{first}", "repeat": count})
            for first, count in places
            for kernel in mlp("x", 64, 96)
        ]
        return layers_of(kernels).order

    # Three dense layers, then five sparse ones.
    assert of((0, 3), (3, 5)) == (0, 0, 0, 3, 3, 3, 3, 3)
    # Two kinds in turn; and one of the second kind for each three of the first.
    assert of((0, 3), (1, 3)) == (0, 1, 0, 1, 0, 1)
    assert sorted(of((0, 6), (3, 2))) == [0] * 6 + [3] * 2
    assert of((0, 6), (3, 2))[:4] == (0, 0, 0, 3)
    assert [len(stage_layers(8, 3, n)) for n in range(3)] == [3, 3, 2]
