"""Pointers as they stand in a text: ``path:line``, ``path:line-line``, ``path#L1-L2``, and links with a line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from lmp.report.review.reading import CLOSE, OPEN, Text

_WRITTEN = (
    "py pyi pyx cu cuh cpp cc cxx c h hpp hip mm m metal inl md rst txt toml yaml yml json cfg ini sh bash ipynb js mjs"
    " ts tsx jsx rs go java kt swift proto cmake in j2 jinja html css sql lua rb php pl tcl zig s asm ptx cl glsl lock"
)
SUFFIXES = frozenset(re.findall(r"\w+", _WRITTEN))
PLAIN_NAMES = frozenset({"Makefile", "Dockerfile", "CMakeLists.txt", "Justfile", "LICENSE"})

_LINES = (
    r"(?::(?P<line>\d{1,9})(?:[-–](?P<end>\d{1,9}))?(?!\w|\.\w)"  # :163, :163-165
    r"|#L(?P<line2>\d{1,9})(?:C\d+)?(?:-L?(?P<end2>\d{1,9})(?:C\d+)?)?(?!\w))"  # #L163-L165
)
_SYMBOL_AFTER = rf"(?:{CLOSE})?(?: \({OPEN}(?P<after>[^{OPEN}{CLOSE}]+){CLOSE}\)| \((?P<bare>[A-Za-z_][\w.:]*)\))?"
_IN_CODE = re.compile(rf"{OPEN}(?P<path>[^{OPEN}{CLOSE}:]+){_LINES}{_SYMBOL_AFTER}")
_IN_TEXT = re.compile(rf"(?<![\w/:.@%+~-])(?P<path>(?:[\w.@+~-]+/)*[\w.@+~-]+){_LINES}{_SYMBOL_AFTER}")
_IN_LINK = re.compile(rf"(?P<path>[^:?#]+){_LINES}")
_SYMBOL_BEFORE = re.compile(
    rf"{OPEN}(?:(?:async )?def |class |struct )?(?P<before>[A-Za-z_][\w.:]*)(?:\([^{OPEN}{CLOSE}]*\))?{CLOSE}"
    rf" \({OPEN}?$"
)
LONGEST_SYMBOL = 300
"""Characters before a pointer in which its symbol is looked for."""


@dataclass(frozen=True)
class Cited:
    """A pointer as it stands in a report."""

    path: str
    first: int
    last: int
    symbol: str | None
    line: int
    """Of the report."""
    is_link: bool = False
    """Whether it is the target of a link: relative to the file that it stands in."""
    is_word: bool = False
    """Whether the symbol is not marked as code: it may be any word."""

    @property
    def place(self) -> str:
        return f"{self.path}:{self.first}" + (f"-{self.last}" if self.last != self.first else "")


def cited(text: Text) -> Iterator[Cited]:
    """Every pointer of a report, in its order."""
    for piece in text.pieces:
        yield from _cited_in(piece.text, piece.line, in_fence=False)
        yield from _linked(piece.links, piece.line)
    for fence in text.fences:
        if fence.language != "mermaid":
            for offset, line in enumerate(fence.lines):
                yield from _cited_in(line, fence.line + offset, in_fence=True)


def _cited_in(text: str, line: int, in_fence: bool) -> Iterator[Cited]:
    taken: list[tuple[int, int]] = []
    for found in _IN_CODE.finditer(text):
        if may_be_file(found["path"].strip()):
            taken.append(found.span())
            yield _cited(found, text, line, in_fence)
    passed = 0  # both go from left to right
    for found in _IN_TEXT.finditer(text):
        while passed < len(taken) and taken[passed][1] <= found.start():
            passed += 1
        if passed < len(taken) and taken[passed][0] < found.end():
            continue
        if may_be_file(found["path"]):
            yield _cited(found, text, line, in_fence)


def _linked(targets: tuple[str, ...], line: int) -> Iterator[Cited]:
    for target in targets:
        found = _IN_LINK.fullmatch(unquote(target))
        if found is not None and may_be_file(found["path"]):
            yield Cited(found["path"], *_lines(found), symbol=None, line=line, is_link=True)


def _cited(found: re.Match[str], text: str, line: int, in_fence: bool) -> Cited:
    start = found.start("path")
    before = _SYMBOL_BEFORE.search(text[max(0, start - LONGEST_SYMBOL) : start])
    symbol = found["after"] or found["bare"] or (before["before"] if before else None)
    is_word = found["bare"] is not None and (not in_fence or (found["bare"].islower() and found["bare"].isalpha()))
    return Cited(found["path"].strip(), *_lines(found), symbol=symbol, line=line, is_word=is_word)


def _lines(found: re.Match[str]) -> tuple[int, int]:
    first = int(found["line"] or found["line2"])
    return first, int(found["end"] or found["end2"] or first)


def may_be_file(path: str) -> bool:
    name = path.rpartition("/")[2]
    stem, dot, suffix = name.rpartition(".")
    return name in PLAIN_NAMES or (bool(dot) and bool(stem or suffix) and suffix.lower() in SUFFIXES)
