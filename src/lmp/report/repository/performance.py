"""Section 8 of the implementation template: memory, launches and what may bound a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from lmp.codebase.facts import Place
from lmp.report.document.parts import (
    Block,
    Bold,
    Bullets,
    Fence,
    Inline,
    Line,
    Paragraph,
    Section,
)
from lmp.report.repository.configured import UNKNOWN
from lmp.report.repository.kernel_work import hierarchy, work_of
from lmp.report.repository.pieces import (
    ASIDE,
    code,
    joined,
    plural,
    pointer,
    sentence,
)
from lmp.report.repository.study import Study

SHOWN = 12
WAITS = frozenset(
    ["synchronize", "barrier", "block_until_ready", "wait_stream", "cudaDeviceSynchronize", "cudaStreamSynchronize",
     "wait_event", "cudaStreamWaitEvent", "item", "cpu", "tolist"]
)  # fmt: skip
"""Calls after which the host, or a stream, has waited for a device."""


def performance(study: Study) -> Section:
    worked = [(kernel, work_of(study.base, kernel)) for kernel in study.ranked_kernels]
    memory: list[Line] = []
    for kernel, work in [each for each in worked if each[1].counts][:SHOWN]:
        counts = joined([f"{name} {number}" for name, number in work.counts.items()])
        memory.append(sentence(pointer(kernel.place, kernel.name), ": ", counts))
    searched = "loads, stores and shared arrays in kernels' own lines"
    levels: list[Block] = [hierarchy(worked)] if worked else []
    compute = [pointer(kernel.place, kernel.name) for kernel, work in worked if work.multiplies]
    moving = [pointer(kernel.place, kernel.name) for kernel, work in worked if work.counts and not work.multiplies]
    waits: Counter[str] = Counter()
    first: dict[str, Place] = {}
    attending = study.reading.running
    for function in study.reading.functions:
        for call in function.calls:
            if call.name in WAITS and function in attending and not ASIDE.search(function.file):
                waits[call.name] += 1
                first.setdefault(call.name, Place(function.file, call.line))
    shown = [
        sentence(code(name, 30), " at ", *plural(number, "place"), ", as ", pointer(first[name]))
        for name, number in waits.most_common(6)
    ]
    none = f"none found (searched: products, loads and stores in the lines of {len(worked)} kernels)"
    return Section(
        "8. Memory & Performance",
        [],
        [
            Section("8.1 Memory Access Pattern", [*levels, Bullets(memory, searched)]),
            Section("8.2 Execution Timeline", _timeline(study)),
            Section(
                "8.3 Bottleneck Analysis",
                [
                    Bullets(
                        [
                            sentence(
                                Bold("Compute Bound:"),
                                " candidates, as they multiply on tensor cores: ",
                                *some(compute),
                                ".",
                            )
                            if compute
                            else sentence(Bold("Compute Bound:"), f" {none}."),
                            sentence(
                                Bold("Memory Bound:"),
                                " candidates, as they only move and reduce: ",
                                *some(moving),
                                ".",
                            )
                            if moving
                            else sentence(Bold("Memory Bound:"), f" {none}."),
                            sentence(
                                Bold("Synchronization:"),
                                " in functions that lead to a model: ",
                                joined(shown, "; "),
                                ".",
                            )
                            if shown
                            else sentence(
                                Bold("Synchronization:"), " none found (searched: calls that wait for a device)."
                            ),
                            f"Which of them bounds a run {UNKNOWN}: sizes and hardware decide.",
                        ]
                    )
                ],
            ),
        ],
    )


def some(found: Sequence[Inline]) -> list[Inline]:
    more = [f" and {len(found) - 6} more"] if len(found) > 6 else []
    return [*joined(found[:6]), *more]


def _timeline(study: Study) -> list[Block]:
    """Launches in the order of the drawn nests, on the line of the host and of the device."""
    pieces: list[Inline] = []
    number = 0
    for _, nest in study.nests:
        for step in nest.every():
            if step.launch is not None and number < SHOWN:
                number += 1
                grid = f" on grid {' '.join(step.launch.grid.split())}"[:50] if step.launch.grid else ""
                pieces += [
                    f"host   {number:2} launches from {step.launch.inside}  # "[:70],
                    pointer(step.launch.place),
                    "\n",
                ]
                pieces += [f"device {number:2}    runs {step.launch.kernel}{grid}"[:98], "\n"]
    blocks: list[Block] = [Fence(pieces, "text")] if pieces else []
    words = "Launches below the loop: none found (searched: the drawn calls; other packages start their own kernels)."
    return [
        *(blocks or [Paragraph(words)]),
        Paragraph(f"How the blocks of a kernel spread over SMs, and how long each takes, {UNKNOWN}."),
    ]
