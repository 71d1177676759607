"""``lmp calibrate --check``: a user's own measured rows against the predictions, by operator and in all."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lmp.errors import LmpError, UsageError
from lmp.predict.prediction import Prediction, Predictor
from lmp.predict.rows import RECORDS, Row, row_of

MOST_ROWS = 1_000_000
LONGEST = 1e8
"""Microseconds above which a measured time is absurd."""
TOO_FAST = 0.5
"""A measured time below this part of the floor is no time of that kernel."""
TOO_SLOW = 1000
"""A measured time above so often the interval's end is one of another unit, or of another thing."""
REFIT = 64
"""Shapes that a refit needs: with few, a device that was well predicted becomes worse (predict.md)."""


@dataclass(frozen=True)
class ErrorOf:
    """Error of the predictions over some rows, in per cent."""

    what: str
    rows: int
    mape: float
    median: float
    bias: float
    """Median of predicted / measured - 1."""
    covered: float
    """Rows inside the 80 % interval."""


@dataclass(frozen=True)
class MeasuredRows:
    """Rows of a file that can be compared, with the times measured and predicted."""

    rows: tuple[tuple[Row, float, Prediction], ...]
    dropped: dict[str, int]
    """Reason -> rows."""


@dataclass(frozen=True)
class Check:
    errors: tuple[ErrorOf, ...]
    """By operator, device and provenance; the last one is of all rows."""
    dropped: dict[str, int]
    """Reason -> rows."""


def check(file: Path, predictor: Predictor) -> Check:
    """Compare the rows of a CSV file with their predictions."""
    read = measured_rows(file, predictor)
    found = [(_label(row, made), us, made) for row, us, made in read.rows]
    labels = sorted({label for label, _, _ in found})
    errors = [_error(label, [(us, made) for one, us, made in found if one == label]) for label in labels]
    return Check((*errors, _error("all", [(us, made) for _, us, made in found])), read.dropped)


def measured_rows(file: Path, predictor: Predictor) -> MeasuredRows:
    """The rows of a CSV file. Raises UsageError if none of them is usable."""
    dropped: Counter[str] = Counter()
    rows, times = [], []
    for data in _lines(file):
        us = _time(data.pop("us"))
        if us is None:
            dropped["us: not a positive number below 100 s"] += 1
            continue
        try:
            rows.append(row_of({key: _value(value) for key, value in data.items() if value not in (None, "")}))
            times.append(us)
        except LmpError as error:
            dropped[str(error).splitlines()[0]] += 1
    found: list[tuple[Row, float, Prediction]] = []
    for row, us, made in zip(rows, times, predictor.predict(rows), strict=True):
        if isinstance(made, LmpError):
            dropped[str(made).splitlines()[0]] += 1
        elif us < TOO_FAST * made.floor_us:
            dropped["us: less than half of what dense peak and bandwidth allow"] += 1
        elif us > TOO_SLOW * made.high_us:
            dropped[f"us: more than {TOO_SLOW} times what is predicted at most"] += 1
        else:
            found.append((row, us, made))
    if not found:
        reasons = "; ".join(f"{count} rows: {reason}" for reason, count in dropped.most_common(3))
        raise UsageError(f"{file} has no row that can be compared\n{reasons or 'it has no rows'}")
    return MeasuredRows(tuple(found), dict(dropped))


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    fields = {name for record in RECORDS.values() for name in record.model_fields} - {"bench"} | {"weight_copies", "us"}
    try:
        with file.open(encoding="utf-8", newline="") as handle:
            reader = csv.DictReader(handle)
            names = reader.fieldnames or []
            missing = [name for name in ("op", "device", "us") if name not in names]
            unknown = [name for name in names if name not in fields]
            if missing or unknown:
                wrong = f"no column {', '.join(missing)}" if missing else f"unknown column {unknown[0][:40]!r}"
                raise UsageError(
                    f"{file}: {wrong}\ncolumns are op, device, us and fields of operators: {', '.join(sorted(fields))}"
                )
            for number, line in enumerate(reader):
                if number >= MOST_ROWS:
                    raise UsageError(f"{file} has more than {MOST_ROWS} rows\ncheck a part of them")
                line.pop(None, None)
                copies = line.pop("weight_copies", None)
                yield {**line, **({"bench": {"weight_copies": _value(copies)}} if copies else {})}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(
            f"{file} cannot be read: {error}\ngive a CSV file with op, device, us and an operator's fields"
        ) from error


def _time(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 < value <= LONGEST else None


def _value(text: Any) -> object:
    """Numbers and booleans of a cell as such; anything else stays text."""
    if not isinstance(text, str):
        return text
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _label(row: Row, made: Prediction) -> str:
    return f"{getattr(row, 'op', '')} {row.device} ({made.provenance})"


def _error(what: str, rows: Sequence[tuple[float, Prediction]]) -> ErrorOf:
    errors = sorted(abs(made.us / us - 1) * 100 for us, made in rows)
    signed = sorted((made.us / us - 1) * 100 for us, made in rows)
    inside = sum(made.low_us <= us <= made.high_us for us, made in rows)
    middle = len(rows) // 2
    return ErrorOf(what, len(rows), sum(errors) / len(rows), errors[middle], signed[middle], 100 * inside / len(rows))
