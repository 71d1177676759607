"""Planted mistakes: every kind of them is found in a small report on a code base, and no harmless change is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "scripts"))
sys.path.insert(0, str(Path(__file__).parents[1]))

import review_mutations
import small_report as small

from lmp.report.document.amounts import Claim, Number, Term
from lmp.report.document.ledger import Ledger, entries
from lmp.report.document.markdown import to_markdown
from lmp.report.document.parts import (
    Bullets,
    Code,
    Document,
    Fence,
    Line,
    Mermaid,
    Node,
    Paragraph,
    Pointer,
    Section,
    Table,
)
from lmp.report.folder import REPOSITORIES, Report, write_report
from lmp.report.review import Roots, review_text

BOX = "┌─────────────┐\n│ 2.154 GB    │\n│ engine      │\n└─────────────┘\n"


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """A written report with something of every kind in it."""
    code = small.code_base(tmp_path / "code")

    def number(name: str, unit: str) -> Number:
        return Number(small.COUNTS[name], unit, Claim(expression="{a}", terms={"a": Term(name=name)}))

    cache, step = Pointer("engine.py", 4, symbol="Cache"), Pointer("engine.py", 15)
    bullets: list[Line] = [
        ["It moves ", number("bytes", "B"), " in each of the steps, in 32 layers."],
        ["The cache is made once, before the first step: ", cache, "."],
        ["Every step walks over all of the pages that are there: ", step, "."],
    ]
    more = Number(33, "", Claim(expression="{a} + 1", terms={"a": Term(name="layers")}))
    rows: list[list[Line]] = [
        [Code("a"), number("bytes", "B"), number("layers", ""), more],
        [Code("b"), cache, "none of them", "of 8"],
    ]
    made = Document(
        "Small",
        [("Code", "engine.py")],
        [
            Section("Facts", [Bullets(bullets), Table(("What", "Bytes", "Layers", "Pages"), rows, "engine.py")]),
            Section("Drawn", [Fence([BOX, number("bytes", "B")]), Bullets([], "engine.py"), Paragraph("It ends.")]),
            Section("Graph", [Mermaid([Node("a", "A"), Node("b", "B", "G")], [("a", "b", "x"), ("a", "b", "")])]),
        ],
    )
    ledger = Ledger(kind="repository", subject="small", folder=str(code), numbers=list(entries(made)))
    ledger = ledger.model_copy(update={"named": dict(small.COUNTS)})
    written = Report("small", REPOSITORIES, to_markdown(made), ledger)
    write_report(tmp_path, written, review_text("small", written.text, Roots(folders=(code,)), ledger))
    return tmp_path / written.file


def test_every_planted_mistake_is_found_and_nothing_else(report: Path) -> None:
    planted = list(review_mutations.planted(report, number=5, seed=5))
    missed = [one for one in planted if one.kind in review_mutations.KINDS and not one.finding]
    wronged = [one for one in planted if one.kind in review_mutations.HARMLESS and one.finding]
    assert (missed, wronged) == ([], [])
    # The small report has a place for each kind.
    assert {one.kind for one in planted} == {*review_mutations.KINDS, *review_mutations.HARMLESS}
