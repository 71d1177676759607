"""Numbers in reports: each says how it is worked out, so that the review can do it again.

A `Claim` is a formula of lmp's own language over `Term`s; a term is what `lmp evaluate` says at a named point, the
value of a formula there, a count of the reconnaissance, or a constant with its source.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

from pydantic import Field

from lmp.records import Record
from lmp.report.formats.figures import figure

Quantity = Literal[
    "flops", "matmul_flops", "read", "write", "bytes", "compulsory", "parameters_count", "runs", "launches"
]
"""``runs`` is of kernels, ``launches`` of those that move bytes at the point: operators that really run there."""


class Term(Record):
    """One value that a number is made of. Exactly one of ``quantity``, ``formula``, ``name`` and ``constant`` is given.

    ``quantity`` is of the whole model, or of the part that ``path``, ``class_name``, ``category`` and ``line`` choose:
    all kernels that meet every one of them, in all their runs. A path chooses the module with everything in it.
    """

    point: str | None = Field(default=None, description="key of a stated point")
    quantity: Quantity | None = None
    path: str | None = None
    class_name: str | None = Field(default=None, description="the class whose forward() the kernels stand in")
    category: str | None = None
    line: int | None = None
    formula: str | None = Field(default=None, description="in the root's variables, worked out at the point")
    name: str | None = Field(default=None, description="of a count or value that the report's facts have by name")
    constant: int | None = None
    source: str | None = Field(default=None, description="where a constant is from")


class Claim(Record):
    """``expression`` in lmp's formula language over the names of ``terms``; its value is an exact fraction."""

    expression: str
    terms: dict[str, Term]


class Number:
    """A number as it is printed. ``value`` is exact; ``unit`` decides how it is written.

    ``FLOP``, ``B``, ``FLOP/s``, ``B/s``, ``params`` take a decimal prefix (``16.06 TFLOP``) · ``s`` takes one below 1
    (``1.234 ms``) · ``%`` has one digit after the point · ``FLOPs/B`` has two · no unit: a whole number in full
    (``4,096``).
    """

    __slots__ = ("claim", "text", "unit", "value")

    def __init__(self, value: int | Fraction, unit: str = "", claim: Claim | None = None) -> None:
        self.value, self.unit, self.claim = value, unit, claim
        self.text = written(value, unit)


PREFIXED = ("FLOP", "B", "FLOP/s", "B/s", "params")


def written(value: int | Fraction, unit: str) -> str:
    """The one way in which a value of this unit is printed."""
    value = Fraction(value)
    if unit in PREFIXED:
        return _signed(value, lambda v: figure(_nearest(v), unit))
    if unit == "%":
        return _signed(value, lambda v: f"{_decimal(v, 1)} %")
    if unit == "s":
        return _signed(value, _seconds)
    if unit == "FLOPs/B":
        return f"{_decimal(value, 2)} FLOPs/B"
    text = f"{value.numerator:,}" if value.denominator == 1 else _decimal(value, 3)
    return f"{text} {unit}".rstrip()


def _signed(value: Fraction, write: object) -> str:
    text: str = write(abs(value))  # type: ignore[operator]
    return f"-{text}" if value < 0 else text


def _nearest(value: Fraction) -> int:
    return (2 * value.numerator + value.denominator) // (2 * value.denominator)


def _decimal(value: Fraction, places: int) -> str:
    scaled = _nearest(abs(value) * 10**places)
    digits = f"{scaled:0{places + 1}d}"
    return f"{'-' if value < 0 else ''}{int(digits[:-places]):,}.{digits[-places:]}"


def _seconds(value: Fraction) -> str:
    for unit, scale in (("s", 1), ("ms", 10**3), ("µs", 10**6), ("ns", 10**9)):
        if value * scale >= 1 or unit == "ns":
            scaled = value * scale
            places = 3 if scaled < 10 else 2 if scaled < 100 else 1
            return f"{_decimal(scaled, places)} {unit}"
    raise AssertionError("nanoseconds are the last resort")
