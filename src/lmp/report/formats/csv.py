"""Comma-separated values: the rows of the tree for one point, one row a point for a sweep.

Bytes that are a fraction are written in full, as 0.53125, or as 1/3 where the digits do not end.
"""

from __future__ import annotations

import csv
from fractions import Fraction
from typing import IO, Any

from lmp.formula import number_text
from lmp.link.numbers import intensity
from lmp.report.formats.base import Format, Result, Show, SweepResult
from lmp.report.formats.rows import Row, everything
from lmp.report.formats.sweeps import columns, lists

COLUMNS = (
    "kind",
    "depth",
    "path",
    "class_name",
    "place",
    "operation",
    "category",
    "repeat",
    "runs",
    "flops",
    "matmul_flops",
    "read",
    "write",
    "intensity",
    "share",
)


def point(result: Result, show: Show, out: IO[Any]) -> None:
    """Costs are those of all ``runs``. The rows with kind ``kernel`` alone add up to the model."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(map(_cell, cells(row)) for row in everything(result.model, result.tree, show))


def sweep(result: SweepResult, show: Show, out: IO[Any]) -> None:
    names = columns(result)
    csv.writer(out, lineterminator="\n").writerow(names)
    line = ",".join(["%s"] * len(names)) + "\n"
    for chunk in result.chunks():
        found = [_written(values) for values in lists(names, chunk, times=result.times)]
        out.write("".join(map(line.__mod__, zip(*found, strict=True))))


FORMAT = Format(point, sweep)


def cells(row: Row) -> tuple[Any, ...]:
    """In the order of COLUMNS."""
    cost, share = row.cost, None if row.share is None else float(row.share)
    name = row.operation if row.kind != "rest" else row.name
    about = (row.kind, row.depth, row.path, row.class_name, row.place, name, row.category, row.repeat, row.runs)
    return (*about, *cost, intensity(cost.flops, cost.bytes), share)


_WORDS = {True: "true", False: "false", None: ""}


def _written(values: list[Any]) -> list[Any]:
    if any(value is None or isinstance(value, bool | Fraction) for value in values):
        return [_cell(value) for value in values]
    return values


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return _WORDS[value]
    return number_text(value) if isinstance(value, Fraction) else value
