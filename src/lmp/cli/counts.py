"""Counts of tokens as the command line gives them: 8192, 8k, 1M."""

from __future__ import annotations


def count_of(name: str, text: str) -> int:
    """One whole number of at least 1. Raises UsageError."""
    from lmp.errors import UsageError
    from lmp.link.values import parse_values

    option = f"--{name.replace('_', '-')} "
    values = parse_values("cache_len", text, option)  # a count of tokens: it may have a unit
    if len(values) != 1 or not isinstance(values[0], int) or values[0] < 1:
        raise UsageError(f"{option}{text[:40]} is not one whole number of at least 1\ngive one, as {option}8k")
    return values[0]
