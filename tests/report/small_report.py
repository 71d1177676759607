"""A report on a code base of one file, composed here: what narratives are held against in tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lmp.report.document.amounts import Claim, Number, Term
from lmp.report.document.ledger import Ledger, entries
from lmp.report.document.markdown import to_markdown
from lmp.report.document.parts import Bullets, Document, Line, Paragraph, Pointer, Section, Table
from lmp.report.document.told import Told
from lmp.report.evaluating import Worth
from lmp.report.folder import REPOSITORIES, Report
from lmp.report.making import Making
from lmp.report.review import Roots, review_text

CODE = '''"""A cache."""


class Cache:
    """Of 16 pages."""

    def __init__(self, pages):
        self.pages = pages


def helper():
    return None


def step(cache):
    for page in cache.pages:
        yield page
'''
"""`Cache` stands at line 4, `step` at line 15."""
STEP = "`engine.py:15` (`step`)"
COUNTS = {"bytes": 2_154_000_000, "layers": 32}

GOOD: dict[str, Any] = {
    "tldr": [f"Every step walks over all pages: {STEP}.", "It moves 2.154 GB a step."],
    "insights": {"engine.Cache": ["The cache keeps 16 pages: `engine.py:4` (`Cache`)."]},
    "pitfalls": [{"what": f"A step holds the cache: {STEP}.", "detect": "It stalls.", "fix": "Copy `pages` first."}],
    "deep_dive": {"Loops": [f"There is one loop, and 32 layers: {STEP}."]},
    "open_questions": ["Who frees a page?"],
}


def document(told: Told | None) -> Document:
    """Takes a summary of two sentences at most, insights on one class, pitfalls, more on loops, open questions."""
    tldr: list[Line] = told.tldr()[:2] if told else [["One loop: ", Pointer("engine.py", 15, symbol="step")]]
    insights = told.insights("engine.Cache") if told else []
    pitfalls = told.pitfalls() if told else []
    further = told.deep_dive("Loops") if told else []
    questions = told.open_questions() if told else []
    number = Number(COUNTS["bytes"], "B", Claim(expression="{a}", terms={"a": Term(name="bytes")}))
    return Document(
        "small",
        [("Code", "engine.py")],
        [
            Section("TL;DR", [Bullets(tldr)]),
            Section("Facts", [Paragraph(["It moves ", number, " in 32 layers."]), Bullets(insights, "engine.py")]),
            Section("Loops", [Bullets(further, "engine.py")]),
            Section("Pitfalls", [Table(("What", "How it is noticed", "What helps"), pitfalls, "engine.py")]),
            Section("Open questions", [Bullets(questions, "engine.py")]),
        ],
    )


def making(folder: Path, counts: dict[str, int] = COUNTS) -> Making:
    """The report on the code base in ``folder``."""

    def report(made: Document) -> Report:
        ledger = Ledger(kind="repository", subject="small", named=dict(counts), numbers=list(entries(made)))
        return Report("small", REPOSITORIES, to_markdown(made), ledger)

    roots, worth = Roots(folders=(folder,)), Worth(None, {}, counts)
    return Making(
        name="small-0.1",
        document=document,
        report=report,
        review=lambda made: review_text(made.file, made.text, roots, made.ledger, worth),
        roots=roots,
    )


def code_base(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "engine.py").write_text(CODE)
    return folder
