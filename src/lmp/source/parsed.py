"""Python files, read and parsed once each. Nothing is imported or executed."""

from __future__ import annotations

import ast
import functools
import io
import linecache
import tokenize
from dataclasses import dataclass
from pathlib import Path

from lmp.errors import NotFound, Search
from lmp.source.trees import sha256_of

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, eq=False)
class ParsedFile:
    """A file's lines, syntax tree and hash."""

    path: Path
    lines: tuple[str, ...]
    """The lines without newlines: ``lines[0]`` is line 1."""
    tree: ast.Module
    sha256: str

    def code(self, line: int) -> str:
        """The text of one line, without its indentation."""
        return self.lines[line - 1].strip()


def parse(path: Path) -> ParsedFile:
    """Parse a file. Raises NotFound, with the line, if it is not valid Python.

    A notebook's cell is no file: its text comes from ``linecache``, as in Python's tracebacks.
    """
    try:
        stat = path.stat()
        return _parse(path, (stat.st_mtime_ns, stat.st_size))
    except OSError as error:
        cell = "".join(linecache.getlines(str(path)))
        if cell:
            return _parsed(path, cell.encode())
        raise _unreadable_file(path, f"cannot be read ({error.strerror})") from error


@functools.lru_cache(maxsize=512)
def _parse(path: Path, stamp: tuple[int, int]) -> ParsedFile:
    return _parsed(path, path.read_bytes())


@functools.lru_cache(maxsize=64)
def _parsed(path: Path, data: bytes) -> ParsedFile:
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        # Universal newlines, as Python's own tokenizer has: str.splitlines() would also break at form feeds.
        text = io.TextIOWrapper(io.BytesIO(data), encoding).read()
        tree = ast.parse(text, filename=str(path))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _unreadable_file(path, f"cannot be decoded as {error.encoding} at line {line}") from error
    except SyntaxError as error:
        at = f" at line {error.lineno}" if error.lineno else ""
        raise _unreadable_file(path, f"is not valid Python{at}: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise _unreadable_file(path, f"cannot be parsed: {error}") from error
    return ParsedFile(path, tuple(text.split("\n")), tree, sha256_of(data))


def _unreadable_file(path: Path, why: str) -> NotFound:
    return NotFound(
        f"{path} {why}\nmend the file, or run `lmp vendor` if it is a vendored one",
        [Search("Python source", str(path), why)],
    )
