"""A report and its page on a class in a file of one's own, whose words and code are full of markup."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from typer.testing import CliRunner, Result

from lmp.cli.main import app

CODE = '''"""A <script>alert(1)</script> module with {braces}, TODO."""

import torch
from torch import nn


class Hostile__(nn.Module):
    """Does <b>bold</b> | pipes | `ticks` {repo_name} TODO 5 GB of [Answer with code references]. See a.py:99."""

    def __init__(self, hidden_size=64, inner__size__=128):
        super().__init__()
        self.w_ = nn.Linear(hidden_size, inner__size__)

    def forward(self, x__):
        """{x}"""
        y = self.w_(x__)  # </script><img src=x onerror=alert(1)> `|` **bold** TODO 5 GB a.py:99 {path:line}
        z = torch.relu(y) if "<script>" != '"&amp;' else y  # ]]> --> ```
        return z * 2
'''
SAFE = {"script", "img", "b", "iframe", "object", "embed", "style", "svg"}


class Tags(HTMLParser):
    """The elements of a page, and where its attributes lead."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.handlers: list[str] = []
        self.targets: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self.targets += [value or "" for name, value in attrs if name in ("src", "href", "action", "data", "srcset")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, derivation: None) -> Path:
    found = tmp_path_factory.mktemp("own")
    (found / "hostile.py").write_text(CODE)
    (found / "aside.py").write_text("X = 1\n")  # another package of the same folder, and the first of them
    done = made(found)
    assert done.exit_code == 0, done.stderr
    return found


def made(folder: Path) -> Result:
    arguments = ["--init", "hidden_size=64", "--inputs", "x__: float[batch_size, seq_len, 64]", "--path", str(folder)]
    forms = ["--format", "markdown", "--format", "html", "--quiet"]
    places = ["--results", str(folder / "results"), "--reports", str(folder / "reports")]
    return CliRunner().invoke(app, ["report", "hostile.Hostile__", *arguments, *places, *forms])


def report_of(folder: Path) -> Path:
    return folder / "reports/implementations/hostile.Hostile__-analysis.md"


@pytest.mark.parametrize(("kind", "elements"), [("analysis", set()), ("appendix", {"img"})])
def test_nothing_of_it_is_markup(folder: Path, kind: str, elements: set[str]) -> None:
    appendix = report_of(folder).name.replace("analysis", "appendix")
    text = report_of(folder).with_name(report_of(folder).name.replace("analysis", kind)).read_text()
    shown = Tags(MarkdownIt("commonmark", {"html": True}).enable("table").render(text))
    assert set(shown.elements) & SAFE == elements  # the plots, which the appendix has itself
    assert shown.handlers == []
    assert all(target.startswith(("../", "https://doi.org/", appendix)) for target in shown.targets)
    assert "See a.py" not in text  # the docstring's first sentence alone is quoted


def test_the_page_leads_nowhere(folder: Path) -> None:
    page = Tags(report_of(folder).with_suffix(".html").read_text())
    assert page.elements.count("script") == 3  # the data, the library and the page's own
    assert "img" not in page.elements
    assert page.handlers == []
    assert all(target.startswith(("data:", "#")) for target in page.targets)


def test_places_are_named_by_the_file_that_they_are_in(folder: Path) -> None:
    """The class stands at line 7 of hostile.py, relu at line 17."""
    text = report_of(folder).read_text()
    assert "`hostile/hostile.py:7-18` (`Hostile__`)" in text
    assert "hostile/hostile.py:17" in text
    assert "aside" not in text
    done = CliRunner().invoke(
        app, ["review", str(report_of(folder)), "--path", str(folder), "--results", str(folder / "results")]
    )
    assert (done.exit_code, "ok; " in done.stdout) == (0, True), done.stdout


def test_a_single_projection_is_no_feed_forward_part(folder: Path) -> None:
    """One Linear, a relu and a product with 2."""
    text = report_of(folder).read_text()
    assert "**Purpose:** One projection, an activation and an element-wise product. " in text
    assert "feed-forward" not in text


def test_formulas_that_do_not_agree_with_execution(folder: Path) -> None:
    """The report is written, says so at its top and at the class, and the command ends with 4."""
    file = folder / "results/hostile.Hostile__/module_analysis.json"
    before = file.read_bytes()
    analysis = json.loads(before)
    analysis["verification"] = {"status": "failed", "reason": "by hand"}
    file.write_text(json.dumps(analysis))
    done = made(folder)
    file.write_bytes(before)
    assert done.exit_code == 4
    assert "warning: the formulas of hostile.Hostile__ are NOT in agreement with execution" in done.stderr
    top, _, rest = report_of(folder).read_text().partition("\n## 2. ")
    assert "are NOT in agreement with execution" in top
    assert "its numbers below are not held by execution" in rest
    assert "NOT in agreement with execution" in report_of(folder).with_suffix(".html").read_text()
