"""What a source file says of itself beyond its definitions: imports, limits, warnings, registrations.

Plain values, one `Signs` a file; no syntax tree is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

NoteKind = Literal[
    "todo",
    "not implemented",
    "requires",
    "deprecated",
    "warning",
    "swallowed",
    "optional",
    "registration",
    "compiled",
    "evaluated",
    "loads by name",
    "abstract",
    "sets environment",
    "replaced",
    "named class",
    "table",
]


@dataclass(frozen=True, slots=True)
class Import:
    """``module`` is absolute; ``names`` are those of ``from module import …``."""

    module: str
    names: tuple[str, ...]
    line: int


@dataclass(frozen=True, slots=True)
class Note:
    """Something of note at a line. What ``text``, ``detail`` and ``about`` are depends on the kind:

    todo the comment · not implemented the message · requires the condition, the message, and (about)
    "raises" where it is an error if the condition holds · deprecated and warning the message · swallowed what is
    caught, what is done then, and (about) what was tried · optional the package, and what stands in for it ·
    registration the registry, and what is registered · compiled the call, decorator or base, and (about)
    "itself" where it is of the function or class that the note is in · evaluated the call ·
    loads by name the literal beginning of the module's name · abstract the class, and its abstract methods ·
    sets environment the variable ·
    replaced the attribute of an imported name, what stands there from then on, and (about) what was imported ·
    named class the name that a file gives to classes of its own, and these · table the name of a mapping from strings
    to functions or classes, its first entry, and (about) how many it has.
    """

    kind: NoteKind
    line: int
    symbol: str
    """The function or class around it, dotted; empty at the top of the file."""
    text: str
    detail: str = ""
    about: str = ""


@dataclass(frozen=True, slots=True)
class Signs:
    imports: tuple[Import, ...] = ()
    notes: tuple[Note, ...] = ()
