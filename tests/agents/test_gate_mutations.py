"""Planted errors of every kind: each that changes a number at a verified point is refused; docs/gate.md has 200."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest
from gate_classes import CLASSES

from lmp.analyze.session import Session

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import gate_mutations
from plain_evaluation import Evaluation, NoValue


def test_errors_that_change_a_number_are_caught(session: Session) -> None:
    planted = list(gate_mutations.Study(session, CLASSES, seed=4).plant(50))
    assert len({p.kind for p in planted}) >= 12
    missed = [(p.kind, p.class_name, p.what) for p in planted if p.changes and not p.caught]
    assert missed == []
    # Most do change one: the study is not empty.
    assert Counter(p.changes for p in planted)[True] > 35
    assert all(p.finding for p in planted if p.caught)


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        ("2 * {a} + 3", 13),
        ("where({a} > 4 and {a} % 5 == 0, {a} // 2, 0)", 2),
        ("max({a}, 7) - ceil({a} / 2)", 4),
        ("${{some.Class}}({a}, n=2)", 5 * 10 + 2),
    ],
)
def test_the_second_opinion_on_formulas(formula: str, value: int) -> None:
    # 10 FLOPs for each m, 1 for each n
    kernel = {"flops": "10 * {m} + {n}", "memory_access": {"read": "0", "write": "0"}, "category": "elementwise"}
    other = {"parameters": {"m": "", "n": ""}, "kernels": [kernel]}
    sizes = {"w_bytes": 2, "a_bytes": 2, "kv_bytes": 2}
    assert Evaluation(lambda name: other).number(formula, {"a": 5, **sizes}) == value


def test_the_second_opinion_refuses_what_has_no_value() -> None:
    for formula in ("{b}", "{a} / 2", "{a} / 0", "print({a})"):
        with pytest.raises(NoValue):
            Evaluation(lambda name: {}).number(formula, {"a": 5})
