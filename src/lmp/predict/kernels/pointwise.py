"""Kernels that only move data: pointwise chains, norms, and quantising to 8 bits.

Columns: ``read`` and ``written`` bytes; of quantising also ``m`` and ``k``.
"""

from __future__ import annotations

import numpy as np

from lmp.predict.devices import Device
from lmp.predict.kernels.base import (
    MICRO,
    Array,
    Columns,
    Family,
    Parameter,
    Parameters,
    Work,
    cold_bytes,
    log2,
    smooth_max,
)

PARAMETERS = (
    Parameter("m", 0.7, 0.02, 1.0, "share of the memory bandwidth"),
    Parameter("t0", 1.8, 0.05, 30.0, "microseconds of a kernel that does nothing"),
    Parameter("p", 1.0, 1.0, 12.0, "how well starting and traffic overlap"),
    Parameter("l2b", 30.0, 1.0, 200.0, "bytes of the cache that a multiprocessor gets in a cycle"),
)


def model(p: Parameters, c: Columns, d: Device) -> Array:
    moved = c["read"] + c["written"]
    cold = cold_bytes(moved, float(d.l2 or 0)) if "m" in c else moved
    memory = cold / (d.bandwidth * p["m"])
    # What the benchmark left in the cache is read at the cache's rate.
    cached = (moved - cold) / (p["l2b"] * d.sms * float(d.clock or 1e9))
    return np.asarray(smooth_max(p["p"], (memory + cached) * MICRO, np.full(len(moved), p["t0"])))


def features(c: Columns, d: Device) -> Array:
    rows = c["m"] / d.sms
    return np.column_stack(
        [*(log2(v) for v in (c["m"], c["k"], c["m"] * c["k"], rows)), np.ceil(rows) / rows, c["m"] % 2]
    )


def work(c: Columns, d: Device) -> Work:
    moved = c["read"] + c["written"]
    # A row of the quantise table repeats on the same buffers.
    cold = cold_bytes(moved, float(d.l2 or 0)) if "m" in c else moved
    return Work(np.zeros(len(moved)), cold, "bfloat16")


POINTWISE = Family("pointwise", PARAMETERS, model, features, work)
QUANTISE = Family("quantise", PARAMETERS, model, features, work)
