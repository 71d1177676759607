"""The terminal that tables are written to."""

from __future__ import annotations

from rich.console import Console


class Terminal(Console):
    """rich's console, but for what it does when the reader of a pipe has gone: it would end the program with 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError
