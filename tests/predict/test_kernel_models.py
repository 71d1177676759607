"""Properties of the kernels' models: bounds, directions, units, and sizes counted by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmp.predict.devices import device_named, devices
from lmp.predict.kernels import FAMILIES, collective, decode, gemm, moe, prefill
from lmp.predict.prediction import Prediction, Predictor
from lmp.predict.rows import columns, row_of

GPUS = ("a100-sxm", "h100-sxm", "h200-sxm", "b200-sxm", "b300-sxm", "gb200", "l40s", "h100-pcie", "l4")
DEVICES = st.sampled_from(GPUS)
SIZE = st.integers(1, 20_000)
PREDICTOR = Predictor()


def one(**row: Any) -> Prediction:
    made = PREDICTOR.predict([row_of(row)])[0]
    assert isinstance(made, Prediction)
    return made


def attention(**row: Any) -> dict[str, Any]:
    return {"op": "attention", "phase": "prefill", "batch": 1, "heads": 8, "kv_heads": 8, "head_dim": 128, **row}


@given(device=DEVICES, m=SIZE, n=SIZE, k=SIZE, copies=st.sampled_from([None, 1, 6]))
def test_a_product_is_never_faster_than_peak_or_bandwidth(
    device: str, m: int, n: int, k: int, copies: int | None
) -> None:
    bench = {} if copies is None else {"bench": {"weight_copies": copies}}
    made = one(op="gemm", device=device, m=m, n=n, k=k, **bench)
    sheet = device_named(device)
    assert made.us * 1e-6 >= 2 * m * n * k / sheet.matmul_flops * (1 - 1e-9)
    if copies is None:
        assert made.us * 1e-6 >= 2 * (m * k + k * n + m * n) / sheet.bandwidth * (1 - 1e-9)
    assert 0 < made.low_us <= made.us <= made.high_us < math.inf


@given(device=DEVICES, batch=st.integers(1, 64), kv=st.integers(1, 60_000), group=st.sampled_from([1, 4, 8]))
def test_attention_of_one_token_reads_the_cache(device: str, batch: int, kv: int, group: int) -> None:
    row = attention(phase="decode", device=device, batch=batch, kv_len=kv, heads=4 * group, kv_heads=4)
    made, sheet = one(**row), device_named(device)
    # K and V of 4 heads of 128, 2 bytes each; a benchmark's cache may be in L2.
    read = 2 * batch * 4 * kv * 128 * 2
    assert made.us * 1e-6 >= max(0, read - (sheet.l2 or 0)) / sheet.bandwidth * (1 - 1e-9)


@given(
    device=DEVICES, family=st.sampled_from(sorted(FAMILIES)), factor=st.sampled_from([2, 3, 8]),
    sizes=st.lists(st.integers(1, 300), min_size=8, max_size=8),
)  # fmt: skip
def test_every_model_is_finite_and_positive(device: str, family: str, factor: int, sizes: list[int]) -> None:
    row = row_of(rows(family, sizes, factor, device))
    parameters = {p.name: p.start for p in FAMILIES[family].parameters}
    us = FAMILIES[family].model(parameters, columns(family, [row]), device_named(device))
    assert us.shape == (1,)
    assert 0 < us[0] < math.inf


def rows(family: str, s: list[int], factor: int, device: str) -> dict[str, Any]:
    """A row of this family."""
    each = {
        "gemm": {"op": "gemm", "m": s[0], "n": s[1], "k": s[2]},
        "prefill": attention(q_len=s[0], kv_len=s[0] + s[1], heads=s[2] * factor, kv_heads=s[2], window=s[3]),
        "decode": attention(phase="decode", kv_len=s[1], heads=s[2] * factor, kv_heads=s[2], batch=s[3]),
        "mla_prefill": {"op": "mla", "phase": "prefill", "batch": s[0], "q_len": s[1], "kv_len": s[1], "heads": s[2]},
        "mla_decode": {"op": "mla", "phase": "decode", "batch": s[0], "kv_len": s[1], "heads": s[2]},
        "batched": {"op": "mla_bmm", "which": "pre", "tokens": s[0], "heads": s[1]},
        "moe": {
            "op": "moe", "tokens": s[0], "hidden": s[1], "inter": s[2] * factor, "topk": 1 + s[3] % 8,
            "experts": 8 + s[4],
            "tp": factor, "ep": 1 + s[5] % 8, "routing": ["balanced", "power_law_1.2"][s[6] % 2],
        },
        "collective": {"op": "collective", "kind": "all_reduce", "gpus": factor, "bytes": s[0] * 1000},
        "quantise": {"op": "quantise", "m": s[0], "k": s[1]},
        "pointwise": {"op": "pointwise", "read": s[0], "written": s[1]},
    }  # fmt: skip
    return {**each[family], "device": device}


@given(m=st.integers(1, 4000), n=st.integers(64, 8000), k=st.integers(64, 8000))
def test_a_model_does_not_shrink_with_its_work(m: int, n: int, k: int) -> None:
    """The analytic model: twice the rows, or the depth, or the columns, hardly ever take less time.

    Of products of a few tiles, twice as many load with twice as many multiprocessors: 8 % less at 64 x 2362 x 1152, the
    most of 8,000 drawn products.
    """
    h100 = device_named("h100-sxm")
    parameters = {p.name: p.start for p in gemm.PARAMETERS}

    def time(m: int, n: int, k: int) -> float:
        row = row_of({"op": "gemm", "device": "h100-sxm", "m": m, "n": n, "k": k})
        return float(gemm.FAMILY.model(parameters, columns("gemm", [row]), h100)[0])

    least = min(time(2 * m, n, k), time(m, 2 * n, k), time(m, n, 2 * k))
    assert least >= 0.9 * time(m, n, k)


@given(kv=st.integers(1, 50_000), batch=st.integers(1, 256))
def test_a_longer_cache_takes_no_less(kv: int, batch: int) -> None:
    h100 = device_named("h100-sxm")
    parameters = {p.name: p.start for p in decode.PARAMETERS}
    short, long = (
        columns("decode", [row_of(attention(phase="decode", device="h100-sxm", kv_len=n, batch=batch))])
        for n in (kv, 2 * kv)
    )
    assert decode.model(parameters, long, h100)[0] >= 0.9 * decode.model(parameters, short, h100)[0]


@pytest.mark.parametrize(
    ("q", "kv", "window", "causal", "expected"),
    [
        # 1 + 2 + 3 + 4
        (4, 4, 0, True, 10),
        (4, 4, 0, False, 16),
        # Windows of 2: 1 + 2 + 2 + 2
        (4, 4, 2, True, 7),
        # 3 tokens were there before: 4 + 5
        (2, 5, 0, True, 9),
        (2, 5, 3, True, 6),
        (1, 9, 0, True, 9),
    ],
)
def test_pairs_of_query_and_key(q: int, kv: int, window: int, causal: bool, expected: int) -> None:
    row = row_of(
        attention(device="h100-sxm", q_len=q, kv_len=kv, window=window, causal=causal, batch=3, heads=2, kv_heads=2)
    )
    assert prefill.scores(columns("prefill", [row]))[0] == 3 * 2 * expected


def test_work_of_a_product_by_hand() -> None:
    """16 x 4096 x 4096 in bfloat16: 2 mnk FLOP, and each matrix once."""
    row = row_of({"op": "gemm", "device": "h100-sxm", "m": 16, "n": 4096, "k": 4096})
    work = gemm.work(columns("gemm", [row]), device_named("h100-sxm"))
    assert work.flops[0] == 2 * 16 * 4096 * 4096
    assert work.bytes[0] == 2 * (16 * 4096 + 4096 * 4096 + 16 * 4096)


def test_bytes_and_flops_scale_to_microseconds() -> None:
    """335 MB at 3.35 TB/s are 100 us."""
    row = row_of({"op": "pointwise", "device": "h100-sxm", "read": 335_000_000, "written": 0})
    floor = FAMILIES["pointwise"].floor(columns("pointwise", [row]), device_named("h100-sxm"))
    assert floor[0] == pytest.approx(100.0)


@given(tokens=st.integers(1, 5000), topk=st.integers(1, 8), ep=st.sampled_from([1, 2, 8]))
def test_balanced_routing_spreads_all_rows(tokens: int, topk: int, ep: int) -> None:
    row = row_of({
        "op": "moe", "device": "h100-sxm", "tokens": tokens, "hidden": 64, "inter": 64, "topk": topk, "experts": 64,
        "ep": ep,
    })  # fmt: skip
    load = moe.load(columns("moe", [row]), 0.5)
    assert load.routed[0] == pytest.approx(tokens * topk / ep)
    assert load.active[0] <= 64 / ep + 1e-9


@given(tokens=st.integers(16, 5000), skew=st.sampled_from(["power_law_1.01", "power_law_1.2"]))
def test_skewed_routing_keeps_the_rows_of_one_gpu(tokens: int, skew: str) -> None:
    """With one GPU there is no more loaded one; an expert gets each token once at most, so rows may be fewer."""
    row = row_of({
        "op": "moe", "device": "h100-sxm", "tokens": tokens, "hidden": 64, "inter": 64, "topk": 4, "experts": 128,
        "routing": skew,
    })  # fmt: skip
    load = moe.load(columns("moe", [row]), 0.5)
    assert 0.5 * tokens * 4 <= load.routed[0] <= 1.001 * tokens * 4
    assert load.rows.max() <= tokens * 1.001


def test_every_gpu_has_a_rate_for_what_it_runs() -> None:
    for device in devices().values():
        if device.architecture not in ("tpu", "zen5") and "bfloat16" in device.dense:
            assert one(op="gemm", device=device.name, m=128, n=1024, k=1024).us < 1000


def test_a_faster_memory_is_faster() -> None:
    """H200 is an H100 with 4.8 instead of 3.35 TB/s: a large cache is read in about 70 % of the time."""
    row = attention(phase="decode", batch=64, kv_len=32_768, kv_heads=8)
    times = [one(**row, device=name).us for name in ("h100-sxm", "h200-sxm")]
    assert 3.35 / 4.8 * 0.95 < times[1] / times[0] < 0.8


def test_columns_are_arrays_of_the_rows() -> None:
    many = [row_of({"op": "gemm", "device": "h100-sxm", "m": m, "n": 8, "k": 8}) for m in (1, 2, 3)]
    assert columns("gemm", many)["m"].tolist() == [1, 2, 3]
    assert np.all(columns("gemm", many)["copies"] == 0)


@pytest.mark.parametrize(
    ("gpus", "size", "library", "stages"),
    [
        # vLLM's csrc/custom_all_reduce.cuh: one stage for 2 GPUs, below 512 KiB for 4, below 256 KiB for 8.
        (2, 2**22, "custom", 1),
        (4, 2**19 - 1, "custom", 1),
        (4, 2**19, "custom", 2),
        (8, 2**18 - 1, "custom_eager", 1),
        (8, 2**18, "custom", 2),
        # From 8 MiB on it leaves the message to NCCL.
        (2, 2**23, "custom", 0),
        (8, 2**23, "custom", 0),
        (8, 2**10, "nccl", 0),
    ],
)
def test_stages_of_an_all_reduce(gpus: int, size: int, library: str, stages: int) -> None:
    row = row_of({
        "op": "collective", "kind": "all_reduce", "device": "h100-sxm", "gpus": gpus, "bytes": size, "library": library,
    })  # fmt: skip
    assert columns("collective", [row])["stages"].tolist() == [stages]


def test_the_host_hides_a_short_all_reduce() -> None:
    """A call that the host starts takes its 20 us at least, and no more than both after another."""
    parameters = {p.name: p.start for p in collective.PARAMETERS}
    h100 = device_named("h100-sxm")

    def time(library: str) -> float:
        row = row_of({
            "op": "collective", "kind": "all_reduce", "device": "h100-sxm", "gpus": 8, "bytes": 4096,
            "library": library,
        })  # fmt: skip
        return float(collective.model(parameters, columns("collective", [row]), h100)[0])

    assert max(parameters["host"], time("custom")) <= time("custom_eager") <= parameters["host"] + time("custom")
