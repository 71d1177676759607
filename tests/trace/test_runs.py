"""Which other values of sizes are looked at: those under which a comparison comes out the other way."""

from __future__ import annotations

import pytest

from lmp.formula import parse_condition
from lmp.trace.runs import _comes_out


@pytest.mark.parametrize(
    ("width", "yes", "no"),
    [
        (6, True, False),  # 10 // (6 - 4) is 5
        (9, False, True),  # 10 // (9 - 4) is 2
        (4, False, False),  # 10 // 0: no such model can be made, so it comes out in no way
    ],
)
def test_a_comparison_that_divides_by_nothing_comes_out_in_no_way(width: int, yes: bool, no: bool) -> None:
    condition = parse_condition("{size} // ({width} - 4) > 2")
    numbers = {"size": 10, "width": width}
    assert (_comes_out(condition, numbers, True), _comes_out(condition, numbers, False)) == (yes, no)
