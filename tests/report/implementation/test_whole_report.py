"""The whole report of a small Llama: the template's headings, a review without findings, the same text again."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from lmp.report.document.ledger import Ledger, entries
from lmp.report.document.markdown import to_markdown
from lmp.report.document.parts import Document, Section
from lmp.report.facts import ModelFacts
from lmp.report.implementation.sections import document
from lmp.report.review import Roots, review_text
from lmp.report.review.reading import read_markdown

TEMPLATE = Path(__file__).parents[3].parent / "shared" / "seeds" / "implementation_analysis_template.md"
HEADINGS = """
1. Executive Summary
2. Architecture Overview
2.1 System Diagram
2.2 Module Hierarchy
2.3 Execution Model
3. Configuration & Parameters
3.1 Model Configuration
3.2 Kernel Configuration
3.3 Constraints & Requirements
4. Component Analysis
5. Task/Operator Catalog
6. Data Flow & Dependencies
6.1 Full Forward Pass
6.2 Dependency Graph
6.3 Memory Lifecycle
7. Parallelism & Distribution
7.1 Parallelism Strategy
7.2 Communication Patterns
7.3 Compute-Communication Overlap
8. Memory & Performance
8.1 Memory Access Pattern
8.2 Execution Timeline
8.3 Bottleneck Analysis
9. Technical FAQ
Q: How are variable sequence lengths handled?
Q: What is the maximum supported sequence length?
Q: What operations are fused?
Q: What hardware is required?
Q: How does the KV cache work?
10. Key Files Reference
11. Appendix
A. Glossary
B. References
""".strip().splitlines()
"""Of the template, the components of section 4 left out: they are the model's."""


@pytest.fixture(scope="module")
def report(small_llama: ModelFacts) -> Document:
    return document(small_llama)


def _titles(sections: list[Section] | tuple[Section, ...]) -> list[str]:
    return [title for s in sections for title in (s.title, *_titles(tuple(s.sections)))]


def test_the_headings_are_those_of_the_template(report: Document) -> None:
    titles = [title for title in _titles(tuple(report.sections)) if not re.match(r"4\.\d", title)]
    assert titles == HEADINGS


@pytest.mark.skipif(not TEMPLATE.is_file(), reason="the users' template is not here")
def test_the_headings_above_are_the_users() -> None:
    lines = TEMPLATE.read_text(encoding="utf-8").splitlines()
    found = [line.lstrip("#").strip() for line in lines if re.match(r"#{2,3} ", line)]
    assert [title for title in found if not re.match(r"4\.\d", title)] == HEADINGS


@pytest.mark.skipif(not TEMPLATE.is_file(), reason="the users' template is not here")
def test_the_columns_of_the_tables_are_the_users(report: Document) -> None:
    """Every table of the template's sections 3, 10 and 11 is in the report."""
    text = to_markdown(report)
    wanted = re.findall(r"^\|[^|\n]*[A-Za-z].*\|$(?=\n\|-)", TEMPLATE.read_text(encoding="utf-8"), re.MULTILINE)
    for columns in wanted:
        assert f"{columns}\n" in text, columns


def test_the_review_finds_nothing(small_llama: ModelFacts, report: Document) -> None:
    facts, text = small_llama, to_markdown(report)
    ledger = Ledger(
        kind="model",
        subject=facts.model.class_name,
        points={point.key: dict(point.values) for point in facts.points},
        named=dict(facts.named),
        numbers=list(entries(report)),
    )
    found = review_text("small.md", text, Roots(facts.roots), ledger, facts.worth)
    assert found.findings == []


def test_it_is_equal_when_made_again(small_llama: ModelFacts, report: Document) -> None:
    assert to_markdown(document(small_llama)) == to_markdown(report)


def test_no_line_of_a_block_is_wider_than_the_page(report: Document) -> None:
    fences = [fence for fence in read_markdown(to_markdown(report)).fences if fence.language != "mermaid"]
    assert fences
    assert [line for fence in fences for line in fence.lines if len(line) > 100] == []


def test_the_head_has_the_lines_of_the_template_and_no_day(report: Document) -> None:
    names = [name for name, _ in report.head]
    assert names[:3] == ["Repository", "Framework", "Analysis Date"]
    head = to_markdown(dataclasses.replace(report, sections=[], opening=()))
    assert not re.search(r"\b20\d\d-\d\d-\d\d\b", head)


def test_nothing_stands_before_the_first_section_of_a_verified_model(small_llama: ModelFacts) -> None:
    assert list(document(small_llama).opening) == []


def test_what_is_not_verified_is_said_at_the_top(small_llama: ModelFacts) -> None:
    name = next(iter(small_llama.model.parts))
    part = small_llama.model.parts[name].model_copy(update={"status": "unverified", "uncounted": ["aten.odd"]})
    model = small_llama.model.model_copy(update={"parts": {**small_llama.model.parts, name: part}, "pinned": {"x": 3}})
    text = to_markdown(document(dataclasses.replace(small_llama, model=model)))
    assert f"the formulas of {name} are unverified" in text
    assert "aten.odd" in text
    assert "x = 3" in text
