"""The figures of docs/zoo.md: made from a summary, and those of the summary that is in git."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
sys.path.insert(0, str(Path(__file__).parent / "report" / "zoo"))

import small_zoo
import zoo_figures

from lmp.zoo.entries import read_summary


def test_figures_by_hand() -> None:
    text = zoo_figures.figures(small_zoo.summary())
    # 10, 10 and 30 s of a core: 16.67 on average. 100,000 of them on 1,000 cores are 1,667 s: 0.46 hours.
    assert "| seconds of a core, on average | 16.7 |" in text
    assert "| time | 0.46 hours if every core is busy; the longest family is 30 s of it |" in text
    # 100,000 * 16.67 s / 3,600, and 1,000 / 16.67 a second
    assert "| core hours | 463 |" in text
    assert "| results | 60 a second |" in text
    # 166,666 bytes each
    assert "| stored | 16.67 GB |" in text


def test_a_page_is_written_between_its_marks() -> None:
    page = "a\n<!-- figures -->\nold\n<!-- end -->\nb\n"
    new = zoo_figures.written(page, small_zoo.summary())
    assert "old" not in new
    assert new.startswith("a\n<!-- figures -->\n| a family takes | measured |\n")
    assert new.endswith("\n<!-- end -->\nb\n")
    assert zoo_figures.written(new, small_zoo.summary()) == new
    assert zoo_figures.figures(small_zoo.summary(entries=[])) == "No run has been measured yet.\n"


def test_the_page_has_the_figures_of_the_summary_in_git() -> None:
    page = zoo_figures.PAGE.read_text(encoding="utf-8")
    assert len(zoo_figures.BLOCK.findall(page)) == 1
    if not zoo_figures.SUMMARY.is_file():
        pytest.skip("no summary of causal-lm is in reports/zoo")
    assert zoo_figures.written(page, read_summary(zoo_figures.SUMMARY)) == page
