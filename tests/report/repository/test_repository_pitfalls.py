"""What is said of refusals: the branch that they stand in decides what is refused."""

from __future__ import annotations

import textwrap
from typing import cast

import pytest

from lmp.codebase.facts import Place
from lmp.report.document.parts import Code
from lmp.report.repository.code_base import CodeBase
from lmp.report.repository.pitfalls import refusal_of
from lmp.report.repository.statements import Condition, conditions

SOURCE = textwrap.dedent(
    """\
    def load(kind, path, strict):
        if path is None:
            return None
        if strict:
            assert path.exists()
            if kind == "a":
                pass
            elif kind == "b":
                raise ValueError("b is gone")
            else:
                raise ValueError("unknown")
        for each in path:
            if not each:
                raise ValueError("empty")
        if kind == "c":
            raise ValueError("c is gone")
        if kind == "d":
            return strict
        if kind == "e":
            return path
        else:
            raise ValueError("unknown")
        if strict:
            if kind == "f":
                return strict
            if kind == "g":
                return path
            raise ValueError("neither")
    """
)


class _Files:
    def text(self, file: str) -> str:
        return SOURCE


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (5, [Condition(("strict",))]),
        (9, [Condition(("strict",)), Condition(("kind == 'b'",))]),
        # The last branch is taken where neither of the tests before it holds.
        (11, [Condition(("strict",)), Condition(("kind == 'a'", "kind == 'b'"), holds=False)]),
        (14, [Condition(("not each",))]),
        # "d" has returned before, and "c" is refused too.
        (22, [Condition(("kind == 'd'", "kind == 'e'"), holds=False)]),
        # What returns before a refusal is taken.
        (28, [Condition(("strict",)), Condition(("kind == 'f'", "kind == 'g'"), holds=False)]),
    ],
)
def test_the_conditions_of_a_statement(line: int, expected: list[Condition]) -> None:
    assert conditions(cast(CodeBase, _Files()), Place("a.py", line)) == expected


def test_what_the_last_branch_refuses_is_what_no_test_takes() -> None:
    own = Condition(("kind == 'a'", "kind == 'b'"), holds=False)
    told = refusal_of(own, "ValueError")
    words = "".join(each.text if isinstance(each, Code) else str(each) for each in told)
    assert words == "anything but kind == 'a', kind == 'b' is refused"
