"""Quoted code: a line of pseudocode that has a place is the source's line there.

Two forms are held against the source: a comment with a place above a statement, as reports on models have it, and a
statement with a place at the end of its line, as reports on code bases have it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path

from lmp.records import ReviewFinding
from lmp.report.review.citing import may_be_file
from lmp.report.review.places import Roots, lines_of
from lmp.report.review.reading import FencePiece, Text

_PLACE = r"(?P<path>[\w./@+-]+):(?P<line>\d{1,9})(?:-\d{1,9})?(?: \([\w.]+\))?"
_ABOVE = re.compile(rf"\s*# \d+\. {_PLACE}\s*")
_BEHIND = re.compile(rf"(?P<code>.*?\S)\s{{2,}}# {_PLACE}\s*")
_ELSE = re.compile(r"\s*(?:else|elif|try|finally)\b.*:\s*|\s*\(.*\)\s*|.*\w:\s*|\s*#.*")
"""What pseudocode has of its own: the other arm of a ternary, remarks, the name of a function."""
AFTER, BEFORE = 40, 8
"""Lines of the source that a statement may take, after and before its place."""
_TOO_SHORT = 4


def check_quoted(text: Text, roots: Roots) -> Iterator[ReviewFinding]:
    for fence in text.fences:
        if fence.language == "python":
            yield from _above(fence, roots)
            yield from _behind(fence, roots)


def _above(fence: FencePiece, roots: Roots) -> Iterator[ReviewFinding]:
    for at, line in enumerate(fence.lines):
        place = _ABOVE.fullmatch(line)
        if place is None:
            continue
        statement: list[str] = []
        for one in fence.lines[at + 1 :]:
            if one.lstrip().startswith("#") or not one.strip():
                break
            statement.append(one.strip())
        yield from _held(" ".join(statement), place, fence.line + at + 1, roots)


def _behind(fence: FencePiece, roots: Roots) -> Iterator[ReviewFinding]:
    for at, line in enumerate(fence.lines):
        place = _BEHIND.fullmatch(line)
        if place is not None and not _ELSE.fullmatch(_COMMENT.sub("", place["code"])):
            yield from _held(place["code"].strip(), place, fence.line + at, roots)


def _held(statement: str, place: re.Match[str], line: int, roots: Roots) -> Iterator[ReviewFinding]:
    wanted = _bare(_COMMENT.sub("", statement)).rstrip(",")
    if len(wanted) < _TOO_SHORT or "…" in statement or not may_be_file(place["path"]):
        return
    files = roots.find(place["path"])
    if len(files) != 1:
        return  # said of the place already
    if wanted not in _source(files[0], int(place["line"])):
        message = f"{place['path']}:{place['line']} has another line than the one that is quoted: {statement[:80]}"
        yield ReviewFinding(rule="code", line=line, message=message)


@functools.lru_cache(maxsize=4096)
def _source(file: Path, line: int) -> str:
    lines = lines_of(file) or ()
    return _bare("\n".join(_COMMENT.sub("", one) for one in lines[max(0, line - 1 - BEFORE) : line + AFTER]))


_COMMENT = re.compile(r"\s+#.*$")


def _bare(code: str) -> str:
    """Code as it is compared: without blanks, and without what another way to write it changes."""
    # First the comma before a closing bracket, as long as the bracket is there.
    return re.sub(r"\s+|[()\\]", "", re.sub(r",(?=\s*[)\]}])", "", code.replace('"', "'")))
