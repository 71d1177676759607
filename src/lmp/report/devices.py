"""Devices that reports give bounds for: peak rates as their makers state them, without sparsity."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from lmp.errors import UsageError, did_you_mean


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


_T, _G = 10**12, 10**9

DEVICES = {
    device.name: device
    for device in (
        Device(
            "A100-80GB", 312 * _T, 19_500 * _G, 2_039 * _G, 80 * _G, 300 * _G, 108,
            "L2 40 MB; 192 KB L1 and shared memory, 256 KB registers an SM",
            "NVIDIA A100 datasheet, June 2021 (SXM)",
        ),
        Device(
            "H100", 989_400 * _G, 66_900 * _G, 3_350 * _G, 80 * _G, 450 * _G, 132,
            "L2 50 MB; 256 KB L1 and shared memory, 256 KB registers an SM",
            "NVIDIA H100 Tensor Core GPU architecture, v1.04 (SXM5)",
        ),
        Device(
            "H200", 989_400 * _G, 66_900 * _G, 4_800 * _G, 141 * _G, 450 * _G, 132,
            "L2 50 MB; 256 KB L1 and shared memory, 256 KB registers an SM",
            "NVIDIA H200 datasheet, November 2024 (SXM)",
        ),
        Device(
            "MI300X", 1_307_400 * _G, 163_400 * _G, 5_300 * _G, 192 * _G, 448 * _G, 304,
            "Infinity Cache 256 MB; 64 KB LDS, 512 KB registers a compute unit",
            "AMD Instinct MI300X data sheet, December 2023",
        ),
    )
}  # fmt: skip

DEFAULT = "H100"


def device_named(name: str) -> Device:
    """Raises UsageError where there is none of this name."""
    found = next((device for known, device in DEVICES.items() if known.lower() == name.lower()), None)
    if found is None:
        close = difflib.get_close_matches(name.upper(), DEVICES, n=2)
        listed = f"the names are {', '.join(DEVICES)}"
        raise UsageError(f"there is no device {name!r}\n{did_you_mean(close, listed)}")
    return found
