"""What the records say beside their fields."""

from __future__ import annotations

from itertools import product
from typing import get_args

import pytest

from lmp.records import HANDED_IN, KNOWN_ENGINES, OWN_ENGINE, Status, worst

STATUSES: tuple[Status, ...] = get_args(Status)


@pytest.mark.parametrize("statuses", list(product(STATUSES, repeat=3)))
def test_the_worst_of_some_verdicts(statuses: tuple[Status, ...]) -> None:
    if "failed" in statuses:
        assert worst(statuses) == "failed"
    else:
        assert worst(statuses) == ("unverified" if "unverified" in statuses else "verified")


def test_lmps_own_engine_hands_nothing_in() -> None:
    assert OWN_ENGINE not in HANDED_IN
    assert set(KNOWN_ENGINES) == {OWN_ENGINE, *HANDED_IN}
