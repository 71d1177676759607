"""The transcript of a run: one JSON line per event, written as it happens."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from lmp.agents.base import Event, Task
from lmp.agents.environment import redacted
from lmp.source.quoting import escaped
from lmp.store.files import storage_errors

MAX_TEXT = 200_000
"""Characters of one text in the transcript; a longer one is cut, with a note."""


def shown(text: str) -> str:
    """``text`` without what a terminal would obey; newlines stay."""
    return escaped(text, kept="\n")


class Transcript:
    """``transcript.jsonl``, continued if it exists. Every line is flushed, and holds no credential.

    A line is ``{"number": 7, "time": "2026-01-31T10:00:00.123Z", "class": …, "stage": …, "event": …, …}``, in ASCII, so
    that nothing in it can steer a terminal that shows it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        with storage_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._number = _lines(path)
            self._file: TextIO = path.open("a", encoding="ascii")

    def write(self, event: Event, name: str | None = None, stage: str | None = None) -> None:
        with self._lock, storage_errors(self.path):
            self._number += 1
            now = datetime.now(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
            line = {"number": self._number, "time": now, "class": name, "stage": stage, **_clean(event)}
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()

    def of(self, task: Task) -> Callable[[Event], None]:
        """An ``on_event`` that writes the task's class and stage with each event."""
        return lambda event: self.write(event, task.name, task.stage)

    def close(self) -> None:
        with storage_errors(self.path):  # closing writes again what could not be written before
            self._file.close()

    def __enter__(self) -> Transcript:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _lines(path: Path) -> int:
    """The number of lines in the file; a line that a crash cut off gets its newline."""
    if not path.exists():
        return 0
    text = path.read_bytes()
    if text and not text.endswith(b"\n"):
        with path.open("ab") as file:
            file.write(b"\n")
    return text.count(b"\n") + (not text.endswith(b"\n") and bool(text))


def _clean(value: Any) -> Any:
    match value:
        case str():
            text = redacted(value)
            left_out = len(text) - MAX_TEXT
            return text if left_out <= 0 else f"{text[:MAX_TEXT]}… ({left_out} characters left out)"
        case dict():
            return {redacted(str(key)): _clean(item) for key, item in value.items()}
        case list() | tuple():
            return [_clean(item) for item in value]
        case _:
            return value
