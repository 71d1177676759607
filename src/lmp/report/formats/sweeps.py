"""Many points as rows: one after the other as they are computed."""

from __future__ import annotations

from collections import deque
from typing import Any

from lmp.errors import UsageError
from lmp.link.numbers import intensity
from lmp.link.sweep import Chunk
from lmp.link.values import CALL
from lmp.report.formats.base import SweepResult
from lmp.report.formats.times import Times

COSTS = ("flops", "matmul_flops", "read", "write", "compulsory")
PAGE = 1000
"""Rows that a page of text takes."""


def columns(result: SweepResult) -> list[str]:
    """The values of the call and those that change, the costs, whether all assumptions hold, and times on a device.

    Parameters are counted where the config changes.
    """
    axes = result.sweep.axes
    values = [name for name in result.sweep.names if name in CALL or name in axes]
    config_changes = any(name not in CALL for name in axes)
    parameters = ["parameters_count"] if config_changes else []
    times = [] if result.times is None else result.times.names
    return [*values, *COSTS, *parameters, "intensity", "assumptions_hold", *times]


def arrays(names: list[str], chunk: Chunk, times: Times | None = None) -> list[Any]:
    """The chunk's columns as numpy arrays; None for a cost that the analysis does not have."""
    found = {**chunk.costs, **chunk.values, "assumptions_hold": chunk.holds}
    if times is not None:
        import numpy as np

        found |= {name: np.array(values, dtype=object) for name, values in times.values(chunk).items()}
    return [_intensity(chunk) if name == "intensity" else found.get(name) for name in names]


def lists(names: list[str], chunk: Chunk, part: slice = slice(None), times: Times | None = None) -> list[list[Any]]:
    """The same as Python's own numbers, None where there is none."""
    count = len(range(*part.indices(len(chunk))))
    found = []
    for name, array in zip(names, arrays(names, chunk, times), strict=True):
        values = [None] * count if array is None else array[part].tolist()
        found.append([None if v != v else v for v in values] if name == "intensity" else values)
    return found


def first_and_last(result: SweepResult, ends: int) -> list[dict[str, Any]]:
    """Rows from both ends: all of them where there are no more than twice ``ends``."""
    names = columns(result)
    first: list[tuple[Any, ...]] = []
    last: deque[tuple[Any, ...]] = deque(maxlen=ends)
    for chunk in result.chunks():
        taken = min(ends - len(first), len(chunk))
        rest = slice(max(taken, len(chunk) - ends), None)
        first += zip(*lists(names, chunk, slice(0, taken), result.times), strict=True)
        last.extend(zip(*lists(names, chunk, rest, result.times), strict=True))
    return [dict(zip(names, row, strict=True)) for row in [*first, *last]]


def every_row(result: SweepResult, name: str) -> list[dict[str, Any]]:
    """All rows, for a format that is a page. Raises UsageError where there are too many for one."""
    if result.sweep.size > PAGE:
        many = f"{result.sweep.size:,} points are too many for {name}, which takes {PAGE:,}"
        raise UsageError(f"{many}\nuse --format csv, json or parquet")
    return first_and_last(result, PAGE)


def _intensity(chunk: Chunk) -> Any:
    """FLOPs a byte; NaN where no byte is moved."""
    import numpy as np

    flops, read, write = (chunk.costs[name] for name in ("flops", "read", "write"))
    if any(a.dtype == object for a in (flops, read, write)) or _may_overflow(read, write):
        moved = [r + w for r, w in zip(read.tolist(), write.tolist(), strict=True)]
        pairs = zip(flops.tolist(), moved, strict=True)
        return np.array([intensity(f, m) for f, m in pairs], dtype=float)  # None becomes NaN
    moved = read + write
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(moved == 0, np.nan, flops / moved)


def _may_overflow(read: Any, write: Any) -> bool:
    return bool(int(read.max()) + int(write.max()) >= 2**63)
