"""Pointers: every ``path:line`` opens, and the symbol beside it stands within three lines."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from lmp.records import ReviewFinding
from lmp.report.review.reading import CLOSE, OPEN, Text

NEAR = 3
"""Lines between a pointer and its symbol."""

LARGEST = 20_000_000
"""Bytes of a file that is opened for a pointer."""

MOST_FILES = 200_000
_WRITTEN = (
    "py pyi pyx cu cuh cpp cc cxx c h hpp hip mm m metal inl md rst txt toml yaml yml json cfg ini sh bash ipynb js mjs"
    " ts tsx jsx rs go java kt swift proto cmake in j2 jinja html css sql lua rb php pl tcl zig s asm ptx cl glsl lock"
)
SUFFIXES = frozenset(re.findall(r"\w+", _WRITTEN))
PLAIN_NAMES = frozenset({"Makefile", "Dockerfile", "CMakeLists.txt", "Justfile", "LICENSE"})
SKIPPED = frozenset({".git", ".venv", "node_modules", "__pycache__"})

_LINES = (
    r"(?::(?P<line>\d{1,9})(?:-(?P<end>\d{1,9}))?(?![\w.])"  # :163, :163-165
    r"|#L(?P<line2>\d{1,9})(?:-L?(?P<end2>\d{1,9}))?(?!\w))"  # #L163-L165
)
_SYMBOL_AFTER = rf"(?:{CLOSE})?(?: \({OPEN}(?P<after>[^{OPEN}{CLOSE}]+){CLOSE}\)| \((?P<bare>[A-Za-z_][\w.:]*)\))?"
_IN_CODE = re.compile(rf"{OPEN}(?P<path>[^{OPEN}{CLOSE}:]+){_LINES}{_SYMBOL_AFTER}")
_IN_TEXT = re.compile(rf"(?<![\w/:.@%-])(?P<path>(?:[\w.@+~-]+/)*[\w.@+~-]+){_LINES}{_SYMBOL_AFTER}")
_SYMBOL_BEFORE = re.compile(rf"{OPEN}(?P<before>[A-Za-z_][\w.:]*(?:\(\))?){CLOSE} \({OPEN}?$")
_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Cited:
    """A pointer as it stands in a report."""

    path: str
    first: int
    last: int
    symbol: str | None
    line: int
    """Of the report."""

    @property
    def place(self) -> str:
        return f"{self.path}:{self.first}" + (f"-{self.last}" if self.last != self.first else "")


@dataclass(frozen=True)
class Roots:
    """Where pointers are looked for. Nothing outside of these folders is opened."""

    labelled: Mapping[str, Path] = field(default_factory=dict)
    """First part of a path -> the folder that the rest is relative to."""
    folders: tuple[Path, ...] = ()
    """Folders that whole paths are relative to."""

    def find(self, path: str) -> list[Path]:
        """The files that a path names: none, one, or several that end alike."""
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts:
            return []
        exact = [root / rest for root, rest in self._places(pure) if _is_inside(root, root / rest)]
        return exact[:1] or self._ending(pure)

    def _places(self, pure: PurePosixPath) -> Iterator[tuple[Path, PurePosixPath]]:
        label, *rest = pure.parts or ("",)
        if label in self.labelled and rest:
            yield self.labelled[label], PurePosixPath(*rest)
        yield from ((folder, pure) for folder in self.folders)

    def _ending(self, pure: PurePosixPath) -> list[Path]:
        """Files of the folders whose path ends so: reports often name a file without its folders."""
        found = []
        for folder in self.folders:
            named = _files_named(folder).get(pure.name, ())
            alike = (folder / file for file in named if PurePosixPath(file).parts[-len(pure.parts) :] == pure.parts)
            found += [file for file in alike if _is_inside(folder, file)]
        return found


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


# --- finding them in a text ------------------------------------------------------------------------------------------


def cited(text: Text) -> Iterator[Cited]:
    """Every pointer of a report, in its order."""
    for piece in text.pieces:
        yield from _cited_in(piece.text, piece.line)
    for fence in text.fences:
        if fence.language != "mermaid":
            for offset, line in enumerate(fence.lines):
                yield from _cited_in(line, fence.line + offset)


def _cited_in(text: str, line: int) -> Iterator[Cited]:
    taken: list[tuple[int, int]] = []
    for pattern in (_IN_CODE, _IN_TEXT):
        for found in pattern.finditer(text):
            if any(start < found.end() and found.start() < end for start, end in taken):
                continue
            path = found["path"].strip()
            if not _may_be_file(path):
                continue
            taken.append(found.span())
            first = int(found["line"] or found["line2"])
            last = int(found["end"] or found["end2"] or first)
            before = _SYMBOL_BEFORE.search(text[: found.start("path")])
            symbol = found["after"] or found["bare"] or (before["before"] if before else None)
            yield Cited(path, first, last, symbol, line)


def _may_be_file(path: str) -> bool:
    name = path.rpartition("/")[2]
    stem, dot, suffix = name.rpartition(".")
    return name in PLAIN_NAMES or (bool(dot) and bool(stem or suffix) and suffix.lower() in SUFFIXES)


# --- opening them ----------------------------------------------------------------------------------------------------


def check_pointer(pointer: Cited, roots: Roots) -> str | None:
    """What is wrong with a pointer, or None."""
    if PurePosixPath(pointer.path).is_absolute() or ".." in PurePosixPath(pointer.path).parts:
        return f"{pointer.place} leads out of the folders that are looked in: name it relative to one of them"
    files = roots.find(pointer.path)
    if not files:
        return f"{pointer.place}: there is no such file"
    if len(files) > 1:
        return f"{pointer.place}: {len(files)} files are called so: name its folder"
    lines = lines_of(files[0])
    if lines is None:
        return f"{pointer.place}: the file cannot be read as text"
    if not 1 <= pointer.first <= pointer.last <= len(lines):
        return f"{pointer.place}: the file has {len(lines)} lines"
    if pointer.symbol is None or stands_near(pointer.symbol, lines, pointer.first, pointer.last):
        return None
    elsewhere = first_definition(pointer.symbol, lines)
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


def stands_near(symbol: str, lines: tuple[str, ...], first: int, last: int) -> bool:
    """Whether the symbol's last part stands from three lines before ``first`` to three after ``last``."""
    near = "\n".join(lines[max(0, first - 1 - NEAR) : last + NEAR])
    return _pattern(symbol).search(near) is not None


def first_definition(symbol: str, lines: tuple[str, ...]) -> int | None:
    """The line that defines the symbol, or the first that has it."""
    word = _pattern(symbol)
    having = [number for number, line in enumerate(lines, 1) if word.search(line)]
    defining = re.compile(rf"^\s*(async\s+def|def|class|struct|#define|__global__)\b.*{word.pattern}")
    return next((number for number in having if defining.search(lines[number - 1])), having[0] if having else None)


def _pattern(symbol: str) -> re.Pattern[str]:
    """The last part of a dotted name as a word; anything else as it stands."""
    bare = symbol.removesuffix("()")
    last = re.split(r"\.|::", bare)[-1]
    if _WORD.fullmatch(last):
        return re.compile(rf"(?<!\w){re.escape(last)}(?!\w)")
    return re.compile(re.escape(bare))


def check_pointers(text: Text, roots: Roots) -> tuple[int, list[ReviewFinding]]:
    """How many there are, and what is wrong."""
    found = list(cited(text))
    wrong = ((pointer, check_pointer(pointer, roots)) for pointer in found)
    return len(found), [ReviewFinding(rule="pointer", line=p.line, message=why) for p, why in wrong if why]
