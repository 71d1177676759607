"""Patterns of files that an agent may use: a small language, in which no pattern can leave its folder.

    *.py   **/modeling_*.py   src/{a,b}/*.py   !test_*   layer[0-9].py

What matches files (ripgrep, a shell, Python) differs in what it makes of a pattern. So what is allowed is what all of
them read alike: names, `*`, `**`, `?`, braces, and classes of letters and digits. All else is refused: extended globs,
escapes, spaces (the CLI takes them for separators), variables, `~`, `..`, and absolute parts, also within braces.
"""

from __future__ import annotations

import fnmatch
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

MOST = 64
"""Alternatives of one pattern, with its braces multiplied out."""
LONGEST = 400
"""Characters of one pattern."""

Parts = tuple[str, ...]
"""The components of one alternative."""

_PLAIN = re.compile(r"[\w.*?/{},\[\]+=@#%-]+")
_CLASS = re.compile(r"\[(?:[^\W_]-[^\W_]|[\w])+\]")
"""A class of letters, digits and underscores, with ranges of letters or digits."""
_RANGE = re.compile(r"([^\W_])-([^\W_])")
_HIDDEN = re.compile(r"\.[.?*]+")
"""A component that some matchers take for `..`."""


class OddPattern(ValueError):
    """A pattern that is not of the language; why."""


def alternatives(pattern: str) -> list[Parts]:
    """The alternatives of a pattern, each as its components. Raises OddPattern."""
    text = pattern.removeprefix("!")
    if not text or len(text) > LONGEST:
        raise OddPattern(f"it has {len(text)} characters, of at most {LONGEST}" if text else "it is empty")
    odd = next((character for character in text if not _PLAIN.fullmatch(character)), None)
    if odd is not None:
        raise OddPattern(f"it may not hold {odd!r}")
    plain = _without_classes(text)
    if "[" in plain or "]" in plain:
        raise OddPattern("a class holds letters, digits and ranges of them, as [0-9]")
    if plain.startswith(("#", "-", "=")):  # some matchers take it for a comment or an option
        raise OddPattern(f"it may not begin with {plain[0]!r}")
    return [_components(alternative) for alternative in _multiplied_out(text)]


def _without_classes(text: str) -> str:
    """The text without its classes, each of which matches one letter or digit."""

    def removed(match: re.Match[str]) -> str:
        for first, last in _RANGE.findall(match[0]):
            # A range of other characters, as from 9 to A, holds some that are neither.
            if first > last or not all(chr(code).isalnum() for code in range(ord(first), ord(last) + 1)):
                raise OddPattern(f"the range {first}-{last} holds more than letters and digits")
        return "x"

    return _CLASS.sub(removed, text)


def _multiplied_out(text: str) -> list[str]:
    """The text once for each way to choose from its braces. Raises OddPattern."""
    found = list(_first_brace(text, 0))
    if len(found) > MOST:
        raise OddPattern(f"its braces have more than {MOST} alternatives")
    return found


def _first_brace(text: str, depth: int) -> Iterator[str]:
    if depth > MOST:
        raise OddPattern(f"its braces have more than {MOST} alternatives")
    start = text.find("{")
    if start < 0:
        if "}" in text:
            raise OddPattern("its braces do not close")
        if "," in text:  # the CLI takes it for a separator
            raise OddPattern("a comma stands in braces only")
        yield text
        return
    end, commas = _closing(text, start)
    if "}" in text[:start] or "," in text[:start]:
        raise OddPattern("a comma stands in braces only" if "," in text[:start] else "its braces do not close")
    edges = [start, *commas, end]
    count = 0
    for left, right in itertools.pairwise(edges):
        for whole in _first_brace(text[:start] + text[left + 1 : right] + text[end + 1 :], depth + 1):
            count += 1
            if count > MOST:
                raise OddPattern(f"its braces have more than {MOST} alternatives")
            yield whole


def _closing(text: str, start: int) -> tuple[int, list[int]]:
    """Place of the brace that closes the one at ``start``, and the commas between its alternatives."""
    depth, commas = 0, []
    for at in range(start, len(text)):
        if text[at] == "{":
            depth += 1
        elif text[at] == "}":
            depth -= 1
            if not depth:
                break
        elif text[at] == "," and depth == 1:
            commas.append(at)
    else:
        raise OddPattern("its braces do not close")
    if ".." in text[start:at]:  # a range in a shell
        raise OddPattern("`..` may not stand in braces")
    return at, commas


def _components(alternative: str) -> Parts:
    parts = tuple(alternative.split("/"))
    if not parts[0]:
        raise OddPattern("no leading `/`" if len(parts) > 1 else "an alternative is empty")
    for part in parts:
        if _HIDDEN.fullmatch(part):
            raise OddPattern(f"{part!r} can mean the folder above: no `..`")
    return parts


# --- links -----------------------------------------------------------------------------------------------------------


def could_lead_through(parts: Parts, folder: Path) -> Iterator[Path]:
    """The links below ``folder`` that a matcher may follow for these components.

    No matcher that is used here follows a link that it meets under `**`. One that stands in the pattern by name, or
    that a component before the first `**` matches, it may. The caller stops at the first one that leads outside.
    """
    yield from _links(parts, folder)


def _links(parts: Sequence[str], folder: Path) -> Iterator[Path]:
    if not parts or parts[0] == "**":
        return
    first, rest = parts[0], parts[1:]
    if first in ("", "."):
        yield from _links(rest, folder)
        return
    if not _is_wild(first):
        place = folder / first
        if _is_link(place):
            yield place
        yield from _links(rest, place)
        return
    try:
        with os.scandir(folder) as entries:
            found = [entry for entry in entries if fnmatch.fnmatchcase(entry.name, first)]
    except (OSError, ValueError):
        return
    for entry in found:
        if rest and entry.is_symlink():
            yield Path(entry.path)
        if rest and entry.is_dir():
            yield from _links(rest, Path(entry.path))


def _is_wild(part: str) -> bool:
    return any(character in part for character in "*?[")


def _is_link(place: Path) -> bool:
    try:
        return place.is_symlink()
    except (OSError, ValueError):
        return False
