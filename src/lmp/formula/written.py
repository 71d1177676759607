"""Exact numbers as they are read and written: in text, in JSON, and as Python's own numbers.

A text is a whole number, a decimal (0.5) or a quotient of whole numbers (17/32). Nothing is rounded on the way.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction
from typing import Any

from lmp.formula.nodes import Number

MAX_DIGITS = 4000
"""Python itself reads no integer of more than 4300 digits."""

_DECIMAL_PLACES = 30
"""A fraction with more decimal places than this is written as a quotient."""

_TEXT = re.compile(r"[+-]?[0-9]+(_[0-9]+)*(\.[0-9]+|/[0-9]+(_[0-9]+)*)?", re.ASCII)


def plain(value: Number) -> Number:
    """The value as an int where it is one."""
    return value.numerator if isinstance(value, Fraction) and value.denominator == 1 else value


def read_number(given: Any) -> Number:
    """The exact value of an int, Fraction, Decimal or text; of a float, the value of its shortest decimal text.

    Raises ValueError, with a message that says what is wrong, for everything else.
    """
    if isinstance(given, bool) or not isinstance(given, (int, Fraction, Decimal, float, str)):
        raise ValueError(f"{given!r:.60} is not a number")
    if isinstance(given, str):
        return _read_text(given.strip())
    if isinstance(given, (float, Decimal)):
        if not math.isfinite(given):
            raise ValueError(f"{given} is not a finite number")
        return plain(Fraction(repr(given) if isinstance(given, float) else given))
    return plain(given)


def _read_text(text: str) -> Number:
    if not _TEXT.fullmatch(text):
        raise ValueError(f"{text[:60]!r} is not a number")
    if len(text) > MAX_DIGITS:
        raise ValueError(f"it has {len(text)} digits, more than {MAX_DIGITS}")
    above, quotient, below = text.replace("_", "").partition("/")
    if not quotient:
        return plain(Fraction(above))
    if int(below) == 0:
        raise ValueError(f"{text[:60]!r} divides by 0")
    return plain(Fraction(int(above), int(below)))


def number_text(value: Number) -> str:
    """A text that `read_number` reads as the same value: 2, 0.53125 or 1/3."""
    places = _places(value)
    if places is None:
        return f"{value.numerator}/{value.denominator}"
    if places == 0:
        return str(value.numerator)
    digits = str(abs(value.numerator) * 10**places // value.denominator).zfill(places + 1)
    return f"{'-' if value < 0 else ''}{digits[:-places]}.{digits[-places:]}"


def json_number(value: Number) -> int | float | str:
    """An int if the value is whole. Else a float if its decimal text is exact and a double holds it, else "p/q"."""
    value = plain(value)
    if isinstance(value, int):
        return value
    try:
        double = float(value)
    except OverflowError:
        return f"{value.numerator}/{value.denominator}"
    exact = Fraction(double) == value and Fraction(repr(double)) == value
    return double if exact else f"{value.numerator}/{value.denominator}"


def _places(value: Number) -> int | None:
    """Digits behind the decimal point; None if they do not end, or are too many to be read."""
    rest, twos, fives = value.denominator, 0, 0
    while rest % 2 == 0:
        rest, twos = rest // 2, twos + 1
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    return max(twos, fives) if rest == 1 and max(twos, fives) <= _DECIMAL_PLACES else None
