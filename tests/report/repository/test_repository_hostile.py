"""Repositories that mean no good, or are broken: markup everywhere, extension modules, files that do not parse."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from engine_files import FILES
from markdown_it import MarkdownIt
from small_repository import Reported, reported, written

MARKUP = '''"""<script>alert(1)</script> | a [link](javascript:x) `code` {path} TODO 100% <name>"""
import os

# TODO: <b>bold</b> | pipes | and `ticks` {name}


class KVCache:
    """</table> | <img src=x onerror=alert(1)> ``` [Answer with code references]"""

    def append(self, x):
        raise NotImplementedError("<i>{x}</i> | ``` not here:12 a.py:999")

    def free(self):
        return os.environ["A`B|<C>"]


class Scheduler:
    """Ends 5 s later {placeholder}."""

    def schedule(self):
        while True:
            self.forward(x[a.h:3], "b.py:77")

    def forward(self, x, y):
        if x.is_cuda < 3:
            raise RuntimeError("a message with 95 % and 12 GB <tag> of it")
'''


@pytest.fixture(scope="module")
def markup(tmp_path_factory: pytest.TempPathFactory) -> Reported:
    files = {
        "pkg/__init__.py": "",
        "pkg/<b>|`x`.py": MARKUP,
        "pkg/decode.py": MARKUP,
        "README.md": "# <script>x</script>\n\nThis is a | text with <b>markup</b> and {braces}, of more than eight.\n",
    }
    return reported(written(tmp_path_factory.mktemp("odd") / "a<b>|c", files))


def test_markup_stays_text(markup: Reported) -> None:
    assert [finding.message for finding in markup.review.findings] == []
    html = MarkdownIt("commonmark", {"html": True}).enable("table").render(markup.text)
    for tag in ("<script", "<img", "<b>", "<i>", "</table> |", 'javascript:x"'):
        assert tag not in html


def test_rows_keep_their_columns(markup: Reported) -> None:
    tokens = MarkdownIt("commonmark").enable("table").parse(markup.text)
    cells, widths = 0, set()
    for token in tokens:
        if token.type == "tr_open":
            cells = 0
        elif token.type in ("td_open", "th_open"):
            cells += 1
        elif token.type == "tr_close":
            widths.add(cells)
    assert widths <= {2, 3, 4, 5}


def test_no_extension_module_of_the_repository_is_loaded(tmp_path: Path) -> None:
    """What is compiled would run when it is imported: nothing does that, and `sitecustomize` must not either."""
    bad = "import pathlib\npathlib.Path(__file__).with_name('ran').write_text('x')\n"
    suffix = next(s for s in __import__("importlib.machinery").machinery.EXTENSION_SUFFIXES)
    files = {
        **FILES,
        "nanoserve/engine.py": "import native_thing\nimport nanoserve.native\n" + FILES["nanoserve/engine.py"],
        "sitecustomize.py": bad,
        "conftest.py": bad,
        f"native_thing{suffix}": "not a library",
        f"nanoserve/native{suffix}": "not a library",
    }
    root = written(tmp_path / "r", files)
    path, modules = list(sys.path), set(sys.modules)
    report = reported(root)
    assert report.review.findings == []
    assert not list(root.rglob("ran"))
    assert sys.path == path
    assert not {name for name in set(sys.modules) - modules if name.startswith(("nano", "native", "sitecustom"))}


def test_broken_files_are_listed(tmp_path: Path) -> None:
    files = {**FILES, "nanoserve/broken.py": "def f(:\n", "nanoserve/deep.py": "x = " + "(" * 3000 + ")" * 3000 + "\n"}
    root = written(tmp_path / "r", files)
    (root / "nanoserve" / "binary.py").write_bytes(b"\x00\x01\x02" * 100)
    os.symlink(root, root / "nanoserve" / "loop")
    report = reported(root)
    assert report.review.findings == []
    listed = report.section("Appendix G: files not read")
    for name in ("broken.py", "deep.py", "binary.py", "loop"):
        assert name in listed, name


def test_classes_of_a_file_that_does_not_parse_stop_nothing(tmp_path: Path) -> None:
    broken = "class Base:\n    def run(self):\n        pass\n\n\nclass Kind(Base):\n    pass\n\n\ndef broken(:\n"
    root = written(tmp_path / "small", {"small/__init__.py": "import torch\n", "small/broken.py": broken})
    report = reported(root)
    # Its classes are known by their lines; what they build on is not.
    assert {each.qualname for each in report.facts.definitions} >= {"Base", "Kind"}
    assert "does not parse: invalid syntax, line 10" in report.text
    assert "add a subclass" not in report.text
