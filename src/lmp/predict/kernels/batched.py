"""Batched matrix products of one weight a head, as the absorbed projections of latent attention.

Columns: ``batch`` (products), ``m``, ``n``, ``k``, ``width`` (bytes of an element of the inputs).
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

TILE = 128.0

PARAMETERS = (
    Parameter("c", 0.6, 0.05, 1.0, "share of the dense peak"),
    Parameter("m", 0.8, 0.1, 1.0, "share of the memory bandwidth"),
    Parameter("t0", 3.5, 0.3, 60.0, "microseconds of a call that does nothing"),
    Parameter("p", 2.0, 1.0, 12.0, "how well computing and traffic overlap"),
    Parameter("tau", 0.8, 0.01, 20.0, "microseconds to start and end a tile"),
)


def dtype_of(c: Columns) -> str:
    return "fp8" if c["width"].flat[0] == 1 else "bfloat16"


def traffic(c: Columns) -> Array:
    b, m, n, k = c["batch"], c["m"], c["n"], c["k"]
    return np.asarray(b * ((m * k + k * n) * c["width"] + m * n * 2.0))


def model(p: Parameters, c: Columns, d: Device) -> Array:
    b, m, n, k = c["batch"], c["m"], c["n"], c["k"]
    tiles = b * np.ceil(m / TILE) * np.ceil(n / TILE)
    rounds = np.maximum(tiles / d.sms, 1.0)
    tile = 2 * TILE * TILE * k / (float(d.peak(dtype_of(c))) / d.sms * p["c"]) + p["tau"] / MICRO
    memory = traffic(c) / (d.bandwidth * p["m"])
    return np.asarray(smooth_max(p["p"], rounds * tile, memory) * MICRO + p["t0"])


def features(c: Columns, d: Device) -> Array:
    b, m, n, k = c["batch"], c["m"], c["n"], c["k"]
    waves = b * np.ceil(m / TILE) * np.ceil(n / TILE) / d.sms
    return np.column_stack([*(log2(v) for v in (b, m, n, k, b * m, waves, traffic(c))), np.ceil(waves) / waves])


def work(c: Columns, d: Device) -> Work:
    flops = 2 * c["batch"] * c["m"] * c["n"] * c["k"]
    return Work(flops, cold_bytes(traffic(c), float(d.l2 or 0)), dtype_of(c))


FAMILY = Family("batched", PARAMETERS, model, features, work)
