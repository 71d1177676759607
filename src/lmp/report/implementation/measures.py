"""What a part of a model costs at a stated point: amounts, shares, intensity and the bound of a device, as numbers that
say how they are worked out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lmp.report.document.amounts import Number, Quantity, Term
from lmp.report.facts import ModelFacts, Point

Bound = Literal["compute", "memory"]


@dataclass(frozen=True)
class Measure:
    """The kernels that any of ``choices`` chooses (see `Term`); no two of them choose the same kernel."""

    facts: ModelFacts
    choices: tuple[Mapping[str, Any], ...]

    def narrowed(self, **choice: Any) -> Measure:
        """Of these kernels those that also meet ``choice``."""
        return Measure(self.facts, tuple({**own, **choice} for own in self.choices))

    def amount(self, quantity: Quantity, point: Point) -> Number:
        unit = {"flops": "FLOP", "matmul_flops": "FLOP", "runs": "", "launches": ""}.get(quantity, "B")
        sum_, terms = self._sum("a", quantity, point)
        return self.facts.number(sum_, unit, **terms)

    def share(self, quantity: Quantity, point: Point, whole: Measure | None = None) -> Number | None:
        """Per cent of the whole model, or of another measure; None where that is 0."""
        part, terms = self._sum("a", quantity, point)
        total, more = (whole or Measure(self.facts, ({},)))._sum("w", quantity, point)
        if not self.facts.number(total, "", **more).value:
            return None
        return self.facts.number(f"100 * ({part}) / ({total})", "%", **terms, **more)

    def intensity(self, point: Point) -> Number | None:
        """FLOPs a byte; None where no byte moves."""
        flops, terms = self._sum("f", "flops", point)
        moved, more = self._sum("b", "bytes", point)
        if not self.facts.number(moved, "", **more).value:
            return None
        return self.facts.number(f"({flops}) / ({moved})", "FLOPs/B", **terms, **more)

    def seconds(self, point: Point) -> Number:
        """The least time on the device: the longer one of arithmetic and traffic at its peak rates."""
        arithmetic, traffic, terms = self._times(point)
        return self.facts.number(f"max({arithmetic}, {traffic})", "s", **terms)

    def bound(self, point: Point) -> Bound | None:
        """Which of the two it is; None where nothing runs."""
        arithmetic, traffic, terms = self._times(point)
        computing, moving = (self.facts.number(e, "s", **terms).value for e in (arithmetic, traffic))
        if not computing and not moving:
            return None
        return "compute" if computing >= moving else "memory"

    def _times(self, point: Point) -> tuple[str, str, dict[str, Term]]:
        device = self.facts.device
        matmul, terms = self._sum("m", "matmul_flops", point)
        flops, more = self._sum("f", "flops", point)
        moved, last = self._sum("b", "bytes", point)
        rates = {
            name: Term(constant=rate, source=device.source)
            for name, rate in (
                ("tensor_rate", device.matmul_flops),
                ("vector_rate", device.other_flops),
                ("bandwidth", device.bandwidth),
            )
        }
        arithmetic = f"({matmul}) / {{tensor_rate}} + ({flops} - ({matmul})) / {{vector_rate}}"
        return arithmetic, f"({moved}) / {{bandwidth}}", {**terms, **more, **last, **rates}

    def _sum(self, letter: str, quantity: Quantity, point: Point) -> tuple[str, dict[str, Term]]:
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
