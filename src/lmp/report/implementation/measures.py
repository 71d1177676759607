"""What a part of a model costs at a stated point: amounts, shares, intensity, as numbers that say how they are worked
out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lmp.report.document.amounts import Number, Quantity, Term
from lmp.report.facts import ModelFacts, Point


@dataclass(frozen=True)
class Measure:
    """The kernels that any of ``choices`` chooses (see `Term`); no two of them choose the same kernel."""

    facts: ModelFacts
    choices: tuple[Mapping[str, Any], ...]

    def amount(self, quantity: Quantity, point: Point) -> Number:
        unit = {"flops": "FLOP", "matmul_flops": "FLOP", "runs": "", "launches": ""}.get(quantity, "B")
        sum_, terms = self.sum_of("a", quantity, point)
        return self.facts.number(sum_, unit, **terms)

    def each(self, quantity: Quantity, point: Point, count: Term) -> Number:
        """Of one of ``count`` runs that are alike."""
        unit = "FLOP" if quantity in ("flops", "matmul_flops") else "B"
        sum_, terms = self.sum_of("a", quantity, point)
        return self.facts.number(f"({sum_}) / {{count}}", unit, count=count, **terms)

    def share(self, quantity: Quantity, point: Point, whole: Measure | None = None) -> Number | None:
        """Per cent of the whole model, or of another measure; None where that is 0."""
        part, terms = self.sum_of("a", quantity, point)
        total, more = (whole or Measure(self.facts, ({},))).sum_of("w", quantity, point)
        if not self.facts.number(total, "", **more).value:
            return None
        return self.facts.number(f"100 * ({part}) / ({total})", "%", **terms, **more)

    def over(self, quantity: Quantity, point: Point, least: Term) -> Number:
        """How many times ``least`` it is."""
        part, terms = self.sum_of("a", quantity, point)
        return self.facts.number(f"({part}) / {{least}}", "times", least=least, **terms)

    def intensity(self, point: Point) -> Number | None:
        """FLOPs a byte; None where no byte moves."""
        flops, terms = self.sum_of("f", "flops", point)
        moved, more = self.sum_of("b", "bytes", point)
        if not self.facts.number(moved, "", **more).value:
            return None
        return self.facts.number(f"({flops}) / ({moved})", "FLOPs/B", **terms, **more)

    def sum_of(self, letter: str, quantity: Quantity, point: Point) -> tuple[str, dict[str, Term]]:
        """An expression over terms whose names begin with a letter, and the terms."""
        terms = {
            f"{letter}{index}": Term(point=point.key, quantity=quantity, **choice)
            for index, choice in enumerate(self.choices)
        }
        return " + ".join(f"{{{name}}}" for name in terms) or "0", terms


def ridge(facts: ModelFacts) -> Number:
    """FLOPs a byte above which matmuls are bound by arithmetic on the device."""
    device = facts.device
    return facts.number(
        "{rate} / {bandwidth}",
        "FLOPs/B",
        rate=Term(constant=device.matmul_flops, source=device.source),
        bandwidth=Term(constant=device.bandwidth, source=device.source),
    )
