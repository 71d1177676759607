"""Parameters of one device on another: what scales with the clock, and the rate that the power limit sustains."""

from __future__ import annotations

from collections.abc import Mapping

from lmp.predict.devices import Device

ENERGY = {"turing": 2.2, "ampere": 1.6, "ada": 1.05, "hopper": 0.85, "blackwell": 0.59}
"""Picojoules of a 16-bit FLOP at 1.5 GHz. Of A100, H100 and B200: power limit over the rate of their largest products.
Of Ada: Ampere's matrix units in the process of Hopper, which takes two thirds. Of Turing: one process before."""
BUSY = {"turing": 0.83, "ampere": 0.83, "ada": 0.83, "hopper": 1.0, "blackwell": 1.0}
"""Part of its cycles in which a matrix unit computes: from Hopper on it reads shared memory itself."""
REACHED = {"ada": 2.0}
"""Part of the cache that a multiprocessor reaches, over that of A100, H100 and B200: their caches have two halves, and
both hold what is read from afar."""
REFERENCE_CLOCK = 1.5e9
LATENCIES = ("t0", "tau", "tspl", "tfix", "tcomb")
"""Parameters that are cycles of the clock rather than time."""


def adapted(parameters: Mapping[str, float], source: Device, device: Device) -> dict[str, float]:
    """The parameters that were fitted on ``source``, for ``device``."""
    found = dict(parameters)
    if source.name == device.name:
        return found
    if "c" in found:
        found["c"] = min(0.98, found["c"] * sustained(device) / sustained(source))
    faster = memory_a_cycle(device) / memory_a_cycle(source)
    if "theta" in found:
        found["theta"] = min(1.0, found["theta"] * faster)
    if "theta" in found and "l2b" in found and source.architecture == device.architecture:
        # All traffic of a product passes the cache: one GPU's times cannot tell its rate from the memory's.
        found["l2b"] *= max(1.0, faster)
    if "bcta" in found:
        # What a block loads in a cycle follows the memory, which it waits for.
        found["bcta"] *= max(1.0, faster)
    if source.architecture != device.architecture and source.clock and device.clock:
        if "l2a" in found:
            found["l2a"] = min(1.0, found["l2a"] * REACHED.get(device.architecture, 1.0))
        for name in LATENCIES:
            if name in found:
                found[name] *= source.clock / device.clock
    return found


def memory_a_cycle(device: Device) -> float:
    """Bytes of the memory's bandwidth for a multiprocessor and a cycle."""
    return device.bandwidth / (device.sms * float(device.clock or REFERENCE_CLOCK))


def sustained(device: Device) -> float:
    """Part of the dense peak that the power limit leaves: power grows with the third power of the clock."""
    energy, busy = ENERGY.get(device.architecture), BUSY.get(device.architecture, 1.0)
    if energy is None or device.power is None or device.clock is None:
        return busy
    wanted = device.matmul_flops * energy * 1e-12 * (device.clock / REFERENCE_CLOCK) ** 2
    return busy * min(1.0, (device.power / wanted) ** (1 / 3))
