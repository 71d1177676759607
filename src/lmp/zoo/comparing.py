"""Comparison of two zoo summaries: families that are no longer verified, and families with changed numbers."""

from __future__ import annotations

from dataclasses import dataclass

from lmp.records import ZooEntry, ZooSummary


@dataclass(frozen=True)
class Change:
    """A family whose entry differs between the two summaries."""

    family: str
    before: str
    now: str
    why: str = ""


@dataclass(frozen=True)
class Comparison:
    """``regressed``: verified before only. ``gained``: verified now only. ``changed``: verified, with other totals.

    ``absent``: verified before and missing in the new summary.
    """

    regressed: tuple[Change, ...] = ()
    gained: tuple[Change, ...] = ()
    changed: tuple[Change, ...] = ()
    absent: tuple[str, ...] = ()


def compared(before: ZooSummary, now: ZooSummary) -> Comparison:
    """The differences of two summaries. A family that was not run now is absent, which is no regression."""
    old = {entry.family: entry for entry in before.entries}
    new = {entry.family: entry for entry in now.entries}
    both = [(old[name], new[name]) for name in old if name in new]
    return Comparison(
        regressed=tuple(_status(a, b) for a, b in both if a.status == "verified" != b.status),
        gained=tuple(_status(a, b) for a, b in both if b.status == "verified" != a.status),
        changed=tuple(
            change for a, b in both if a.status == b.status == "verified" and (change := _numbers(a, b)) is not None
        ),
        absent=tuple(name for name, entry in old.items() if entry.status == "verified" and name not in new),
    )


def _status(before: ZooEntry, now: ZooEntry) -> Change:
    place = f" ({now.place})" if now.place else ""
    return Change(now.family, before.status, now.status, f"{now.reason or ''}{place}")


def _numbers(before: ZooEntry, now: ZooEntry) -> Change | None:
    """The first difference in phases, totals or pinned values; None if there is none."""
    lost = [phase for phase in before.phases if phase not in now.phases]
    if lost:
        return Change(now.family, ", ".join(before.phases), ", ".join(now.phases), "a phase is not judged any more")
    for name in before.totals.keys() & now.totals.keys():
        if before.totals[name] != now.totals[name]:
            return Change(now.family, f"{name} {before.totals[name]:,}", f"{now.totals[name]:,}", "the totals differ")
    more = sorted(set(now.pinned) - set(before.pinned))
    if more:
        return Change(
            now.family, f"{len(before.pinned)} pinned", f"{len(now.pinned)}", f"also pinned: {', '.join(more)}"
        )
    return None
