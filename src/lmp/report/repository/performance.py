"""Section 8 of the implementation template: memory, launches and what may bound a run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from lmp.codebase.facts import Kernel, Launch, Place
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
from lmp.report.repository.kernel_work import ATOMIC, LOAD, PRODUCT, STORE, SUMS, Work, hierarchy, work_of
from lmp.report.repository.nest import Step
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
TAKES = frozenset(["item", "cpu", "tolist", "barrier"])
"""Those that have other uses too."""
HOW = {
    **dict.fromkeys(["item", "cpu", "tolist"], " where the tensor is on a device"),
    **dict.fromkeys(["wait_stream", "wait_event", "cudaStreamWaitEvent"], " of a stream, while the host goes on"),
}
"""What is to be said of a wait: which of them the host takes part in."""
SESSION = re.compile(r"(?:^|[._])sess(?:ion)?\.run$")
"""A graph is run, and its results are fetched."""


def performance(study: Study) -> Section:
    worked = [(kernel, work_of(study.base, kernel)) for kernel in study.ranked_kernels]
    access: list[Block]
    if worked:
        memory: list[Line] = []
        for kernel, work in [each for each in worked if each[1].counts][:SHOWN]:
            counts = joined([f"{name} {number}" for name, number in work.counts.items()])
            more = ", and what objects do that it gives its pointers to: not counted" if work.hands_on else ""
            memory.append(sentence(pointer(kernel.place, kernel.name), ": ", counts, more))
        words = "Counted is what stands in kernels' own lines, each place once: of branches all, of loops one turn."
        searched = "loads, stores and shared arrays in kernels' own lines"
        access = [hierarchy(worked), Paragraph(words), Bullets(memory, searched)]
        timeline = _timeline(study)
    else:
        access = [Paragraph("No kernel of its own: memory is accessed by the operators of other packages.")]
        timeline = [Paragraph("No kernel of its own is launched.")]
    unjudged = sentence(Bold("Compute Bound, Memory Bound:"), " not judged, as it has no kernel of its own.")
    bounds = [*(_bounds(worked) if worked else [unjudged]), _synchronization(study)]
    bounds.append(f"Which of them bounds a run {UNKNOWN}: sizes and hardware decide.")
    return Section(
        "8. Memory & Performance",
        [],
        [
            Section("8.1 Memory Access Pattern", access),
            Section("8.2 Execution Timeline", timeline),
            Section("8.3 Bottleneck Analysis", [Bullets(bounds)]),
        ],
    )


def _bounds(worked: Sequence[tuple[Kernel, Work]]) -> Iterator[Line]:
    """Candidates by what stands in kernels and in what they call. What sums may be bound by either."""
    compute = [pointer(kernel.place, kernel.name) for kernel, work in worked if PRODUCT in work.does]
    scalar = [
        pointer(kernel.place, kernel.name) for kernel, work in worked if SUMS in work.does and PRODUCT not in work.does
    ]
    moving = [
        pointer(kernel.place, kernel.name)
        for kernel, work in worked
        if {LOAD, STORE, ATOMIC} & work.counts.keys() and not {PRODUCT, SUMS} & work.does
    ]
    no_products = " none found (searched: products on tensor cores in kernels and in what they call)."
    title = Bold("Compute Bound:")
    words = " candidates, as they multiply on tensor cores: "
    yield sentence(title, words, *some(compute), ".") if compute else sentence(title, no_products)
    title = Bold("Memory Bound:")
    known = any({LOAD, STORE, ATOMIC} & work.counts.keys() for _, work in worked)
    if moving:
        yield sentence(title, " candidates, as they move data and take no sums of products: ", *some(moving), ".")
    elif known:
        yield sentence(title, " none found (searched: kernels that load or store, and take no sums of products).")
    else:
        yield sentence(title, " not judged, as no load and no store was found in kernels' own lines.")
    if scalar:
        words = " they sum, without tensor cores: "
        yield sentence(Bold("Either, by the sizes:"), words, *some(scalar), ".")


def _synchronization(study: Study) -> Line:
    title = Bold("Synchronization:")
    run = [each for each in study.reading.functions if each in study.reading.running]
    for where, functions, names in (
        (" in functions that lead to a model: ", run, WAITS),
        (" nowhere on the way to a model; elsewhere: ", study.reading.functions, WAITS - TAKES),
    ):
        waits: dict[str, list[Place]] = {}
        for function in functions:
            for call in function.calls if not ASIDE.search(function.file) else ():
                if call.name in names or SESSION.search(call.written):
                    name = call.name if call.name in names else call.written
                    waits.setdefault(name, []).append(Place(function.file, call.line))
        most = sorted(waits.items(), key=lambda item: -len(item[1]))[:6]
        if most:
            told = [
                sentence(code(n, 30), HOW.get(n, ""), " at ", *plural(len(at), "place"), ", as ", pointer(at[0]))
                for n, at in most
            ]
            return sentence(title, where, joined(told, "; "), ".")
    return sentence(title, " none found (searched: calls that wait for a device).")


def some(found: Sequence[Inline]) -> list[Inline]:
    more = [f" and {len(found) - 6} more"] if len(found) > 6 else []
    return [*joined(found[:6]), *more]


def _timeline(study: Study) -> list[Block]:
    """Launches in the order of the drawn nests, on the line of the host and of the device. Where calls found no room
    in them, launches may be missing, and there is no timeline."""
    missing = sum(nest.left_out for _, nest in study.nests)
    launched = [each for _, nest in study.nests for each in _launching(nest.steps, ())]
    pieces: list[Inline] = []
    before: set[Place] = set()
    for number, (launch, around) in enumerate([] if missing else launched[:SHOWN], 1):
        # What stands in an else does not run together with what stood in its if.
        other = any(Place(each.place.file, each.other[0]) in before for each in around)
        before |= {each.place for each in around}
        grid = f" on grid {' '.join(launch.grid.split())}"[:50] if launch.grid else ""
        pieces += [f"host   {number:2} launches from {launch.inside}  # "[:70], pointer(launch.place), "\n"]
        runs = f"or {number - 1}, in another branch: runs" if other else "   runs"
        pieces += [f"device {number:2} {runs} {launch.kernel}{grid}"[:98], "\n"]
    blocks: list[Block] = [Fence(pieces, "text")] if pieces else []
    elsewhere = [each for each in study.base.facts.launches if study.base.is_own(each.place.file)]
    words: Line
    if pieces:
        words = "In the order of the lines: of several branches one is taken."
    elif launched:
        places = some([pointer(launch.place) for launch, _ in launched])
        apart = sentence("not determined, as ", *plural(missing, "call"), " of the loop found no room in the drawing")
        words = sentence("The order is ", apart, "; launches that are drawn: ", *places, ".")
    elif elsewhere:
        # A launch through a variable does not have the kernel's name.
        places = some([pointer(each.place) for each in elsewhere])
        apart = sentence(*plural(len(elsewhere), "launch", "launches"), " outside of the drawn calls: ", *places)
        words = sentence(*apart, f". When they run {UNKNOWN}.")
    else:
        words = "Launches: none found (searched: the whole code; other packages start their own kernels)."
    return [
        *blocks,
        Paragraph(words),
        Paragraph(f"How the blocks of a kernel spread over SMs, and how long each takes, {UNKNOWN}."),
    ]


def _launching(steps: Iterable[Step], around: tuple[Step, ...]) -> Iterator[tuple[Launch, tuple[Step, ...]]]:
    """The launches of a nest in its order, each with the loops and branches around it."""
    for step in steps:
        within = (*around, *step.around)
        if step.launch is not None:
            yield step.launch, within
        yield from _launching(step.inside, within)
