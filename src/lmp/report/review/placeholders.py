"""Nothing of a template is left, and every table has rows or says where was looked."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lmp.records import ReviewFinding
from lmp.report.document.markdown import NONE_FOUND
from lmp.report.review.reading import CLOSE, OPEN, Text, is_element

_IN_PROSE = re.compile(
    r"\{[^{}\n]*\}"  # {repo_name}
    r"|<(?!/|!|https?:|[\w.+-]+@)[A-Za-z][^<>\n]*>"  # <name>
    r"|<\.\.\.>|\[\.\.\.\]"
    r"|\b(?:TODO|TBD|FIXME|XXX)\b"
    r"|\[(?!\w+(?:, ?\w+)+\])(?:[A-Z][^\[\]\n`]*[ /.][^\[\]\n`]*|YYYY-MM-DD)\](?!\()"  # [Answer with code references]
    r"|\[(?:Answer|Author|Brief|Date|Description|Insert|Name|Placeholder|Summary|Title|Version)\](?!\()"
    r"|\[(?:shape|operations|requirements|description|(?:[a-z]+ )+(?:strategy|pattern|arch|dtypes|points))\](?!\()"
)
_MATHS = re.compile(r"(?:\\[A-Za-z]+\*?|[}^_$])\s?$")
"""Before a brace of a formula: \\frac{a}{b}, x_{i}."""

_IN_CODE = re.compile(
    r"\{path(?:_\d)?(?::line)?\}|\{(?:NAMES|keys|flags|feature_goal|git_sha|repo_name)\}|\{[a-z_]+(?: [a-z_]+)+\}"
    r"|\.\.\.|<[a-z_ -]+>|\[[a-z_-]+(?: [a-z_-]+)+\]"
)
"""What a code span may not wholly be; `{seq_len}` is a formula, and may."""

_IN_FENCE = re.compile(r"\{path(?:_\d)?(?::line)?\}|\[(?:ASCII|Diagram|Task|Brief)[^\]]*\]|\bTBD\b")
_NUMBERED = re.compile(r"\d+\.?|\.\.\.|…")
_ROW = re.compile(r"\|[^|]*\|[^|]*\|.*(?<=\|)")
_SAYS_NONE = re.compile(rf"(?<![\w\"“'‘]){NONE_FOUND}\b")
_CHECKBOX = re.compile(r"^\[[ xX]\] ")


def stands_for_something(text: str) -> bool:
    """Whether prose has anything in it that looks like what a template leaves to be filled in."""
    return next(_in_prose(text), None) is not None


def is_placeholder(span: str) -> bool:
    """Whether a whole code span is one."""
    return _IN_CODE.fullmatch(span.strip()) is not None and not is_element(span.strip())


def says_none(text: str) -> bool:
    """Whether prose says that nothing was found."""
    return _SAYS_NONE.search(text) is not None


def check_placeholders(text: Text) -> Iterator[ReviewFinding]:
    for piece in text.pieces:
        found = list(_in_prose(_CHECKBOX.sub("", piece.without_code("`"))))
        found += [span for span in piece.spans if is_placeholder(span)]
        yield from (_left(name, piece.line) for name in found)
    for fence in text.fences:
        for offset, line in enumerate(fence.lines):
            yield from (_left(match[0], fence.line + offset) for match in _IN_FENCE.finditer(line))


def _in_prose(text: str) -> Iterator[str]:
    for found in _IN_PROSE.finditer(text):
        if not (found[0].startswith("{") and _MATHS.search(text[max(0, found.start() - 40) : found.start()])):
            yield found[0]


def check_tables(text: Text, strict: bool = False) -> Iterator[ReviewFinding]:
    """``strict`` is for what lmp wrote: there every row says something. Elsewhere one may be a heading of others."""
    for table in text.tables:
        if not table.rows:
            yield _unfilled(table.line, f'the table has no rows: fill it, or say "{NONE_FOUND} (searched: …)"')
        filled = any(any(cell.strip() for cell in cells[1:]) for _, cells in table.rows)
        for line, cells in table.rows:
            if not any(cell.strip() for cell in cells):
                yield _unfilled(line, "the row is empty")
            elif len(cells) > 1 and not any(cell.strip() for cell in cells[1:]):
                first = cells[0].strip()
                if not first.startswith(NONE_FOUND) and (strict or not filled or _NUMBERED.fullmatch(first)):
                    yield _unfilled(line, f"nothing is said of {first.replace(OPEN, '').replace(CLOSE, '')}")
    for piece in text.pieces:
        if _ROW.fullmatch(piece.text.strip()):
            yield _unfilled(piece.line, "a row outside of any table: a line of dashes is due under the table's head")
        if says_none(piece.prose) and "(searched:" not in piece.text:
            yield _unfilled(piece.line, f'"{NONE_FOUND}" does not say where was looked: (searched: …)')


def _unfilled(line: int, message: str) -> ReviewFinding:
    return ReviewFinding(rule="table", line=line, message=message)


def _left(what: str, line: int) -> ReviewFinding:
    return ReviewFinding(rule="placeholder", line=line, message=f"{what} is left of a template: fill it in")
