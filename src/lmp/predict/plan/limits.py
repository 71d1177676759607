"""What a plan must keep to, as a user states it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lmp.errors import UsageError

UNITS = {"us": 1.0, "ms": 1e3, "s": 1e6}
"""Unit -> microseconds."""
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s)")


@dataclass(frozen=True)
class Limits:
    """Microseconds; None: no limit."""

    tpot: float | None = None
    """From one token of a request to its next."""
    ttft: float | None = None
    """Of a request on an idle replica to its first token."""


def microseconds(text: str, option: str) -> float:
    """A time with its unit, as ``30ms``. Raises UsageError."""
    found = _TIME.fullmatch(text.strip())
    if found is None or not float(found[1]):
        raise UsageError(f"{option} {text[:40]} is not a time above 0\ngive one with us, ms or s, as {option} 30ms")
    return float(found[1]) * UNITS[found[2]]
