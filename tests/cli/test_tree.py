"""A tree at any width: no number broken, nothing cut."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console
from rich.text import Text

from lmp.cli.tree import Branch, print_tree

NAMES = ["model", "embed_tokens", "post_attention_layernorm", "rotary_emb", "w"]
NUMBERS = ["8,190,735,360", "4,096", "0", "622,329,856", "unknown"]


def printed(width: int) -> list[str]:
    out = Console(file=io.StringIO(), width=width, highlight=False)
    branches = [
        Branch(level, number, [Text(name), Text("36 x VeryLongClassNameOfAModule"), Text("weight [4096, 12288]")])
        for level, (name, number) in enumerate(zip(NAMES, NUMBERS, strict=True))
    ]
    print_tree(out, "parameters", branches)
    return out.file.getvalue().splitlines()  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize("width", [*range(20, 130, 3), 400])
def test_nothing_is_lost_and_nothing_is_wider(width: int) -> None:
    lines = printed(width)
    assert max(map(len, lines)) <= width
    words = " ".join(lines).split()
    for number in NUMBERS:
        assert number in words
    squeezed = re.sub(r"\s", "", "".join(lines[1:]))
    for number in NUMBERS:
        squeezed = squeezed.replace(number, "", 1)
    expected = "".join(f"{name}36xVeryLongClassNameOfAModuleweight[4096,12288]" for name in NAMES)
    assert sorted(squeezed) == sorted(expected)


def test_a_wide_terminal_has_one_line_for_each_module() -> None:
    assert printed(120)[:3] == [
        "   parameters  module",
        "8,190,735,360  model  36 x VeryLongClassNameOfAModule  weight [4096, 12288]",
        "        4,096    embed_tokens  36 x VeryLongClassNameOfAModule  weight [4096, 12288]",
    ]
