"""``lmp predict-op``: one line of JSON for each line of JSON, in the same order."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from lmp.errors import LmpError
from lmp.predict.prediction import Prediction, Predictor
from lmp.predict.rows import LONGEST_LINE, Row, read_row

BATCH = 20_000
"""Lines that are predicted together."""


def answers(lines: Iterable[bytes], predictor: Predictor) -> Iterator[dict[str, Any]]:
    """The answer to each line that is not blank."""
    wanted = (line for line in lines if line.strip())
    while batch := list(islice(wanted, BATCH)):
        rows: list[Row | LmpError] = [_read(line) for line in batch]
        made = iter(predictor.predict([row for row in rows if isinstance(row, Row)]))
        for line, row in zip(batch, rows, strict=True):
            if isinstance(row, Row):
                yield answer(row.id, next(made))
            else:
                yield answer(row_id(line), row)


def _read(line: bytes) -> Row | LmpError:
    try:
        return read_row(line)
    except LmpError as error:
        return error


def row_id(line: bytes) -> object:
    """The id of a line that is no row; None if it is no JSON either."""
    try:
        data = json.loads(line) if len(line) <= LONGEST_LINE else None
    except (ValueError, RecursionError):
        return None
    found = data.get("id") if isinstance(data, dict) else None
    return found if isinstance(found, str | int | float) and found == found and abs_finite(found) else None


def abs_finite(value: object) -> bool:
    """False for the infinities, which JSON cannot say."""
    return not isinstance(value, float) or abs(value) != float("inf")


def answer(id_: object, made: Prediction | LmpError) -> dict[str, Any]:
    if isinstance(made, LmpError):
        return {"id": id_, "error": " · ".join(str(made).splitlines())}
    return {"id": id_, **as_json(made)}


def as_json(made: Prediction) -> dict[str, Any]:
    """A prediction as ``--json`` writes it. Microseconds have three decimals: kernels are not known to a nanosecond."""
    return {
        "us": round(made.us, 3),
        "low_us": round(made.low_us, 3),
        "high_us": round(made.high_us, 3),
        "floor_us": round(made.floor_us, 3),
        "bound": made.bound,
        "provenance": made.provenance,
        "calibration": made.calibration,
        "error_percent": made.error,
        "extrapolated": list(made.extrapolated),
        "kernel": made.kernel,
    }
