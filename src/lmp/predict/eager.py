"""Time of a model's call in eager mode: every operator of the expanded model is a kernel, one after the other.

Each operator becomes a row for the predictor. One that has no kernel family is worked out from peaks of the datasheet.
Host time is not in it: the profile of eager mode has that of a launch, which is compared with this time elsewhere.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from lmp.errors import LmpError, UsageError, first_line
from lmp.formula import Number, read_number
from lmp.link.quantisation import Scheme
from lmp.link.records import EvaluatedKernel
from lmp.predict.devices import Device
from lmp.predict.prediction import (
    UNCALIBRATED,
    UNCALIBRATED_SPREAD,
    Z80,
    Prediction,
    Predictor,
    Total,
    bound_time,
    total,
)
from lmp.predict.rows import Row, row_of
from lmp.predict.shard.collectives import rows_of
from lmp.predict.shard.records import collective_of
from lmp.records import MATMUL_CATEGORIES, Operand, Operands

PRODUCTS = {
    "float32": "float32",
    "bfloat16": "bfloat16",
    "float16": "bfloat16",
    "float8_e4m3fn": "fp8",
    "int8": "int8",
    "float4_e2m1fn": "fp4",
}
"""Dtype in which products read their operands -> its name in a datasheet."""
CALIBRATED = {"bfloat16": 2, "fp8": 1}
"""Dtype of products of which kernels were measured -> bytes of an element of both operands."""


@dataclass(frozen=True)
class Timed:
    """One operator at one line, with the time of one execution."""

    kernel: EvaluatedKernel
    time: Prediction

    @property
    def us(self) -> float:
        """Of all its executions."""
        return self.time.us * self.kernel.repeat


@dataclass(frozen=True)
class CallTime:
    """Time of one call of a model: kernels alone, without the host."""

    operators: tuple[Timed, ...]
    """In the order of the analysis."""
    whole: Total
    """Microseconds, with the 80 % interval."""
    launches: int
    """Kernels of the call."""

    @classmethod
    def of(cls, timed: Sequence[Timed]) -> CallTime:
        """Of all operators that run, in their order."""
        often = [one.kernel.repeat for one in timed]
        return cls(tuple(timed), total([one.time for one in timed], often), sum(often))

    def shares(self, of: str) -> dict[str, float]:
        """Part of the time by a field of the predictions, the largest first: bound, provenance, family."""
        found: dict[str, float] = defaultdict(float)
        for one in self.operators:
            found[getattr(one.time, of)] += one.us
        sum_of_all = sum(found.values()) or 1.0
        return {name: us / sum_of_all for name, us in sorted(found.items(), key=lambda item: -item[1])}

    @property
    def calibrations(self) -> dict[str, float | None]:
        """Id of each calibration, with its largest median error on held-out sites in per cent."""
        found: dict[str, float | None] = {}
        for one in self.operators:
            if one.time.calibration is not None:
                name = f"{one.time.family} {one.time.calibration}"
                known = [error for error in (found.get(name), one.time.error) if error is not None]
                found[name] = max(known, default=None)
        return found

    @property
    def extrapolated(self) -> tuple[str, ...]:
        """Operators with a size beyond what was measured, each once."""
        names = (
            f"{one.kernel.operation} in line {one.kernel.line} of {one.kernel.path or 'the model'}: "
            f"{', '.join(one.time.extrapolated)}"
            for one in self.operators
            if one.time.extrapolated
        )
        return tuple(dict.fromkeys(names))


@dataclass(frozen=True)
class Asked:
    """A kernel with what its time is predicted from."""

    kernel: EvaluatedKernel
    rows: tuple[Row, ...]
    """Of which the fastest is taken. None: peak and bandwidth alone, as no kernel family stands for it."""
    dtype: str
    """Of products of a kernel without a row, by its name in a datasheet."""


def asked_of_call(
    kernels: Sequence[EvaluatedKernel],
    device: Device,
    values: Mapping[str, Number],
    products: str = "bfloat16",
    scheme: Scheme | None = None,
) -> list[Asked]:
    """What each operator that runs is predicted from. ``products`` is the dtype of matrix products.

    ``scheme``: how the checkpoint's weights are stored, module by module; its products have their own dtypes.
    Raises UsageError for a dtype that is not predicted, or that the device does not have.
    """
    dtype = refuse_products(device, products)
    kv_dtype = "fp8" if values.get("kv_bytes") == 1 else None
    running = [kernel for kernel in kernels if _runs(kernel)]
    reads = [reading(kernel, device, dtype, values, scheme) for kernel in running]
    return [
        Asked(kernel, _rows(kernel, device, read, kv_dtype), read.dtype)
        for kernel, read in zip(running, reads, strict=True)
    ]


def times_of(asked: Sequence[Asked], predictor: Predictor, device: Device) -> list[Timed]:
    """The time of each kernel, in their order. Raises LmpError for one that cannot be predicted."""
    # Layers have the same shapes: each is predicted once.
    distinct = list({_key(row): row for one in asked for row in one.rows}.values())
    made = dict(zip(map(_key, distinct), map(predicted, predictor.predict(distinct)), strict=True))
    timed = []
    for one in asked:
        choices = [made[_key(row)] for row in one.rows] or [bounded(one.kernel, device, one.dtype)]
        timed.append(Timed(one.kernel, min(choices, key=lambda choice: choice.us)))
    return timed


def predicted(made: Prediction | LmpError) -> Prediction:
    """The prediction. Raises the error that stands in its place."""
    if isinstance(made, LmpError):
        raise made
    return made


def refuse_products(device: Device, products: str) -> str:
    """The name in a datasheet of a dtype of products. Raises UsageError for one that the device does not have."""
    dtype = PRODUCTS.get(products)
    if dtype is None:
        raise UsageError(f"matrix products in {products} are not predicted\npredicted are {', '.join(PRODUCTS)}")
    if dtype != "bfloat16":
        device.peak(dtype)
    return dtype


POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len")


def beyond_positions(config: Mapping[str, object] | None, values: Mapping[str, Number]) -> str | None:
    """A warning if a call has more tokens than the config has positions."""
    text = (config or {}).get("text_config")
    places = [place for place in (text, config) if isinstance(place, Mapping)]
    found = (place[name] for place in places for name in POSITIONS if isinstance(place.get(name), int))
    positions = next(found, None)
    longest = values.get("cache_len", 0) + values.get("seq_len", 0)
    if not isinstance(positions, int) or longest <= positions:
        return None
    return f"{int(longest):,} tokens are more than the {positions:,} positions of the model"


def _runs(kernel: EvaluatedKernel) -> bool:
    """Whether it starts a kernel at these values."""
    return kernel.repeat > 0 and bool(kernel.flops or _bytes(kernel.read) or _bytes(kernel.write))


def _bytes(figure: object) -> int:
    """Whole bytes of a figure, which is a fraction where elements have fractions of a byte."""
    return math.ceil(Fraction(read_number(figure)))


def _key(row: Row) -> str:
    return row.model_dump_json()


@dataclass(frozen=True)
class Reading:
    """How a product reads its operands."""

    dtype: str
    """The dtype that the units multiply in, by its name in a datasheet."""
    width: Fraction
    """Bytes of an element of the second operand as it is stored, scales included."""
    quantises: bool = False
    """Whether a kernel of its own converts the first operand before."""
    of_weight: bool = True
    """Whether the second operand is a weight."""

    @property
    def fields(self) -> dict[str, object] | None:
        """What a row says of it; None where nothing that was measured stands for it.

        The scales of 8-bit weights are a part of measured kernels. One that widens its weights is scaled from the
        kernel whose weights are as wide as in the product.
        """
        measured = CALIBRATED.get(self.dtype)
        if measured is None or self.width >= 1.1 * measured or (self.width < measured and not self.of_weight):
            return None
        return {"dtype": self.dtype} | ({"weight_bytes": float(self.width)} if self.width < measured else {})


def reading(
    kernel: EvaluatedKernel, device: Device, dtype: str, values: Mapping[str, Number], scheme: Scheme | None
) -> Reading:
    """What a product reads: the weights of its module as they are stored, or two activations."""
    operands = kernel.operands
    weight = _weight(operands) if operands is not None else None
    if operands is None or weight is None:
        # Schemes of 8 bits and less are of weights' products alone; of unknown operands none is known to be a weight.
        dtype = dtype if operands is not None or dtype == "float32" else "bfloat16"
        return Reading(dtype, Fraction(values.get("a_bytes", CALIBRATED.get(dtype, 2))), of_weight=False)
    storage = scheme.storage(kernel.path, kernel.class_name) if scheme is not None else None
    if storage is None:
        return Reading(dtype, Fraction(weight.width if isinstance(weight.width, int) else values.get("w_bytes", 2)))
    # A product has its weight transposed; n are the outputs.
    rows, columns = (int(size) for size in (operands.n or weight.shape[-1], operands.k or weight.shape[-2]))
    stored = PRODUCTS[storage.products]
    # A device without units of that dtype converts the weights to 16 bits.
    stored = stored if stored in device.dense else "bfloat16"
    return Reading(stored, Fraction(storage.size(rows, columns), rows * columns), stored != "bfloat16")


def _weight(operands: Operands) -> Operand | None:
    """The matrix among a product's weights; None for a product of activations."""
    found = [one for one in operands.inputs if one.role == "weight" and len(one.shape) > 1]
    return found[0] if found else None


def _rows(kernel: EvaluatedKernel, device: Device, read: Reading, kv_dtype: str | None) -> tuple[Row, ...]:
    """The rows of which the fastest is taken; none for a product that no kernel family stands for."""
    collective = collective_of(kernel)
    if collective is not None:
        return rows_of(collective, device)
    try:
        row = _row(kernel, device, read, kv_dtype)
    except UsageError as error:
        place = f"{kernel.operation} in line {kernel.line} of {kernel.path or 'the model'}"
        raise UsageError(
            f"{place} is beyond what is predicted: {first_line(error)}\ngive a smaller batch, or fewer tokens"
        ) from error
    return () if row is None else (row,)


def _row(kernel: EvaluatedKernel, device: Device, read: Reading, kv_dtype: str | None) -> Row | None:
    """The row of an operator; None for a product that no kernel family stands for."""
    operands = kernel.operands
    if kernel.category not in MATMUL_CATEGORIES:
        op = "norm" if kernel.category == "reduction" else "pointwise"
        return row_of({"op": op, "device": device.name, "read": _bytes(kernel.read), "written": _bytes(kernel.write)})
    if operands is None or _is_wide(operands):
        return None
    if operands.q_len is not None and read.dtype != "float32":
        return _attention(operands, device, kv_dtype) if _is_usual(operands) else None
    if operands.m is not None and operands.batch in (None, 1) and operands.experts is None and read.fields is not None:
        sizes = {"m": operands.m, "n": operands.n, "k": operands.k}
        # The class's own run quantises nothing: what does is an operator of its own, or a part of a converted module.
        return row_of(
            {"op": "gemm", "device": device.name, **read.fields, "quantise_activations": read.quantises, **sizes}
        )
    return None


def _is_wide(operands: Operands) -> bool:
    """Whether it multiplies elements of more than 16 bits."""
    return any(isinstance(one.width, int) and one.width > 2 and one.role != "index" for one in operands.inputs)


def is_wide(kernel: EvaluatedKernel) -> bool:
    """Whether it multiplies elements of more than 16 bits; False if its operands are not known."""
    return kernel.operands is not None and _is_wide(kernel.operands)


def _is_usual(operands: Operands) -> bool:
    """Whether attention has the shape that was measured: heads in groups, no more queries than keys."""
    heads, kv_heads = operands.heads, operands.kv_heads
    if not isinstance(heads, int) or not isinstance(kv_heads, int) or not kv_heads or heads % kv_heads:
        return False
    return isinstance(operands.q_len, int) and isinstance(operands.kv_len, int) and operands.q_len <= operands.kv_len


def _attention(operands: Operands, device: Device, kv_dtype: str | None) -> Row:
    return row_of(
        {
            "op": "attention",
            "device": device.name,
            "phase": "decode" if operands.q_len == 1 else "prefill",
            # Attention computes in 16 bits, also between products of 8.
            "dtype": "bfloat16",
            "kv_dtype": kv_dtype,
            "batch": operands.batch or 1,
            "q_len": operands.q_len,
            "kv_len": operands.kv_len,
            "heads": operands.heads,
            "kv_heads": operands.kv_heads,
            "head_dim": operands.head_dim,
            "window": operands.window,
            "causal": bool(operands.causal),
        }
    )


def bounded(kernel: EvaluatedKernel, device: Device, dtype: str) -> Prediction:
    """The time of a product without a kernel family, from dense peak and bandwidth alone: a wide interval."""
    return by_peaks(kernel.flops, _bytes(kernel.read) + _bytes(kernel.write), is_wide(kernel), device, dtype)


def by_peaks(flops: int, moved: int, wide: bool, device: Device, dtype: str) -> Prediction:
    """The same from figures. ``wide``: it multiplies elements of more than 16 bits."""
    peak = device.other_flops if wide else device.dense.get(dtype, device.matmul_flops)
    compute = flops / peak * 1e6
    memory = moved / device.bandwidth * 1e6
    floor = max(compute, memory)
    us = float(bound_time(np.array([floor]))[0])
    spread = math.exp(Z80 * UNCALIBRATED_SPREAD)
    bound = "latency" if floor < 0.4 * us else "compute" if compute >= memory else "memory"
    return Prediction(
        us, max(us / spread, floor), us * spread, floor, bound, UNCALIBRATED, None, None, (), "other products",
        "datasheet", UNCALIBRATED_SPREAD,
    )  # fmt: skip


def as_json(found: CallTime) -> dict[str, object]:
    """Figures of a call and of each operator, as ``lmp predict --json`` writes them."""
    us, low, high = found.whole
    return {
        "us": round(us, 3),
        "low_us": round(low, 3),
        "high_us": round(high, 3),
        "launches": found.launches,
        "host_time": "not included",
        "bound": {name: round(share, 4) for name, share in found.shares("bound").items()},
        "provenance": {name: round(share, 4) for name, share in found.shares("provenance").items()},
        "calibrations": found.calibrations,
        "extrapolated": list(found.extrapolated),
        "operators": [_operator(one) for one in found.operators],
    }


def _operator(one: Timed) -> dict[str, object]:
    kernel, time = one.kernel, one.time
    return {
        "path": kernel.path,
        "class_name": kernel.class_name,
        "line": kernel.line,
        "operation": kernel.operation,
        "id": kernel.id,
        "repeat": kernel.repeat,
        "us": round(time.us, 3),
        "low_us": round(time.low_us, 3),
        "high_us": round(time.high_us, 3),
        "total_us": round(one.us, 3),
        "bound": time.bound,
        "family": time.family,
        "provenance": time.provenance,
        "calibration": time.calibration,
        "error": time.error,
        "extrapolated": list(time.extrapolated),
    }
