"""What stands in the file of the comparing page, without a browser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lmp.atlas.archive import Atlas
from lmp.report.compare import page, writing

STATIC = Path(writing.__file__).parent / "static"
LARGEST = 8 * 2**20
"""Bytes of a page of all models."""


def test_nothing_is_fetched_and_one_script_runs(compare_text: str) -> None:
    assert not re.search(r"<[a-z]+[^>]*\s(src|action)=", compare_text)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', compare_text)
    assert policy is not None
    assert policy[1].startswith("default-src &#39;none&#39;; script-src &#39;sha256-")
    assert policy[1].count("sha256-") == 1
    assert compare_text.count("<script") == 2  # the data and the page's own


def test_scripts_put_no_markup_together() -> None:
    scripts = "".join(file.read_text() for file in STATIC.glob("*.js"))
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", scripts)
    assert {file.stem for file in STATIC.glob("*.js")} == set(writing.SCRIPTS)


def test_a_page_of_hundred_models_is_small_enough(compare_text: str, atlas: Atlas) -> None:
    empty = len(page(atlas, [], ["h100-sxm"]))
    each = (len(compare_text) - empty) / 3
    # A whole grid has 36 + 12 points of 28 ways, three figures of about 10 characters: 48 * 28 * 30 = 40 kB more.
    assert empty + 100 * (each + 48 * 28 * 30) < LARGEST


def test_names_are_escaped(compare_text: str) -> None:
    data = compare_text.partition('id="data">')[2].partition("</script>")[0]
    assert "<" not in data
    assert ">" not in data


def test_an_unknown_device_is_refused(atlas: Atlas) -> None:
    from lmp.errors import UsageError

    with pytest.raises(UsageError, match="there is no device"):
        page(atlas, [], ["h1000"])
