"""Documents as markdown, read again by markdown-it-py, which knows nothing of how they were written."""

from __future__ import annotations

from fractions import Fraction

import pytest
from markdown_it import MarkdownIt

from lmp.report.document.amounts import Number, written
from lmp.report.document.markdown import to_markdown
from lmp.report.document.parts import (
    Block,
    Bold,
    Bullets,
    Code,
    Document,
    Fence,
    Image,
    Line,
    Link,
    Mermaid,
    Node,
    Paragraph,
    Pointer,
    Section,
    Table,
)

NASTY = [
    "plain",
    "<script>alert(1)</script>",
    "a | b || c",
    "`code` and ``more``",
    "*bold* _under_ __init__ **x**",
    "[text](javascript:alert)",
    "![image](http://host/x.png)",
    "# heading",
    "- item",
    "1. item",
    "> quote",
    "&lt;b&gt; &amp;",
    "line\nbreak\r\nand\ttab",
    "$x^2$ ~~struck~~",
    "back\\slash \\` \\|",
    "***",
    "+ plus",
    "=====",
    "~~~",
]


def rendered(block: Block) -> str:
    text = to_markdown(Document("T", (), [Section("S", [block])]))
    return MarkdownIt("commonmark", {"html": False}).enable("table").enable("strikethrough").render(text)


def texts(html: str, tag: str) -> list[str]:
    """The text of each element of this name, as a browser would show it."""
    from html.parser import HTMLParser

    class Reader(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.found: list[str] = []
            self.inside = 0
            self.tags: set[str] = set()

        def handle_starttag(self, name: str, attrs: object) -> None:
            self.tags.add(name)
            if name == tag:
                self.inside += 1
                self.found.append("")

        def handle_endtag(self, name: str) -> None:
            if name == tag:
                self.inside -= 1

        def handle_data(self, data: str) -> None:
            if self.inside:
                self.found[-1] += data

    reader = Reader()
    reader.feed(html)
    return reader.found


def as_shown(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("text", NASTY)
def test_text_is_shown_as_it_is(text: str) -> None:
    assert texts(rendered(Paragraph(text)), "p") == [as_shown(text)]


@pytest.mark.parametrize("text", NASTY)
def test_code_is_shown_as_it_is(text: str) -> None:
    assert texts(rendered(Paragraph(["x ", Code(text)])), "code") == [as_shown(text)]


@pytest.mark.parametrize("text", NASTY)
def test_a_cell_is_one_cell(text: str) -> None:
    html = rendered(Table(("A", "B"), [[text, Code(text)]]))
    cells = texts(html, "td")
    assert cells[0].strip() == as_shown(text)
    # In a table GitHub and markdown-it both take \\| for a bar, also in code: what had a backslash before it keeps it.
    assert cells[1].strip() == as_shown(text)
    assert len(cells) == 2


@pytest.mark.parametrize("text", NASTY)
def test_a_bullet_is_one_bullet(text: str) -> None:
    assert texts(rendered(Bullets([text])), "li") == [as_shown(text)]


@pytest.mark.parametrize("text", [*NASTY, "```", "````\n```"])
def test_a_fence_holds_any_text(text: str) -> None:
    shown = texts(rendered(Fence(text, "text")), "code")
    assert [line.rstrip() for line in shown[0].rstrip("\n").split("\n")] == [
        line.rstrip() for line in text.strip("\n").split("\n")
    ]


@pytest.mark.parametrize("text", NASTY)
def test_a_heading_is_one_heading(text: str) -> None:
    html = MarkdownIt("commonmark", {"html": False}).render(to_markdown(Document("T", (), [Section(text)])))
    assert texts(html, "h2") == [as_shown(text).rstrip("#").rstrip()] or texts(html, "h2") == [as_shown(text)]


def test_a_link_leads_to_no_script() -> None:
    html = rendered(Paragraph(Link("x", "javascript:alert(1)")))
    assert "href" not in html or "javascript:alert(1)" not in html


def test_a_pointer_says_its_symbol_in_text_and_in_fences() -> None:
    pointer = Pointer("a/b.py", 3, 5, "Foo.bar")
    text = to_markdown(Document("T", (), [Section("S", [Paragraph(pointer), Fence(["x  # ", pointer])])]))
    assert "`a/b.py:3-5` (`Foo.bar`)" in text
    assert "x  # a/b.py:3-5 (Foo.bar)" in text


def test_a_table_without_rows_says_where_was_looked() -> None:
    text = to_markdown(Document("T", (), [Section("S", [Table(("A", "B"), [], "x.py"), Bullets([], "y.py")])]))
    assert "| none found (searched: x.py) |" in text
    assert "- none found (searched: y.py)" in text


def test_the_whole_of_a_document() -> None:
    head: list[tuple[str, Line]] = [("Repository", "x"), ("Framework", [Bold("PyTorch"), " 2"])]
    graph = Mermaid([Node("a", 'A "q" <b>'), Node("b", "B\nline", inside="G")], [("a", "b", "x|y")])
    inner = Section("1.1 In", [Image("../a.svg", "A"), graph])
    text = to_markdown(Document("T", head, [Section("1. S", [], [inner])], "foot", rules=True))
    assert text == (
        "# T\n\n**Repository:** x  \n**Framework:** **PyTorch** 2  \n\n---\n\n## 1. S\n\n### 1.1 In\n\n"
        "![A](../a.svg)\n\n```mermaid\nflowchart TB\n"
        # 34 is the code of ", 60 of <, 62 of >, 124 of |
        '  n0["A #34;q#34; #60;b#62;"]\n  subgraph g1["G"]\n    n1["B<br/>line"]\n  end\n'
        '  n0 -->|"x#124;y"| n1\n```\n\n---\n\n*foot*\n'
    )


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (16_061_000_000_000, "FLOP", "16.06 TFLOP"),
        (Fraction(1, 3), "%", "0.3 %"),
        (Fraction(200, 3), "%", "66.7 %"),  # 66.666…
        (Fraction(-200, 3), "%", "-66.7 %"),
        (Fraction(3, 2000), "s", "1.500 ms"),  # 0.0015 s
        (Fraction(12_345, 10**6), "s", "12.35 ms"),  # 12.345 ms, the half goes up
        (Fraction(1, 3 * 10**6), "s", "333.3 ns"),  # a third of a microsecond
        (2, "s", "2.000 s"),
        (0, "s", "0.000 ns"),
        (4096, "", "4,096"),
        (Fraction(1, 8), "", "0.125"),
        (Fraction(1001, 2), "FLOPs/B", "500.50 FLOPs/B"),
        (8_030_261_248, "params", "8.030 Gparams"),
    ],
)
def test_numbers_are_printed_in_one_way(value: int | Fraction, unit: str, text: str) -> None:
    assert written(value, unit) == text == Number(value, unit).text
