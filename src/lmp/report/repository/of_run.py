"""Every part of a run, every call that carries it and every setting in code, as they were found: what the deep dive
draws from."""

from __future__ import annotations

from lmp.codebase.facts import Place
from lmp.codebase.graph.records import Function
from lmp.codebase.roles.likely import is_candidate
from lmp.codebase.rows import BY_NAME, PLAYED
from lmp.report.document.parts import Inline, Line, Paragraph, Section, Table
from lmp.report.repository.appendix import CALLS, MOST_SETTINGS, PARTS, SETTINGS
from lmp.report.repository.configured import setting_value
from lmp.report.repository.matters import lines_within
from lmp.report.repository.modules import PARTS as TITLES
from lmp.report.repository.pieces import code, plural, pointer
from lmp.report.repository.study import Study


def of_run(study: Study) -> list[Section]:
    """Left out where there are none: the deep dive says what was searched."""
    return [*_parts(study), *_calls(study), *_settings(study)]


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


def _settings(study: Study) -> list[Section]:
    found = study.settings_in_code
    rows: list[list[Line]] = [
        [code(row.symbol, 60), row.role, code(value, 60) if value else "none", study.pointer(row.place, row.symbol)]
        for row in found[:MOST_SETTINGS]
        for value in [setting_value(study, row)]
    ]
    words: list[Inline] = ["By class and function, with the default that stands there."]
    if len(found) > MOST_SETTINGS:
        words += [" Not listed: ", *plural(len(found) - MOST_SETTINGS, "more setting"), "."]
    table = Table(("Setting", "Kind", "Default", "Where"), rows)
    return [Section(SETTINGS, [Paragraph(words), table])] if rows else []


def _pointer(function: Function) -> Inline:
    return pointer(Place(function.file, function.line), function.qualname)
