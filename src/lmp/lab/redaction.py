"""Output as publishable text: no bytes that are not text, no path of the machine, no other process."""

from __future__ import annotations

import os
import re
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

OTHER = "[other]"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff]")


def as_text(raw: bytes) -> tuple[str, int]:
    """The output as text, and the number of its bytes that are none. Those stand as ``\\xNN``."""
    decoded = raw.replace(b"\r\n", b"\n").decode("utf-8", "backslashreplace")
    escaped = len(raw) - len(raw.decode("utf-8", "ignore").encode())
    controls = len(_CONTROL.findall(decoded))
    return _CONTROL.sub(lambda sign: rf"\x{ord(sign[0]):02x}", decoded), escaped + controls


@dataclass
class Redactor:
    """Replaces what belongs to this machine, and counts the replacements by kind."""

    places: Sequence[tuple[str, str, str]]
    """Text, its replacement, and the kind that is counted; longest text first."""
    own: dict[int, set[str]] = field(default_factory=dict)
    """Process ids of this post's captures -> names."""
    counts: Counter[str] = field(default_factory=Counter)

    def text(self, text: str, others: str | None = None) -> str:
        for place, instead, kind in self.places:
            # A path ends where a name ends, /work/ab is not in /work/abc; it begins anywhere: -I/work/ab.
            begin = "" if place.startswith("/") else r"(?<![\w.-])"
            pattern = re.compile(rf"{begin}{re.escape(place)}(?![\w-])")
            text, times = pattern.subn(instead, text)
            if times:
                self.counts[kind] += times
        if others is not None:
            pattern = re.compile(others)
            text = "\n".join(self._without_others(line, pattern) for line in text.split("\n"))
        return text

    def _without_others(self, line: str, pattern: re.Pattern[str]) -> str:
        return pattern.sub(self._named, line)

    def _named(self, match: re.Match[str]) -> str:
        groups = match.groupdict()
        pid, name = groups.get("pid"), groups.get("name")
        names = {each for of in self.own.values() for each in of}
        ours = int(pid) in self.own if pid is not None and pid.isdecimal() else name in names
        if ours:
            return match[0]
        self.counts["other"] += 1
        spans = sorted({match.span(group) for group in ("name", "pid") if groups.get(group) is not None}, reverse=True)
        text, start = match[0], match.start()
        for first, last in spans:
            text = text[: first - start] + OTHER + text[last - start :]
        return text


def redactor(root: Path, build: Path) -> Redactor:
    """For captures of the posts below ``root`` with scratch files in ``build``."""
    found: dict[str, tuple[str, str]] = {}

    def add(path: str | Path | None, instead: str, kind: str) -> None:
        for text in {str(path or ""), os.path.realpath(str(path)) if path else ""}:
            if len(text) > 2 and text not in found:
                found[text] = (instead, kind)

    add(build, "<build>", "build")
    add(root, "<repo>", "repo")
    if sys.prefix != sys.base_prefix:
        add(sys.prefix, "<venv>", "venv")
    add(Path.home(), "<home>", "home")
    add(tempfile.gettempdir(), "<tmp>", "tmp")
    host = socket.gethostname()
    if len(host) > 3 and host != "localhost":
        found.setdefault(host, ("<host>", "host"))
    ordered = sorted(found.items(), key=lambda item: -len(item[0]))
    return Redactor([(text, instead, kind) for text, (instead, kind) in ordered])
