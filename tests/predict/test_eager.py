"""Operators of a model as kernels: which row each becomes, and what stands for those without a family."""

from __future__ import annotations

from typing import Any

import pytest

from lmp.errors import UsageError
from lmp.link.records import EvaluatedKernel
from lmp.predict.devices import device_named
from lmp.predict.eager import CallTime, time_of_call
from lmp.predict.prediction import Predictor
from lmp.predict.rows import row_of
from lmp.records import Operand, Operands

H100 = device_named("h100-sxm")
LINEAR = "torch.nn.modules.linear.Linear"


def kernel(category: str, flops: int, read: int, write: int, repeat: int = 1, **sizes: Any) -> EvaluatedKernel:
    width = sizes.pop("width", "a")
    operand = Operand(name="self", shape=[1], width=width, role="activation")
    operands = Operands(operator="mm", inputs=[operand], outputs=[operand], **sizes) if sizes else None
    return EvaluatedKernel(
        path="layers.0", class_name=LINEAR, line=1, operation=category, category=category, repeat=repeat,
        flops=flops, read=read, write=write, operands=operands,
    )  # fmt: skip


def product(m: int, n: int, k: int, repeat: int = 1, **more: Any) -> EvaluatedKernel:
    return kernel("matmul", 2 * m * n * k, 2 * (m * k + n * k), 2 * m * n, repeat, batch=1, m=m, n=n, k=k, **more)


def timed(*kernels: EvaluatedKernel, products: str = "bfloat16", **values: int) -> CallTime:
    return time_of_call(kernels, Predictor(), H100, values, products)


def test_a_product_is_what_predict_op_says_of_it() -> None:
    row = {"op": "gemm", "device": "h100-sxm", "m": 16, "n": 4096, "k": 4096, "quantise_activations": False}
    (alone,) = Predictor().predict([row_of(row)])
    found = timed(product(16, 4096, 4096, repeat=3))
    assert found.operators[0].time == alone
    assert found.whole[0] == pytest.approx(3 * alone.us)
    assert found.launches == 3


def test_attention_is_what_predict_op_says_of_it() -> None:
    sizes = {"batch": 8, "q_len": 1, "kv_len": 4096, "heads": 32, "kv_heads": 8, "head_dim": 128}
    row = {"op": "attention", "phase": "decode", "device": "h100-sxm", "kv_dtype": "fp8", "causal": False, **sizes}
    (alone,) = Predictor().predict([row_of(row)])
    found = timed(kernel("attention", 2 * 8 * 32 * 4096 * 256, 1, 1, v_head_dim=128, causal=0, **sizes), kv_bytes=1)
    assert found.operators[0].time == alone


def test_what_only_moves_bytes_is_known_by_them() -> None:
    found = timed(kernel("elementwise", 5, 10**9, 10**9))
    # 2 GB at 3,350 GB/s are 597 us at least.
    assert found.operators[0].time.family == "pointwise"
    assert found.operators[0].time.floor_us == pytest.approx(2e9 / 3350e9 * 1e6)


def test_what_does_not_run_starts_no_kernel() -> None:
    found = timed(product(16, 4096, 4096), kernel("elementwise", 0, 0, 0, repeat=32), kernel("call", 0, 0, 0))
    assert found.launches == 1


@pytest.mark.parametrize(
    "one",
    [
        kernel("matmul", 2 * 4 * 64 * 64 * 64, 10**6, 10**6, batch=4, m=64, n=64, k=64),
        kernel("matmul", 2 * 32 * 64 * 64, 10**6, 10**6, tokens=16, top_k=2, experts=8, n=64, k=64),
        product(64, 64, 64, width=4),
    ],
)
def test_products_without_a_family_are_bounds_of_the_datasheet(one: EvaluatedKernel) -> None:
    time = timed(one).operators[0].time
    assert (time.provenance, time.calibration, time.family) == ("datasheet", None, "other products")
    assert time.floor_us <= time.low_us < time.us < time.high_us


def test_a_product_in_float32_has_the_rate_of_float32() -> None:
    # 2 * 4096^3 FLOP at 66.9 TFLOP/s.
    time = timed(product(4096, 4096, 4096, width=4)).operators[0].time
    assert time.floor_us == pytest.approx(2 * 4096**3 / 66.9e12 * 1e6)
    assert time.bound == "compute"


def test_bytes_that_are_fractions_count_as_whole_ones() -> None:
    found = timed(kernel("gather", 0, 0, 0).model_copy(update={"read": "7/2"}))
    assert found.launches == 1


def test_fp8_products_need_a_device_with_them() -> None:
    assert timed(product(16, 4096, 4096), products="float8_e4m3fn").whole[0] < timed(product(16, 4096, 4096)).whole[0]
    with pytest.raises(UsageError, match="a100-sxm has no fp8 matrix products"):
        time_of_call([], Predictor(), device_named("a100-sxm"), {}, "float8_e4m3fn")


def test_a_dtype_without_kernels_is_refused() -> None:
    with pytest.raises(UsageError, match="matrix products in int8 are not predicted"):
        timed(product(16, 16, 16), products="int8")


def test_shares_are_parts_of_the_whole() -> None:
    found = timed(product(16, 4096, 4096), kernel("elementwise", 5, 10**9, 10**9, repeat=2))
    for what in ("bound", "provenance", "family"):
        assert sum(found.shares(what).values()) == pytest.approx(1)
    low, high = found.whole[1:]
    assert low <= found.whole[0] <= high
