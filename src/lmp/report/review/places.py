"""Pointers: every ``path:line`` opens, and the symbol beside it stands within three lines."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from lmp.records import ReviewFinding
from lmp.report.review.citing import Cited, cited
from lmp.report.review.reading import Text

__all__ = ["NEAR", "Cited", "Roots", "check_pointers", "cited", "first_definition", "lines_of", "stands_near"]

NEAR = 3
"""Lines between a pointer and its symbol."""

LARGEST = 20_000_000
"""Bytes of a file that is opened for a pointer."""

MOST_FILES = 200_000
SKIPPED = frozenset({".git", ".venv", "node_modules", "__pycache__"})

_WORD = re.compile(r"[A-Za-z_]\w*")
_DEFINES = re.compile(r"\s*(?:(?:async\s+def|def|class|struct)\b|#define\b|__global__\b)")


@dataclass(frozen=True)
class Roots:
    """Where pointers are looked for. Nothing outside of these folders is opened."""

    labelled: Mapping[str, Path] = field(default_factory=dict)
    """Beginning of a path, one part or several -> the folder that the rest is relative to."""
    folders: tuple[Path, ...] = ()
    """Folders that whole paths are relative to."""
    beside: Path | None = None
    """The folder of the file that is reviewed: its links are relative to it, and places may be."""
    absent: tuple[str, ...] = ()
    """Beginnings of paths into sources that are neither vendored nor installed: these cannot be opened."""

    def is_absent(self, path: str) -> bool:
        """True for a path into sources that are not here."""
        return any(PurePosixPath(path).is_relative_to(label) for label in self.absent) and not self.find(path)

    def find(self, path: str) -> list[Path]:
        """The files that a path names: none, one, or several that end alike."""
        pure = PurePosixPath(path)
        if leads_out(path):
            return []
        exact = [root / rest for root, rest in self._places(pure) if _is_inside(root, root / rest)]
        return exact[:1] or self._ending(pure)

    def find_linked(self, path: str) -> list[Path]:
        """The file that a link leads to, from the folder of the file that it stands in."""
        if self.beside is None:
            return self.find(path)
        file = Path(os.path.normpath(self.beside / path))
        allowed = (self.beside, *self.folders, *self.labelled.values())
        return [file] if any(_is_inside(root, file) for root in allowed) else []

    def _places(self, pure: PurePosixPath) -> Iterator[tuple[Path, PurePosixPath]]:
        for label, folder in self.labelled.items():
            if pure.is_relative_to(label) and str(pure) != label:
                yield folder, pure.relative_to(label)
        yield from ((folder, pure) for folder in self.folders)
        if self.beside is not None:
            yield self.beside, pure

    def _ending(self, pure: PurePosixPath) -> list[Path]:
        """Files of the folders whose path ends so: reports often name a file without its folders."""
        found: dict[Path, Path] = {}
        for folder in self.folders:
            named = _files_named(folder).get(pure.name, ())
            alike = (folder / file for file in named if PurePosixPath(file).parts[-len(pure.parts) :] == pure.parts)
            # A folder may lie in another one of them.
            found |= {file.resolve(): file for file in alike if _is_inside(folder, file)}
        return list(found.values())


def leads_out(path: str) -> bool:
    """Whether a path leads out of any folder that it is relative to."""
    pure = PurePosixPath(path)
    return pure.is_absolute() or ".." in pure.parts


@functools.lru_cache(maxsize=8)
def _files_named(folder: Path) -> dict[str, list[str]]:
    """Name -> files of this name below the folder, without links."""
    found: dict[str, list[str]] = {}
    count = 0
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in SKIPPED)
        for name in files:
            count += 1
            if count > MOST_FILES:
                return found
            found.setdefault(name, []).append((Path(place) / name).relative_to(folder).as_posix())
    return found


def _is_inside(root: Path, file: Path) -> bool:
    try:
        return file.is_file() and file.resolve().is_relative_to(root.resolve())
    except (OSError, ValueError):
        return False


# --- opening them ----------------------------------------------------------------------------------------------------


def check_pointer(pointer: Cited, roots: Roots) -> str | None:
    """What is wrong with a pointer, or None."""
    files = roots.find_linked(pointer.path) if pointer.is_link else roots.find(pointer.path)
    if not files and leads_out(pointer.path):
        return f"{pointer.place} leads out of the folders that are looked in: name it relative to one of them"
    if not files:
        return f"{pointer.place}: there is no such file"
    if len(files) > 1:
        return f"{pointer.place}: {len(files)} files are called so: name its folder"
    lines = lines_of(files[0])
    if lines is None:
        return f"{pointer.place}: the file cannot be read as text"
    if pointer.last < pointer.first:
        return f"{pointer.place}: the lines are the wrong way round"
    if not 1 <= pointer.first <= pointer.last <= len(lines):
        return f"{pointer.place}: the file has {len(lines)} lines"
    if pointer.symbol is None or stands_near(pointer.symbol, lines, pointer.first, pointer.last):
        return None
    elsewhere, is_definition = _defined("\n".join(lines), pointer.symbol)
    if pointer.is_word and not is_definition:
        return None  # "(below)", after a place
    where = f"it stands at line {elsewhere}" if elsewhere else "nor anywhere else in the file"
    return f"{pointer.place}: {pointer.symbol} does not stand within {NEAR} lines; {where}"


@functools.lru_cache(maxsize=256)
def lines_of(file: Path) -> tuple[str, ...] | None:
    """A file's lines as Python counts them; None where it is no text, or too large."""
    try:
        if file.stat().st_size > LARGEST:
            return None
        data = file.read_bytes()
    except OSError:
        return None
    if b"\x00" in data[:8000]:
        return None
    text = data.decode("utf-8", errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    return tuple(text.removesuffix("\n").split("\n"))


def stands_near(symbol: str, lines: Sequence[str], first: int, last: int) -> bool:
    """Whether the symbol's last part stands from three lines before ``first`` to three after ``last``."""
    near = "\n".join(lines[max(0, first - 1 - NEAR) : last + NEAR])
    return next(_places_of(symbol, near), None) is not None


def first_definition(symbol: str, lines: tuple[str, ...]) -> int | None:
    """The line that defines the symbol, or the first that has it."""
    return _defined("\n".join(lines), symbol)[0]


def _defined(text: str, symbol: str) -> tuple[int | None, bool]:
    """The line that defines a symbol, or else the first that has it; and whether it is a definition."""
    first = None
    for place in _places_of(symbol, text):
        if first is None:
            first = place
        if _DEFINES.match(text, text.rfind("\n", 0, place) + 1, place):
            return text.count("\n", 0, place) + 1, True
    return (None if first is None else text.count("\n", 0, first) + 1), False


def _places_of(symbol: str, text: str) -> Iterator[int]:
    """Where the last part of a dotted name stands as a word; anything else as it is."""
    bare = symbol.removesuffix("()")
    last = re.split(r"\.|::", bare)[-1]
    is_word = _WORD.fullmatch(last) is not None
    wanted = last if is_word else bare
    place = text.find(wanted)
    while place >= 0:
        after = text[place + len(wanted) : place + len(wanted) + 1]
        if not is_word or not (_is_of_word(text[max(0, place - 1) : place]) or _is_of_word(after)):
            yield place
        place = text.find(wanted, place + 1)


def _is_of_word(sign: str) -> bool:
    return sign == "_" or sign.isalnum()


def check_pointers(text: Text, roots: Roots) -> tuple[int, list[ReviewFinding]]:
    """How many can be opened here, and what is wrong."""
    known: dict[tuple[object, ...], str | None] = {}
    count, findings = 0, []
    for pointer in cited(text):
        if roots.is_absent(pointer.path):
            continue
        count += 1
        key = (pointer.path, pointer.first, pointer.last, pointer.symbol, pointer.is_link, pointer.is_word)
        if key not in known:
            known[key] = check_pointer(pointer, roots)
        why = known[key]
        if why is not None:
            findings.append(ReviewFinding(rule="pointer", line=pointer.line, message=why))
    return count, findings
