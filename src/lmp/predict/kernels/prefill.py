"""Attention of a prompt: each query sees the keys before it (causal), or those of a window.

Columns: ``batch``, ``q_len``, ``kv_len``, ``heads``, ``kv_heads``, ``head_dim``, ``window`` (0: none), ``causal``,
``kv_width`` (bytes of an element of the cache), ``warm`` (1 if a benchmark repeats the call on the same buffers),
``pair_flops`` (FLOP of a query, a key and a head), ``token_bytes`` (bytes of a token and a head in the cache). The last
two differ for latent attention.
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
"""Queries of a tile."""
EXPONENTIALS = 16
"""Exponentials that a multiprocessor starts in a cycle."""

PARAMETERS = (
    Parameter("c", 0.75, 0.05, 1.0, "share of the dense peak"),
    Parameter("sfu", 0.6, 0.05, 4.0, "share of the peak of exponentials"),
    Parameter("m", 0.6, 0.05, 1.0, "share of the memory bandwidth"),
    Parameter("mw", 0.3, 0.005, 1.0, "share of the memory bandwidth of the kernel that writes the cache"),
    Parameter("mq", 0.6, 0.02, 1.0, "share of the memory bandwidth for queries and outputs"),
    Parameter("t0", 8.0, 0.5, 60.0, "microseconds of a call that does nothing"),
    Parameter("tau", 1.0, 0.01, 20.0, "microseconds to start and end a tile"),
    Parameter("p", 2.0, 1.0, 12.0, "how well computing and traffic overlap"),
    Parameter("ramp", 60.0, 1.0, 2000.0, "tokens of a prompt at which a tile takes twice its time"),
    Parameter("wide", 1.0, 0.8, 6.0, "slowdown of heads wider than 128"),
    Parameter("widest", 3.0, 0.8, 30.0, "slowdown of heads wider than 256"),
    Parameter("tb", 0.02, 0.0001, 2.0, "microseconds for each sequence of the batch"),
)


def scores(c: Columns) -> Array:
    """Pairs of a query and a key that the mask lets through, in all heads."""
    q, kv = c["q_len"], c["kv_len"]
    before = kv - q
    window = np.where(c["window"] > 0, np.minimum(c["window"], kv), kv)
    causal = c["causal"] > 0
    # Query i sees min(before + i + 1, window) keys, summed over i from 0 to q - 1.
    growing = np.clip(window - before, 0, q)
    seen = growing * before + growing * (growing + 1) / 2 + (q - growing) * window
    return np.asarray(c["batch"] * c["heads"] * np.where(causal, seen, q * window))


def model(p: Parameters, c: Columns, d: Device) -> Array:
    b, q, h, g, wide = c["batch"], c["q_len"], c["heads"], c["kv_heads"], c["head_dim"]
    clock, peak = float(d.clock or 1e9), float(d.peak(dtype_of(c, d)))
    window = np.where(c["window"] > 0, np.minimum(c["window"], c["kv_len"]), c["kv_len"])
    tiles = np.ceil(q / TILE)
    before = c["kv_len"] - q
    # The tiles on the diagonal are computed whole; of short prompts, one tile takes several heads of a group.
    packed = np.ceil(q * h / g / TILE) * g / h
    tiles = np.where(q < TILE, packed, tiles)
    rows = tiles * TILE
    seen = np.where(c["causal"] > 0, np.minimum(np.maximum((q + TILE) / 2, TILE) + before, window + TILE), window)
    pairs = np.maximum(scores(c), b * h * rows * seen)
    slower = np.where(wide > 256, p["widest"], np.where(wide > 128, p["wide"], 1.0))
    computing = pairs * c["pair_flops"] / (peak * p["c"]) * slower
    exponentials = pairs / (d.sms * clock * EXPONENTIALS * p["sfu"])
    blocks = b * h * tiles
    longest = np.where(c["causal"] > 0, np.minimum(before + rows, window + TILE), window)
    longest = np.where(q < TILE, np.minimum(longest, c["kv_len"]), longest)
    last = TILE * longest * (c["pair_flops"] / (peak / d.sms * p["c"]) * slower + 1 / (clock * EXPONENTIALS * p["sfu"]))
    busy = np.maximum(computing + exponentials, last) * (1 + p["ramp"] / (q + p["ramp"]))
    read = b * g * c["kv_len"] * c["token_bytes"]
    # Queries are read, and quantised before if the cache is; outputs are written.
    beside = b * q * h * wide * np.where(c["kv_width"] < 2, 7.0, 4.0)
    # Writing keys and values to the cache is a kernel of its own before.
    written = b * g * q * c["token_bytes"] * (1 + 2 / c["kv_width"])
    memory = read / (d.bandwidth * p["m"])
    starting = p["tau"] / MICRO * np.ceil(blocks / d.sms)
    time = smooth_max(p["p"], busy + starting, memory) + written / (d.bandwidth * p["mw"])
    time = time + beside / (d.bandwidth * p["mq"])
    return np.asarray(time * MICRO + p["t0"] + p["tb"] * b)


def features(c: Columns, d: Device) -> Array:
    b, q, h, g, wide = c["batch"], c["q_len"], c["heads"], c["kv_heads"], c["head_dim"]
    window = np.where(c["window"] > 0, np.minimum(c["window"], c["kv_len"]), c["kv_len"])
    blocks = b * h * np.ceil(q / TILE) / d.sms
    shape = [log2(v) for v in (b, q, h, g, h / g, window, b * q, b * h, b * g, q * h, blocks, scores(c) * wide)]
    flags = [wide, (c["window"] > 0) & (c["window"] < c["kv_len"]), c["kv_width"], c["causal"]]
    return np.column_stack([*shape, *(v.astype(float) for v in flags), np.ceil(blocks) / blocks])


def work(c: Columns, d: Device) -> Work:
    b, q, h, g, wide = c["batch"], c["q_len"], c["heads"], c["kv_heads"], c["head_dim"]
    window = np.where(c["window"] > 0, np.minimum(c["window"] + q, c["kv_len"]), c["kv_len"])
    moved = 2.0 * b * q * h * wide * 2 + b * g * window * c["token_bytes"]
    cold = np.where(c["warm"] > 0, cold_bytes(moved, float(d.l2 or 0)), moved)
    return Work(scores(c) * c["pair_flops"], cold, dtype_of(c, d))


def dtype_of(c: Columns, d: Device) -> str:
    """Kernels with a quantised cache may compute in it."""
    return "fp8" if c["kv_width"].flat[0] == 1 and "fp8" in d.dense else "bfloat16"


FAMILY = Family("prefill", PARAMETERS, model, features, work)
