"""Section 8: what a call moves and holds on the device, the least time it takes there, and what it waits for."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lmp.report.bounds import LIMITS, Bound
from lmp.report.document.amounts import Number, Term
from lmp.report.document.parts import Block, Bold, Bullets, Code, Fence, Image, Inline, Line, Paragraph, Section, Table
from lmp.report.document.told import Told
from lmp.report.facts import ModelFacts, Point, short
from lmp.report.implementation.assumptions import assumed, read_experts
from lmp.report.implementation.operators import further, joined
from lmp.report.implementation.parallelism import host_waits
from lmp.report.implementation.peaks import measured
from lmp.report.implementation.plans import Plans
from lmp.report.implementation.searching import Searched, ran_functions
from lmp.report.implementation.timeline import layer_lines, model_lines

NAMES = {"compute": "compute", "vector": "vector units", "memory": "memory"}
SYNC = (
    ".item(", ".tolist(", ".cpu(", ".numpy(", ".nonzero(", "cuda.synchronize", ".wait(", "bool(", ".all()", ".any()",
)  # fmt: skip
"""What makes the host wait for the device, on a tensor."""

SIZED = ("nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive", "_local_scalar_dense")
"""Operators whose result's size, or value, goes to the host."""

MOST = 5


def section(facts: ModelFacts, told: Told | None = None) -> Section:
    """Numbers at the stated points, on the facts' device; times are bounds and never measurements."""
    return Section(
        "8. Memory & Performance",
        sections=[
            _titled("8.1 Memory Access Pattern", _hierarchy(facts), told),
            _titled("8.2 Execution Timeline", _timeline(facts), told),
            _titled("8.3 Bottleneck Analysis", _bottlenecks(facts), told),
        ],
    )


def _titled(title: str, blocks: list[Block], told: Told | None) -> Section:
    return Section(title, [*blocks, *further(told, title)])


# --- 8.1 -------------------------------------------------------------------------------------------------------------


def _hierarchy(facts: ModelFacts) -> list[Block]:
    device = facts.device
    columns = (
        "Point",
        "Held: weights",
        "KV cache after",
        "Activations at the peak",
        "Read from memory",
        "Written",
        "Devices",
    )
    rows = [_held(facts, point) for point in facts.points]
    return [
        Paragraph(
            f"On {device.name} ({device.source}); eager execution, operator by operator: nothing stays on chip between "
            "two operators."
        ),
        Fence(_diagram(facts, facts.points[0]), "text"),
        Table(columns, rows, right=frozenset(range(1, 7))),
        Paragraph(
            [
                "Devices: the least number whose memory (",
                _constant(facts, device.memory, "B"),
                " each) holds weights, KV cache and activations at the peak together, however they are split.",
            ]
        ),
        Paragraph(_compulsory(facts)),
        *read_experts(facts),
    ]


def _diagram(facts: ModelFacts, point: Point) -> list[Inline]:
    """The template's hierarchy with this model's bytes at one point."""
    device = facts.device
    lines: list[Inline] = [f"{point.title}\n\n", f"Global memory of {device.name}, "]
    lines += [_constant(facts, device.memory, "B"), " at ", _constant(facts, device.bandwidth, "B/s"), "\n"]
    if facts.inspection is not None:
        lines += ["    weights      ", facts.number("{a}", "B", a=Term(name="weight_bytes")), "\n"]
    if point.key in facts.flows.peaks:
        lines += ["    KV cache     ", measured(facts, point, "cache_after"), " when the call ends\n"]
        lines += ["    activations  ", measured(facts, point, "activations"), " at the peak\n"]
    lines += ["       ↓ load    ", facts.amount("read", point), " read by all operators together\n"]
    lines += ["On chip: ", *_quoted(facts, device.on_chip), f"; {device.units} units\n"]
    lines += ["       ↓ compute ", facts.amount("matmul_flops", point), " in matrix products at "]
    lines += [_constant(facts, device.matmul_flops, "FLOP/s"), ",\n                 "]
    lines += [
        _other_flops(facts, point),
        " of everything else at ",
        _constant(facts, device.other_flops, "FLOP/s"),
        "\n",
    ]
    lines += ["       ↓ store   ", facts.amount("write", point), " written\n"]
    lines += [f"Global memory of {device.name}"]
    return lines


def _quoted(facts: ModelFacts, text: str) -> Iterator[Inline]:
    """A text of the device's maker, with its megabytes as numbers."""
    for number, piece in enumerate(re.split(r"(\d+) MB", text)):
        yield _constant(facts, int(piece) * 10**6, "B") if number % 2 else piece


def _constant(facts: ModelFacts, value: int, unit: str) -> Number:
    return facts.number("{a}", unit, a=Term(constant=value, source=facts.device.source))


def _other_flops(facts: ModelFacts, point: Point) -> Number:
    terms = {"a": Term(point=point.key, quantity="flops"), "b": Term(point=point.key, quantity="matmul_flops")}
    return facts.number("{a} - {b}", "FLOP", **terms)


def _held(facts: ModelFacts, point: Point) -> list[Line]:
    known = facts.inspection is not None
    seen = point.key in facts.flows.peaks
    return [
        point.title,
        facts.number("{a}", "B", a=Term(name="weight_bytes")) if known else "unknown",
        measured(facts, point, "cache_after") if seen else "not run",
        measured(facts, point, "activations") if seen else "not run",
        facts.amount("read", point),
        facts.amount("write", point),
        devices_needed(facts, point) if known and seen else "unknown",
    ]


def devices_needed(facts: ModelFacts, point: Point) -> Number:
    """How many devices' memory it takes for weights, KV cache and activations."""
    return facts.number(
        "ceil(({w} + {a}) / {m})", "",
        w=Term(name="weight_bytes"), a=Term(name=f"peak.{point.key}.total"),
        m=Term(constant=facts.device.memory, source=facts.device.source),
    )  # fmt: skip


def _compulsory(facts: ModelFacts) -> Line:
    if facts.model.compulsory is None:
        return "The least traffic that any fusion could reach: none found (searched: the model's analysis)."
    line: list[Inline] = [
        "Of this traffic any fusion would still have to move (weights, inputs and cache once, outputs once): "
    ]
    for index, point in enumerate(facts.points):
        share = facts.number(
            "100 * {a} / {b}", "%",
            a=Term(point=point.key, quantity="compulsory"), b=Term(point=point.key, quantity="bytes"),
        )  # fmt: skip
        line += ["; " if index else "", f"{point.title}: ", facts.amount("compulsory", point), ", ", share]
    return [*line, "."]


# --- 8.2 -------------------------------------------------------------------------------------------------------------


def seconds(facts: ModelFacts, name: str) -> Number:
    """A bound by its name."""
    return facts.number("{a} / 10 ** 12", "s", a=Term(name=name))


def _timeline(facts: ModelFacts) -> list[Block]:
    device = facts.device
    blocks: list[Block] = [
        Paragraph(
            [
                Bold("A bound, not a measurement."),
                " Each operator takes at least the longest of: its matrix products at ",
                _constant(facts, device.matmul_flops, "FLOP/s"),
                ", its other FLOPs at ",
                _constant(facts, device.other_flops, "FLOP/s"),
                ", its bytes at ",
                _constant(facts, device.bandwidth, "B/s"),
                f" (one {device.name}; where the model needs several, of one as if all fitted). Operators run one "
                "after another, each on all units of the device. Launches, waiting and caches are not in it.",
            ]
        ),
        Bullets(list(assumed(facts))),
    ]
    for phase in dict.fromkeys(point.phase for point in facts.points):
        point = next(p for p in facts.points if p.phase == phase)
        blocks.append(Paragraph(f"Whole model, {point.title}:"))
        blocks.append(Fence(list(model_lines(facts, point)), "text"))
        seen: dict[tuple[tuple[str, Bound], ...], str] = {}
        for path, layer in facts.bounds.layers(point.key).items():
            same = seen.setdefault(tuple(facts.bounds.inside(point.key, path).items()), path)
            if same != path:
                blocks.append(Paragraph([Code(path), " takes the same as ", Code(same), f" at {point.title}."]))
                continue
            blocks.append(Paragraph(["One ", Code(short(layer.class_name)), " (", Code(path), f"), {point.title}:"]))
            blocks.append(Fence(list(layer_lines(facts, point, path)), "text"))
    blocks.append(Paragraph(_columns_read(facts)))
    blocks.append(_bounds_table(facts))
    name = facts.name
    blocks.append(
        Image(f"../assets/{name}-breakdown.svg", f"{name}: bound time by part of the model at each stated point")
    )
    return blocks


def _columns_read(facts: ModelFacts) -> Line:
    line: list[Inline] = [
        Bold("Lower bound, fully fused"),
        ": all matrix products that this code does at the peak rate, or the compulsory traffic of 8.1 at the "
        "bandwidth, whichever takes longer. It is of this code's products: an algorithm that does fewer may take less.",
    ]
    if facts.bounds.is_routed:
        line += [
            " The columns ",
            Bold("uniform routing"),
            " have the expected number of experts of 8.1; all others are as if no two tokens shared an expert, but for "
            "the tokens/s fully fused, which are as if all tokens chose the same experts: no routing reads less.",
        ]
    return line


def _bounds_table(facts: ModelFacts) -> Table:
    routed = facts.bounds.is_routed
    columns = (
        "Point",
        "Bound, eager",
        *(["Eager, uniform routing"] * routed),
        "Compute bound",
        "Memory bound",
        "Vector bound",
        "Lower bound, fully fused",
        *(["Fully fused, uniform routing"] * routed),
        "Tokens/s, eager, at most",
        *(["Tokens/s, eager, uniform routing"] * routed),
        "Tokens/s, fully fused, at most",
    )
    rows: list[list[Line]] = []
    for point in facts.points:
        name = f"bound.{point.key}"
        shares = [_part(facts, f"{name}.{limit}", f"{name}.total") for limit in ("compute", "memory", "vector")]
        even = [seconds(facts, f"{name}.uniform.total")] if routed else []
        row: list[Line] = [point.title, seconds(facts, f"{name}.total"), *even, *shares, _fused(facts, point)]
        row += [_fused(facts, point, "uniform")] if routed else []
        row.append(_tokens(facts, point, f"{name}.total"))
        row += [_tokens(facts, point, f"{name}.uniform.total")] if routed else []
        rows.append([*row, _fused_tokens(facts, point)])
    return Table(columns, rows, right=frozenset(range(1, len(columns))))


def _part(facts: ModelFacts, part: str, whole: str) -> Line:
    if not facts.named[whole]:
        return "none"
    return facts.number("100 * {a} / {b}", "%", a=Term(name=part), b=Term(name=whole))


def _fused(facts: ModelFacts, point: Point, way: str = "") -> Line:
    """All products at the peak rate, or the compulsory traffic at the bandwidth, whichever takes longer."""
    if facts.model.compulsory is None:
        return "no compulsory traffic known"
    return facts.number(FUSED, "s", **_fused_terms(facts, point, way))


FUSED = "max({m} / {p}, {c} / {b})"


def _fused_terms(facts: ModelFacts, point: Point, way: str = "") -> dict[str, Term]:
    source = facts.device.source
    counted = Term(point=point.key, quantity="compulsory")
    return {
        "m": Term(point=point.key, quantity="matmul_flops"),
        "p": Term(constant=facts.device.matmul_flops, source=source),
        "c": Term(name=f"routed.{point.key}.{way}.compulsory") if way else counted,
        "b": Term(constant=facts.device.bandwidth, source=source),
    }


def _fused_tokens(facts: ModelFacts, point: Point) -> Line:
    """New tokens a second at the lower bound; with experts, as if all tokens chose the same ones."""
    if facts.model.compulsory is None:
        return "no compulsory traffic known"
    tokens = Term(constant=point.values["batch_size"] * point.values["seq_len"], source="new tokens of the point")
    terms = _fused_terms(facts, point, "least" if facts.bounds.is_routed else "")
    return facts.number(f"floor({{n}} / {FUSED})", "", n=tokens, **terms)


def _tokens(facts: ModelFacts, point: Point, bound: str) -> Line:
    if not facts.named[bound]:
        return "none"
    tokens = point.values["batch_size"] * point.values["seq_len"]
    return facts.number(
        "floor({n} * 10 ** 12 / {a})", "",
        n=Term(constant=tokens, source="new tokens of the point"), a=Term(name=bound),
    )  # fmt: skip


# --- 8.3 -------------------------------------------------------------------------------------------------------------


def _bottlenecks(facts: ModelFacts) -> list[Block]:
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
            f"../assets/{facts.name}-roofline.svg",
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
        yield f"{'; ' if index else ''}{phase}, first "
        yield from joined([Code(name) for name, _ in _top(facts, points[0], limit)[:3]])
        yield ": "
        shares = [_number(facts, f"bound.{p.key}.{limit}", f"bound.{p.key}.total") for p in points]
        yield from joined(shares)
        yield f" of the bound at its {len(points)} points" if len(points) > 1 else " of the bound"
    yield "."


def _launches(facts: ModelFacts) -> Iterator[Inline]:
    """How long the host may take to launch an operator before the device waits for it."""
    yield "eager execution launches one kernel an operator, at least; where the host needs longer for one than stands "
    yield "here, the host bounds the call and not the device"
    for phase in dict.fromkeys(point.phase for point in facts.points):
        for point in [p for p in facts.points if p.phase == phase][:2]:
            launches = Term(point=point.key, quantity="launches")
            if facts.value(launches):
                yield f"; {point.title}: "
                yield facts.number("{n}", "", n=launches)
                yield " operators that move bytes, on average "
                bound = Term(name=f"bound.{point.key}.total")
                yield facts.number("{a} / (10 ** 12 * {n})", "s", a=bound, n=launches)
    yield "."


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
        line.append(f"none found (searched: {found.text}; decisions on values in {len(facts.analyses)} analyses)")
    if there:
        line += ["; in the same functions, but not on the path that ran: ", *joined(there)]
    for way, wait in host_waits(Plans(facts)):
        line += ["; with experts over several devices by ", Code(way), " the host waits at "]
        line.append(facts.place(wait.file, wait.line, wait.symbol))
    ran_ops = [op for flow in facts.flows.phases.values() for op in flow.ops]
    sized = sorted({op.name for op in ran_ops if op.name in SIZED})
    names = [Code(f"aten.{name}") for name in sized]
    line.append("; operators whose result has a size that only the device knows: ")
    line += joined(names) if names else [f"none found (searched: {', '.join(SIZED)} among {len(ran_ops)} executed)"]
    return line


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
