"""The bytes of a file as text: no byte of a repository makes reading stop."""

from __future__ import annotations

import codecs
import io
import os
import stat
import tokenize
from dataclasses import dataclass
from pathlib import Path


def printable(name: str) -> str:
    """A name of a file that can be written as UTF-8 on one line: what cannot is written as its number."""
    if name.isprintable():
        return name
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape", "surrogatepass").decode("ascii")
        for letter in name
    )


class Unreadable(Exception):
    """A file that is listed instead of read; the message says why."""


@dataclass(frozen=True)
class Text:
    """``text`` has ``\\n`` alone at its lines' ends, so that lines count as an editor counts them."""

    text: str
    raw: bytes
    note: str = ""
    """What the reader of a report should know of how it was decoded."""


def read_bytes(path: Path, largest: int) -> bytes:
    """Raises Unreadable. Opened without following a link and without waiting for a pipe's writer."""
    try:
        number = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except PermissionError:
        raise Unreadable("no permission to read") from None
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}") from None
    with os.fdopen(number, "rb") as stream:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable("not a regular file")
        try:
            raw = stream.read(largest + 1)
        except OSError as error:
            raise Unreadable(f"cannot be read: {error.strerror}") from None
    if len(raw) > largest:
        raise Unreadable(f"more than the {largest:,} bytes that are read of a file")
    return raw


def decode(raw: bytes, python: bool = False) -> Text:
    """Raises Unreadable where this is no text.

    Python's own rule for Python (a coding line, else UTF-8), UTF-8 for the rest, and Latin-1 where that fails, which
    is said.
    """
    if b"\0" in raw[:8192] and not raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise Unreadable("binary")
    for encoding in (_python_encoding(raw) if python else "", _marked(raw), "utf-8"):
        if not encoding:
            continue
        try:
            text = raw.decode(encoding)
        except (UnicodeDecodeError, LookupError):
            continue
        if "\0" in text:
            raise Unreadable("binary")
        return Text(_lines(text), raw)
    if _looks_binary(raw):
        raise Unreadable("binary")
    return Text(_lines(raw.decode("latin-1")), raw, "not UTF-8: read as Latin-1")


def _marked(raw: bytes) -> str:
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    return "utf-8-sig" if raw.startswith(codecs.BOM_UTF8) else ""


def _python_encoding(raw: bytes) -> str:
    try:
        return tokenize.detect_encoding(io.BytesIO(raw).readline)[0]
    except (SyntaxError, UnicodeDecodeError):
        return ""


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _looks_binary(raw: bytes) -> bool:
    """Control characters that no text has, in more than one byte of a hundred."""
    sample = raw[:8192]
    odd = sum(byte < 32 and byte not in b"\t\n\r\f\x1b" for byte in sample)
    return b"\0" in raw or odd * 100 > len(sample)
