"""Self-review of any markdown: pointers, placeholders, tables, numbers and diagrams, held against what they name."""

from __future__ import annotations

from collections.abc import Sequence

from lmp.records import Review, ReviewFinding
from lmp.report.document.ledger import Ledger
from lmp.report.evaluating import Worth
from lmp.report.review.computed import check_computed
from lmp.report.review.consistency import check_checklist, check_contradictions
from lmp.report.review.diagrams import check_diagrams
from lmp.report.review.figures import check_numbers
from lmp.report.review.placeholders import check_placeholders, check_tables
from lmp.report.review.places import Roots, check_pointers, cited
from lmp.report.review.quoted import check_quoted
from lmp.report.review.reading import NESTING, read_markdown
from lmp.report.review.template import check_named_rows, check_template, template_of
from lmp.report.review.written import check_written
from lmp.source.installed import INSTALL

__all__ = ["Review", "ReviewFinding", "Roots", "review_text"]


NOT_HELD = "the numbers were not held against results"


def review_text(
    file: str,
    text: str,
    roots: Roots,
    ledger: Ledger | None = None,
    worth: Worth | None = None,
    notes: Sequence[str] = (),
) -> Review:
    """Everything that can be said of a report by holding it against the code and the results.

    Without a ledger nothing is known of its numbers: a note says so.
    """
    parts = read_markdown(text)
    pointers, findings = check_pointers(parts, roots)
    # What follows a template is held to all that lmp's own reports have.
    strict = ledger is not None or template_of(parts) is not None
    findings += [*check_placeholders(parts), *check_tables(parts, strict), *check_diagrams(parts, strict)]
    findings += [*check_template(parts), *check_quoted(parts, roots), *check_computed(parts)]
    findings += check_checklist(parts, roots)
    count, remarks = 0, list(notes)
    findings += check_contradictions(parts)
    if parts.too_deep is not None:
        remarks.append(f"line {parts.too_deep} is nested more than {NESTING} deep: what stands in it was not looked at")
    closed = sum(roots.is_absent(pointer.path) for pointer in cited(parts)) if roots.absent else 0
    if closed:
        remarks.append(f"{closed} pointers were not opened: their sources are not installed ({INSTALL})")
    if ledger is None:
        if not any(remark.startswith(NOT_HELD) for remark in remarks):
            remarks.append(f"{NOT_HELD}: none belong to this file")
    else:
        count, wrong = check_numbers(parts, ledger, worth)
        findings += wrong
        told = {(finding.line, word) for finding in findings for word in finding.message.split()}
        changed = [*check_written(parts, ledger.lines), *check_named_rows(parts, ledger.lines)] if ledger.lines else []
        findings += [finding for finding in changed if (finding.line, finding.message.split()[0]) not in told]
    findings.sort(key=lambda finding: finding.line)
    return Review(file=file, findings=findings, pointers=pointers, numbers=count, notes=remarks)
