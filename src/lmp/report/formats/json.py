"""JSON: the record of one point (schemas/evaluation.schema.json), or one object a line for a sweep.

Figures are exact: `lmp.link.records.Figure` says how bytes that are a fraction are written.
"""

from __future__ import annotations

import json
from fractions import Fraction
from typing import IO, Any

from lmp.formula import json_number
from lmp.predict.experts import experts_read
from lmp.report.formats.base import Format, Result, Show, SweepResult
from lmp.report.formats.sweeps import columns, lists


def point(result: Result, show: Show, out: IO[Any]) -> None:
    found = result.evaluation.model_dump(mode="json")
    experts = experts_read(operands for _, operands in result.operators())
    if experts:
        found["experts_read"] = [one.model_dump(mode="json") for one in experts]
    if result.card is not None:
        found["card"] = result.card.model_dump(mode="json")
    out.write(json.dumps(found, indent=2, ensure_ascii=False) + "\n")


def sweep(result: SweepResult, show: Show, out: IO[Any]) -> None:
    names = columns(result)
    # One row is a format string away: json.dumps would take three times as long for a million of them.
    line = "{" + ", ".join(f"{json.dumps(name)}: %s".replace("%s", "\0") for name in names) + "}\n"
    line = line.replace("%", "%%").replace("\0", "%s")
    for chunk in result.chunks():
        found = [_written(values) for values in lists(names, chunk, times=result.times)]
        out.write("".join(map(line.__mod__, zip(*found, strict=True))))


FORMAT = Format(point, sweep)

_WORDS = {True: "true", False: "false", None: "null"}


def _written(values: list[Any]) -> list[Any]:
    """Numbers print as JSON's own; the three words and fractions do not."""
    if any(value is None or isinstance(value, bool | Fraction) for value in values):
        return [_cell(value) for value in values]
    return values


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return _WORDS[value]
    return json.dumps(json_number(value)) if isinstance(value, Fraction) else value
