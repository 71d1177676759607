"""Apache Parquet, through pyarrow: the rows and columns of the csv.

A column is int64 where that holds all of its values, else a decimal of up to 76 digits, else text. A column with a
fraction is of doubles if they hold all of its values, else text, as 1/3.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from typing import IO, Any, NamedTuple

from lmp.errors import UsageError
from lmp.formula import json_number, number_text
from lmp.report.formats.base import Format, Result, Show, SweepResult
from lmp.report.formats.csv import COLUMNS, cells
from lmp.report.formats.rows import everything
from lmp.report.formats.sweeps import arrays, columns
from lmp.report.formats.times import FIGURES

_TEXTS = ("kind", "path", "class_name", "place", "operation", "category")
_FLOATS = ("intensity", "share")
_DIGITS = (18, 38, 76)
"""What int64, decimal128 and decimal256 hold, for certain."""

_WHOLE_DOUBLES = 2**53
"""Up to here each whole number is a double."""


def point(result: Result, show: Show, out: IO[Any]) -> None:
    pa, parquet = _pyarrow()
    found = [cells(row) for row in everything(result.model, result.tree, show)]
    named = {name: [row[i] for row in found] for i, name in enumerate(COLUMNS)}
    schema = pa.schema([(name, _type(pa, name, _held(values))) for name, values in named.items()])
    about = {
        "class_name": result.model.class_name,
        "values": json.dumps(result.evaluation.model_dump(mode="json")["values"]),
    }
    schema = schema.with_metadata(about)
    parquet.write_table(pa.table([_column(pa, f, named[f.name]) for f in schema], schema=schema), out)


def sweep(result: SweepResult, show: Show, out: IO[Any]) -> None:
    """Written chunk by chunk; from the start again where a chunk holds larger numbers than those before it."""
    pa, parquet = _pyarrow()
    names = columns(result)
    times = _types_of_times(pa, result)

    def typed(name: str, held: _Held) -> Any:
        return times[name] if name in times else _type(pa, name, held)

    held: dict[str, _Held] = dict.fromkeys(names, _Held())
    while True:
        out.seek(0)
        out.truncate()
        schema = pa.schema([(name, typed(name, held[name])) for name in names])
        schema = schema.with_metadata({"class_name": result.model.class_name})
        with parquet.ParquetWriter(out, schema) as writer:
            for found in _columns(result, names):
                needed = {name: held[name].joined(_held(values)) for name, values in found.items()}
                if any(typed(name, needed[name]) != typed(name, held[name]) for name in names):
                    held = needed
                    break
                arrays = [_column(pa, field, found[field.name]) for field in schema]
                writer.write_table(pa.table(arrays, schema=schema))
            else:
                return


FORMAT = Format(point, sweep, binary=True)


def _columns(result: SweepResult, names: list[str]) -> Iterator[dict[str, Any]]:
    """Numpy arrays of int64 and bool, and lists of everything else."""
    for chunk in result.chunks():
        found = zip(names, arrays(names, chunk, result.times), strict=True)
        yield {
            name: array if array is not None and array.dtype.kind in "ib" else _listed(array, len(chunk))
            for name, array in found
        }


def _types_of_times(pa: Any, result: SweepResult) -> dict[str, Any]:
    """Column of the times -> its type, whatever the values are: a column may have none at all."""
    if result.times is None:
        return {}
    types = {"held": pa.int64(), "fits": pa.bool_()}
    return {f"{e}_{name}": types.get(name, pa.float64()) for e in result.times.engines for name in FIGURES}


def _listed(array: Any, count: int) -> list[Any]:
    return [None] * count if array is None else [None if v != v else v for v in array.tolist()]


class _Held(NamedTuple):
    """What a column has to hold."""

    digits: int = 0
    """Of the longest integer."""
    doubles: bool = True
    """True if a double is exactly each value."""
    fractions: bool = False

    def joined(self, other: _Held) -> _Held:
        return _Held(max(self.digits, other.digits), self.doubles and other.doubles, self.fractions or other.fractions)


def _held(values: Any) -> _Held:
    if not isinstance(values, list):
        low, high = int(values.min()), int(values.max())
        return _Held(max(len(str(abs(low))), len(str(abs(high)))), max(-low, high) <= _WHOLE_DOUBLES)
    whole = [abs(v) for v in values if isinstance(v, int)]
    fractions = [v for v in values if isinstance(v, Fraction)]
    largest = max(whole, default=0)
    doubles = largest <= _WHOLE_DOUBLES and all(isinstance(json_number(v), float) for v in fractions)
    return _Held(len(str(largest)) if whole else 0, doubles, bool(fractions))


def _type(pa: Any, name: str, held: _Held) -> Any:
    if name == "assumptions_hold":
        return pa.bool_()
    if name in _FLOATS:
        return pa.float64()
    if name in _TEXTS:
        return pa.string()
    if held.fractions:
        return pa.float64() if held.doubles else pa.string()
    step = sum(held.digits > most for most in _DIGITS)
    return (pa.int64(), pa.decimal128(38, 0), pa.decimal256(76, 0), pa.string())[step]


def _column(pa: Any, field: Any, values: Any) -> Any:
    from decimal import Decimal

    if pa.types.is_int64(field.type) or pa.types.is_boolean(field.type):
        return pa.array(values, type=field.type)
    values = values if isinstance(values, list) else values.tolist()
    if pa.types.is_decimal(field.type):
        values = [None if v is None else Decimal(v) for v in values]
    elif pa.types.is_string(field.type):
        values = [None if v is None else number_text(v) if isinstance(v, int | Fraction) else v for v in values]
    elif pa.types.is_float64(field.type):
        values = [None if v is None else float(v) for v in values]
    return pa.array(values, type=field.type)


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise UsageError("parquet needs pyarrow, which is not installed\nrun `pip install 'lmp[parquet]'`") from error
    return pyarrow, parquet
