"""A comparison as a comment on a pull request: totals first, the limits, and what changed most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from lmp.formula import plain
from lmp.link import difference as d
from lmp.records import short
from lmp.report.formats.base import one_line
from lmp.report.formats.figures import change, figure, in_full, signed
from lmp.report.formats.markdown import escaped, table
from lmp.report.limits import LABELS, Checked, share, side_of

MOST_LINES = 8
TOTALS: tuple[tuple[str, tuple[d.TotalName, ...], str], ...] = (
    ("FLOPs", ("flops",), "FLOP"),
    ("bytes read and written", ("read", "write"), "B"),
    ("compulsory bytes", ("compulsory",), "B"),
    ("parameters", ("parameters_count",), ""),
)


def comment(
    found: d.Difference,
    limits: str | None,
    unchecked: Sequence[str] = (),
    call: str = "",
    checked: Sequence[Checked] = (),
) -> str:
    """The comment. ``limits`` as they were given; ``unchecked`` are quantities that they could not be held against.

    ``call`` is the phase with its sizes, ``checked`` each quantity beside its limit.
    """
    return "".join(f"{block}\n" for block in _blocks(found, limits, unchecked, call, checked))


def _blocks(
    found: d.Difference, limits: str | None, unchecked: Sequence[str], call: str, checked: Sequence[Checked]
) -> Iterator[str]:
    yield f"### lmp: {escaped(short(found.b.class_name))}, {escaped(_verdict(found))}\n"
    yield f"A: {_code(found.a.given)} · B: {_code(found.b.given)}\n"
    if found.a.values is None:
        yield "No sizes were given: formulas alone were compared.\n"
    else:
        yield table(("", "A", "B", "change", ""), list(_totals(found)), 1)
    if limits is not None:
        at = f", at {escaped(call)}" if call else ""
        yield f"**{_held(found, limits, unchecked)}{at}**\n"
        yield table(("limit of", "A", "B", "change", "limit", ""), [_checked(one) for one in checked], 1)
    rows = sorted(found.lines, key=lambda line: -_moved(line))
    shown = [line for line in rows if _moved(line)][:MOST_LINES]
    if shown:
        yield table(("dearest lines that changed", "FLOPs", "bytes"), [_line(line) for line in shown], 1)
        if len(rows) > len(shown):
            yield f"{len(rows) - len(shown)} more lines changed.\n"
    if found.a.values is not None:
        values = ", ".join(f"{name} = {in_full(value)}" for name, value in found.a.values.items())
        yield f"<sub>at {escaped(values)}</sub>"


def _verdict(found: d.Difference) -> str:
    failed = [side.verification for side in (found.a, found.b) if side.verification != "verified"]
    if failed:
        return f"formulas are {', '.join(dict.fromkeys(failed))}"
    moved = any(total.change for total in found.totals.values())
    return "the costs changed" if moved else "the costs are the same"


def _totals(found: d.Difference) -> Iterator[tuple[str, ...]]:
    for label, names, unit in TOTALS:
        before, after = side_of(found, names, "a"), side_of(found, names, "b")
        if before is None or after is None:
            sides = ("unknown" if one is None else figure(one, unit) for one in (before, after))
            yield (label, *sides, "unknown", "")
        else:
            more = plain(Fraction(after) - Fraction(before))
            yield label, figure(before, unit), figure(after, unit), signed(more, unit), change(more, before)


def _checked(one: Checked) -> tuple[str, ...]:
    label, unit = LABELS[one.quantity]
    sides = ("unknown" if value is None else figure(value, unit) for value in (one.a, one.b))
    more = "unknown" if one.a is None or one.b is None else change(plain(Fraction(one.b) - Fraction(one.a)), one.a)
    return (label, *sides, more, share(one.limit), one.verdict)


def _held(found: d.Difference, limits: str, unchecked: Sequence[str]) -> str:
    over = [
        f"{one.quantity} rose by {change(plain(Fraction(one.b) - Fraction(one.a)), one.a).removeprefix('+')}"
        for one in found.exceeded
    ]
    missing = [f"{name} cannot be checked" for name in unchecked]
    said = "; ".join([*over, *missing])
    return f"Above the limit {escaped(limits)}: {escaped(said)}" if said else f"Within the limit {escaped(limits)}"


def _moved(line: d.LineChange) -> Fraction:
    """Bytes and FLOPs that changed, up or down: of the lines, the largest stand first."""
    if line.change is None:
        return Fraction(0)
    return abs(Fraction(line.change.read)) + abs(Fraction(line.change.write)) + abs(Fraction(line.change.flops))


def _code(text: str) -> str:
    """Foreign text as code: nothing in it is markup, and no name in it calls anybody."""
    plain_text = one_line(text).replace("`", "'").replace("|", "\\|")
    return f"`{plain_text}`"


def _line(line: d.LineChange) -> tuple[str, str, str]:
    side = line.b or line.a
    assert side is not None
    assert line.change is not None
    place = f"{(side.file or short(side.class_name)).rpartition('/')[2]}:{side.line}"
    moved = plain(Fraction(line.change.read) + Fraction(line.change.write))
    return f"{_code(place)} {_code(side.code)}", signed(line.change.flops, "FLOP"), signed(moved, "B")
