"""Trace events (the JSON of chrome://tracing), which ui.perfetto.dev opens: one slice a module and operator.

Time stands for weight: the whole model is LENGTH microseconds long. The exact numbers are the arguments of each slice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO, Any

from lmp.formula import Number, json_number
from lmp.link.numbers import KernelNumbers
from lmp.report.formats.base import Format, Result, Show, weighed
from lmp.report.formats.stacks import NAMES, Frame, stacks

LENGTH = 10**9
_EXACT = 2**53
"""Up to here a browser's numbers are exact; larger ones are written as text."""


def point(result: Result, show: Show, out: IO[Any]) -> None:
    events: list[dict[str, Any]] = [
        _label("process_name", result.model.class_name),
        _label("thread_name", NAMES[show.weight]),
        *_events(result, show),
    ]
    about = {"class_name": result.model.class_name, "weight": show.weight}
    other = {**about, "values": {name: _number(value) for name, value in result.evaluation.values.items()}}
    out.write(json.dumps({"traceEvents": events, "displayTimeUnit": "ms", "otherData": other}) + "\n")


FORMAT = Format(point)


def _label(what: str, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "cat": "__metadata", "ts": 0, "pid": 1, "tid": 1, "args": {"name": name}}


def _events(result: Result, show: Show) -> Iterator[dict[str, Any]]:
    """Outer slices before the inner ones that begin with them."""
    whole = weighed(result.tree.total, show.weight)
    begun: set[int] = set()
    position: Number = 0
    for frames, size in stacks(result.model, result.tree, show.weight):
        for frame in frames:
            if id(frame.part) not in begun:
                begun.add(id(frame.part))
                start = int(position * LENGTH // whole)
                end = int((position + weighed(frame.part.total, show.weight)) * LENGTH // whole)
                yield _event(frame, start, end - start)
        position += size


def _event(frame: Frame, start: int, length: int) -> dict[str, Any]:
    part = frame.part
    numbers = {**part.total._asdict(), "repeat": part.repeat, "runs": part.runs}
    about = {"path": part.path, "class": part.class_name}
    if frame.place:
        about["place"] = frame.place
    category = part.kernel.category if isinstance(part, KernelNumbers) else "module"
    args = {**about, **{name: _number(value) for name, value in numbers.items()}}
    times = {"ts": start, "dur": length, "pid": 1, "tid": 1}
    return {"ph": "X", "name": frame.name, "cat": category, **times, "args": args}


def _number(value: Number) -> int | float | str:
    written = json_number(value)
    return written if isinstance(written, str) or abs(written) <= _EXACT else str(written)
