"""What bounds a call at every stated point, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterator

from lmp.records import short
from lmp.report.bounds import LIMITS, Bound
from lmp.report.document.amounts import Number, Term
from lmp.report.document.parts import Block, Bold, Bullets, Code, Image, Inline, Line, Paragraph, Table
from lmp.report.facts import ModelFacts, Point
from lmp.report.folder import file_name
from lmp.report.implementation.operators import joined
from lmp.report.implementation.overlap import host_waits
from lmp.report.implementation.plans import Plans
from lmp.report.implementation.predicted import launch_line
from lmp.report.implementation.searching import Searched, ran_functions
from lmp.report.implementation.timing import seconds

NAMES = {"compute": "compute", "vector": "vector units", "memory": "memory"}
SYNC = (
    ".item(", ".tolist(", ".cpu(", ".numpy(", ".nonzero(", "cuda.synchronize", ".wait(", "bool(", ".all()", ".any()",
)  # fmt: skip
"""What makes the host wait for the device, on a tensor."""

SIZED = ("nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive", "_local_scalar_dense")
"""Operators whose result's size, or value, goes to the host."""

MOST = 5


def bottleneck_blocks(facts: ModelFacts) -> list[Block]:
    return [
        Paragraph(_ridge(facts)),
        Bullets(
            [
                [Bold("Compute Bound:"), " ", *_bound_by(facts, "compute")],
                [Bold("Memory Bound:"), " ", *_bound_by(facts, "memory")],
                [Bold("Synchronization:"), " ", *_synchronization(facts)],
                [Bold("Launches:"), " ", *_launches(facts)],
            ]
        ),
        Table(
            ("Point", "Bound by", "Operators", "Share of the bound", "At least"),
            list(_rows(facts)),
            right=frozenset({3, 4}),
        ),
        *_shared(facts),
        Image(
            f"../assets/{file_name(facts.name)}-roofline.svg",
            f"{facts.name}: roofline on {facts.device.name} at the stated points",
        ),
    ]


def _shared(facts: ModelFacts) -> Iterator[Block]:
    """What the tables above suppose of routing."""
    if facts.bounds.is_routed:
        yield Paragraph(
            "Shares and times of products over experts (grouped_matmul) are as if no two tokens shared an expert; 8.1 "
            "has the numbers of experts under uniform routing, 8.2 the bounds."
        )


def _ridge(facts: ModelFacts) -> Line:
    source = facts.device.source
    ridge = facts.number(
        "{p} / {b}", "FLOPs/B",
        p=Term(constant=facts.device.matmul_flops, source=source),
        b=Term(constant=facts.device.bandwidth, source=source),
    )  # fmt: skip
    line: list[Inline] = [
        f"Ridge point of {facts.device.name}: ",
        ridge,
        " (below it memory bounds a product, above it compute). The model as a whole: ",
    ]
    for index, point in enumerate(facts.points):
        found = facts.intensity(point)
        line += ["; " if index else "", f"{point.title}: ", found if found is not None else "moves nothing"]
    return [*line, "."]


def _top(facts: ModelFacts, point: Point, limit: str) -> list[tuple[str, Bound]]:
    groups = facts.bounds.groups(point.key).items()
    found = [(name, bound) for name, bound in groups if getattr(bound, limit)]
    return sorted(found, key=lambda item: -getattr(item[1], limit))


def _bound_by(facts: ModelFacts, limit: str) -> Iterator[Inline]:
    """What has most of it in each phase, and its share at every point; the table has the times."""
    with_some = [point for point in facts.points if _top(facts, point, limit)]
    if not with_some:
        groups = sum(len(facts.bounds.groups(point.key)) for point in facts.points)
        yield f"none found (searched: {groups} groups of operators at {len(facts.points)} points)."
        return
    for index, phase in enumerate(dict.fromkeys(point.phase for point in with_some)):
        points = [point for point in with_some if point.phase == phase]
        yield f"{'; ' if index else ''}{facts.called(phase)}: "
        shares = [_number(facts, f"bound.{p.key}.{limit}", f"bound.{p.key}.total") for p in points]
        yield from joined(shares)
        yield f" of the bound at its {len(points)} points" if len(points) > 1 else " of the bound"
        yield f", most of it at {points[0].title} in "
        yield from joined([Code(name) for name, _ in _top(facts, points[0], limit)[:3]])
    yield "."


def _launches(facts: ModelFacts) -> Iterator[Inline]:
    """What the host's launches take beside the kernels; how long it may take before the device waits for it."""
    if facts.predictions.reason is None:
        yield "predicted"
        for point in _first_two(facts):
            yield from launch_line(facts, point)
        yield ". By the bounds: "
    yield "eager execution launches one kernel an operator, at least; where the host needs longer for one than stands "
    yield "here, the host bounds the call and not the device"
    for point in _first_two(facts):
        launches = Term(point=point.key, quantity="launches")
        if facts.value(launches):
            yield f"; {point.title}: "
            yield facts.number("{n}", "", n=launches)
            yield " operators that move bytes, on average "
            bound = Term(name=f"bound.{point.key}.total")
            yield facts.number("{a} / (10 ** 12 * {n})", "s", a=bound, n=launches)
    yield "."


def _first_two(facts: ModelFacts) -> list[Point]:
    """The first two points of each phase."""
    phases = dict.fromkeys(point.phase for point in facts.points)
    return [point for phase in phases for point in [p for p in facts.points if p.phase == phase][:2]]


def _number(facts: ModelFacts, part: str, whole: str) -> Number:
    return facts.number("100 * {a} / {b}", "%", a=Term(name=part), b=Term(name=whole))


def _rows(facts: ModelFacts) -> Iterator[list[Line]]:
    """The largest groups of each point."""
    for point in facts.points:
        found = []
        for limit in LIMITS:
            found += [(limit, name, bound) for name, bound in _top(facts, point, limit)]
        found.sort(key=lambda item: -getattr(item[2], item[0]))
        for limit, name, _ in found[:MOST]:
            key = f"bound.{point.key}.group.{name}.{limit}"
            share = _number(facts, key, f"bound.{point.key}.total")
            yield [point.title, NAMES[limit], Code(name), share, seconds(facts, key)]


def _synchronization(facts: ModelFacts) -> list[Inline]:
    """Decisions on values of tensors, and lines of the functions that run which wait for the device."""
    line: list[Inline] = []
    decisions = [(name, d) for name, a in facts.analyses.items() for d in a.decisions]
    for name, decision in decisions:
        line += [
            "; " if line else "",
            f"{short(name)} decides on values of a tensor at ",
            facts.place(decision.file, decision.line),
        ]
    found = Searched(facts, ran_functions(facts), SYNC)
    ran = _ran_lines(facts)
    places = list(zip(found.places, found.pointers(), strict=True))
    here = [pointer for (file, number, _), pointer in places if number in ran.get(file, ())]
    there = [pointer for (file, number, _), pointer in places if number not in ran.get(file, ())]
    if here:
        line += ["; " if line else "", "lines that run and may wait for the device: ", *joined(here)]
    if not line:
        analyses = _many(len(facts.analyses), "analysis", "analyses")
        line.append(f"none found (searched: {found.text}; decisions on values in {analyses})")
    if there:
        line += ["; in the same functions, but not on the path that ran: ", *joined(there)]
    for way, wait in host_waits(Plans(facts)):
        line += ["; with experts over several devices by ", Code(way), " the host waits at "]
        line.append(facts.place(wait.file, wait.line, wait.symbol))
    ran_ops = [op for flow in facts.flows.phases.values() for op in flow.ops]
    sized = sorted({op.name for op in ran_ops if op.name in SIZED})
    names = [Code(f"aten.{name}") for name in sized]
    line.append("; operators whose result has a size that only the device knows: ")
    number = _many(len(ran_ops), "operator", "operators")
    searched = f"{', '.join(SIZED)} among the {number} of the runs looked at, alike layers once"
    line += joined(names) if names else [f"none found (searched: {searched})"]
    return line


def _many(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"


def _ran_lines(facts: ModelFacts) -> dict[str, set[int]]:
    """Lines of each file that run, whether they cost something or not."""
    found: dict[str, set[int]] = {}
    for analysis in facts.analyses.values():
        found.setdefault(analysis.source.file, set()).update(analysis.free_lines)
        for file, lines in analysis.free_lines_elsewhere.items():
            found.setdefault(file, set()).update(lines)
        for kernel in analysis.kernels:
            found.setdefault(kernel.file or analysis.source.file, set()).add(kernel.line)
    return found
