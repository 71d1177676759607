"""Which values of a judged point are not the class's own: often what an author forgot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MOST_SIZES = 2
"""Most values besides switches that a text names."""


@dataclass(frozen=True)
class Changed:
    """A judged point with values that are not the class's own."""

    label: str
    switches: Mapping[str, tuple[int, int]]
    """Name of a switch -> its value there, and the class's own."""
    sizes: Mapping[str, tuple[int, int]]


def changed_at(point: str, changed: Sequence[Changed]) -> str:
    """A sentence on what changed at a finding's point: the switches, or a size or two; empty if nothing did."""
    there = [each for each in changed if point == each.label or point.startswith(f"{each.label} (")]
    if not there:
        return ""
    # Points of one label can differ in sizes. What all of them have is said.
    switches = {n: v for n, v in there[0].switches.items() if all(each.switches.get(n) == v for each in there)}
    sizes = {n: v for n, v in there[0].sizes.items() if all(each.sizes.get(n) == v for each in there)}
    told = switches or (sizes if len(sizes) <= MOST_SIZES else {})
    if not told:
        return ""
    values = ", ".join(f"{name} is {value}, and {own} at the points before" for name, (value, own) in told.items())
    return f" What changed there: {values}."
