"""Exact numbers as people read them. No float is involved: integers here may have thousands of digits."""

from __future__ import annotations

from fractions import Fraction

from lmp.formula import Number, number_text, plain

_PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z", "Y", "R", "Q")


def in_full(value: Number) -> str:
    """The number with all its digits: ``1,234.5``, or ``1/3`` where the digits do not end."""
    value = plain(value)
    if isinstance(value, int):
        return f"{value:,}"
    whole, point, rest = number_text(value).partition(".")
    return f"{int(whole):,}.{rest}" if point and int(whole) else whole + point + rest


def figure(value: Number, unit: str, exact: bool = False) -> str:
    """``423.2 GFLOP``, in decimal steps: a kB is 1000 bytes. ``423,249,591,392`` where it is to be in full."""
    if exact:
        return in_full(value)
    value = plain(value)
    step = (len(str(int(value))) - 1) // 3
    if step == 0 and isinstance(value, int):
        return f"{value} {unit}".rstrip()
    scaled = _rounded(Fraction(value, 1000**step), 4)
    if scaled == "1000":  # 999,960 is 1.000 M, not 1000 k
        step, scaled = step + 1, "1.000"
    prefix = _PREFIXES[step] if step < len(_PREFIXES) else f"e{3 * step} "
    return f"{scaled} {prefix}{unit}".rstrip()


def _rounded(value: Fraction, digits: int) -> str:
    """A value of at most 1000 with so many digits."""
    before = len(str(int(value)))
    places = max(0, digits - before)
    whole = (value.numerator * 10**places * 2 + value.denominator) // (2 * value.denominator)
    text = str(whole).zfill(places + 1)
    if len(text) > before + places:  # 9.9996 rounds to 10.00
        places = max(0, places - 1)
        whole //= 10
        text = str(whole)
    return f"{text[:-places]}.{text[-places:]}" if places else text


def percent(share: Fraction | None) -> str:
    if share is None:
        return "-"
    tenths = (share.numerator * 2000 + share.denominator) // (2 * share.denominator)
    return f"{tenths // 10}.{tenths % 10}%"


def ratio(part: int, whole: Number) -> str:
    if whole == 0:
        return "-"
    hundredths = (part * 200 + whole) // (2 * whole)
    return f"{hundredths // 100:,}.{hundredths % 100:02d}"


def signed(value: Number, unit: str, exact: bool = False) -> str:
    """A change, with its sign; ``0`` has none and no unit."""
    return "0" if value == 0 else f"{'-' if value < 0 else '+'}{figure(max(value, -value), unit, exact)}"


def change(value: Number, of: Number) -> str:
    """A change as a share of what there was: ``+1.5%``. What is too small for a digit is ``<0.1%`` and not nothing."""
    if value == 0:
        return "0%"
    if of == 0:
        return "-"
    share = percent(Fraction(max(value, -value), of))
    return f"{'-' if value < 0 else '+'}{'<0.1%' if share == '0.0%' else share}"
