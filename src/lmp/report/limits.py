"""Limits of a comparison: how much each quantity may rise, as ``--fail-above`` says it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

from lmp.errors import UsageError
from lmp.formula import Number, plain
from lmp.link.compare import exceeded, unsaid
from lmp.link.difference import Difference, Exceeded, Quantity, TotalName
from lmp.report.formats.figures import change

TOTALS: Mapping[Quantity, tuple[TotalName, ...]] = {
    "flops": ("flops",), "bytes": ("read", "write"), "parameters": ("parameters_count",),
}  # fmt: skip
"""Quantity that may have a limit -> the totals that it is the sum of."""
LABELS: Mapping[Quantity, tuple[str, str]] = {
    "flops": ("FLOPs", "FLOP"), "bytes": ("bytes read and written", "B"), "parameters": ("parameters", ""),
}  # fmt: skip
"""What people read, and the unit."""
QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)
_NUMBER = re.compile(r"[0-9]{1,18}(\.[0-9]{1,18})?")


@dataclass(frozen=True)
class Checked:
    """A quantity beside its limit; None for a side that does not state it."""

    quantity: Quantity
    a: Number | None
    b: Number | None
    limit: Fraction
    verdict: Literal["within", "ABOVE", "not known"]


def side_of(found: Difference, names: Sequence[TotalName], side: Literal["a", "b"]) -> Number | None:
    """The sum of these totals of A or B; None if one of them is not known."""
    terms = [getattr(found.totals[name], side) for name in names]
    if any(term is None or term.value is None for term in terms):
        return None
    return plain(sum((Fraction(term.value) for term in terms), Fraction(0)))


@dataclass(frozen=True)
class Limits:
    """The most that each quantity may rise; 0.01 is 1 %."""

    text: str
    """As it was given."""
    of: Mapping[Quantity, Fraction]
    named: bool
    """Whether quantities are named: each of them has to be known then."""

    def exceeded(self, found: Difference) -> list[Exceeded]:
        """What rose by more than its limit."""
        every = [one for limit in dict.fromkeys(self.of.values()) for one in exceeded(found, limit)]
        over = {one.quantity: one for one in every if self._is_over(one)}
        return [over[name] for name in QUANTITIES if name in over]

    def checked(self, found: Difference) -> list[Checked]:
        """Each quantity with a limit, and whether it is within it."""
        rows = []
        for name in (one for one in QUANTITIES if one in self.of):
            a, b = side_of(found, TOTALS[name], "a"), side_of(found, TOTALS[name], "b")
            verdict: Literal["within", "ABOVE", "not known"] = "not known"
            if a is not None and b is not None:
                verdict = "ABOVE" if Fraction(b) > Fraction(a) * (1 + self.of[name]) else "within"
            rows.append(Checked(name, a, b, self.of[name], verdict))
        return rows

    def _is_over(self, one: Exceeded) -> bool:
        limit = self.of.get(one.quantity)
        return limit is not None and Fraction(one.b) > Fraction(one.a) * (1 + limit)

    def unsaid(self, found: Difference) -> list[Quantity]:
        """Quantities with a limit that one of the models does not state."""
        return [name for name in unsaid(found) if name in self.of]


def share(limit: Fraction) -> str:
    """``1.0%``; 0 is ``0%``."""
    return change(plain(limit), 1).removeprefix("+")


def limits_of(text: str) -> Limits:
    """``1%`` or ``0.01`` for every quantity; ``bytes=1%,flops=0`` for some. Raises UsageError."""
    if "=" not in text:
        every = _share(text, text)
        return Limits(text, dict.fromkeys(QUANTITIES, every), named=False)
    found: dict[Quantity, Fraction] = {}
    for part in text.split(","):
        written, equals, share_text = part.partition("=")
        name = next((one for one in QUANTITIES if one == written.strip()), None)
        if not equals or name is None:
            raise UsageError(f"--fail-above {part.strip()[:40]!r} names no quantity\n"
                             f"known are {', '.join(QUANTITIES)}, as in --fail-above bytes=1%,flops=0")  # fmt: skip
        if name in found:
            raise UsageError(f"--fail-above has two limits of {name}\ngive one")
        found[name] = _share(share_text.strip(), text)
    return Limits(text, found, named=True)


def _share(text: str, whole: str) -> Fraction:
    """The limit as a fraction: ``1%`` and ``0.01`` are the same."""
    number = text.removesuffix("%").strip()
    if not _NUMBER.fullmatch(number):
        raise UsageError(f"--fail-above {whole[:80]!r} is not a share\nwrite it as in --fail-above 1%")
    found = Fraction(number)
    if text.endswith("%"):
        return found / 100
    if found >= 1:
        raise UsageError(f"--fail-above {text} is either a share or a percentage\nwrite {text}% for a percentage")
    return found
