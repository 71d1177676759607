"""Exact numbers in text and in JSON."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmp.formula import json_number, number_text, read_number


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (2, 2),
        ("2", 2),
        ("2.0", 2),
        ("0.5", Fraction(1, 2)),
        ("17/32", Fraction(17, 32)),
        ("34/17", 2),
        ("1_000/3", Fraction(1000, 3)),
        ("-0.25", Fraction(-1, 4)),
        (Decimal("4.25"), Fraction(17, 4)),
        (Fraction(4, 2), 2),
        (0.1, Fraction(1, 10)),  # its shortest decimal text, and not 3602879701896397 / 2**55
    ],
)
def test_numbers_are_read_exactly(given: Any, expected: Any) -> None:
    found = read_number(given)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("1/0", "'1/0' divides by 0"),
        ("nan", "'nan' is not a number"),
        ("1e3", "'1e3' is not a number"),
        ("1.5/2", "'1.5/2' is not a number"),
        ("", "'' is not a number"),
        ("٣", "'٣' is not a number"),
        (float("nan"), "nan is not a finite number"),
        (float("inf"), "inf is not a finite number"),
        (Decimal("Infinity"), "Infinity is not a finite number"),
        (True, "True is not a number"),
        (None, "None is not a number"),
        ("9" * 5000, "it has 5000 digits, more than 4000"),
    ],
)
def test_what_is_no_number(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_number(given)


@pytest.mark.parametrize(
    ("value", "text", "in_json"),
    [
        (7, "7", "7"),
        (Fraction(17, 32), "0.53125", "0.53125"),
        (Fraction(-1, 2), "-0.5", "-0.5"),
        (Fraction(1, 3), "1/3", '"1/3"'),
        (Fraction(1, 10), "0.1", '"1/10"'),  # no double is 1/10
        # 10**20 + 1/2 has 21 digits, a double 53 bits: 100000000000000000000 would not be the value
        (Fraction(2 * 10**20 + 1, 2), "100000000000000000000.5", '"200000000000000000001/2"'),
        (Fraction(10**400, 3), f"{10**400}/3", f'"{10**400}/3"'),
        # A double is it, but its shortest text, 0.1, is another number.
        (Fraction(0.1), "3602879701896397/36028797018963968", '"3602879701896397/36028797018963968"'),
    ],
)
def test_numbers_are_written_exactly(value: Any, text: str, in_json: str) -> None:
    assert (number_text(value), json.dumps(json_number(value))) == (text, in_json)


@given(st.fractions())
def test_what_is_written_reads_back(value: Fraction) -> None:
    assert read_number(number_text(value)) == value
    assert Fraction(str(json_number(value))) == value
