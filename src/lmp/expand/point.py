"""The values at which an analysis is evaluated: what was given, and what stands where nothing was."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from lmp.errors import UsageError

if TYPE_CHECKING:
    from lmp.records import ModuleAnalysis

UNIVERSAL_DEFAULTS = {"cache_len": 0, "w_bytes": 2, "a_bytes": 2}
"""Every formula may use these, and every command accepts them."""

GIVEN = ("batch_size", "seq_len")
"""The size of the call: never guessed, and at least 1."""

ALIASES = {"num_attention_heads": "num_heads"}

_PREFIX = re.compile(r"^(self\.)?(config|init)\.|^self\.")
_INTEGER = re.compile(r"[+-]?[0-9]+(_[0-9]+)*")
_MAX_DIGITS = 4000
"""Python itself reads no integer of more than 4300 digits."""


def parse_settings(settings: Iterable[str]) -> dict[str, int]:
    """The values of ``name=value`` texts, several of them in one separated by commas."""
    found: dict[str, int] = {}
    for text in settings:
        for part in text.split(","):
            name, equals, value = (piece.strip() for piece in part.partition("="))
            if not equals or not name:
                raise UsageError(f"--set {part.strip()!r} is not name=value\nwrite it as in --set batch_size=2")
            name = _PREFIX.sub("", name)
            number = _whole_number(name, value)
            if found.setdefault(name, number) != number:
                raise UsageError(f"{name} is set twice: to {found[name]} and to {number}\ngive it once")
    return found


def canonical(name: str) -> str:
    """The name that formulas use: without ``config.``, and num_heads for num_attention_heads."""
    bare = _PREFIX.sub("", name)
    return ALIASES.get(bare, bare)


def _whole_number(name: str, text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise UsageError(f"{name} is set to {text!r}, which is not a whole number\ngive one, as in --set {name}=2")
    if len(text) > _MAX_DIGITS:
        raise UsageError(f"{name} is set to a number of {len(text)} digits\ngive one of at most {_MAX_DIGITS}")
    return int(text)


def point(analysis: ModuleAnalysis, given: Mapping[str, int]) -> dict[str, int]:
    """A value for every parameter of the analysis and for the universal names.

    ``batch_size`` and ``seq_len`` come from ``given`` alone, so does everything else that the config does not say.
    """
    known = dict.fromkeys((*GIVEN, *UNIVERSAL_DEFAULTS, *analysis.parameters))
    named: dict[str, int] = {}
    for written, value in given.items():
        name = written if written in known else canonical(written)
        if name not in known:
            raise _unknown(analysis, written, list(known))
        lowest = 1 if name in GIVEN else 0
        if value < lowest:
            raise UsageError(f"{written} is set to {value}\ngive a whole number of at least {lowest}")
        if named.setdefault(name, value) != value:
            raise UsageError(f"{name} is set twice: to {named[name]} and, as {written}, to {value}\ngive it once")
    config = {name: value for name, value in analysis.values.items() if name in analysis.parameters}
    values = {**UNIVERSAL_DEFAULTS, **{n: v for n, v in config.items() if n not in GIVEN}, **named}
    missing = [name for name in analysis.parameters if name not in values]
    if missing:
        example = " ".join(f"--set {name}={2 if name == 'batch_size' else 16}" for name in missing)
        have, it = ("has", "it") if len(missing) == 1 else ("have", "them")
        raise UsageError(
            f"{' and '.join(missing)} {have} no value: {analysis.class_name} depends on {it}\ngive {example}"
        )
    return {name: values[name] for name in known if name in values}


def _unknown(analysis: ModuleAnalysis, name: str, known: list[str]) -> UsageError:
    close = difflib.get_close_matches(name, known, n=1)
    pinned = f" (it is fixed at {analysis.pinned[name]} in these formulas)" if name in analysis.pinned else ""
    return UsageError(
        f"{analysis.class_name} has no parameter {name!r}{pinned}{f': did you mean {close[0]}?' if close else ''}\n"
        f"the names are {', '.join(known)}"
    )
