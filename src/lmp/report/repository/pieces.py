"""Small pieces of a repository report: code and words of other people that must not become markup, and counts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from lmp.report.document.amounts import Claim, Number, Term
from lmp.report.document.parts import Code, Inline, Line, Pointer
from lmp.report.document.quoting import quoted_code
from lmp.report.review.citing import may_be_file

if TYPE_CHECKING:
    from lmp.codebase.facts import EnvRead, Flag, Place, RepoFacts

WIDTH = 160
"""Characters of a row of a table that can be read without scrolling."""

ASIDE = re.compile(
    r"(?:^|[/_.])(?:tests?|testing|bench\w*|mock\w*|dummy|fake|debug\w*|examples?|profil\w*|eval\w*|simulat\w*|scripts?"
    r"|third_?party|legacy|deprecated|experimental)(?:[/_.]|$)",
    re.IGNORECASE,
)
"""Paths and names of what stands beside the code that runs a model."""
_BEFORE_NUMBER = re.compile(r"([\w.@+~/-]+):(?=\d)")
_LOOKS_LIKE_PLACE = re.compile(r"(\.\w+|\w):(?=\d)")
_PLACEHOLDER = re.compile(r"[\[<{][A-Za-z_ :-]+[\]>}]|TODO|TBD|\.\.\.")
_NOT_PLAIN = re.compile(r"[{}<>\[\]|\\$~]|https?:")
_SPAN = re.compile(r"(?::[\w:]+:)?(`+)(?P<inner>[^`]+)\1_{0,2}(?!`)")
_EMPHASIS = re.compile(
    r"(?<![\w*])(\*{1,3})(?=[^\s*])([^*]*[^\s*])\1(?![\w*])|(?<!\w)(?!__\w+__(?!\w))(_{1,3})(?=[^\s_])([^_]*[^\s_])\3(?!\w)"
)
_MEASURE = re.compile(r"\d\s?(?:%|[kMGT]?B\b|m?s\b|[kMGT]?FLOP|params)|\b(?:TODO|TBD|FIXME|XXX)\b")

OF_SYSTEM = frozenset(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "TMPDIR", "TMP", "TEMP", "LD_LIBRARY_PATH", "CI", "TERM"),
        *("COLUMNS", "DISPLAY", "LANG", "EDITOR", "APPDATA", "LOCALAPPDATA", "USERPROFILE", "USERNAME", "ComSpec"),
        *("SystemRoot", "SYSTEMROOT", "WINDIR", "PROGRAMFILES", "ProgramFiles", "ProgramFiles(x86)", "ProgramW6432"),
        "ProgramData",
    )
)
"""Environment variables that an operating system sets for every program: no settings of a code base."""


def code(text: str, width: int = 90) -> Code:
    """An excerpt of code, cut to ``width``. What would be read as a pointer or a placeholder of ours is kept
    apart; ``80:80`` and ``cuda:0`` are no files."""
    text = _BEFORE_NUMBER.sub(lambda at: f"{at[0]} " if may_be_file(at[1]) else at[0], cut(text, width))
    return Code(f"= {text}" if _PLACEHOLDER.fullmatch(text) else text)


def cut(text: str, width: int) -> str:
    """On one line, of at most ``width`` characters."""
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"


def unmarked(text: str) -> str:
    """Markdown's or reStructuredText's words without the signs of code and emphasis; within code nothing is taken."""
    found, at = "", 0
    for span in _SPAN.finditer(text):
        found += _plain(text[at : span.start()]) + span["inner"].strip()
        at = span.end()
    return found + _plain(text[at:])


def _plain(text: str) -> str:
    return _EMPHASIS.sub(lambda match: match[2] or match[4], text)


def folder_name(name: str) -> Code:
    """The name of the repository's folder; what would be read as left of a template shows that it is a folder."""
    return Code(f"{name}/") if _PLACEHOLDER.fullmatch(name) else quoted_code(name)


def is_plain(name: str) -> bool:
    """Whether a name can stand among words: it is no measure, no mark of what is left to do, and no markup."""
    return re.fullmatch(r"[\w.+@-]+", name, re.ASCII) is not None and not _MEASURE.search(name)


def said(text: str, width: int = 110) -> Inline:
    """Words from a docstring or a README: as text where nothing in them means anything here, else as code."""
    text = cut(unmarked(text), width).rstrip(".")
    if _NOT_PLAIN.search(text) or _MEASURE.search(text) or _LOOKS_LIKE_PLACE.search(text):
        return code(text, width)
    return text


def with_default(name: str, setting: Flag | EnvRead) -> str:
    """``--temp=0.0``; without a default the name alone."""
    if setting.default is None:
        return name
    return f"{name}={setting.value or setting.default}"


def pointer(place: Place, symbol: str | None = None) -> Pointer:
    """``symbol`` of a dotted name is its last part. The name of the file itself does not stand in it, and an expression
    that a name is put together by is no symbol."""
    # ``__main__.py`` may start a program without saying so.
    is_file = symbol == "__main__" and place.file.endswith("__main__.py")
    if symbol is None or is_file or place.file.endswith(symbol) or not is_symbol(symbol):
        return Pointer(place.file, place.line)
    return Pointer(place.file, place.line, symbol=symbol.rpartition(".")[2] or None)


def is_symbol(name: str) -> bool:
    """Whether a name stands as such in the code: ``f"gemm_{bits}"`` does not."""
    return '"' not in name and "'" not in name


def count(facts: RepoFacts, name: str) -> Number:
    """One of the counts of the whole repository."""
    return Number(facts.counts.get(name, 0), "", Claim(expression="{n}", terms={"n": Term(name=name)}))


def counted(facts: RepoFacts, name: str, one: str, many: str = "") -> list[Inline]:
    """``3 flags``, of the whole repository."""
    return [count(facts, name), f" {one if facts.counts.get(name, 0) == 1 else many or one + 's'}"]


def tally(value: int) -> Number:
    """A count of a part of the repository: it stands in no list of totals."""
    return Number(value)


def joined(items: Iterable[Inline | Sequence[Inline]], between: str = ", ") -> list[Inline]:
    """Pieces in a row with something between them."""
    found: list[Inline] = []
    for item in items:
        if found:
            found.append(between)
        found += [item] if not isinstance(item, (list, tuple)) else list(item)  # type: ignore[list-item]
    return found


def sentence(*parts: Line) -> list[Inline]:
    """Pieces and runs of pieces as one line."""
    found: list[Inline] = []
    for part in parts:
        found += part if isinstance(part, (list, tuple)) else [part]  # type: ignore[list-item]
    return found


def plural(number: int, one: str, many: str = "") -> list[Inline]:
    """``3 files``."""
    return [tally(number), f" {one if number == 1 else many or one + 's'}"]


def section_title(section: str) -> str:
    """Of rows, as it stands in a sentence: ``kv_cache`` is the KV cache."""
    return {"kv_cache": "KV cache", "entry_points": "entry points"}.get(section, section)
