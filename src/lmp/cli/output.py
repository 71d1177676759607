"""What commands write: results on stdout, everything else on stderr, and the end of a command whose result is wrong."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TextIO

import typer

DISAGREES = 4
"""Exit code: an analysis is invalid or does not agree with execution."""


def write(text: str) -> None:
    sys.stdout.write(text)


def write_json(data: object) -> None:
    """JSON on stdout, as every ``--json`` writes it."""
    import json

    write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def note(text: str) -> None:
    """A line on stderr, at once."""
    print(text, file=sys.stderr, flush=True)


def is_one_stream() -> bool:
    """Whether stdout and stderr go to the same place: what is written to both would be read twice."""
    try:
        out, err = (os.fstat(stream.fileno()) for stream in (sys.stdout, sys.stderr))
    except (OSError, ValueError):
        return False
    return (out.st_dev, out.st_ino) == (err.st_dev, err.st_ino)


def end_if_failed(failed: Sequence[str], what: str) -> None:
    """Exit with 4 if the formulas of these classes do not agree with execution. ``what`` must not be used then."""
    if failed:
        note_failed(failed)
        note(f"do not use {what}; `lmp verify CLASS` says where they differ")
        raise typer.Exit(DISAGREES)


def note_failed(failed: Sequence[str]) -> None:
    note(f"error: the formulas do not agree with execution: {', '.join(failed)}")


def ascii_only(stream: TextIO) -> bool:
    """True for a terminal that shows ASCII alone: its locale is C or POSIX, or its encoding is not UTF-8."""
    if not stream.isatty():
        return False
    locale = next((os.environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if os.environ.get(name)), "")
    return locale in ("C", "POSIX") or not (stream.encoding or "").lower().startswith("utf")


def count(number: int, what: str) -> str:
    """``1 turn``, ``2 turns``."""
    return f"{number} {what}{'' if number == 1 else 's'}"
