"""Matrix products ``(m, k) x (k, n)``: the least time over tile sizes and splits of k.

Columns: ``m``, ``n``, ``k``; ``copies``, copies of the weight that a benchmark runs through (0 in serving, where no
weight is in the cache); ``width``, bytes of an element; ``stored``, those of the weight in memory, where it is widened
first; ``quantise``, 1 if the activation is quantised before.
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
    stored,
)

SMALL_TILES = ((128, 128), (128, 64), (64, 128), (64, 64), (64, 256), (256, 128), (128, 256))
TILES = {
    "hopper": (*SMALL_TILES, (192, 128), (128, 192)),
    "blackwell": (*SMALL_TILES, (256, 256), (256, 192)),
}
"""Architecture -> rows and columns of the tiles that its libraries have."""
OTHER_TILES = (*SMALL_TILES, (32, 64))
SPLITS = (1, 2, 4, 8, 16)
STEP = 64
"""Values of k that a tile takes at a time."""
SHORTEST_SPLIT = 128
REFERENCE = 256 * 128 / (256 + 128)
"""FLOP for a loaded value of a 256 x 128 tile: the efficiency ``c`` is that of this tile."""

PARAMETERS = (
    Parameter("c", 0.8, 0.2, 1.0, "share of the dense peak that the largest tile reaches"),
    Parameter("m", 0.88, 0.3, 1.0, "share of the memory bandwidth"),
    Parameter("t0", 2.2, 0.2, 30.0, "microseconds of a kernel that does nothing"),
    Parameter("p", 4.0, 1.0, 12.0, "how well computing and traffic overlap"),
    Parameter("eps", 10.0, 0.5, 200.0, "FLOP a value at which a tile loses half of its efficiency"),
    Parameter("bsm", 60.0, 5.0, 500.0, "bytes that a multiprocessor loads in a cycle"),
    Parameter("tau", 0.6, 0.01, 10.0, "microseconds to start and end a tile"),
    Parameter("tspl", 2.0, 0.1, 20.0, "microseconds of a split's reduction"),
    Parameter("theta", 0.5, 0.05, 1.0, "share of the multiprocessors that saturates the memory"),
    Parameter("l2a", 0.8, 0.1, 1.5, "share of the cache that holds data for the next call"),
    Parameter("l2b", 30.0, 5.0, 200.0, "bytes of the cache that a multiprocessor gets in a cycle"),
    Parameter("wexp", 0.9, 0.01, 1.0, "share of a whole wave that a last, partial one takes"),
    Parameter("tq", 0.5, 0.01, 10.0, "microseconds of a quantise kernel that does nothing"),
    Parameter("mq", 0.5, 0.05, 1.0, "share of the memory bandwidth that quantising reaches"),
)
OUT = 2.0
"""Bytes of an element of the product."""


def model(p: Parameters, c: Columns, d: Device) -> Array:
    m, n, k, width, own = c["m"], c["n"], c["k"], c["width"], stored(c)
    weight, given, out = n * k * own, m * k * width, m * n * OUT
    peak, clock, cache = float(d.peak(dtype_of(c))), float(d.clock or 1e9), float(d.l2 or 1e6)
    warm = (
        np.where(c["copies"] > 0, np.minimum(1.0, p["l2a"] * cache / np.maximum(c["copies"] * weight, 1.0)), 0.0) ** 2
    )
    spilt = np.clip((given + out) / (p["l2a"] * cache), 0, 1)
    traffic = weight * (1 - warm) + (given + out) * spilt
    l2_rate = p["l2b"] * d.sms * clock
    in_cache = (weight + given + out) / l2_rate
    best = np.full(m.shape, np.inf)
    power = p["p"]
    for rows, columns in TILES.get(d.architecture, OTHER_TILES):
        intensity = rows * columns / (rows + columns)
        share = min(0.98, p["c"] * intensity / (intensity + p["eps"]) * (REFERENCE + p["eps"]) / REFERENCE)
        tiles = np.ceil(m / rows) * np.ceil(n / columns)
        loaded = np.minimum(rows, m) * width + np.minimum(columns, n) * own
        for split in SPLITS:
            depth = np.ceil(k / split / STEP) * STEP
            waves = tiles * split / d.sms
            whole = np.ceil(waves - 1e-9)
            rounds = np.maximum(waves + (whole - waves) * p["wexp"], 1.0)
            computing = 2 * rows * columns * depth / (peak / d.sms * share)
            loading = loaded * depth / (p["bsm"] * clock)
            tile = (computing**power + loading**power) ** (1 / power) + p["tau"] / MICRO
            busy = np.minimum(1.0, np.minimum(waves, 1.0) / p["theta"])
            memory = traffic / (d.bandwidth * p["m"]) / busy
            if split > 1:
                memory = memory + split * m * n * 8 / l2_rate
            time = ((rounds * tile) ** power + memory**power + in_cache**power) ** (1 / power)
            if split > 1:
                time = np.where(k / split < SHORTEST_SPLIT, np.inf, time + p["tspl"] / MICRO)
            best = np.minimum(best, time)
    return np.asarray(best * MICRO + p["t0"] + c["quantise"] * quantising(p, c, d))


def quantising(p: Parameters, c: Columns, d: Device) -> Array:
    """Microseconds of the kernel that quantises the activation: 2 bytes read and 1 written for each value."""
    moved = c["m"] * c["k"] * 3.0
    return np.asarray(p["tq"] + moved / (d.bandwidth * p["mq"]) * MICRO)


def dtype_of(c: Columns) -> str:
    return "fp8" if c["width"].flat[0] == 1 else "bfloat16"


def features(c: Columns, d: Device) -> Array:
    m, n, k = c["m"], c["n"], c["k"]
    waves = [np.ceil(m / a) * np.ceil(n / b) / d.sms for a, b in ((128, 128), (128, 256), (64, 128), (256, 256))]
    shape = [log2(v) for v in (m, n, k, m * n, n * k, m * k)]
    odd = [m % 2, m % 64, m % 128, m % 256]
    return np.column_stack([*shape, *odd, *(log2(w) for w in waves), *(np.ceil(w) / w for w in waves)])


def work(c: Columns, d: Device) -> Work:
    m, n, k, width, own = c["m"], c["n"], c["k"], c["width"], stored(c)
    cache = float(d.l2 or 0)
    # A benchmark that runs the same call again may find everything in the cache but what exceeds it.
    every = (n * k * own) * np.maximum(c["copies"], 1) + m * k * width + m * n * OUT
    again = np.maximum(0.0, cold_bytes(every, cache)) / np.maximum(c["copies"], 1)
    once = n * k * own + m * k * width + m * n * OUT
    return Work(2 * m * n * k, np.where(c["copies"] > 0, np.minimum(again, n * k * own), once), dtype_of(c))


FAMILY = Family("gemm", PARAMETERS, model, features, work)
