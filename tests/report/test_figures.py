"""Exact integers as people read them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from lmp.report.formats.figures import figure, percent, ratio


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.000 kB"),
        (1234, "1.234 kB"),
        (12_345, "12.35 kB"),  # half up
        (999_949, "999.9 kB"),
        (999_950, "1.000 MB"),  # 1000.0 kB is a MB
        (99_996, "100.0 kB"),
        (423_249_591_392, "423.2 GB"),
        (10**30, "1.000 QB"),
        (10**33, "1.000 e33 B"),
        (10**400, "10.00 e399 B"),
    ],
)
def test_units(value: int, text: str) -> None:
    assert figure(value, "B") == text


def test_exact_figures() -> None:
    assert figure(12_345_678, "B", exact=True) == "12,345,678"
    assert figure(6_738_415_616, "") == "6.738 G"


def test_shares_and_ratios_are_exact_at_any_size() -> None:
    assert percent(Fraction(1, 3)) == "33.3%"
    assert percent(Fraction(2, 3)) == "66.7%"
    assert percent(Fraction(10**400, 10**400)) == "100.0%"
    assert percent(None) == "-"
    assert ratio(5, 2) == "2.50"
    assert ratio(10**400, 10**399) == "10.00"
    assert ratio(1, 0) == "-"
