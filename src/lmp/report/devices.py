"""Devices of reports: the peak rates that bounds are worked out from, out of the catalogue of ``lmp devices``."""

from __future__ import annotations

from dataclasses import dataclass

from lmp.errors import UsageError
from lmp.predict import devices as catalogue

DEFAULT = "H100"


@dataclass(frozen=True)
class Device:
    """Peak rates of one device. None of them is reached in practice: what is worked out from them is a bound."""

    name: str
    matmul_flops: int
    """FLOP/s of dense bfloat16 matrix multiplication."""
    other_flops: int
    """FLOP/s of everything else: the float32 rate of the vector units."""
    bandwidth: int
    """Bytes/s of the device's memory."""
    memory: int
    """Bytes."""
    link_bandwidth: int
    """Bytes/s to other devices, one direction."""
    units: int
    """Streaming multiprocessors or compute units."""
    on_chip: str
    """Caches and registers, as text."""
    source: str


def device_named(name: str) -> Device:
    """Raises UsageError where there is none of this name."""
    return _reported(catalogue.device_named(name))


def _reported(device: catalogue.Device) -> Device:
    if device.link is None:
        raise UsageError(f"{device.name} has no link to other devices, which reports need\nthe default is {DEFAULT}")
    return Device(
        name=device.label,
        matmul_flops=device.matmul_flops,
        other_flops=device.other_flops,
        bandwidth=device.bandwidth,
        memory=device.memory,
        link_bandwidth=device.link,
        units=device.sms,
        on_chip=device.on_chip,
        source=device.source,
    )


DEVICES = {device.name: device for device in map(device_named, ("A100-80GB", "H100", "H200", "MI300X"))}
"""Those that a page offers without being asked."""
