"""The command as the user typed it, so that a hint is that command with what it lacks."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextvars import ContextVar

_TYPED: ContextVar[tuple[str, ...]] = ContextVar("lmp.typed", default=())


def remember(words: Sequence[str]) -> None:
    """Store the words after ``lmp``."""
    _TYPED.set(tuple(words))


def typed() -> tuple[str, ...]:
    """The words after ``lmp``, the command first; empty where no command runs."""
    return _TYPED.get()


def again(*more: str) -> str:
    """The command with some more words."""
    return shlex.join(["lmp", *typed(), *more])


def again_for(text: str, name: str, command: str) -> str:
    """The command with ``name`` in place of ``text``; ``command`` for that name if the text was not typed."""
    words = list(typed())
    place = next((index for index, word in enumerate(words) if word == text or word.endswith(f"={text}")), None)
    if place is None:
        return shlex.join(["lmp", command, name])
    words[place] = words[place].removesuffix(text) + name
    return shlex.join(["lmp", *words])
