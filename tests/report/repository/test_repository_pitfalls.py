"""What is said of refusals: the branch that they stand in decides what is refused."""

from __future__ import annotations

import textwrap
from typing import cast

import pytest

from lmp.codebase.facts import Place
from lmp.report.document.parts import Code
from lmp.report.repository.code_base import CodeBase
from lmp.report.repository.pitfalls import refusal_of
from lmp.report.repository.statements import Condition, Refusal, conditions, refusal

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
        try:
            path.open()
        except OSError as error:
            if error.errno == 13:
                raise ValueError("not allowed")
    """
)


class _Files:
    def text(self, file: str) -> str:
        return SOURCE


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (5, [Condition(("strict",))]),
        (33, [Condition(("except OSError",)), Condition(("error.errno == 13",))]),
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
    told = refusal_of(own, asserts=False)
    words = "".join(each.text if isinstance(each, Code) else str(each) for each in told)
    assert words == "anything but kind == 'a', kind == 'b' raises an error"


class _Native:
    def text(self, file: str) -> str:
        return 'void run(Tensor x)\n{\n    TORCH_CHECK(x.dim() == 2,\n        "x is no matrix");\n    MY_CHECK(x);\n}\n'


def test_what_a_macro_checks_must_hold_and_its_message_is_told() -> None:
    # The message stands on the second line of the check; the other macro's text stands at its definition.
    first = refusal(cast(CodeBase, _Native()), Place("a.cpp", 3))
    assert first == Refusal("TORCH_CHECK", "x is no matrix", asserts=True)
    assert first.words == "x is no matrix"
    second = refusal(cast(CodeBase, _Native()), Place("a.cpp", 5))
    assert (second.of, second.words) == ("the error of ", "MY_CHECK")
