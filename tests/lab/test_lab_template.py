"""References with their lines, ranges of lines, and digits in running text."""

from __future__ import annotations

import pytest

from lmp.errors import PostFault
from lmp.lab.template import Reference, Text, line_ranges, pieces, stray_digits


def test_references_between_text() -> None:
    found = list(pieces("a {{num:one:{t} / {u}}} b {{src:x}}", 7))
    assert found == [
        Text("a "),
        Reference("num", "one:{t} / {u}", 7),
        Text(" b "),
        Reference("src", "x", 7),
    ]


def test_a_format_stands_behind_the_last_bar() -> None:
    (reference,) = pieces("{{num:one:{t}|.1f}}", 1)
    assert isinstance(reference, Reference)
    assert (reference.content, reference.form) == ("one:{t}", ".1f")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{num:a:{t}", "is never closed"),
        ("{{number:a}}", "is no reference: kinds are cap, cite, code, env, lmp, num, plot, src, table"),
        ("{{ num:a}}", "is no reference"),
        ("{{num:a:{t}}", "is never closed"),
    ],
)
def test_broken_references(text: str, message: str) -> None:
    with pytest.raises(PostFault, match=message):
        list(pieces(text, 1))


def test_ranges() -> None:
    assert line_ranges("3-12") == [(3, 12)]
    assert line_ranges("1-2, 7,9-9") == [(1, 2), (7, 7), (9, 9)]


@pytest.mark.parametrize("text", ["0-3", "5-3", "3,2", "1-4,4-6", "a", "1-", "-3", "1 2", ""])
def test_broken_ranges(text: str) -> None:
    with pytest.raises(PostFault, match="is no range of lines"):
        line_ranges(text)


@pytest.mark.parametrize(
    "text",
    [
        "no digit at all",
        "## 2. The program",
        "### 2.1 The program",
        "1. first of a list",
        "on 2026-11-23 and on 23 November 2026, in November 2026, November 3, 2026",
        "since 2022, in 2019.",
        "[a link](https://example.org/2402.13499v1)",
        "<https://example.org/12>",
        "an H100 with CUDA 13, and `sm_90`",
    ],
)
def test_digits_that_are_free(text: str) -> None:
    assert stray_digits(text, ["H100", "CUDA 13", "sm_90"]) == []


@pytest.mark.parametrize(
    ("text", "strays"),
    [
        ("takes 12.5 ms", ["12.5"]),
        ("`-O3`", ["`-O3`"]),
        ("an H100 and an H1000", ["H1000"]),
        ("CUDA 13.1", ["13.1"]),
        ("in 2022.5 ms", ["2022.5"]),
        ("2048 tokens", ["2048"]),
        ("[7](https://example.org)", ["[7"]),
        ("## The 3 programs", ["3"]),
        ("in 1024 steps", ["1024"]),
        ("x٣", ["x٣"]),
    ],
)
def test_digits_that_need_a_reference(text: str, strays: list[str]) -> None:
    assert [stray.rstrip("(") for stray in stray_digits(text, ["H100", "CUDA 13"])] == strays
