"""The template as pieces: running text, and references with their lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from lmp.errors import PostFault

BLOCKS = frozenset({"cap", "code", "plot", "table"})
"""References that stand alone on their line."""
INLINE = frozenset({"num", "lmp", "src", "cite", "env"})
KINDS = BLOCKS | INLINE

_START = re.compile(r"\{\{")
_KIND = re.compile(r"\{\{([a-z]+):")


@dataclass(frozen=True)
class Reference:
    """``{{num:ID:EXPR|FORMAT}}``: its kind, what stands behind the kind, and its place."""

    kind: str
    body: str
    line: int

    @property
    def form(self) -> str | None:
        """What stands behind the last ``|``."""
        return self.body.rpartition("|")[2].strip() if "|" in self.body else None

    @property
    def content(self) -> str:
        """The body without its format."""
        return self.body.rpartition("|")[0] if "|" in self.body else self.body

    def __str__(self) -> str:
        return "{{" + f"{self.kind}:{self.body}" + "}}"


@dataclass(frozen=True)
class Text:
    text: str


Piece = Text | Reference


def pieces(text: str, line: int) -> Iterator[Piece]:
    """The pieces of one line. Raises PostFault for a reference that is not one."""
    at = 0
    while start := _START.search(text, at):
        if start.start() > at:
            yield Text(text[at : start.start()])
        kind = _KIND.match(text, start.start())
        if kind is None or kind[1] not in KINDS:
            shown = text[start.start() : start.start() + 30]
            raise PostFault(f"{shown!r} is no reference: kinds are {', '.join(sorted(KINDS))}")
        end = _end(text, kind.end())
        if end is None:
            raise PostFault(f"{text[start.start() : start.start() + 30]!r} is never closed: a reference ends with }}}}")
        yield Reference(kind[1], text[kind.end() : end].strip(), line)
        at = end + 2
    if at < len(text):
        yield Text(text[at:])


def _end(text: str, start: int) -> int | None:
    """Where the two closing braces stand. Braces of names inside are skipped."""
    depth = 0
    for at in range(start, len(text)):
        if text[at] == "{":
            depth += 1
        elif text[at] == "}" and depth:
            depth -= 1
        elif text.startswith("}}", at):
            return at
    return None


# --- lines -----------------------------------------------------------------------------------------------------------


def line_ranges(text: str) -> list[tuple[int, int]]:
    """``1-2,7-9`` as pairs, from 1, both ends included. Raises PostFault for anything else."""
    found: list[tuple[int, int]] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,7})(?:-(\d{1,7}))?\s*", part)
        if match is None:
            raise PostFault(f"{text!r} is no range of lines: write 3-12 or 1-2,7-9")
        first, last = int(match[1]), int(match[2] or match[1])
        if first < 1 or last < first or (found and first <= found[-1][1]):
            raise PostFault(f"{text!r} is no range of lines: lines start at 1 and rise")
        found.append((first, last))
    return found


# --- digits in running text ------------------------------------------------------------------------------------------

_MONTH = r"(?:January|February|March|April|May|June|July|August|September|October|November|December)"
_FREE = (
    r"\]\([^)\s]*\)",  # the target of a link
    r"<https?://[^>\s]*>",
    r"^\s*#+\s+\d+(?:\.\d+)*\.?\s",  # the number of a heading
    r"^\s*\d+[.)]\s",  # the number of a list's item
    r"\b(?:19|20)\d\d-\d\d-\d\d\b",
    rf"\b\d{{1,2}} {_MONTH}(?: (?:19|20)\d\d)?\b",
    rf"\b{_MONTH}(?: \d{{1,2}},)? (?:19|20)\d\d\b",
    r"\b(?:[Ii]n|[Ss]ince|[Uu]ntil|[Bb]efore) (?:19|20)\d\d\b(?![.,]\d)",
)
_FREE_PATTERN = re.compile("|".join(_FREE))


def stray_digits(text: str, words: list[str]) -> list[str]:
    """The words with digits that are in no reference, no date and not among the allowed ones."""
    left = _FREE_PATTERN.sub(" ", text)
    for word in sorted(words, key=len, reverse=True):
        left = re.sub(rf"(?<![\w.]){re.escape(word)}(?![\w]|\.\d)", " ", left)
    return re.findall(r"\S*\d\S*", left)
