"""Every part of a run and every call that carries it, as they were found: what the deep dive draws from."""

from __future__ import annotations

from lmp.codebase.facts import Place
from lmp.codebase.graph.records import Function
from lmp.codebase.roles.likely import is_candidate
from lmp.codebase.rows import BY_NAME, PLAYED
from lmp.report.document.parts import Inline, Line, Paragraph, Section, Table
from lmp.report.repository.appendix import CALLS, PARTS
from lmp.report.repository.matters import lines_within
from lmp.report.repository.modules import PARTS as TITLES
from lmp.report.repository.pieces import code, pointer
from lmp.report.repository.study import Study


def of_run(study: Study) -> list[Section]:
    """Left out where there are none: the deep dive says what was searched."""
    return [*_parts(study), *_calls(study)]


def _parts(study: Study) -> list[Section]:
    rows: list[list[Line]] = [
        [
            TITLES[section],
            f"{row.role}, candidate" if is_candidate(row) else row.role,
            study.pointer(row.place, row.symbol),
            code(row.why, 90) if row.why and not BY_NAME.match(row.why) else "names and other signs",
            lines_within(study, row) or "the definition",
        ]
        for section in PLAYED
        for row in study.ranked(section)
    ]
    words = (
        "Best first in each part. Of rows as unlikely as a candidate, fewer than half were right on other code bases."
        " The last column has the lines of a function that make it play its part."
    )
    table = Table(("Part", "Role", "Where", "Found by", "Lines"), rows)
    return [Section(PARTS, [Paragraph(words), table])] if rows else []


def _calls(study: Study) -> list[Section]:
    rows: list[list[Line]] = [
        [_pointer(edge.caller), _pointer(edge.callee), pointer(Place(edge.caller.file, edge.line)), edge.how]
        for edge in study.edges
    ]
    words = "From the ways to run it down, in the order of the lines. The last column says how the call was resolved."
    table = Table(("Caller", "Callee", "Call", "Resolved"), rows)
    return [Section(CALLS, [Paragraph(words), table])] if rows else []


def _pointer(function: Function) -> Inline:
    return pointer(Place(function.file, function.line), function.qualname)
