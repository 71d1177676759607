"""Parts that a reader named, in a report: who it was, and what was said of each place."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from lmp.codebase.facts import Place
from lmp.codebase.parts import LONGEST, NESTING, ROLES, NamedParts, Parts
from lmp.report.document.parts import Block, Document, Inline, Line, Paragraph, Section, Table
from lmp.report.document.told import author, origin
from lmp.report.repository.pieces import code, joined, plural, pointer, said, section_title, sentence
from lmp.report.repository.study import Study
from lmp.source.quoting import escaped

TITLE = "Parts named by a reader"


def with_parts(document: Document, study: Study) -> Document:
    """The report with a line in its head, and a last section of what was named; as it is where nobody named any."""
    named = study.named
    if named is None:
        return document
    head = (*document.head, ("Parts", _by(named)))
    return replace(document, head=head, sections=[*document.sections, _section(study, named.parts)])


def _by(named: NamedParts) -> Line:
    absent = [section_title(each) for each in named.parts.absent]
    sections = [
        section_title(each) for each in (*ROLES, NESTING) if each in named.parts.sections - {*named.parts.absent}
    ]
    others = [section_title(each) for each in (*ROLES, NESTING) if each not in named.parts.sections]
    counted = sentence(*plural(len(named.parts.parts), "place"), " and ", *plural(len(named.parts.nesting), "call"))
    rules: list[Inline] = ["; by rules: ", ", ".join(others)] if others else []
    pitfalls = plural(len(named.parts.pitfalls), "pitfall")
    first: list[Inline] = [", and ", *pitfalls, ", which come before those of rules"] if named.parts.pitfalls else []
    by: list[Inline] = ["named by ", *author(named.provenance), " from the code", *origin(named.provenance)]
    what = sentence(counted, " of ", ", ".join(sections), "; each place was opened") if sections else ["no place"]
    return sentence(by, ": ", what, first, "; said to be absent: " if absent else "", ", ".join(absent), rules)


def _section(study: Study, parts: Parts) -> Section:
    rows: list[list[Line]] = [
        [
            section_title(part.section),
            part.role,
            pointer(place := Place(part.file, part.line), study.as_written(place, part.symbol)),
            _why(part.why),
        ]
        for part in parts.parts
    ]
    rows += [
        [
            "nesting",
            call.dispatch,
            pointer(Place(call.caller_file, call.line)),
            code(escaped(f"{call.caller} -> {call.callee}", kept="")),
        ]
        for call in parts.nesting
    ]
    blocks: list[Block] = [Table(("Section", "Role", "Where", "Why"), rows)] if rows else []
    absent = [section_title(each) for each in parts.absent]
    words: list[Inline] = [*(["Said to be absent: ", ", ".join(absent), ". "] if absent else []), *_left_out(study)]
    return Section(TITLE, [*blocks, *([Paragraph(words)] if words else [])])


def _why(why: str) -> Inline:
    return said(escaped(why, kept=""), LONGEST) if why.strip() else "no reason was given"


def _left_out(study: Study) -> list[Inline]:
    """How much of what rules had found the reader did not name."""
    assert study.named is not None
    kept = {(row.section, row.key) for row in study.rows}
    # Settings are listed whole in the appendices in any case.
    rows = (row for row in study.ruled_rows if row.section != "configuration")
    gone = Counter(row.section for row in rows if (row.section, row.key) not in kept)
    if not gone:
        return []
    counted = joined([sentence(*plural(many, "row"), " of ", section_title(section)) for section, many in gone.items()])
    return ["Found by rules and not named, so left out: ", *counted, "."]
