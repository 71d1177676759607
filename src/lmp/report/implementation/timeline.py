"""Bound times as bars: parts one after another, each as long as its share of the whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from lmp.report.bounds import LIMITS, Bound
from lmp.report.document.amounts import Number, Term
from lmp.report.document.parts import Inline
from lmp.report.facts import ModelFacts, Point

BAR, LABEL = 44, 32
LEAST = 1000
"""Parts that take less than one in so many of the whole share a row."""

SIGNS = {"compute": "█", "vector": "▓", "memory": "░"}


def model_lines(facts: ModelFacts, point: Point) -> Iterator[Inline]:
    """The outermost parts of the model; layers of a kind together."""
    parts = facts.bounds.parts(point.key)
    layers = facts.bounds.layers(point.key)
    paths = set(parts)
    labels = {name: name if not _holds(name, paths) else f"{name}, itself" for name in parts}
    labels |= {name: f"{name} ×{layers[name].runs}" for name in parts if name in layers}
    yield from _lines(facts, parts, labels, f"bound.{point.key}.part")


def _holds(name: str, paths: set[str]) -> bool:
    return any(path.startswith(f"{name}.") for path in paths)


def layer_lines(facts: ModelFacts, point: Point, path: str) -> Iterator[Inline]:
    """What one layer does, once."""
    parts = facts.bounds.inside(point.key, path)
    yield from _lines(facts, parts, {name: name for name in parts}, f"bound.{point.key}.in.{path}")


def _lines(facts: ModelFacts, parts: Mapping[str, Bound], labels: Mapping[str, str], prefix: str) -> Iterator[Inline]:
    whole = sum((bound.total for bound in parts.values()), Fraction(0))
    shown = {name: bound for name, bound in parts.items() if bound.total * LEAST >= whole and bound.total}
    small = [name for name, bound in parts.items() if name not in shown and bound.total]
    if len(small) == 1:  # a row of its own, where it runs
        shown, small = {name: bound for name, bound in parts.items() if bound.total}, []
    yield f"{'':<{LABEL}} █ compute  ▓ vector units  ░ memory\n"
    start = Fraction(0)
    for index, (name, bound) in enumerate(shown.items()):
        left, right = _column(start, whole), _column(start + bound.total, whole)
        bar = " " * min(left, BAR - 1) + _sign(bound) * max(1, right - left)
        start += bound.total
        yield "\n" if index else ""
        yield f"{_cut(labels[name]):<{LABEL}} {bar:<{BAR}} "
        yield _seconds(facts, f"{prefix}.{name}.total")
    if small:
        yield from _together(facts, small, prefix)


def _together(facts: ModelFacts, names: Sequence[str], prefix: str) -> Iterator[Inline]:
    """One row for parts that no bar could show, wherever they stand among the others."""
    label = f"{len(names)} below a thousandth each"
    terms = {f"a{number}": Term(name=f"{prefix}.{name}.total") for number, name in enumerate(names)}
    yield f"\n{label:<{LABEL}} {'':<{BAR}} "
    yield facts.number(f"({' + '.join(f'{{{name}}}' for name in terms)}) / 10 ** 12", "s", **terms)


def _column(time: Fraction, whole: Fraction) -> int:
    return int(time * BAR / whole) if whole else 0


def _sign(bound: Bound) -> str:
    """Of what bounds most of a part."""
    return SIGNS[max(LIMITS, key=lambda limit: getattr(bound, limit))]


def _cut(label: str, room: int = LABEL) -> str:
    return label if len(label) <= room else f"{label[: room - 1]}…"


def _seconds(facts: ModelFacts, name: str) -> Number:
    return facts.number("{a} / 10 ** 12", "s", a=Term(name=name))
