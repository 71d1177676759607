"""What hardware a model takes: memory of weights, cache and activations, and conditions on the device."""

from __future__ import annotations

from lmp.report.document.amounts import Number, Term
from lmp.report.document.parts import Block, Bullets, Code, Inline, Line, Table
from lmp.report.facts import ModelFacts
from lmp.report.implementation.caching import cache_of_a_token
from lmp.report.implementation.kept import kept_line
from lmp.report.implementation.operators import (
    joined,
    searched,
)
from lmp.report.implementation.peaks import with_weights
from lmp.report.implementation.performance import devices_needed
from lmp.report.implementation.searching import Searched, reached_functions


def hardware_blocks(facts: ModelFacts) -> list[Block]:
    items: list[Line] = []
    if facts.inspection is not None:
        line: list[Inline] = ["weights: ", facts.number("{a}", "B", a=Term(name="weight_bytes"))]
        line += [
            " for ",
            facts.number("{a}", "params", a=Term(name="parameters_count")),
            f" in {facts.inspection.dtype}",
        ]
        if facts.inspection.quantised:
            line += [
                "; the config's quantisation (",
                Code(facts.inspection.quantised),
                ") is not in the figures of this report",
            ]
        items.append(line)
    items += list(cache_of_a_token(facts))
    kept = kept_line(facts)
    items += [kept] if kept is not None else []
    found = Searched(facts, reached_functions(facts), ("get_device_capability", "is_cuda", "sm_*", "triton."))
    pointers = list(found.pointers())
    if pointers:
        items.append(["functions that run, or that they call, ask for the device at ", *joined(pointers)])
    else:
        items.append(f"a condition on the device's generation: none found (searched: {found.text})")
    points = [point for point in facts.points if point.key in facts.flows.peaks and facts.inspection is not None]
    rows: list[list[Line]] = []
    for point in points:
        held: Number | None = with_weights(facts, point)
        rows.append([point.title, held if held is not None else "unknown", devices_needed(facts, point)])
    columns = ("Point", "Weights, KV cache and activations", f"{facts.device.name}s of this memory")
    whole = f"{searched(facts)}, with all its layers"
    return [Bullets(items), Table(columns, rows, searched=whole, right=frozenset({1, 2}))]
