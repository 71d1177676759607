"""Operators of a model as kernels: which row each becomes, and what stands for those without a family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import pytest

from lmp.errors import UsageError
from lmp.link.quantisation import scheme_of
from lmp.link.records import EvaluatedKernel
from lmp.predict.devices import Device, device_named
from lmp.predict.eager import CallTime, asked_of_call, beyond_positions, times_of
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


def time_of_call(
    kernels: Sequence[EvaluatedKernel], device: Device, values: Mapping[str, int], *more: str, scheme: Any = None
) -> CallTime:
    return CallTime.of(times_of(asked_of_call(kernels, device, values, *more, scheme=scheme), Predictor(), device))


def timed(*kernels: EvaluatedKernel, products: str = "bfloat16", **values: int) -> CallTime:
    return time_of_call(kernels, H100, values, products)


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
    assert (time.provenance, time.calibration, time.family) == ("datasheet:uncalibrated", None, "other products")
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
        time_of_call([], device_named("a100-sxm"), {}, "float8_e4m3fn")


def test_a_dtype_that_is_not_known_is_refused() -> None:
    with pytest.raises(UsageError, match="matrix products in int3 are not predicted"):
        timed(product(16, 16, 16), products="int3")
    with pytest.raises(UsageError, match="h100-sxm has no fp4 matrix products"):
        timed(product(16, 16, 16), products="float4_e2m1fn")


def test_products_in_int8_are_bounds_at_their_own_rate() -> None:
    # 2 * 4096^3 FLOP at 1,978.9 TOP/s.
    time = timed(product(4096, 4096, 4096), products="int8", w_bytes=1, a_bytes=1).operators[0].time
    assert time.provenance == "datasheet:uncalibrated"
    assert time.floor_us == pytest.approx(2 * 4096**3 / 1978.9e12 * 1e6)


# --- quantised checkpoints --------------------------------------------------------------------------------------------


def linear(path: str, m: int, n: int, k: int, read: int) -> EvaluatedKernel:
    """A linear layer of which ``read`` bytes are read in all."""
    shapes = {"self": [m, k], "mat2": [k, n]}
    roles: dict[str, Any] = {"self": ("activation", "a"), "mat2": ("weight", "w")}
    inputs = [
        Operand(name=name, shape=list(s), role=roles[name][0], width=roles[name][1]) for name, s in shapes.items()
    ]
    operands = Operands(operator="mm", inputs=inputs, outputs=[], batch=1, m=m, n=n, k=k)
    return EvaluatedKernel(
        path=path, class_name=LINEAR, line=1, operation="matmul", category="matmul", repeat=1, flops=2 * m * n * k,
        read=read, write=2 * m * n, operands=operands,
    )  # fmt: skip


FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head"]}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128}
SIZES = {"w_bytes": 2, "a_bytes": 2}


def test_modules_of_an_fp8_checkpoint_are_fp8_products_with_a_kernel_that_quantises() -> None:
    row = {"op": "gemm", "device": "h100-sxm", "dtype": "fp8", "m": 16, "n": 4096, "k": 4096}
    wide = {**row, "dtype": "bfloat16"}
    expected = Predictor().predict([row_of(row), row_of(wide)])
    kernels = [linear("layers.0.mlp.up_proj", 16, 4096, 4096, 1), linear("lm_head", 16, 4096, 4096, 1)]
    found = time_of_call(kernels, H100, SIZES, scheme=scheme_of(FP8))
    assert [one.time for one in found.operators] == expected


def test_weights_that_a_kernel_widens_are_scaled_from_the_16_bit_kernel() -> None:
    # 4-bit weights, a 16-bit scale and a 4-bit zero point for 128: 4096 * 4096 * (1/2 + 2.5/128) bytes.
    stored = 4096 * 4096 // 2 + 4096 * 32 * 5 // 2
    read = stored + 2 * 16 * 4096
    kernels = [linear("layers.0.mlp.up_proj", 16, 4096, 4096, read)]
    (one,) = time_of_call(kernels, H100, SIZES, scheme=scheme_of(AWQ)).operators
    assert one.time.provenance == "scaled:bfloat16"
    assert one.time.floor_us == pytest.approx((read + 2 * 16 * 4096) / 3350e9 * 1e6)
    # No such kernel was measured: as wide as where nothing was, a factor of exp(1.2816 * 0.45) = 1.78.
    assert one.time.error is None
    assert one.time.high_us / one.time.us >= 1.78
    (one,) = time_of_call(kernels, device_named("a100-sxm"), SIZES, scheme=scheme_of(FP8)).operators
    assert one.time.provenance == "scaled:bfloat16"


def test_a_product_is_faster_by_the_bytes_that_its_weights_have_fewer() -> None:
    # 8,192 x 57,344 weights: 940 MB in 16 bits, 470 MB in 8, 235 MB in 4. 235 MB are 70 us at 3.35 TB/s.
    kernels = [linear("layers.0.mlp.up_proj", 16, 57344, 8192, 1)]

    def us(width: int | Fraction) -> float:
        (one,) = time_of_call(kernels, H100, {"w_bytes": width, "a_bytes": 2}).operators
        assert one.time.provenance == ("calibrated" if width == 2 else "scaled:bfloat16")
        return one.time.us

    quarter = 57344 * 8192 / 2 / 3352e9 * 1e6
    wide, half, least = us(2), us(1), us(Fraction(1, 2))
    # The kernel reaches 60 % of the bandwidth at least, and no more than all of it.
    assert 2 * quarter <= wide - half <= 2 * quarter / 0.6
    assert quarter <= half - least <= quarter / 0.6


def test_wider_weights_than_16_bits_were_not_measured() -> None:
    kernels = [linear("layers.0.mlp.up_proj", 16, 4096, 4096, 4096 * 4096 * 4)]
    (one,) = time_of_call(kernels, H100, {"w_bytes": 4, "a_bytes": 2}).operators
    assert one.time.provenance == "datasheet:uncalibrated"


def test_shares_are_parts_of_the_whole() -> None:
    found = timed(product(16, 4096, 4096), kernel("elementwise", 5, 10**9, 10**9, repeat=2))
    for what in ("bound", "provenance", "family"):
        assert sum(found.shares(what).values()) == pytest.approx(1)
    low, high = found.whole[1:]
    assert low <= found.whole[0] <= high


@pytest.mark.parametrize(
    ("config", "cache", "warned"),
    [
        ({"max_position_embeddings": 4096}, 4095, False),
        ({"max_position_embeddings": 4096}, 4096, True),
        ({"text_config": {"max_position_embeddings": 10}, "max_position_embeddings": 4096}, 10, True),
        ({"max_position_embeddings": "many"}, 10**9, False),
        (None, 10**9, False),
    ],
)
def test_a_call_beyond_the_positions_of_the_model(config: dict[str, Any] | None, cache: int, warned: bool) -> None:
    found = beyond_positions(config, {"cache_len": cache, "seq_len": 1})
    assert (found is not None) == warned
