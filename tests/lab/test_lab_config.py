"""lab.toml and sources.toml: each mistake named by file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmp.errors import BrokenPostFile
from lmp.lab.config import ValueRule, read_lab, read_sources

HEAD = 'title = "t"\nquestion = "q"\n'
CAPTURE = "[capture.a]\nargv = ['x']\ntool = 'x'\n"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("title = 3", 1, "title: Input should be a valid string"),
        ("title = \n", 1, "not TOML"),
        (HEAD + "x = [1\n", 3, "not TOML"),
        (HEAD + "colour = 3", 3, "colour: Extra inputs are not permitted"),
        (HEAD + CAPTURE + "limits = 3", 6, "capture.a.limits: Extra inputs are not permitted"),
        (HEAD + CAPTURE + "limit_s = 0", 6, "capture.a.limit_s: Input should be greater than 0"),
        (HEAD + CAPTURE + "repeat = 0", 6, "capture.a.repeat"),
        (HEAD + CAPTURE + "max_bytes = 3000000", 6, "capture.a.max_bytes"),
        (HEAD + CAPTURE + "before = ['weather']", 6, "capture.a.before.0"),
        (HEAD + "[capture.a]\ntool = 'x'\n[capture.b]\nargv = ['x']\ntool = 'x'", 3, "capture.a.argv: Field required"),
        (HEAD + "[capture.A]\nargv = ['x']\ntool = 'x'", 3, "capture.A"),
        (HEAD + "[capture.source]\nargv = ['x']\ntool = 'x'", 3, "source is a reserved name"),
        (HEAD + CAPTURE + "[capture.a.values]\nn = '(x'", 7, "not a regular expression"),
        (HEAD + CAPTURE + "[capture.a.values]\nn = 'x'", 7, "has one group, this one has 0"),
        (HEAD + CAPTURE + "[capture.a.values]\nn = '(?=x)(y)'", 7, "no look-around"),
        (HEAD + CAPTURE + "[capture.a.values]\nn = '(y)\\1'", 7, "no look-around and no backreference"),
        (HEAD + CAPTURE + "others = 'x'", 3, "others needs a group"),
        (HEAD + CAPTURE + "after = ['b']", 1, "after names b, which is no capture"),
        (
            HEAD + CAPTURE + "workload = 'a.py'\nvalues.n = {from = 'b.py', pattern = '(x)'}",
            3,
            "values.n: from is output, command or a file of workload, not b.py",
        ),
        (HEAD + "[subject.s]\nset = {a = 1}", 3, "a subject needs class, model or config"),
        (HEAD + "[plot.p]\ntitle = 't'", 3, "has series and y"),
        (HEAD + "[plot.p]\nkind = 'flame'\ntitle = 't'", 3, "a flame graph has capture"),
        (HEAD + "[plot.p]\ntitle = 't'\ny = 's'\n[[plot.p.series]]\ncapture = 'a'", 6, "either capture and pattern"),
        (HEAD + "[table.t]\ncolumns = ['a', 'b']\nrows = [['x']]", 3, "each row has 2 cells"),
        (HEAD + CAPTURE + "limit_s = 3\nvalues.n = '(x'", 7, "not a regular expression"),
        (HEAD + "[allowed]\nwords = ['13']", 4, "a bare number needs a reference"),
    ],
)
def test_mistakes_in_lab(tmp_path: Path, text: str, line: int, message: str) -> None:
    file = tmp_path / "lab.toml"
    file.write_text(text)
    with pytest.raises(BrokenPostFile) as raised:
        read_lab(file)
    first, second = str(raised.value).splitlines()
    assert first.startswith(f"{file}:{line}: ")
    assert message in first
    assert second


SOURCE = "[a]\ntitle = 't'\nauthors = 'x'\nyear = 2023\nurl = 'https://example.org'\nkind = 'vendor'\nsentence = 's'\n"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (SOURCE.replace("2023", "'soon'"), 4, "a.year"),
        (SOURCE.replace("https://example.org", "javascript:alert(1)"), 5, "a.url"),
        (SOURCE.replace("vendor", "rumour"), 6, "a.kind"),
        (SOURCE + "sentense = 's'", 8, "a.sentense: Extra inputs"),
        ("a = 3", 1, "a is no source"),
    ],
)
def test_mistakes_in_sources(tmp_path: Path, text: str, line: int, message: str) -> None:
    file = tmp_path / "sources.toml"
    file.write_text(text)
    with pytest.raises(BrokenPostFile) as raised:
        read_sources(file)
    assert str(raised.value).startswith(f"{file}:{line}: ")
    assert message in str(raised.value)


@pytest.mark.parametrize("pattern", [r"\(?(\d+)\)?", r"\\1 (\d+)", r"(?:a|b) (\d+)", r"(?m)^(\d+)", r"(?P<n>\d+)"])
def test_patterns_that_are_taken(pattern: str) -> None:
    assert ValueRule(pattern=pattern).pattern == pattern


def test_the_copy_that_was_read_may_be_words(tmp_path: Path) -> None:
    file = tmp_path / "sources.toml"
    file.write_text(SOURCE + "read_at = 'the manual, as packaged'")
    assert read_sources(file)["a"].read_at == "the manual, as packaged"


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "lab.toml"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(BrokenPostFile, match=":1: not UTF-8 text"):
        read_lab(file)
