"""What commands write: results on stdout, everything else on stderr, and the end of a command whose result is wrong."""

from __future__ import annotations

import sys
from collections.abc import Sequence

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


def end_if_failed(failed: Sequence[str], what: str) -> None:
    """Exit with 4 if the formulas of these classes do not agree with execution. ``what`` must not be used then."""
    if failed:
        note_failed(failed)
        note(f"do not use {what}; `lmp verify CLASS` says where they differ")
        raise typer.Exit(DISAGREES)


def note_failed(failed: Sequence[str]) -> None:
    note(f"error: the formulas do not agree with execution: {', '.join(failed)}")


def count(number: int, what: str) -> str:
    """``1 turn``, ``2 turns``."""
    return f"{number} {what}{'' if number == 1 else 's'}"
