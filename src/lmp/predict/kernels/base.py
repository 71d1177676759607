"""What a family of kernels is: an analytic model with few physical parameters, a bound, and features for trees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lmp.predict.devices import Device

Array: TypeAlias = NDArray[np.float64]
Columns: TypeAlias = Mapping[str, Array]
Parameters: TypeAlias = Mapping[str, float]

BYTES = {"float32": 4.0, "tfloat32": 4.0, "float16": 2.0, "bfloat16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5}
"""Bytes of an element by dtype."""
MICRO = 1e6


@dataclass(frozen=True)
class Parameter:
    """One number of a model that measurements decide, and the range in which it means something."""

    name: str
    start: float
    low: float
    high: float
    what: str


@dataclass(frozen=True)
class Work:
    """What a kernel has to do at least, row by row."""

    flops: Array
    bytes: Array
    """Bytes that have to come from or go to the device's memory."""
    dtype: str
    """Dtype of the matrix products."""
    link_bytes: Array | None = None
    """Bytes that each device has to send."""


@dataclass(frozen=True)
class Family:
    """A kind of kernel. All functions take columns of rows of one device and one variant at once."""

    name: str
    parameters: tuple[Parameter, ...]
    model: Callable[[Parameters, Columns, Device], Array]
    """Microseconds of one call."""
    features: Callable[[Columns, Device], Array]
    """One row of numbers for each call, from which trees correct the model."""
    work: Callable[[Columns, Device], Work]

    def floor(self, columns: Columns, device: Device) -> Array:
        """Microseconds below which no kernel can be: dense peak, and compulsory traffic at peak bandwidth."""
        compute, memory, link = self.limits(columns, device)
        return np.maximum(np.maximum(compute, memory), link)

    def limits(self, columns: Columns, device: Device) -> tuple[Array, Array, Array]:
        """Least microseconds of computing, of memory traffic and of the link."""
        work = self.work(columns, device)
        compute = work.flops / device.peak(work.dtype) * MICRO if np.any(work.flops) else np.zeros(len(work.bytes))
        memory = work.bytes / device.bandwidth * MICRO
        link = np.zeros(len(work.bytes))
        if work.link_bytes is not None and device.link is not None:
            link = work.link_bytes / device.link * MICRO
        return compute, memory, link


def stored(c: Columns) -> Array:
    """Bytes of an element of the weights in memory: fewer than in the product where a kernel widens them first."""
    return c.get("stored", c["width"])


def as_measured(c: Columns) -> Columns:
    """The rows with weights as wide as in the product: of other kernels none was measured."""
    return {**c, "stored": c["width"]} if np.any(stored(c) < c["width"]) else c


def log2(values: Array) -> Array:
    return np.asarray(np.log2(np.maximum(values, 1e-9)))


def warm_share(size: Array, cache: float) -> Array:
    """Part of a buffer that was read just before and is still in a cache of this size, from 0 to 1."""
    return np.minimum(1.0, cache / np.maximum(size, 1.0)) ** 2


def cold_bytes(size: Array, cache: float) -> Array:
    """Bytes of a buffer, just read, that cannot be in a cache of this size."""
    return np.maximum(0.0, size - cache)


def smooth_max(power: float, *terms: Array) -> Array:
    """The p-norm of terms that overlap: the greatest of them if ``power`` is large, near their sum if it is 1."""
    greatest = np.maximum.reduce(terms)
    scale = np.maximum(greatest, 1e-12)
    return np.asarray(scale * sum((term / scale) ** power for term in terms) ** (1 / power))
