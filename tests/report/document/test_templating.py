"""Sections from templates: what is put in is never markup, and stays what it is."""

from __future__ import annotations

from typing import Any

import pytest
from jinja2 import DictLoader

from lmp.report.document import templating
from lmp.report.document.amounts import Number
from lmp.report.document.parts import Bold, Bullets, Code, Fence, Image, Link, Paragraph, Pointer, Section, Table


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(template: str, **context: Any) -> list[Section]:
        real = templating._environment

        def environment(package: str, values: Any) -> Any:
            found = real("lmp.report.implementation", values)
            found.loader = DictLoader({"t": template})
            return found

        monkeypatch.setattr(templating, "_environment", environment)
        return templating.sections("lmp", "t", context)

    return make


def test_headings_nest(made: Any) -> None:
    first, second = made("## A\none\n\n### B\ntwo\n\n## C\nthree\n")
    assert (first.title, first.sections[0].title, second.title) == ("A", "B", "C")
    assert first.sections[0].blocks == [Paragraph(["two"])]


def test_values_are_never_markup(made: Any) -> None:
    (section,) = made("## A\n{{ x }} and **{{ x }}** and `{{ x }}`\n", x="- | **b** `c`\n## no")
    text = "- | **b** `c`\n## no"
    assert section.blocks == [Paragraph([text, " and ", Bold(text), " and ", Code(text)])]


def test_a_number_keeps_what_it_is(made: Any) -> None:
    number, place = Number(1234, "B"), Pointer("a.py", 3)
    (section,) = made("## A\n- moves {{ n }} at {{ p }}{{ none }}\n", n=number, p=[place, " twice"], none=None)
    assert section.blocks == [Bullets([["moves ", number, " at ", place, " twice"]])]


def test_tables_lists_fences_and_pictures(made: Any) -> None:
    text = (
        "## A\nSee [it](b.md):\n- one\n- two\n\n| X | Y |\n| --- | ---: |\n| {{ x }} | 2 |\n\n```text\n {{ x }}!\n```\n"
        "![alt](a.svg)\n"
    )
    (section,) = made(text, x="a | b")
    paragraph, bullets, table, fence, image = section.blocks
    assert paragraph == Paragraph(["See ", Link("it", "b.md"), ":"])
    assert bullets == Bullets([["one"], ["two"]])
    assert table == Table(["X", "Y"], [[["a | b"], ["2"]]], right=frozenset({1}))
    assert fence == Fence([" ", "a | b", "!"], "text")
    assert image == Image("a.svg", "alt")


def test_a_block_that_is_put_in_is_one(made: Any) -> None:
    block = Fence("x", "text")
    (section,) = made("## A\nbefore\n{{ b }}\nafter\n", b=block)
    assert section.blocks == [Paragraph(["before"]), block, Paragraph(["after"])]


def test_a_name_that_is_not_there_is_an_error(made: Any) -> None:
    with pytest.raises(Exception, match="gone"):
        made("## A\n{{ gone }}\n")


def test_a_table_without_a_rule_is_an_error(made: Any) -> None:
    with pytest.raises(ValueError, match="rule"):
        made("## A\n| X |\n| 1 |\n")
