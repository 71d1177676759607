"""Collectives between the GPUs of one node.

Columns: ``gpus``; ``bytes``, of the message as the library counts it; ``factor``, bytes that each GPU has to send for
a byte of the message; ``link_factor``, the same of the algorithm with the least traffic; ``stages``, 0: a ring; 1: each
GPU reads the whole message of all others; 2: each reduces a part, and reads the other parts; ``eager``, 1 if the host
starts each call; ``library``, 1 if it is an engine's own.
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
    smooth_max,
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
    Parameter("one", 0.4, 0.02, 1.0, "share of the link's bandwidth where each GPU reads all messages"),
    Parameter("two", 0.5, 0.02, 1.0, "share of the link's bandwidth where each GPU reduces a part"),
    Parameter("stage", 3.0, 0.1, 30.0, "microseconds between the two stages"),
    Parameter("ring", 5.0, 0.1, 60.0, "microseconds more of the ring that the library takes for large messages"),
    Parameter("host", 20.0, 1.0, 200.0, "microseconds in which the host starts a call"),
)
EAGER_POWER = 6.0
"""How sharply the host's time turns into the kernel's."""


def model(p: Parameters, c: Columns, d: Device) -> Array:
    size, gpus, stages, link = c["bytes"], c["gpus"], c["stages"], float(d.link or 1e9)
    rate = link * np.minimum(p["share"] * (1 + p["fan"] * (1 - 2 / gpus)), LEAST_TRAFFIC)
    ring = size * c["factor"] / rate * (1 + (p["half"] * 1e6 / size) ** p["bend"]) * MICRO
    # A library of its own takes the ring for what is too large for it.
    ring = ring + np.where(c["library"] > 0, p["ring"], 0.0)
    one = size * (gpus - 1) / (link * p["one"]) * MICRO
    two = p["stage"] + size * c["factor"] / (link * p["two"]) * MICRO
    time = p["t0"] + p["hop"] * (gpus - 2) + np.select([stages == 1, stages == 2], [one, two], ring)
    return np.asarray(np.where(c["eager"] > 0, smooth_max(EAGER_POWER, time, np.full(len(size), p["host"])), time))


def features(c: Columns, d: Device) -> Array:
    return np.column_stack([log2(c["bytes"]), log2(c["gpus"])])


def work(c: Columns, d: Device) -> Work:
    nothing = np.zeros(len(c["bytes"]))
    return Work(nothing, nothing, "bfloat16", link_bytes=c["bytes"] * c["link_factor"])


FAMILY = Family("collective", PARAMETERS, model, features, work)
