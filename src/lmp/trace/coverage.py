"""Records which lines and which files of the analysed sources ran.

The lines separate a line without cost from one that was not taken. The files are those that a result depends on: it is
valid as long as they do not change.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, Self


class Watching:
    """Context manager that sets a trace function: `_on_call` runs for every function called in this thread."""

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
    """Context manager that collects the files below ``roots`` in which a function ran. Reusable: it accumulates."""

    def __init__(self, *roots: str) -> None:
        self.roots = roots
        self.files: set[str] = set()

    def _on_call(self, frame: FrameType, event: str, argument: Any) -> None:
        file = frame.f_code.co_filename
        if file.startswith(self.roots):
            self.files.add(file)
