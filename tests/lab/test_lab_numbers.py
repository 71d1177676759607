"""Numbers as text and text as numbers."""

from __future__ import annotations

from fractions import Fraction

import pytest

from lmp.errors import PostFault
from lmp.lab.numbers import written
from lmp.lab.values import number_in


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        (12345, None, "12,345"),
        (Fraction(1, 3), None, "0.3333"),
        (Fraction(123456, 10), None, "12,346"),
        (Fraction(1, 80000), None, "0.0000125"),
        (12345, "int", "12345"),
        (12345, "comma", "12,345"),
        (Fraction(5, 2), ".0f", "2"),  # ties to even
        (Fraction(7, 2), ".0f", "4"),
        (Fraction(12345, 7), ".2f", "1,763.57"),  # 12345 / 7 = 1763.571...
        (Fraction(-1, 8), ".2f", "-0.12"),
        (Fraction(-1, 1000), ".1f", "0.0"),
        (Fraction(1, 4), "%", "25 %"),
        (Fraction(1, 3), ".1%", "33.3 %"),
        (168_691, "si", "169k"),
        (1_234_567, ".2si", "1.23M"),
        (999, "si", "999"),
        (Fraction(1, 8), "si", "0.125"),
        (66_700_000, "MB", "66.7 MB"),
        (2**31, "GiB", "2.0 GiB"),
        (3_350_000_000_000, ".2TB", "3.35 TB"),
        (1536, "B", "1,536 B"),
        (Fraction(13, 10**10), "ns", "1.3 ns"),
        (Fraction(1, 2000), "us", "500.0 µs"),
        (Fraction(54, 10000), ".2ms", "5.40 ms"),
        (3, "s", "3.0 s"),
        (Fraction(19, 10), "x", "1.9x"),
    ],
)
def test_formats(value: Fraction | int, form: str | None, text: str) -> None:
    assert written(Fraction(value), form) == text


@pytest.mark.parametrize("form", ["furlongs", ".xf", "", "1f", ".1.2f"])
def test_unknown_formats(form: str) -> None:
    with pytest.raises(PostFault, match="unknown format"):
        written(Fraction(1), form)


@pytest.mark.parametrize("form", ["int", "comma"])
def test_no_fraction_is_rounded_in_silence(form: str) -> None:
    with pytest.raises(PostFault, match="no whole number"):
        written(Fraction(1, 2), form)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", 12),
        ("12,345", 12345),
        ("1_000", 1000),
        ("-3.5", Fraction(-7, 2)),
        (".5", Fraction(1, 2)),
        ("1.5e-3", Fraction(3, 2000)),
        ("0x1F", 31),
    ],
)
def test_numbers_in_text(text: str, number: Fraction | int) -> None:
    assert number_in(text) == number


@pytest.mark.parametrize("text", ["", "x", "1.2.3", "0xzz", "1e", "-", "12 ms", "nan", "1e9999", "e5"])
def test_text_that_is_no_number(text: str) -> None:
    with pytest.raises(PostFault, match="is no number"):
        number_in(text)
