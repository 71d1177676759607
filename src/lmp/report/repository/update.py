"""Stale pointers of an earlier report: which places moved, and where to, and which are gone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lmp.codebase.facts import Selection
from lmp.codebase.file_kinds import CODE, language
from lmp.codebase.texts import Unreadable, decode, read_bytes
from lmp.codebase.walk import list_files
from lmp.report.repository.state import RepoState
from lmp.report.review.places import Cited, Roots, cited, first_definition, lines_of, stands_near
from lmp.report.review.reading import read_markdown

_DEFINED = re.compile(
    r"^[ \t]*(?:(?:async[ \t]+)?def|class|struct|\#define)[ \t]+(\w+)|__global__[^;{]*?\b(\w+)[ \t]*\(", re.MULTILINE
)


@dataclass(frozen=True)
class Stale:
    """A pointer of the earlier report that does not hold any more."""

    place: str
    symbol: str | None
    now: tuple[str, ...]
    """Where it stands now; several where that cannot be told apart; none where it is gone."""
    why: str

    def __str__(self) -> str:
        named = f"{self.place} ({self.symbol})" if self.symbol else self.place
        if not self.now:
            return f"gone: {named}: {self.why}"
        return f"moved: {named} -> {' or '.join(self.now)}: {self.why}"


def stale(old_text: str, root: Path, state: RepoState | None = None) -> list[Stale]:
    """Each pointer of ``old_text`` once that does not hold in ``root``, in the report's order.

    Without the state of the earlier report only what has a symbol, or is out of its file, can be told to be stale.
    """
    lines_of.cache_clear()
    roots = Roots(folders=(root,))
    symbols = _Symbols(root)
    known = state.lines if state else {}
    found: dict[tuple[str, str | None], Stale] = {}
    for pointer in cited(read_markdown(old_text)):
        key = pointer.place, pointer.symbol
        if key not in found:
            one = _checked(pointer, roots, symbols, known)
            if one is not None:
                found[key] = one
    return list(found.values())


def _checked(pointer: Cited, roots: Roots, symbols: _Symbols, known: Mapping[str, str]) -> Stale | None:
    files = roots.find(pointer.path)
    if not files:
        now = symbols.places(pointer.symbol) if pointer.symbol else ()
        return Stale(pointer.place, pointer.symbol, now, "the file is gone")
    lines = lines_of(files[0])
    if lines is None:
        return Stale(pointer.place, pointer.symbol, (), "the file cannot be read as text")
    inside = pointer.last <= len(lines)
    if pointer.symbol is not None:
        if inside and stands_near(pointer.symbol, lines, pointer.first, pointer.last):
            return None
        here = first_definition(pointer.symbol, lines)
        if here is not None:
            return Stale(pointer.place, pointer.symbol, (f"{pointer.path}:{here}",), "in the same file")
        now = symbols.places(pointer.symbol)
        return Stale(pointer.place, pointer.symbol, now, "in another file" if now else "the name is gone")
    return _line(pointer, lines, known.get(f"{pointer.path}:{pointer.first}"), inside)


def _line(pointer: Cited, lines: tuple[str, ...], text: str | None, inside: bool) -> Stale | None:
    """A pointer without a symbol, by the text that its line had."""
    if inside and (text is None or lines[pointer.first - 1].strip() == text):
        return None
    if text:
        same = [number for number, line in enumerate(lines, 1) if line.strip() == text]
        if same:
            nearest = min(same, key=lambda number: (abs(number - pointer.first), number))
            return Stale(pointer.place, None, (f"{pointer.path}:{nearest}",), "the same line in the same file")
        return Stale(pointer.place, None, (), "the line has changed")
    return Stale(pointer.place, None, (), f"the file has {len(lines)} lines")


class _Symbols:
    """Where each name of the repository is defined; read when the first is asked for."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._places: dict[str, list[str]] | None = None

    def places(self, symbol: str) -> tuple[str, ...]:
        if self._places is None:
            self._places = self._read()
        last = re.split(r"\.|::", symbol)[-1]
        return tuple(self._places.get(last, ()))[:3]

    def _read(self) -> dict[str, list[str]]:
        selection = Selection()
        listed, _ = list_files(self._root, selection)
        found: dict[str, list[str]] = {}
        for each in listed:
            if language(each.file) not in CODE:
                continue
            try:
                text = decode(read_bytes(each.path, selection.largest)).text
            except Unreadable:
                continue
            for name, line in _definitions(text):
                found.setdefault(name, []).append(f"{each.file}:{line}")
        return found


def _definitions(text: str) -> Iterable[tuple[str, int]]:
    line, end = 1, 0
    for found in _DEFINED.finditer(text):
        name = found[1] or found[2]
        at = found.start(1) if found[1] else found.start(2)
        line += text.count("\n", end, at)
        end = at
        yield name, line
