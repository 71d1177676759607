"""Section 8: what a call holds and moves, where its time goes, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lmp.link.numbers import KernelNumbers, ModuleNumbers
from lmp.report.bounds import LIMITS, is_wide
from lmp.report.document.amounts import Number, Term
from lmp.report.document.parts import Code, Inline, Line, Pointer
from lmp.report.facts import ModelFacts, Point
from lmp.report.implementation.figures import (
    answer,
    at_peak,
    first_of_each_phase,
    fused,
    last_position,
    limit_of,
    named,
    over_devices,
    rate,
    seconds,
    share_of,
)
from lmp.report.implementation.naming import module_name
from lmp.report.implementation.operators import joined, pointer_at
from lmp.report.implementation.parallel import host_waits
from lmp.report.implementation.plans import Plans
from lmp.report.implementation.searching import Searched, ran_functions
from lmp.report.implementation.tree import classes_at

SYNC = (
    ".item(", ".tolist(", ".cpu(", ".numpy(", ".nonzero(", "cuda.synchronize", ".wait(", "bool(", ".all()", ".any()",
)  # fmt: skip
"""What makes the host wait for the device, on a tensor."""
SIZED = ("nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive", "_local_scalar_dense")
"""Operators whose result's size, or value, goes to the host."""
NAMES = {"compute": "compute", "vector": "vector units", "memory": "memory"}
MOST = 5


# --- 8.1 -------------------------------------------------------------------------------------------------------------


def memory_rows(facts: ModelFacts) -> list[dict[str, Line | Number | None]]:
    """What each point holds, reads and writes, and the least that any fusion would move."""
    rows: list[dict[str, Line | Number | None]] = []
    for point in facts.points:
        least = facts.amount("compulsory", point) if facts.model.compulsory is not None else None
        rows.append(
            {
                "point": point.title,
                "weights": named(facts, "weight_bytes") if facts.inspection is not None else None,
                "cache": at_peak(facts, point, "cache_after"),
                "activations": at_peak(facts, point, "activations"),
                "read": facts.amount("read", point),
                "write": facts.amount("write", point),
                "least": least,
                "last": last_position(facts, point),
            }
        )
    return rows


def other_flops(facts: ModelFacts, point: Point) -> Number:
    terms = {"a": Term(point=point.key, quantity="flops"), "b": Term(point=point.key, quantity="matmul_flops")}
    return facts.number("{a} - {b}", "FLOP", **terms)


WAYS = ("most", "uniform", "least")


def routing_rows(facts: ModelFacts) -> list[dict[str, Line]]:
    """How many experts' weights a call reads, and what it reads then."""
    rows: list[dict[str, Line]] = []
    for point in facts.points if facts.bounds.is_routed else ():
        for number in range(len(facts.bounds.routings[point.key].choices)):
            row: dict[str, Line] = {"point": point.title}
            for way in WAYS:
                name = f"routed.{point.key}.{way}.experts.{number}"
                row[way] = facts.number("{a} / 10 ** 6", "", a=Term(name=name))
                row[f"{way}_read"] = named(facts, f"routed.{point.key}.{way}.read")
            row["most_read"] = facts.amount("read", point)
            rows.append(row)
    return rows


# --- 8.2 -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """A part of the model at one point: launches, bound, and the time at which neither host nor device is faster."""

    name: Line
    launches: Number
    bound: Number
    limit: str
    host: Number | None
    """Launches times the stated cost of one."""
    least: Number | None
    """The longer of the two."""


def launch_cost(facts: ModelFacts) -> Term | None:
    """Nanoseconds in which the host launches one kernel, as the profile of eager mode has it."""
    found = next((one for point in facts.points if (one := answer(facts, point)) is not None), None)
    if found is None:
        return None
    return Term(constant=round(found.profile.launch_us[0] * 1000), source="the profile transformers-eager")


def timeline(facts: ModelFacts, point: Point, most: int | None = None) -> list[Part]:
    """The outermost parts and those of each kind of layer, all runs together, in order; with ``most`` the longest."""
    cost = launch_cost(facts)
    parts = [_part(facts, point, *told, cost) for told in outer_parts(facts, facts.tree(point))]
    shown = [part for part in parts if part.bound.value or part.launches.value]
    longest = sorted(shown, key=lambda part: -(part.least or part.bound).value)[:most]
    return [part for part in shown if part in longest]


def outer_parts(
    facts: ModelFacts, module: ModuleNumbers, above: str = "", inside: bool = False
) -> Iterator[tuple[str, str, ModuleNumbers]]:
    """Modules down to the parts of layers, by their paths: what these hold is told with them."""
    seen: set[str] = set()
    for child in module.children:
        if not isinstance(child, ModuleNumbers) or child.path in seen:
            continue
        seen.add(child.path)
        name = module_name(facts, child.path, module.path)
        path = f"{above}.{name}" if above else name
        if any(isinstance(c, ModuleNumbers) for c in child.children) and not inside:
            yield from outer_parts(facts, child, path, child.path.rpartition(".")[2].isdigit())
        else:
            yield path, classes_at(facts, module, child.path), child


def _part(facts: ModelFacts, point: Point, name: str, called: str, module: ModuleNumbers, cost: Term | None) -> Part:
    """The bound is that of its operators at their own limits, from bytes and FLOPs of each."""
    launches = Term(point=point.key, quantity="launches", path=module.path)
    bound = Term(name=f"bound.{point.key}.module.{module.path}.total")
    host = least = None
    if cost is not None:
        host = facts.number("{n} * {l} / 10 ** 9", "s", n=launches, l=cost)
        least = facts.number("max({a} / 10 ** 12, {n} * {l} / 10 ** 9)", "s", a=bound, n=launches, l=cost)
    prefix = f"bound.{point.key}.module.{module.path}"
    limit = NAMES[limit_of(facts, prefix)] if facts.named[f"{prefix}.total"] else "nothing"
    is_host = host is not None and host.value > facts.number("{a} / 10 ** 12", "s", a=bound).value
    return Part(
        [Code(name), f" {called}"],
        facts.number("{n}", "", n=launches),
        seconds(facts, bound.name or ""),
        "launches" if is_host else limit,
        host,
        least,
    )


def bound_rows(facts: ModelFacts) -> list[dict[str, Line | Number | None]]:
    """The bounds of each point with what they are made of."""
    rows: list[dict[str, Line | Number | None]] = []
    for point in facts.points:
        name = f"bound.{point.key}"
        row: dict[str, Line | Number | None] = {"point": point.title, "total": seconds(facts, f"{name}.total")}
        row |= {limit: share_of(facts, f"{name}.{limit}", f"{name}.total") for limit in LIMITS}
        row["uniform"] = seconds(facts, f"{name}.uniform.total") if facts.bounds.is_routed else None
        row["fused"] = fused(facts, point)
        row["over"] = over_devices(facts, point)
        rows.append(row)
    return rows


# --- 8.3 -------------------------------------------------------------------------------------------------------------


def bound_by(facts: ModelFacts, limit: str) -> list[Inline]:
    """The share of a limit in the bound of the first point of each phase, and the operators with most of it."""
    pieces: list[Inline] = []
    for point in first_of_each_phase(facts):
        top = _top(facts, point, limit)
        share = share_of(facts, f"bound.{point.key}.{limit}", f"bound.{point.key}.total")
        if top and share is not None:
            pieces += ["; " if pieces else "", f"{point.title}: ", share, " of the bound, most of it "]
            pieces += joined([Code(name) for name in top[:3]])
    return pieces


def _top(facts: ModelFacts, point: Point, limit: str) -> list[str]:
    groups = facts.bounds.groups(point.key).items()
    found = sorted(((getattr(b, limit), name) for name, b in groups if getattr(b, limit)), reverse=True)
    return [name for _, name in found]


def group_rows(facts: ModelFacts, points: Sequence[Point], most: int = MOST) -> list[dict[str, Line]]:
    """The largest groups of operators of each point."""
    rows: list[dict[str, Line]] = []
    for point in points:
        entries = [
            (getattr(bound, limit), limit, name)
            for name, bound in facts.bounds.groups(point.key).items()
            for limit in LIMITS
            if getattr(bound, limit)
        ]
        for _, limit, name in sorted(entries, key=lambda e: (-e[0], e[1], e[2]))[:most]:
            key = f"bound.{point.key}.group.{name}.{limit}"
            share = share_of(facts, key, f"bound.{point.key}.total")
            time = seconds(facts, key)
            rows.append(
                {"point": point.title, "limit": NAMES[limit], "name": Code(name), "share": share or "", "time": time}
            )
    return rows


@dataclass(frozen=True)
class Synchronization:
    """What the host waits for."""

    decisions: list[Inline]
    ran: list[Inline]
    """Lines that run."""
    beside: list[Inline]
    """Lines of the same functions that did not run."""
    experts: list[Inline]
    sized: list[Inline]
    searched: str


def synchronization(facts: ModelFacts) -> Synchronization:
    found = Searched(facts, ran_functions(facts), SYNC)
    lines = _ran_lines(facts)
    places = list(zip(found.places, found.pointers(), strict=True))
    decided = [facts.place(d.file, d.line) for a in facts.analyses.values() for d in a.decisions]
    waits = [facts.place(wait.file, wait.line, wait.symbol) for _, wait in host_waits(Plans(facts))]
    ops = [op for flow in facts.flows.phases.values() for op in flow.ops]
    return Synchronization(
        joined(decided),
        joined([pointer for (file, number, _), pointer in places if number in lines.get(file, ())]),
        joined([pointer for (file, number, _), pointer in places if number not in lines.get(file, ())]),
        joined(waits),
        joined([Code(f"aten.{name}") for name in sorted({op.name for op in ops if op.name in SIZED})]),
        f"{found.text}; decisions on values in {len(facts.analyses)} analyses; {', '.join(SIZED)} among operators",
    )


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


# --- what the bounds suppose -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Masked:
    """Products of causal attention that its mask hides, at one point."""

    point: Point
    share: Number
    fused: Number | None
    """The fused bound without them."""


def masked(facts: ModelFacts) -> list[Masked]:
    return [one for point in facts.points if (one := _masked(facts, point)) is not None]


def _causal(facts: ModelFacts, point: Point) -> list[KernelNumbers]:
    """Attention at the lines where a call of this phase was told to be causal."""
    flow = facts.flows.phases.get(point.phase)
    lines = {line.line for op in (flow.ops if flow else ()) if op.causal for line in op.frames[0].lines[:1]}
    return [k for k in facts.kernels(point) if k.kernel.category == "attention" and k.kernel.line in lines]


def _masked(facts: ModelFacts, point: Point) -> Masked | None:
    kernels = _causal(facts, point)
    if not kernels or point.values["seq_len"] < 2:
        return None
    terms = {
        f"a{number}": Term(point=point.key, quantity="flops", class_name=name, category="attention", line=line)
        for number, (name, line) in enumerate(dict.fromkeys((k.class_name, k.kernel.line) for k in kernels))
    }
    # Of the n * (n + c) pairs of n queries with n + c keys, those with a later key are n * (n - 1) / 2.
    terms |= {
        "n": Term(constant=point.values["seq_len"], source="new tokens"),
        "c": Term(constant=point.values["cache_len"], source="cached tokens"),
    }
    hidden = f"({' + '.join(f'{{{name}}}' for name in terms if name[0] == 'a')}) * ({{n}} - 1) / (2 * ({{n}} + {{c}}))"
    terms["m"] = Term(point=point.key, quantity="matmul_flops")
    share = facts.number(f"100 * ({hidden}) / {{m}}", "%", **terms)
    if facts.model.compulsory is None:
        return Masked(point, share, None)
    less = facts.number(
        f"max(({{m}} - ({hidden})) / {{p}}, {{k}} / {{b}})", "s", **terms,
        p=rate(facts, facts.device.matmul_flops), k=Term(point=point.key, quantity="compulsory"),
        b=rate(facts, facts.device.bandwidth),
    )  # fmt: skip
    return Masked(point, share, less)


def wide_products(facts: ModelFacts) -> list[Pointer]:
    """Lines with products of operands that are wider than the model's."""
    places: dict[tuple[str, int], None] = {}
    for kernel in facts.kernels(facts.points[0]):
        if is_wide(kernel.kernel):
            source = facts.analyses[kernel.class_name].source.file
            places[kernel.kernel.file or source, kernel.kernel.line] = None
    return [pointer_at(facts, file, line) for file, line in places]
