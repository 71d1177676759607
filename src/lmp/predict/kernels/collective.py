"""Collectives between the GPUs of one node.

Columns: ``gpus``; ``bytes``, of the message as the library counts it; ``factor``, bytes that each GPU has to send for
a byte of the message; ``link_factor``, the same of the algorithm with the least traffic.
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
    log2,
)

LEAST_TRAFFIC = 1.75
"""Share of the link at most, by the traffic of a ring: a switch that reduces halves that traffic."""

PARAMETERS = (
    Parameter("t0", 6.0, 0.5, 100.0, "microseconds of the smallest message between two GPUs"),
    Parameter("hop", 1.5, 0.01, 30.0, "microseconds more for each further GPU"),
    Parameter("share", 0.7, 0.02, 1.0, "share of the link's bandwidth for large messages between two GPUs"),
    Parameter("fan", 0.3, 0.01, 1.5, "how much that share grows with many GPUs, whose switch may reduce"),
    Parameter("half", 1.0, 0.01, 100.0, "megabytes at which half of that share is reached"),
    Parameter("bend", 0.5, 0.1, 1.0, "how fast the share grows with the size"),
)


def model(p: Parameters, c: Columns, d: Device) -> Array:
    size, gpus = c["bytes"], c["gpus"]
    rate = float(d.link or 1e9) * np.minimum(p["share"] * (1 + p["fan"] * (1 - 2 / gpus)), LEAST_TRAFFIC)
    sending = size * c["factor"] / rate * (1 + (p["half"] * 1e6 / size) ** p["bend"])
    return np.asarray(p["t0"] + p["hop"] * (gpus - 2) + sending * MICRO)


def features(c: Columns, d: Device) -> Array:
    return np.column_stack([log2(c["bytes"]), log2(c["gpus"])])


def work(c: Columns, d: Device) -> Work:
    nothing = np.zeros(len(c["bytes"]))
    return Work(nothing, nothing, "bfloat16", link_bytes=c["bytes"] * c["link_factor"])


FAMILY = Family("collective", PARAMETERS, model, features, work)
