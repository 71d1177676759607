"""Which lines of the analysed sources ran: needed to tell a line that is free from one that was not taken. And which
files: a result is true as long as they are what they were."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, Self


class Watching:
    """Context manager in which `_on_call` hears of every function that is called in this thread."""

    _before: Any = None

    def __enter__(self) -> Self:
        self._before = sys.gettrace()
        sys.settrace(self._on_call)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.settrace(self._before)

    def _on_call(self, frame: FrameType, event: str, argument: Any) -> Any:
        raise NotImplementedError


class LineCoverage(Watching):
    """Context manager that collects (file, line) of every executed line in files below ``root``."""

    def __init__(self, *roots: str) -> None:
        self.roots = roots
        self.lines: set[tuple[str, int]] = set()

    def _on_call(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._on_line if frame.f_code.co_filename.startswith(self.roots) else None

    def _on_line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.lines.add((frame.f_code.co_filename, frame.f_lineno))
        return self._on_line


class FileCoverage(Watching):
    """Context manager that collects the files below ``roots`` of which any function ran. Reusable: it adds up."""

    def __init__(self, *roots: str) -> None:
        self.roots = roots
        self.files: set[str] = set()

    def _on_call(self, frame: FrameType, event: str, argument: Any) -> None:
        file = frame.f_code.co_filename
        if file.startswith(self.roots):
            self.files.add(file)
