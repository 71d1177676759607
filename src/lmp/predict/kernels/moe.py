"""The fused mixture of experts of one GPU: sorting, two grouped products, the activation between them, combining.

Columns: ``tokens``, ``hidden``, ``inter`` and ``experts`` (of the whole layer), ``topk``, ``tp``, ``ep``, ``skew``
(0: balanced, else the exponent of the power law), ``matrices`` (3: gated, 2: not), ``width`` (bytes of an element in a
product), ``stored`` (those of the weights in memory, where they are widened first).
"""

from __future__ import annotations

from dataclasses import dataclass

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
    log2,
    smooth_max,
    stored,
)

QUANTILES = 16
"""Experts are drawn in so many groups of equal size, by their load."""
TILE_ROWS = (16.0, 32.0, 64.0, 128.0)
TILE_COLUMNS = 128.0
HEAVIEST = 0.8
"""Part of all tokens that the most loaded expert of a power law can get, as the benchmark draws it."""

PARAMETERS = (
    Parameter("c", 0.6, 0.05, 1.0, "share of the dense peak that the largest tile reaches"),
    Parameter("eps", 20.0, 0.5, 300.0, "FLOP a value at which a tile loses half of its efficiency"),
    Parameter("bsm", 60.0, 5.0, 500.0, "bytes that a multiprocessor loads in a cycle"),
    Parameter("m", 0.8, 0.1, 1.0, "share of the memory bandwidth"),
    Parameter("theta", 0.5, 0.05, 1.0, "share of the multiprocessors that saturates the memory"),
    Parameter("tau", 0.6, 0.01, 20.0, "microseconds to start and end a tile"),
    Parameter("p", 3.0, 1.0, 12.0, "how well computing and traffic overlap"),
    Parameter("t0", 25.0, 1.0, 200.0, "microseconds of a call that does nothing"),
    Parameter("ma", 0.5, 0.02, 1.0, "share of the memory bandwidth of gather, activation and combine"),
    Parameter("tr", 0.5, 0.001, 20.0, "microseconds to sort a thousand routed rows"),
    Parameter("te", 0.02, 0.0001, 2.0, "microseconds for each expert of the GPU"),
    Parameter("hot", 0.5, 0.01, 4.0, "how much the most loaded GPU has above the mean of its experts"),
)


@dataclass(frozen=True)
class Load:
    """Rows that the experts of the most loaded GPU get, in groups of experts: arrays of (rows, QUANTILES)."""

    experts: Array
    """Experts of a group."""
    rows: Array
    """Routed rows of each expert of a group."""

    @property
    def routed(self) -> Array:
        return np.asarray((self.experts * self.rows).sum(axis=1))

    @property
    def active(self) -> Array:
        """Experts that get a row."""
        return np.asarray((self.experts * np.minimum(1.0, self.rows)).sum(axis=1))


def load(c: Columns, hot: float) -> Load:
    local = c["experts"] / c["ep"]
    mean = c["tokens"] * c["topk"] / c["experts"]
    quantile = (np.arange(QUANTILES) + 0.5) / QUANTILES
    greatest = np.maximum(c["tokens"] * HEAVIEST, 1.01)[:, None]
    exponent = np.where(c["skew"] > 0, c["skew"], 1.2)[:, None]
    power = 1 - exponent
    drawn = ((greatest**power - 1) * quantile + 1) ** (1 / power)
    share = drawn / drawn.mean(axis=1, keepdims=True)
    # No expert gets a token twice.
    share = np.minimum(share, (c["experts"] / c["topk"])[:, None])
    rank = 1 + hot * np.minimum(c["ep"] - 1, 1) * (np.minimum(share.max(axis=1), c["ep"]) - 1) / np.sqrt(local)
    skewed = share * (mean * rank)[:, None]
    balanced = np.broadcast_to(mean[:, None], skewed.shape)
    rows = np.where((c["skew"] > 0)[:, None], skewed, balanced)
    return Load(np.broadcast_to((local / QUANTILES)[:, None], rows.shape), rows)


def model(p: Parameters, c: Columns, d: Device) -> Array:
    spread = load(c, p["hot"])
    hidden, inner = c["hidden"], c["inter"] / c["tp"]
    routed = np.maximum(spread.routed, 1.0)
    strips = {rows: (spread.experts * tiles_of(spread.rows, rows)).sum(axis=1) for rows in TILE_ROWS}
    active = np.maximum(spread.active, 1.0)
    up = grouped(p, c, d, (strips, active), ((c["matrices"] - 1) * inner, hidden))
    down = grouped(p, c, d, (strips, active), (hidden, inner))
    moved = routed * (4.0 * hidden + (c["matrices"] + 1) * inner) * 2.0
    beside = moved / (d.bandwidth * p["ma"]) * MICRO + p["tr"] * routed / 1000 + p["te"] * c["experts"] / c["ep"]
    return np.asarray((up + down) * MICRO + beside + p["t0"])


def grouped(
    p: Parameters, c: Columns, d: Device, rows_of: tuple[dict[float, Array], Array], sizes: tuple[Array, Array]
) -> Array:
    """Seconds of one product for each expert, (rows, depth) x (depth, columns).

    ``rows_of``: strips of tiles of all experts, by the rows of a tile; and the experts that have any.
    """
    (strips, active), (columns, depth) = rows_of, sizes
    width, own, power = c["width"], stored(c), p["p"]
    peak, clock = float(d.peak("fp8" if width.flat[0] == 1 else "bfloat16")), float(d.clock or 1e9)
    weights = active * columns * depth * own
    best = np.full(columns.shape, np.inf)
    reference = 128 * TILE_COLUMNS / (128 + TILE_COLUMNS)
    for rows in TILE_ROWS:
        intensity = rows * TILE_COLUMNS / (rows + TILE_COLUMNS)
        share = min(0.98, p["c"] * intensity / (intensity + p["eps"]) * (reference + p["eps"]) / reference)
        tiles = np.maximum(strips[rows], 1.0) * np.ceil(columns / TILE_COLUMNS)
        waves = tiles / d.sms
        computing = 2 * rows * TILE_COLUMNS * depth / (peak / d.sms * share)
        loading = (rows * width + TILE_COLUMNS * own) * depth / (p["bsm"] * clock)
        tile = (computing**power + loading**power) ** (1 / power) + p["tau"] / MICRO
        busy = np.minimum(1.0, np.minimum(waves, 1.0) / p["theta"])
        memory = weights / (d.bandwidth * p["m"]) / busy
        rounds = np.where(waves > 1, waves + 0.5 * (np.ceil(waves) - waves), 1.0)
        best = np.minimum(best, smooth_max(power, rounds * tile, memory))
    return np.asarray(best)


def tiles_of(rows: Array, height: float) -> Array:
    """Tiles for so many rows; below one row, the chance that there is one."""
    return np.where(rows < 1, rows, np.ceil(rows / height))


def features(c: Columns, d: Device) -> Array:
    spread = load(c, 0.5)
    inner = c["inter"] / c["tp"]
    local = c["experts"] / c["ep"]
    routed, active = np.maximum(spread.routed, 1e-3), np.maximum(spread.active, 1e-3)
    strips = (spread.experts * tiles_of(spread.rows, 64.0)).sum(axis=1)
    tiles = strips * np.ceil(2 * inner / TILE_COLUMNS) / d.sms
    weights = active * c["hidden"] * inner * c["width"]
    values = (
        c["tokens"],
        routed,
        active,
        routed / active,
        local,
        inner,
        c["hidden"],
        weights,
        tiles,
        routed * c["hidden"],
    )
    return np.column_stack(
        [*(log2(v) for v in values), c["skew"], c["topk"], log2(c["ep"]), log2(c["tp"]), inner % 128]
    )


def work(c: Columns, d: Device) -> Work:
    """The least of any routing: as many rows as a GPU gets on average, and one expert at least."""
    inner = c["inter"] / c["tp"]
    routed = c["tokens"] * c["topk"] / c["ep"]
    local = c["experts"] / c["ep"]
    # Skewed routing may leave all but the experts of one token without rows.
    fewest = np.minimum(np.where(c["skew"] > 0, np.minimum(c["topk"], routed), np.minimum(local, routed)), local)
    weights = fewest * c["matrices"] * c["hidden"] * inner * stored(c)
    # A benchmark repeats the call: what fits the cache need not be read again.
    cold = np.maximum(0.0, weights - float(d.l2 or 0))
    dtype = "fp8" if c["width"].flat[0] == 1 else "bfloat16"
    return Work(np.where(c["skew"] > 0, 0.0, 2 * routed * c["matrices"] * c["hidden"] * inner), cold, dtype)


FAMILY = Family("moe", PARAMETERS, model, features, work)
