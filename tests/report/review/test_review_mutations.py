"""Planted mistakes: every kind of them is found in a small report on a code base, and no harmless change is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "scripts"))
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "repository"))

import review_mutations
import small_report as small
import small_repository
from engine_files import FILES

from lmp.report.code_base import repository_making
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
    kinds = review_mutations.KINDS.keys() - {"required section"}  # the small report follows no template
    missed = [one for one in planted if one.kind in kinds and not one.finding]
    wronged = [one for one in planted if one.kind in review_mutations.HARMLESS and one.finding]
    assert (missed, wronged) == ([], [])
    placed = {one.kind for one in planted}
    assert len(placed & kinds) >= 20
    assert placed >= review_mutations.HARMLESS.keys() - {"a comment added in pseudocode", "a section added"}


def test_there_are_32_kinds() -> None:
    assert len(review_mutations.KINDS) == 32


@pytest.fixture(scope="module")
def of_an_engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The written report on a small engine."""
    from lmp.report.writing import write_made

    folder = tmp_path_factory.mktemp("engine")
    root = small_repository.written(folder / "nanoserve", FILES)
    return write_made(folder / "reports", repository_making(small_repository.read(root), root)).file


@pytest.mark.parametrize("has_ledger", [True, False])
def test_mistakes_in_a_report_on_a_code_base(of_an_engine: Path, has_ledger: bool) -> None:
    """With its list of numbers, and made again in its place: each kind that has a place there is found whole."""
    judged = review_mutations.judge(of_an_engine, has_ledger)
    planted = list(review_mutations.planted(of_an_engine, number=2, seed=5, judged=judged))
    wronged = [one for one in planted if one.kind in review_mutations.HARMLESS and one.finding]
    missed = [one for one in planted if one.kind in review_mutations.KINDS and not one.finding]
    assert (missed, wronged) == ([], [])
    assert len({one.kind for one in planted if one.kind in review_mutations.KINDS}) >= 20


def test_mistakes_that_the_code_and_the_report_alone_show(of_an_engine: Path) -> None:
    judged = review_mutations.judge(of_an_engine, has_ledger=False, remakes=False)
    planted = list(review_mutations.planted(of_an_engine, number=2, seed=5, judged=judged))
    found = {one.kind for one in planted if one.finding}
    assert {"quoted source line", "required section", "required row"} <= found
    assert [one for one in planted if one.kind in review_mutations.HARMLESS and one.finding] == []
