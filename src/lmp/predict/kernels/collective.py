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

PARAMETERS = (
    Parameter("t0", 6.0, 0.5, 100.0, "microseconds of the smallest message between two GPUs"),
    Parameter("hop", 1.0, 0.01, 30.0, "microseconds more for each doubling of the GPUs"),
    Parameter("share", 0.75, 0.02, 1.0, "share of the link's bandwidth for large messages"),
    Parameter("half", 3.0, 0.001, 300.0, "megabytes at which half of that share is reached"),
    Parameter("bend", 0.5, 0.1, 1.5, "how fast the share grows with the size"),
    Parameter("more", 0.1, 0.001, 3.0, "how much of the half-size each further GPU adds"),
)


def model(p: Parameters, c: Columns, d: Device) -> Array:
    size, gpus = c["bytes"], c["gpus"]
    half = p["half"] * 1e6 * (1 + p["more"] * (gpus - 2))
    sending = size * c["factor"] / (float(d.link or 1e9) * p["share"]) * (1 + (half / size) ** p["bend"])
    # The ramp must not exceed the transfer of a half-size message, or the smallest would cost more than larger ones.
    ramp = np.minimum(sending, size * c["factor"] / (float(d.link or 1e9) * p["share"]) * 50)
    return np.asarray(p["t0"] + p["hop"] * (np.log2(gpus) - 1) + ramp * MICRO)


def features(c: Columns, d: Device) -> Array:
    return np.column_stack([log2(c["bytes"]), log2(c["gpus"])])


def work(c: Columns, d: Device) -> Work:
    nothing = np.zeros(len(c["bytes"]))
    return Work(nothing, nothing, "bfloat16", link_bytes=c["bytes"] * c["link_factor"])


FAMILY = Family("collective", PARAMETERS, model, features, work)
