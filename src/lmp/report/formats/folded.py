"""Folded stacks, ``outer;inner;operator weight`` a line: what flamegraph.pl, inferno and speedscope read.

Those read whole weights alone: bytes that are a fraction are rounded to the nearest integer.
"""

from __future__ import annotations

from typing import IO, Any

from lmp.report.formats.base import Format, Result, Show
from lmp.report.formats.stacks import plain, stacks


def point(result: Result, show: Show, out: IO[Any]) -> None:
    for frames, size in stacks(result.model, result.tree, show.weight):
        out.write(f"{';'.join(plain(frame.name) for frame in frames)} {round(size)}\n")


FORMAT = Format(point)
