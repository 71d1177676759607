"""Numbers as text, by the format that a reference names. Rounding is exact, to the nearest, ties to even."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction

from lmp.errors import PostFault

FORMATS = "int, comma, .Nf, %, si, B, kB, MB, GB, TB, KiB, MiB, GiB, ns, us, ms, s, x, with .N in front for digits"

_FORMAT = re.compile(r"(?:\.(\d{1,2}))?([A-Za-z%]*)")
_UNITS: dict[str, tuple[int | Fraction, str]] = {
    "B": (1, " B"), "kB": (10**3, " kB"), "MB": (10**6, " MB"), "GB": (10**9, " GB"), "TB": (10**12, " TB"),
    "KiB": (2**10, " KiB"), "MiB": (2**20, " MiB"), "GiB": (2**30, " GiB"),
    "s": (1, " s"), "ms": (Fraction(1, 10**3), " ms"), "us": (Fraction(1, 10**6), " µs"),
    "ns": (Fraction(1, 10**9), " ns"), "%": (Fraction(1, 100), " %"), "x": (1, "x"), "f": (1, ""),
}  # fmt: skip
"""Format -> what one unit is worth, and how it is written. Bytes and seconds come in, in whole ones."""
_DIGITS = {"%": 0, "B": 0, "x": 1, "f": 1}
_PREFIXES = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))


def written(value: Fraction, form: str | None) -> str:
    """The number as text. Raises PostFault for an unknown format, and for a fraction where a whole number is asked."""
    if form is None:
        return _comma(value) if value.denominator == 1 else significant(value, 4)
    if form in ("int", "comma"):
        if value.denominator != 1:
            raise PostFault(f"the value {float(value):g} is no whole number: use .1f or round it with floor(...)")
        return str(value.numerator) if form == "int" else _comma(value)
    match = _FORMAT.fullmatch(form)
    if match is None or (match[2] != "si" and match[2] not in _UNITS):
        raise PostFault(f"unknown format {form!r}: formats are {FORMATS}")
    if match[2] == "si":
        return _si(value, int(match[1]) if match[1] else None)
    worth, unit = _UNITS[match[2]]
    digits = int(match[1]) if match[1] else _DIGITS.get(match[2], 1)
    return f"{fixed(value / worth, digits)}{unit}"


def fixed(value: Fraction, digits: int) -> str:
    """With this many digits behind the point, thousands apart."""
    scaled = round(value * 10**digits)
    sign = "-" if scaled < 0 else ""
    whole, part = divmod(abs(scaled), 10**digits)
    return f"{sign}{whole:,}" + (f".{part:0{digits}d}" if digits else "")


def significant(value: Fraction, digits: int) -> str:
    """With this many significant digits, and no exponent."""
    if value == 0:
        return "0"
    left = 0
    while abs(value) >= 10 ** (left + 1):
        left += 1
    while abs(value) < Fraction(10) ** left:
        left -= 1
    text = fixed(value, max(0, digits - 1 - left))
    return text.rstrip("0").rstrip(".") if "." in text else text


def _comma(value: Fraction) -> str:
    return f"{value.numerator:,}"


def _si(value: Fraction, digits: int | None) -> str:
    show: Callable[[Fraction], str] = lambda v: significant(v, 3) if digits is None else fixed(v, digits)  # noqa: E731
    for worth, prefix in _PREFIXES:
        if abs(value) >= worth:
            return f"{show(value / worth)}{prefix}"
    return show(value)
