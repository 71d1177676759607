"""Apache Parquet, through pyarrow: the rows and columns of the csv.

A column is int64 where that holds all of its values, else a decimal of up to 76 digits, else text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import IO, Any

from lmp.errors import UsageError
from lmp.report.formats.base import Format, Result, Show, SweepResult
from lmp.report.formats.csv import COLUMNS, cells
from lmp.report.formats.rows import everything
from lmp.report.formats.sweeps import columns, lists

_TEXTS = ("kind", "path", "class_name", "place", "operation", "category")
_FLOATS = ("intensity", "share")
_DIGITS = (18, 38, 76)
"""What int64, decimal128 and decimal256 hold, for certain."""


def point(result: Result, show: Show, out: IO[Any]) -> None:
    pa, parquet = _pyarrow()
    found = [cells(row) for row in everything(result.model, result.tree, show)]
    named = {name: [row[i] for row in found] for i, name in enumerate(COLUMNS)}
    schema = pa.schema([(name, _type(pa, name, _digits(values))) for name, values in named.items()])
    about = {"class_name": result.model.class_name, "values": json.dumps(result.evaluation.values)}
    schema = schema.with_metadata(about)
    parquet.write_table(pa.table([_column(pa, f, named[f.name]) for f in schema], schema=schema), out)


def sweep(result: SweepResult, show: Show, out: IO[Any]) -> None:
    """Written chunk by chunk; from the start again where a chunk holds larger numbers than those before it."""
    pa, parquet = _pyarrow()
    names = columns(result)
    digits: dict[str, int] = dict.fromkeys(names, 0)
    while True:
        out.seek(0)
        out.truncate()
        schema = pa.schema([(name, _type(pa, name, digits[name])) for name in names])
        schema = schema.with_metadata({"class_name": result.model.class_name})
        with parquet.ParquetWriter(out, schema) as writer:
            for found in _columns(result, names):
                needed = {name: max(digits[name], _digits(values)) for name, values in found.items()}
                if any(_step(needed[name]) > _step(digits[name]) for name in names):
                    digits = needed
                    break
                arrays = [_column(pa, field, found[field.name]) for field in schema]
                writer.write_table(pa.table(arrays, schema=schema))
            else:
                return


FORMAT = Format(point, sweep, binary=True)


def _columns(result: SweepResult, names: list[str]) -> Iterator[dict[str, list[Any]]]:
    for chunk in result.chunks():
        yield dict(zip(names, lists(names, chunk), strict=True))


def _digits(values: Sequence[Any]) -> int:
    """Of the longest integer."""
    whole = [v for v in values if isinstance(v, int)]
    return len(str(max(map(abs, whole)))) if whole else 0


def _step(digits: int) -> int:
    return sum(digits > most for most in _DIGITS)


def _type(pa: Any, name: str, digits: int) -> Any:
    if name == "assumptions_hold":
        return pa.bool_()
    if name in _FLOATS:
        return pa.float64()
    if name in _TEXTS:
        return pa.string()
    return (pa.int64(), pa.decimal128(38, 0), pa.decimal256(76, 0), pa.string())[_step(digits)]


def _column(pa: Any, field: Any, values: list[Any]) -> Any:
    from decimal import Decimal

    if pa.types.is_decimal(field.type):
        values = [None if v is None else Decimal(v) for v in values]
    elif pa.types.is_string(field.type):
        values = [None if v is None else str(v) for v in values]
    return pa.array(values, type=field.type)


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise UsageError("parquet needs pyarrow, which is not installed\nrun `pip install 'lmp[parquet]'`") from error
    return pyarrow, parquet
