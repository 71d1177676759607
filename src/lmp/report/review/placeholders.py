"""Nothing of a template is left, and every table has rows or says where was looked."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lmp.records import ReviewFinding
from lmp.report.document.markdown import NONE_FOUND
from lmp.report.review.reading import Text

_IN_PROSE = re.compile(
    r"\{[^{}\n]*\}"  # {repo_name}
    r"|<(?!(?:br|hr)\b|/|!|https?:|[\w.+-]+@)[A-Za-z][^<>\n]*>"  # <name>
    r"|<\.\.\.>|\[\.\.\.\]"
    r"|\b(?:TODO|TBD|FIXME|XXX)\b"
    r"|\[(?:[A-Z][^\[\]\n]*|YYYY-MM-DD)\](?!\()"  # [Answer with code references]
)
_IN_CODE = re.compile(
    r"\{path(?:_\d)?(?::line)?\}|\{(?:NAMES|keys|flags|feature_goal|git_sha|repo_name)\}|\{[a-z_]+(?: [a-z_]+)+\}"
    r"|TODO|TBD|\.\.\.|<[a-z_ -]+>|\[[a-z_ -]+\]"
)
"""What a code span may not wholly be; `{seq_len}` is a formula, and may."""

_IN_FENCE = re.compile(r"\{path(?:_\d)?(?::line)?\}|\[(?:ASCII|Diagram|Task|Brief)[^\]]*\]|\bTBD\b")
_CHECKBOX = re.compile(r"^\[[ xX]\] ")


def check_placeholders(text: Text) -> Iterator[ReviewFinding]:
    for piece in text.pieces:
        found = [match[0] for match in _IN_PROSE.finditer(_CHECKBOX.sub("", piece.prose))]
        found += [span for span in piece.spans if _IN_CODE.fullmatch(span.strip())]
        yield from (_left(name, piece.line) for name in found)
    for fence in text.fences:
        for offset, line in enumerate(fence.lines):
            yield from (_left(match[0], fence.line + offset) for match in _IN_FENCE.finditer(line))


def check_tables(text: Text) -> Iterator[ReviewFinding]:
    for table in text.tables:
        if not table.rows:
            yield ReviewFinding(
                rule="table",
                line=table.line,
                message=f'the table has no rows: fill it, or say "{NONE_FOUND} (searched: …)"',
            )
        for line, cells in table.rows:
            if not any(cell.strip() for cell in cells):
                yield ReviewFinding(rule="table", line=line, message="the row is empty")
            elif len(cells) > 1 and not any(c.strip() for c in cells[1:]) and not cells[0].startswith(NONE_FOUND):
                yield ReviewFinding(rule="table", line=line, message=f"nothing is said of {cells[0].strip()}")
    for piece in text.pieces:
        if NONE_FOUND in piece.text and "(searched:" not in piece.text:
            yield ReviewFinding(
                rule="table", line=piece.line, message=f'"{NONE_FOUND}" does not say where was looked: (searched: …)'
            )


def _left(what: str, line: int) -> ReviewFinding:
    return ReviewFinding(rule="placeholder", line=line, message=f"{what} is left of a template: fill it in")
