"""SCRATCHPAD.md: the report of a failed search for source. lmp never guesses a source that it did not find."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from lmp.errors import NotFound, StorageError

NAME = "SCRATCHPAD.md"


def write_scratchpad(folder: Path, class_path: str, error: NotFound) -> Path:
    """Write ``folder/SCRATCHPAD.md`` for a failed search and return its path. An earlier file is replaced as a whole.

    Raises StorageError if it cannot be written.
    """
    target = folder / NAME
    temporary = folder / f".{NAME}.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        temporary.write_text(scratchpad_text(class_path, error), encoding="utf-8")
        os.replace(temporary, target)
    except OSError as failure:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise StorageError(
            f"cannot write {target}: {failure.strerror or failure}\ngive a folder that can be written with `--results`"
        ) from failure
    return target


def scratchpad_text(class_path: str, error: NotFound) -> str:
    """The content of the file, as markdown."""
    why, _, next_step = str(error).partition("\n")
    lines = [
        f"# Not found: {_inline(class_path)}",
        "",
        "The analysis stopped here. Nothing was assumed in place of the source that is missing.",
        "",
        "## What was looked for, and where",
        "",
    ]
    if error.searched:
        lines += ["| looked for | where | found |", "| --- | --- | --- |"]
        lines += [
            f"| {_cell(search.looked_for)} | {_cell(search.where)} | {_cell(search.found)} |"
            for search in error.searched
        ]
    else:
        lines += ["No file was searched."]
    lines += ["", "## Why it stopped", "", why]
    lines += ["", "## What to do next", "", next_step or f"Check the class path {_inline(class_path)} and run again."]
    lines += ["", f"When that is done, run the same command again: it starts from {_inline(class_path)}.", ""]
    return "\n".join(lines)


def _inline(text: str) -> str:
    return f"`{text.replace('`', chr(39))}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
