"""docs/formulas.md does what it says: its examples are run, its limits are those of the code."""

from __future__ import annotations

import doctest
from pathlib import Path

from lmp.formula import MAX_BITS
from lmp.formula.parse import MAX_DEPTH, MAX_DIGITS, MAX_LENGTH
from lmp.formula.simplify import MAX_EXPONENT, MAX_SIZE, MAX_SUM, MAX_TERMS

PAGE = Path(__file__).parents[2] / "docs" / "formulas.md"


def test_the_examples_run():
    failed, tried = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert tried >= 10
    assert not failed


def test_the_limits_are_those_of_the_code():
    text = PAGE.read_text()
    for limit in (MAX_LENGTH, MAX_DEPTH, MAX_DIGITS, MAX_BITS, MAX_SUM, MAX_SIZE):
        assert f"| {limit:,} " in text
    assert f"more than {MAX_TERMS:,} terms" in text
    assert f"a power above {MAX_EXPONENT}," in text
