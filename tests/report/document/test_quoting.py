"""Words of others: what the review of a report reads nothing in."""

from __future__ import annotations

import pytest

from lmp.report.document.ledger import Ledger
from lmp.report.document.markdown import to_markdown
from lmp.report.document.parts import Code, Document, Paragraph, Section
from lmp.report.document.quoting import quoted, quoted_code
from lmp.report.review import Roots, review_text


@pytest.mark.parametrize(
    "text",
    [
        "TODO",
        "TODO: make it fast",
        "Takes {x} of <name>",
        "Needs 5 GB, or 3.2 ms",
        "See a.py:99 and b.cu#L12",
        "[Answer with code references]",
        "Returns None if none found",
        "{path:line}",
        "`a` | <script>alert(1)</script> ``` *b* _c_",
    ],
)
def test_nothing_in_them_is_a_statement_of_the_report(text: str) -> None:
    ledger = Ledger(kind="repository", subject="x")
    for piece in (quoted(text), quoted_code(text)):
        made = to_markdown(Document("x", (), [Section("S", [Paragraph(["It says: “", piece, "”."])])]))
        assert review_text("r.md", made, Roots(), ledger).findings == []


def test_plain_words_stay_text() -> None:
    assert quoted("Rotates queries and keys, at 10:30 with std::vector:3") == (
        "Rotates queries and keys, at 10:30 with std::vector:3"
    )
    assert quoted("see a.py:99") == Code("see a.py: 99")


def test_a_title_may_be_a_name_that_looks_like_anything() -> None:
    made = to_markdown(Document(["Repo analysis: ", Code("TODO 5 GB")], [("Repository", Code("TODO 5 GB"))], ()))
    assert made.startswith("# Repo analysis: `TODO 5 GB`\n")
    # The template's sections are not there; nothing is said of the title.
    found = review_text("r.md", made, Roots(), Ledger(kind="repository", subject="x")).findings
    assert [one for one in found if one.rule != "section"] == []
