"""Attention of one new token for each sequence, over a cache.

Columns: those of ``prefill``; ``q_len`` is 1.
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
    warm_share,
)

BLOCK = 64.0
"""Tokens of the cache that a block takes at a time."""
LEAST_SPLIT = 128.0
ROWS = 16.0
"""Rows of the smallest tile of matrix units: fewer queries of a group are padded to it."""

PARAMETERS = (
    Parameter("c", 0.3, 0.01, 1.0, "share of the dense peak"),
    Parameter("m", 0.85, 0.2, 1.0, "share of the memory bandwidth"),
    Parameter("t0", 6.0, 0.5, 60.0, "microseconds of a call that does nothing"),
    Parameter("bcta", 25.0, 1.0, 300.0, "bytes that a block loads in a cycle"),
    Parameter("tfix", 2.0, 0.05, 30.0, "microseconds to start and end a block"),
    Parameter("p", 3.0, 1.0, 12.0, "how well computing and traffic overlap"),
    Parameter("l2a", 0.6, 0.05, 1.5, "share of the cache that holds data for the next call"),
    Parameter("l2b", 30.0, 3.0, 200.0, "bytes of the cache that a multiprocessor gets in a cycle"),
    Parameter("tcomb", 1.5, 0.01, 20.0, "microseconds to combine the parts of a split"),
    Parameter("occ", 1.0, 0.5, 8.0, "blocks that a multiprocessor runs at once"),
    Parameter("wide", 1.0, 0.8, 6.0, "slowdown of heads wider than 128"),
    Parameter("widest", 2.0, 0.8, 30.0, "slowdown of heads wider than 256"),
    Parameter("tb", 0.01, 0.0001, 2.0, "microseconds for each sequence of the batch"),
)


def seen(c: Columns) -> Array:
    """Tokens of the cache that one query sees."""
    return np.asarray(np.where(c["window"] > 0, np.minimum(c["window"], c["kv_len"]), c["kv_len"]))


def model(p: Parameters, c: Columns, d: Device) -> Array:
    b, h, g, wide = c["batch"], c["heads"], c["kv_heads"], c["head_dim"]
    tokens, clock = seen(c), float(d.clock or 1e9)
    group = h / g
    slots = d.sms * p["occ"]
    cache = b * g * tokens * c["token_bytes"]
    held = np.where(c["warm"] > 0, warm_share(cache, p["l2a"] * float(d.l2 or 1e6)), 0.0)
    units = b * g * np.ceil(group / 64)
    splits = np.clip(np.floor(slots / units), 1, np.maximum(1, np.ceil(tokens / LEAST_SPLIT)))
    waves = units * splits / slots
    rounds = np.where(waves > 4, waves, np.ceil(waves))
    slower = np.where(wide > 256, p["widest"], np.where(wide > 128, p["wide"], 1.0))
    block = np.ceil(tokens / splits / BLOCK) * BLOCK * c["token_bytes"] / (p["bcta"] * clock)
    latency = rounds * (block * slower + p["tfix"] / MICRO)
    rate = d.bandwidth * p["m"]
    memory = (cache * (1 - held) + 4 * b * h * wide) / rate + cache * held / (p["l2b"] * d.sms * clock)
    computing = (
        b * g * np.maximum(group, ROWS) * tokens * c["pair_flops"] / (float(d.peak("bfloat16")) * p["c"]) * slower
    )
    time = smooth_max(p["p"], latency, memory, computing) * MICRO
    return np.asarray(time + p["t0"] + p["tb"] * b + np.where(splits > 1, p["tcomb"], 0.0))


def features(c: Columns, d: Device) -> Array:
    b, h, g, wide, kv = c["batch"], c["heads"], c["kv_heads"], c["head_dim"], c["kv_len"]
    tokens, units = seen(c), b * g / d.sms
    shape = [log2(v) for v in (b, kv, h, g, h / g, tokens, b * g, b * h, units, b * g * tokens * wide, b * tokens)]
    flags = [wide, (tokens < kv).astype(float), c["kv_width"], np.ceil(units) / units]
    return np.column_stack([*shape, *flags])


def work(c: Columns, d: Device) -> Work:
    b, h, g, wide, tokens = c["batch"], c["heads"], c["kv_heads"], c["head_dim"], seen(c)
    cache = b * g * tokens * c["token_bytes"]
    moved = cache + 4 * b * h * wide
    cold = np.where(c["warm"] > 0, cold_bytes(moved, float(d.l2 or 0)), moved)
    fast = "fp8" if c["kv_width"].flat[0] == 1 and "fp8" in d.dense else "bfloat16"
    return Work(b * h * tokens * c["pair_flops"], cold, fast)


FAMILY = Family("decode", PARAMETERS, model, features, work)
