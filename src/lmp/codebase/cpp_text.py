"""C++ and CUDA as text of which comments, strings and preprocessor lines are blanked, every character at its place."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

BLANKED = re.compile(
    r"""//(?:[^\n\\]|\\.|\\\n)* | /\*.*?(?:\*/|\Z) | R"(?P<mark>[^\s()\\]{0,16})\(.*?\)(?P=mark)" |
    "(?:[^"\\\n]|\\.|\\\n)*" | (?<![\w])'(?:[^'\\\n]|\\.){1,8}'""",
    re.VERBOSE | re.DOTALL,
)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.MULTILINE)
OPENED = re.compile(
    r"\b((?:\w+::)*[A-Za-z_]\w*)\s*(?:<[\w\s,:*&]{0,200}>\s*)?\([^;{}]{0,2000}\)\s*(?:const\s*|noexcept\s*|override\s*)*\{",
)
KEYWORDS = ("if", "for", "while", "switch", "catch", "constexpr")
OPENING = {"(": ")", "{": "}", "[": "]"}


@dataclass(frozen=True)
class Body:
    """What stands between the braces of a function."""

    name: str
    start: int
    end: int


@dataclass
class Code:
    """``text`` as it stands; ``code`` without comments and the insides of strings; ``bare`` also without directives."""

    text: str

    @cached_property
    def code(self) -> str:
        return BLANKED.sub(lambda match: _blank(match[0]), self.text)

    @cached_property
    def bare(self) -> str:
        return DIRECTIVE.sub(lambda match: _blank(match[0]), self.code)

    @cached_property
    def starts(self) -> list[int]:
        """Where each line begins."""
        return [0, *(match.end() for match in re.finditer("\n", self.text))]

    @cached_property
    def bodies(self) -> list[Body]:
        """Of what looks like a function, with parameters and a brace, to where that is closed; outer ones first."""
        named = {match.end() - 1: match[1] for match in OPENED.finditer(self.bare) if match[1] not in KEYWORDS}
        found: list[Body] = []
        opened: list[int] = []
        for match in re.finditer(r"[{}]", self.bare):
            if match[0] == "{":
                opened.append(match.start())
            elif opened and (start := opened.pop()) in named:
                found.append(Body(named[start], start, match.start()))
        return sorted(found, key=lambda body: body.start)

    def around(self, at: int) -> str:
        """The innermost function around a place; empty where there is none."""
        return next((body.name for body in reversed(self.bodies) if body.start < at < body.end), "")

    def line(self, at: int) -> int:
        return bisect_right(self.starts, at)

    def closing(self, at: int, limit: int = 200_000) -> int:
        """Where the bracket that opens at ``at`` is closed; -1 where it is not."""
        opening, closing = self.bare[at], OPENING[self.bare[at]]
        depth = 0
        for match in re.compile(re.escape(opening) + "|" + re.escape(closing)).finditer(self.bare, at, at + limit):
            depth += 1 if match[0] == opening else -1
            if not depth:
                return match.start()
        return -1

    def arguments(self, start: int, end: int) -> list[str]:
        """What stands between two positions, cut at its outermost commas, on one line each."""
        parts: list[str] = []
        depth = last = 0
        for at, letter in enumerate(self.bare[start:end]):
            if letter in "([{<":
                depth += 1
            elif letter in ")]}>":
                depth -= 1
            elif letter == "," and depth <= 0:
                parts.append(self.text[start + last : start + at])
                last = at + 1
        parts.append(self.text[start + last : end])
        return [without_comments(part) for part in parts]


def without_comments(text: str) -> str:
    """On one line."""
    return " ".join(re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL).split())


def _blank(text: str) -> str:
    """Spaces, but for line ends and the quotes around a string."""
    quoted = len(text) > 1 and text[0] in "\"'" and text[-1] == text[0]
    inner = re.sub(r"[^\n]", " ", text[1:-1] if quoted else text)
    return f"{text[0]}{inner}{text[0]}" if quoted else inner
