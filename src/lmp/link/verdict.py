"""The verdict on formulas as one line: how far they are verified, and under which conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lmp.formula import free_variables, parse_condition
from lmp.records import Verification

SHOWN = 4
"""Conditions that stand in the line; the others are counted."""

CALL_SIZES = frozenset({"batch_size", "seq_len", "cache_len"})


def verdict(found: Verification, assumptions: Sequence[str] = (), pinned: Mapping[str, int] | None = None) -> str:
    """``verified at 5 points, where seq_len <= 512; num_key_value_heads = 8``, or why the formulas are not verified."""
    if found.status == "failed":
        count = len(found.findings)
        return f"FAILED: {count} difference{'s' if count != 1 else ''} from execution"
    if found.status == "unverified":
        return f"UNVERIFIED: {found.reason or 'no reason given'}"
    points = f"verified at {found.points} point{'' if found.points == 1 else 's'}"
    where = conditions(assumptions, pinned or {})
    return f"{points}, where {where}" if where else points


def conditions(assumptions: Sequence[str], pinned: Mapping[str, int]) -> str:
    """Assumptions and pins in one text; empty if there are none. Those on the sizes of a call come first, then pins.

    An assumption on pinned values alone says nothing more than the pins.
    """
    of_call = [text for text in assumptions if _names(text) & CALL_SIZES]
    pins = [f"{name} = {value}" for name, value in pinned.items()]
    others = [text for text in assumptions if text not in of_call and not _names(text) <= pinned.keys()]
    every = [*of_call, *pins, *others]
    shown = [text.replace("{", "").replace("}", "") for text in every[:SHOWN]]
    rest = len(every) - len(shown)
    return "; ".join([*shown, *([f"and {rest} more condition{'s' if rest > 1 else ''}"] if rest else [])])


def _names(condition: str) -> frozenset[str]:
    return frozenset(free_variables(parse_condition(condition)))
