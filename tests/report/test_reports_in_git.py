"""The reports that git has: one is made again and is equal, every one has all of the template and holds."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from lmp.report.document.ledger import Ledger
from lmp.report.review import Roots, review_text
from lmp.source.trees import find_trees

ROOT = Path(__file__).parents[2]
REPORTS = ROOT / "reports"
REMADE = "meta-llama/Meta-Llama-3.1-8B"
NAMES = (
    "meta-llama--Meta-Llama-3.1-8B", "Qwen--Qwen3-30B-A3B", "deepseek-ai--DeepSeek-V3", "openai--gpt-oss-20b",
    "google-t5--t5-small", "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
)  # fmt: skip
HEADINGS = (
    "1. Executive Summary",
    "2. Architecture Overview",
    "2.1 System Diagram",
    "2.2 Module Hierarchy",
    "2.3 Execution Model",
    "3. Configuration & Parameters",
    "3.1 Model Configuration",
    "3.2 Kernel Configuration",
    "3.3 Constraints & Requirements",
    "4. Component Analysis",
    "5. Task/Operator Catalog",
    "6. Data Flow & Dependencies",
    "6.1 Full Forward Pass",
    "6.2 Dependency Graph",
    "6.3 Memory Lifecycle",
    "7. Parallelism & Distribution",
    "7.1 Parallelism Strategy",
    "7.2 Communication Patterns",
    "7.3 Compute-Communication Overlap",
    "8. Memory & Performance",
    "8.1 Memory Access Pattern",
    "8.2 Execution Timeline",
    "8.3 Bottleneck Analysis",
    "9. Technical FAQ",
    "Q: How are variable sequence lengths handled?",
    "Q: What is the maximum supported sequence length?",
    "Q: What operations are fused?",
    "Q: What hardware is required?",
    "Q: How does the KV cache work?",
    "10. Key Files Reference",
    "11. Appendix",
    "A. Glossary",
    "B. References",
)
"""Of the users' implementation_analysis_template.md; the components under 4 are the model's own."""

COLUMNS = (
    "| Parameter | Value | Description |",
    "| Parameter | Value | Purpose |",
    "| ID | Task Type | Purpose | Tiling | Dependencies |",
    "| Tensor | Created By | Consumed By | Lifetime |",
    "| Operation | Primitive | When | Data Size |",
    "| File | Purpose | Key Functions/Classes |",
    "| Term | Definition |",
)


LONGEST = 450
"""Lines of a report; its appendix has the rest."""


def text_of(name: str, kind: str = "analysis") -> str:
    return (REPORTS / f"implementations/{name}-{kind}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_a_report_is_short(name: str) -> None:
    assert len(text_of(name).splitlines()) <= LONGEST < len(text_of(name, "appendix").splitlines())


@pytest.mark.parametrize("name", NAMES)
def test_the_first_screen_says_what_decides_and_what_to_do(name: str) -> None:
    first = text_of(name).partition("## 2. ")[0]
    for heading in ("What decides", "What to do first", "Not verified", "Limitations discovered"):
        assert f"**{heading}" in first, heading
    assert "| 1 | " in first


@pytest.mark.parametrize("name", NAMES)
def test_all_of_the_template_is_there(name: str) -> None:
    text = text_of(name)
    there = [line.lstrip("#").strip() for line in text.splitlines() if line.startswith("#")]
    assert [heading for heading in there if heading in HEADINGS] == list(HEADINGS)
    assert [columns for columns in COLUMNS if columns not in text] == []


@pytest.mark.parametrize("name", NAMES)
def test_every_pointer_opens_and_every_number_is_listed(name: str, transformers_tree: Path) -> None:
    ledger = Ledger.model_validate(json.loads((REPORTS / f"assets/{name}-numbers.json").read_bytes()))
    roots = Roots({tree.name: tree.root for tree in find_trees(ROOT)})
    review = review_text(name, text_of(name), roots, ledger)
    assert review.findings == []
    further = Ledger.model_validate(json.loads((REPORTS / f"assets/{name}-appendix-numbers.json").read_bytes()))
    assert review_text(name, text_of(name, "appendix"), roots, further).findings == []
    assert review.pointers > 100
    assert review.numbers > 100


@pytest.mark.parametrize("name", NAMES)
def test_the_plots_of_a_report_are_there(name: str) -> None:
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text_of(name, "appendix"))
    assert pictures
    for file in pictures:
        assert (REPORTS / "implementations" / file).is_file(), file


@pytest.mark.xdist_group("remade-report")
def test_a_report_made_again_is_equal(default_family: None, tmp_path: Path) -> None:
    from lmp.analyze.session import Options, class_of_config
    from lmp.report.devices import device_named
    from lmp.report.folder import ledger_text, with_lines
    from lmp.report.gathering import gather
    from lmp.report.model import model_making

    options = Options(tmp_path, model_id=REMADE)
    facts = gather(class_of_config(options), options, lambda name, stage: None, device_named("H100"))
    making = model_making(facts)
    report = making.plain
    assert making.review(report).findings == []
    assert report.text == text_of(NAMES[0])
    assert report.appendix is not None
    assert report.appendix.text == text_of(NAMES[0], "appendix")
    assert ledger_text(with_lines(report)) == (REPORTS / f"assets/{NAMES[0]}-numbers.json").read_text(encoding="utf-8")
    for name, content in report.assets.items():
        assert content == (REPORTS / "assets" / name).read_bytes(), name
