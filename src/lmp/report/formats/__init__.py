"""The forms in which numbers leave lmp: one module each, found here by name.

`FORMATS` says what there is without importing any of it; `load` imports one. A format takes a `Result` (one point), a
`SweepResult` (many), or both, and writes to a stream.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmp.report.formats.base import Format

FORMATS = {
    "table": "for people",
    "json": "exact integers; a sweep is one object a line",
    "csv": "exact integers; a sweep is one row a point",
    "parquet": "the same, for data frames; needs `pip install lmp[parquet]`",
    "markdown": "a table for GitHub",
    "latex": "a table with booktabs rules",
    "python": "a function of its own that needs nothing",
    "folded": "stacks for flame graphs",
    "speedscope": "a flame graph for speedscope.app",
    "perfetto": "trace events for ui.perfetto.dev and chrome://tracing",
}


def load(name: str) -> Format:
    """The format of this name."""
    found: Format = importlib.import_module(f"lmp.report.formats.{name}").FORMAT
    return found
