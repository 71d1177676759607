"""Parallelism by the collectives that are called, by the wrappers of public libraries, and by what settings name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from lmp.codebase.facts import Place
from lmp.codebase.graph.graph import CALLED
from lmp.codebase.graph.records import Call, Function
from lmp.codebase.roles.reach import Reading
from lmp.codebase.roles.words import split
from lmp.report.document.parts import Bold, Line
from lmp.report.repository.pieces import ASIDE, joined, pointer, sentence
from lmp.report.repository.study import Study

COLLECTIVES = re.compile(
    r"^(?:all_reduce|all_gather\w*|reduce_scatter\w*|all_to_all\w*|broadcast|psum|pmean|all_sum|ppermute|isend|irecv"
    r"|batch_isend_irecv|nccl(?:AllReduce|AllGather|ReduceScatter|Send|Recv|Broadcast))$"
)
STRATEGIES = (
    (
        "Data Parallelism",
        r"^(?:DistributedDataParallel|DDP|fully_shard|FullyShardedDataParallel|FSDP|DistributedSampler)$",
        r"dp|(?:data|dp)_?(?:parallel|size|degree)\w*|ici_(?:data|fsdp)_\w+",
    ),
    (
        "Tensor Parallelism",
        r"^(?:ColwiseParallel|RowwiseParallel|parallelize_module|ColumnParallelLinear|RowParallelLinear)$",
        r"tp|(?:\w+_)?(?:tensor|tp)_?(?:model_)?(?:parallel|size|degree)\w*|ici_tensor_\w+",
    ),
    (
        "Pipeline Parallelism",
        r"^(?:PipelineStage|Schedule1F1B|build_pipeline_schedule)$",
        r"pp|(?:\w+_)?(?:pipeline|pp)_?(?:model_)?(?:parallel|size|degree)\w*|ici_pipeline_\w+",
    ),
    (
        "Sequence Parallelism",
        r"^(?:SequenceParallel|context_parallel|ring_attention|ulysses\w*)$",
        r"sp|cp|(?:\w+_)?(?:sequence|context|sp|cp)_?(?:parallel|size|degree)\w*|(?:\w+_)?(?:ring_attn|ulysses)\w*",
    ),
)
"""Names that torch and the libraries beside it give to each strategy, and those of its settings and mesh axes."""
GROUPS = {
    "Data Parallelism": frozenset(["dp", "data"]),
    "Tensor Parallelism": frozenset(["tp", "tensor"]),
    "Pipeline Parallelism": frozenset(["pp", "pipeline"]),
    "Sequence Parallelism": frozenset(["sp", "cp", "sequence", "context", "ring", "ulysses"]),
}
"""Words that name the group of processes of a strategy."""
SUMS = ("all_reduce", "psum", "all_sum", "ncclAllReduce")
AT_ONCE = ("isend", "irecv", "batch_isend_irecv")
"""Sends of torch that return before they are done."""
SENDS = (*AT_ONCE, "ppermute", "ncclSend", "ncclRecv")
STREAMS = re.compile(r"^(?:Stream|wait_stream|record_stream|cudaStreamCreate\w*|cudaMemcpyAsync|stream)$")
SHOWN = 4
YES = (" Yes, at ", " where they are asked for, at ")
"""What stands before the places of a strategy that is there."""
ABOVE = 4
"""Calls from a layer's forward, or from what computes attention, down to a collective that is a part of it."""


@dataclass(frozen=True)
class Collective:
    primitive: str
    function: Function
    call: Call

    @property
    def place(self) -> Place:
        return Place(self.function.file, self.call.line)


def collectives(reading: Reading) -> list[Collective]:
    return [
        Collective(call.name, function, call)
        for function in reading.functions
        for call in function.calls
        # A method of the name that is the code base's own calls one, or does something else.
        if COLLECTIVES.match(call.name) and all(edge.call is not call for edge in reading.graph.edges[function])
    ]


def strategies(study: Study) -> Iterator[Line]:
    """Yes where a wrapper or a collective of it is called, with places; else candidates, or what was looked for."""
    reading = study.reading
    every = collectives(reading)
    known: dict[str, list[Collective]] = {}
    for each in every:
        known.setdefault(_of_group(each.call), []).append(each)
    # A sum within a layer adds up its parts; what attention sends on are keys and values of a part of the sequence.
    unnamed = known.pop("", [])
    sums = [each for each in unnamed if each.primitive in SUMS]
    sent = [each for each in unnamed if each.primitive in SENDS]
    for title, found, is_it in (
        ("Tensor Parallelism", sums, _is_layer),
        ("Sequence Parallelism", sent, reading.attends.__contains__),
    ):
        known.setdefault(title, []).extend(each for each in found if _above(reading, each.function, is_it))
    # Another sum may be of gradients, of measures or of a warm-up, and what is sent may be a stage's or a cache.
    open_ones = {"Tensor Parallelism": sums, "Pipeline Parallelism": sent}
    taken = {each.place for found in known.values() for each in found}
    for title, wrappers, settings in STRATEGIES:
        wanted = re.compile(wrappers)
        places = [
            Place(function.file, call.line)
            for function in reading.functions
            for call in function.calls
            if wanted.match(call.name)
        ] or [each.place for each in known.get(title, ())]
        candidates = [pointer(each.place) for each in open_ones.get(title, ()) if each.place not in taken]
        named = [study.pointer(at, name) for name, at in _settings(study, re.compile(settings, re.IGNORECASE))]
        if places:
            yield sentence(Bold(f"{title}:"), YES[0], joined([pointer(place) for place in places[:SHOWN]]), ".")
        elif named or candidates:
            shown = joined([*named[:SHOWN], *candidates[:SHOWN]])
            yield sentence(Bold(f"{title}:"), " not determined, candidates: ", shown, ".")
        else:
            yield sentence(Bold(f"{title}:"), " none found (searched: its wrappers, collectives and settings).")
    placed = _placed(study)
    if placed:
        yield sentence(Bold("Layers on several devices:"), YES[1], joined(list(map(pointer, placed[:SHOWN]))), ".")


def _of_group(call: Call) -> str:
    """The strategy that the group of a collective is named for."""
    names = (part for chain in call.given for part in chain if isinstance(part, str))
    said = {word for name in names if "group" in split(name) for word in split(name)}
    return next((title for title, words in GROUPS.items() if words & said), "")


def _is_layer(function: Function) -> bool:
    return function.owner is not None and function.name in CALLED


def _above(reading: Reading, function: Function, is_it: Callable[[Function], bool]) -> bool:
    """Whether a function is such a one, or one calls it, or another one that calls it."""
    around, seen = {function}, {function}
    for _ in range(ABOVE):
        if any(map(is_it, around)):
            return True
        around = {edge.caller for each in around for edge in reading.graph.callers.get(each, ())} - seen
        seen |= around
    return False


def _settings(study: Study, wanted: re.Pattern[str]) -> Iterator[tuple[str, Place]]:
    for row in study.ranked("configuration"):
        name = row.symbol.rpartition(".")[2].replace("-", "_").lstrip("_")
        if wanted.fullmatch(name) and not ASIDE.search(row.place.file):
            yield row.symbol, row.place


PLACED = re.compile(r"(?:\w+_)?(?:device_map|gpu_split|tensor_split|multi_gpu|layer_devices|layers?_to_devices?)")
"""Names of what says which device has which layer."""
PLACES = frozenset(["infer_auto_device_map", "dispatch_model"])


def _is_one_device(study: Study, file: str, call: Call) -> bool:
    """``device_map="cuda"`` puts all of it in one place."""
    text = " ".join(study.base.lines(file)[call.line - 1 : call.line + 8])
    return re.search(r"""device_map\s*=\s*["'](?:cuda(?::\d+)?|cpu|mps|xpu|npu)["']""", text) is not None


def _placed(study: Study) -> list[Place]:
    """Where layers are put on devices: by a map that is kept, taken or handed on, or by a device chosen in a loop."""
    reading = study.reading
    found: dict[Place, None] = {}
    chosen: set[Place] = set()
    for of in reading.classes:
        if {"device", "map"} <= split(of.name) and not reading.is_beside(of.file):
            found[Place(of.file, of.line)] = None
        found.update({Place(of.file, line): None for name, line in of.lines.items() if PLACED.fullmatch(name)})
    for function in reading.functions:
        if reading.is_beside(function.file) or function.native:
            continue
        if any(map(PLACED.fullmatch, function.params)):
            found[Place(function.file, function.line)] = None
        for call in function.calls:
            by_map = call.name in PLACES or any(PLACED.fullmatch(name) for name, _ in call.keywords)
            by_map = by_map and not _is_one_device(study, function.file, call)
            if by_map or (call.loop and call.written == "tf.device"):
                found[Place(function.file, call.line)] = None
                chosen |= {Place(function.file, call.line)} if not by_map else set()
    return sorted(found, key=lambda place: place not in chosen)


def overlap(study: Study) -> Iterator[Line]:
    """Streams, and collectives that are asked to return before they are done."""
    found = [
        Place(function.file, call.line)
        for function in study.reading.functions
        for call in function.calls
        if (STREAMS.match(call.name) and call.name != "stream")
        or call.name in AT_ONCE
        or _is_async(study, function.file, call)
    ]
    if found:
        yield sentence("Streams and asynchronous calls at ", joined([pointer(place) for place in found[:6]]), ".")
        yield "How much is overlapped in a run cannot be told by reading alone."
    else:
        yield "Overlap: none found (searched: streams, asynchronous collectives and copies)."


def _is_async(study: Study, file: str, call: Call) -> bool:
    if not any(name in ("async_op", "non_blocking") for name, _ in call.keywords):
        return False
    text = " ".join(study.base.lines(file)[call.line - 1 : call.line + 4])
    return re.search(r"\b(?:async_op|non_blocking) *= *True\b", text) is not None
