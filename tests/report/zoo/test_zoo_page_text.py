"""What stands in the file of the zoo's page, without a browser."""

from __future__ import annotations

import base64
import fnmatch
import hashlib
import re
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path

import pytest
import small_zoo

from lmp.errors import UsageError
from lmp.report import zoo
from lmp.report.zoo.page import page

PROJECT = Path(__file__).parents[3]
STATIC = Path(zoo.__file__).parent / "static"


class Elements(HTMLParser):
    """Elements with their attributes, and the text inside of scripts and outside."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style":
            self.text += data


@pytest.fixture(scope="module")
def read() -> Elements:
    return Elements(page(small_zoo.summary()))


def test_nothing_of_the_zoo_page_is_fetched(read: Elements) -> None:
    assert [e for e in read.found if "src" in e[1]] == []
    assert [a.get("href") for tag, a in read.found if tag == "link"] == ["data:,"]
    assert {str(a["href"])[0] for tag, a in read.found if tag == "a"} == {"#"}
    policy = next(a["content"] for tag, a in read.found if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    digest = base64.b64encode(hashlib.sha256(read.scripts[0].encode()).digest()).decode()
    assert (len(read.scripts), rules["script-src"]) == (1, f"'sha256-{digest}'")


def test_texts_of_entries_stay_texts(read: Elements) -> None:
    assert [tag for tag, _ in read.found if tag in ("img", "script")] == ["script"]
    assert read.text.count(small_zoo.HOSTILE) == 2  # the reason, and the adjustment


def test_reasons_and_commands_are_there_without_javascript(read: Elements) -> None:
    words = " ".join(read.text.split())
    assert "read is 7 by formula and 9 executed" in words
    assert small_zoo.PLACE in words
    assert "lmp zoo mamba --task causal-lm --fresh" in words
    assert "2 of 8 (25.0 %)" in words
    assert [a for tag, a in read.found if tag == "tr" and "hidden" in a] == []


def test_every_family_has_a_row(read: Elements) -> None:
    rows = [a["data-key"] for tag, a in read.found if tag == "tr" and a.get("class") == "family"]
    made = [f"causal-lm/{name}" for name in ("gpt2", "llama", "mamba", "rwkv", "xlstm")]
    assert rows == [*made, "base/zamba", "causal-lm/arcee", "causal-lm/bloom"]


def test_the_page_is_the_same_in_whichever_order_entries_come() -> None:
    turned = small_zoo.summary(entries=small_zoo.entries()[::-1], not_run=["arcee", "bloom"])
    assert page(turned) == page(small_zoo.summary())


def test_every_file_of_the_zoo_page_is_in_the_package() -> None:
    patterns = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["lmp"]
    names = [f"report/zoo/static/{file.name}" for file in STATIC.iterdir()]
    assert [name for name in names if not any(fnmatch.fnmatch(name, pattern) for pattern in patterns)] == []


def test_the_script_puts_no_markup_together() -> None:
    script = (STATIC / "zoo.js").read_text()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", script)


def test_the_missing_extra_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(UsageError, match=r"pip install 'lmp\[report\]'"):
        page(small_zoo.summary())
