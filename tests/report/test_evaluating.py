"""What the terms of numbers are worth, on the model that is worked out by hand in small_models.py."""

from __future__ import annotations

from fractions import Fraction

import pytest
import small_models as small

from lmp.errors import LmpError, UsageError
from lmp.link.numbers import ModelNumbers
from lmp.link.values import values_for
from lmp.report.document.amounts import Claim, Term
from lmp.report.evaluating import Worth

P = "prefill-b2-s16"


@pytest.fixture(scope="module")
def worth() -> Worth:
    numbers = ModelNumbers(small.model())
    return Worth(numbers, {P: values_for(numbers.model, small.POINT)}, {"config.hidden_size": 8})


@pytest.mark.parametrize(
    ("term", "value"),
    [
        (Term(point=P, quantity="flops"), 13_056),  # 3 * (256 + 4,096)
        (Term(point=P, quantity="bytes"), 9_344),  # 5,760 read, 3,584 written
        (Term(point=P, quantity="compulsory"), 1_280),
        (Term(point=P, quantity="parameters_count"), 192),
        (Term(point=P, quantity="flops", path="layers.0"), 13_056),  # all three layers stand under the first
        (Term(point=P, quantity="flops", path="layers.0.proj"), 12_288),  # 3 * 4,096
        (Term(point=P, quantity="flops", class_name=small.LAYER), 768),  # its own add alone: 3 * 256
        (Term(point=P, quantity="read", class_name=small.LAYER, line=21), 3_072),  # 3 * 1,024
        (Term(point=P, quantity="read", category="gather"), 768),
        (Term(point=P, quantity="runs", class_name=small.LINEAR), 3),
        (Term(point=P, quantity="flops", path="nowhere"), 0),
        (Term(point=P, formula="{hidden_size} * {seq_len} / 3"), Fraction(128, 3)),  # 8 * 16 / 3
        (Term(name="config.hidden_size"), 8),
        (Term(constant=10**20, source="a datasheet"), 10**20),
    ],
)
def test_a_term_is_worth(term: Term, value: int | Fraction, worth: Worth) -> None:
    assert worth.value(term) == value


def test_a_claim_is_exact(worth: Worth) -> None:
    part = Term(point=P, quantity="matmul_flops")
    whole = Term(point=P, quantity="flops")
    claim = Claim(expression="100 * {a} / {b}", terms={"a": part, "b": whole})
    assert worth.claimed(claim) == Fraction(100 * 12_288, 13_056)


@pytest.mark.parametrize(
    "term",
    [
        Term(name="nothing"),
        Term(point="nowhere", quantity="flops"),
        Term(quantity="flops"),
        Term(point=P),
        Term(point=P, quantity="compulsory", path="layers.0"),  # known of the whole only
        Term(point=P, formula="{unknown}"),
        Term(point=P, formula="1 / 0"),
        Term(point=P, formula="(("),
    ],
)
def test_what_cannot_be_worked_out_is_said(term: Term, worth: Worth) -> None:
    with pytest.raises(LmpError):
        worth.value(term)


def test_without_a_model_quantities_have_no_value() -> None:
    with pytest.raises(UsageError, match="no model"):
        Worth(None, {P: {}}, {}).value(Term(point=P, quantity="flops"))
