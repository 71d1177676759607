"""Findings of the gate, as they are told to whoever handed in."""

from __future__ import annotations

from collections.abc import Sequence

from lmp.records import GateFinding
from lmp.source.quoting import escaped

SHOWN = 12
"""Findings that are told at once; the rest most often have the same cause."""
_LONG = 400


def findings_text(findings: Sequence[GateFinding], rounds_left: int | None = None) -> str:
    """One finding a paragraph, then what to do. ``rounds_left`` are the hand-ins that are still taken."""
    count = f"{len(findings)} finding{'s' if len(findings) != 1 else ''}"
    parts = [f"Refused: {count}.", *(finding_text(finding) for finding in findings[:SHOWN])]
    if len(findings) > SHOWN:
        parts.append(f"… and {len(findings) - SHOWN} more; correct these first.")
    if rounds_left is not None:
        left = f"{rounds_left} more time{'s' if rounds_left != 1 else ''}" if rounds_left > 0 else "no more"
        parts.append(f"Correct what is named, keep the rest, hand in the whole again. You may hand in {left}.")
    return "\n\n".join(parts)


def finding_text(finding: GateFinding) -> str:
    """One finding: the rule, where it is, what is wrong; what was claimed and counted, unless the message says it."""
    message, place = finding.message, _place(finding)
    where = ", ".join(
        part
        for part in (
            f"kernel {finding.kernel}" if finding.kernel is not None else "",
            place if place and f"line {finding.line}" not in message else "",
        )
        if part
    )
    text = f"[{finding.rule}] {where}{': ' if where else ''}{message}"
    if (finding.claimed or finding.counted) and not (
        _says(message, finding.claimed) and _says(message, finding.counted)
    ):
        what = f"{finding.quantity}: " if finding.quantity else ""
        at = f", at {finding.point}" if finding.point else ""
        text += f"\n  {what}given {_short(finding.claimed)}, executed {_short(finding.counted)}{at}"
    return escaped(text)


def _place(finding: GateFinding) -> str:
    if finding.line is None:
        return ""
    return f"{finding.file} line {finding.line}" if finding.file else f"line {finding.line}"


def _says(message: str, value: str | None) -> bool:
    return value is None or value in message


def _short(text: str | None) -> str:
    text = text or "nothing"
    return text if len(text) <= _LONG else f"{text[:_LONG]}…"
