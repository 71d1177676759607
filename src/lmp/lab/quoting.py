"""Quotes of a post as markdown: command lines, lines of captures and files, fenced blocks."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from lmp.errors import PostFault
from lmp.lab.template import line_ranges

WHOLE = 40
"""Lines of a capture or a file that are quoted without a range."""

_MARKDOWN = re.compile(r"([\\`*_\[\]<>|#&~$])")


def escaped(text: str) -> str:
    """The text so that markdown shows it as it is, on one line."""
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()))


def command(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """The command line as a reader would type it: placeholders as plain names."""
    variables = [f"{name}={shlex.quote(_plain(value))}" for name, value in env.items()]
    return " ".join([*variables, shlex.join(_plain(word) for word in argv)])


def _plain(word: str) -> str:
    return re.sub(r"\{(python|workloads|post|build|out)\}", r"\1", word)


def quoted(lines: Sequence[str], ranges: str, what: str) -> list[str]:
    """The lines of the ranges, with ``[...]`` where ranges are joined."""
    if not ranges:
        if len(lines) > WHOLE:
            raise PostFault(f"{what} has {len(lines)} lines: give a range, as in :1-{WHOLE}")
        kept = list(lines)
        while kept and not kept[-1].strip():
            kept.pop()
        return kept
    found: list[str] = []
    for first, last in line_ranges(ranges):
        if last > len(lines):
            raise PostFault(f"{what} has {len(lines)} lines, so {first}-{last} is not there")
        found += [*(["[...]"] if found else []), *lines[first - 1 : last]]
    return found


def within(ranges: str, most: int) -> str:
    """The ranges as far as a reader's shorter output has them; its first lines if it has none of them."""
    if not ranges:
        return "" if most <= WHOLE else f"1-{WHOLE}"
    kept = [(first, min(last, most)) for first, last in line_ranges(ranges) if first <= most]
    return ",".join(f"{first}-{last}" for first, last in kept) or f"1-{min(WHOLE, most)}"


def fenced(lines: Sequence[str], language: str) -> str:
    """A fenced block that no line of it can end."""
    longest = max((len(run) for line in lines for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}{language}", *(line.rstrip() for line in lines), fence])
