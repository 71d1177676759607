"""Numbers that several sections state: bounds, predictions, constants of the device, memory at the peak."""

from __future__ import annotations

from lmp.predict.prediction import Total
from lmp.predict.screen.asking import Answer
from lmp.predict.screen.card import EAGER_NAME as EAGER
from lmp.report.bounds import LIMITS
from lmp.report.document.amounts import Number, Term
from lmp.report.document.parts import Line
from lmp.report.facts import ModelFacts, Point
from lmp.report.implementation.kept import kept_activations

PICO = "{a} / 10 ** 12"


def seconds(facts: ModelFacts, name: str) -> Number:
    """A bound by its name."""
    return facts.number(PICO, "s", a=Term(name=name))


def named(facts: ModelFacts, name: str, unit: str = "B") -> Number:
    return facts.number("{a}", unit, a=Term(name=name))


def share_of(facts: ModelFacts, part: str, whole: str) -> Number | None:
    """Per cent of one named number in another; None where that is 0."""
    return facts.number("100 * {a} / {b}", "%", a=Term(name=part), b=Term(name=whole)) if facts.named[whole] else None


def of_device(facts: ModelFacts, value: int, unit: str) -> Number:
    """A constant of the device's datasheet."""
    return facts.number("{a}", unit, a=Term(constant=value, source=facts.device.source))


def rate(facts: ModelFacts, value: int) -> Term:
    return Term(constant=value, source=facts.device.source)


def answer(facts: ModelFacts, point: Point, profile: str = EAGER) -> Answer | None:
    return facts.predictions.at(point.key, profile)


def predicted(facts: ModelFacts, microseconds: float, source: str) -> Number:
    """A predicted time, to nanoseconds."""
    return facts.number("{a} / 10 ** 9", "s", a=Term(constant=round(microseconds * 1000), source=source))


def interval(facts: ModelFacts, found: Total, source: str) -> Line:
    low, high = (predicted(facts, end, f"{source}, end of the interval") for end in found[1:])
    return [low, " to ", high]


def count(facts: ModelFacts, value: int, source: str) -> Number:
    return facts.number("{a}", "", a=Term(constant=value, source=source))


def at_peak(facts: ModelFacts, point: Point, name: str) -> Number | None:
    """A number of the peak at a point: total, activations, cache_after. None where the class was not run there."""
    return named(facts, f"peak.{point.key}.{name}") if point.key in facts.flows.peaks else None


def held(facts: ModelFacts, point: Point) -> Number | None:
    """Weights, KV cache and activations at the peak; None where they are not known."""
    if facts.inspection is None or point.key not in facts.flows.peaks:
        return None
    return facts.number("{a} + {w}", "B", a=Term(name=f"peak.{point.key}.total"), w=Term(name="weight_bytes"))


def devices(facts: ModelFacts, point: Point) -> Number | None:
    """The least number of devices whose memory holds it all."""
    if held(facts, point) is None:
        return None
    return facts.number("ceil(({w} + {a}) / {m})", "", **_needed(facts, point))


def over_devices(facts: ModelFacts, point: Point) -> Number | None:
    """The bound, divided by the devices that the memory takes."""
    if held(facts, point) is None:
        return None
    bound = Term(name=f"bound.{point.key}.total")
    return facts.number("{t} / (10 ** 12 * ceil(({w} + {a}) / {m}))", "s", t=bound, **_needed(facts, point))


def _needed(facts: ModelFacts, point: Point) -> dict[str, Term]:
    memory = rate(facts, facts.device.memory)
    return {"w": Term(name="weight_bytes"), "a": Term(name=f"peak.{point.key}.total"), "m": memory}


def last_position(facts: ModelFacts, point: Point) -> Line:
    """Activations where logits are asked of one position alone."""
    kept = kept_activations(facts, point)
    if kept is not None:
        return kept
    return "the same: one position" if point.values.get("seq_len") == 1 else "no such argument"


def fused(facts: ModelFacts, point: Point, way: str = "") -> Number | None:
    """All products at the peak rate, or the compulsory traffic at the bandwidth, whichever takes longer."""
    if facts.model.compulsory is None:
        return None
    counted = Term(point=point.key, quantity="compulsory")
    return facts.number(
        "max({m} / {p}, {c} / {b})", "s",
        m=Term(point=point.key, quantity="matmul_flops"), p=rate(facts, facts.device.matmul_flops),
        c=Term(name=f"routed.{point.key}.{way}.compulsory") if way else counted, b=rate(facts, facts.device.bandwidth),
    )  # fmt: skip


def limit_of(facts: ModelFacts, prefix: str) -> str:
    """Which of the three limits has most of a bound."""
    return max(LIMITS, key=lambda name: facts.named[f"{prefix}.{name}"])


def first_of_each_phase(facts: ModelFacts) -> list[Point]:
    found: dict[str, Point] = {}
    for point in facts.points:
        found.setdefault(point.phase, point)
    return list(found.values())


def longest_decode(facts: ModelFacts) -> Point | None:
    """Decode on the longest cache; of several the one with the most sequences."""
    points = [point for point in facts.points if point.phase == "decode"]
    return max(points, key=lambda p: (p.values["cache_len"], p.values["batch_size"]), default=None)
