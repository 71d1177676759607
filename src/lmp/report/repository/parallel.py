"""Parallelism by the collectives that are called, and by the wrappers of public libraries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from lmp.codebase.facts import Place
from lmp.codebase.graph.records import Call
from lmp.codebase.roles.reach import Reading
from lmp.codebase.roles.words import split
from lmp.report.document.parts import Bold, Line
from lmp.report.repository.pieces import joined, pointer, sentence
from lmp.report.repository.study import Study

COLLECTIVES = re.compile(
    r"^(?:all_reduce|all_gather\w*|reduce_scatter\w*|all_to_all\w*|broadcast|psum|pmean|all_sum|ppermute|isend|irecv"
    r"|batch_isend_irecv|nccl(?:AllReduce|AllGather|ReduceScatter|Send|Recv|Broadcast))$"
)
STRATEGIES = (
    (
        "Data Parallelism",
        r"^(?:DistributedDataParallel|DDP|fully_shard|FullyShardedDataParallel|FSDP|DistributedSampler)$",
    ),
    (
        "Tensor Parallelism",
        r"^(?:ColwiseParallel|RowwiseParallel|parallelize_module|ColumnParallelLinear|RowParallelLinear)$",
    ),
    ("Pipeline Parallelism", r"^(?:PipelineStage|isend|irecv|batch_isend_irecv|Schedule1F1B|build_pipeline_schedule)$"),
    ("Sequence Parallelism", r"^(?:SequenceParallel|context_parallel|ring_attention|ulysses\w*)$"),
)
"""Names that torch and the libraries beside it give to each strategy."""
STREAMS = re.compile(r"^(?:Stream|wait_stream|record_stream|cudaStreamCreate\w*|cudaMemcpyAsync|stream)$")
SHOWN = 4
YES = (" Yes, at ", " where they are asked for, at ")
"""What stands before the places of a strategy that is there."""


@dataclass(frozen=True)
class Collective:
    primitive: str
    inside: str
    place: Place


def collectives(reading: Reading) -> list[Collective]:
    return [
        Collective(call.name, function.qualname, Place(function.file, call.line))
        for function in reading.functions
        for call in function.calls
        if COLLECTIVES.match(call.name)
    ]


def strategies(reading: Reading) -> Iterator[Line]:
    """Yes where a wrapper or a collective of it is called, each with places; else what was looked for."""
    reduced = [
        each for each in collectives(reading) if each.primitive in ("all_reduce", "psum", "all_sum", "ncclAllReduce")
    ]
    for title, pattern in STRATEGIES:
        wanted = re.compile(pattern)
        places = [
            Place(function.file, call.line)
            for function in reading.functions
            for call in function.calls
            if wanted.match(call.name)
        ]
        if title == "Tensor Parallelism" and not places:
            inside = {function.qualname for function in reading.attending}
            places = [each.place for each in reduced if each.inside in inside]
        if places:
            yield sentence(Bold(f"{title}:"), YES[0], joined([pointer(place) for place in places[:SHOWN]]), ".")
        elif title == "Tensor Parallelism" and reduced:
            # A sum over GPUs that no call of a model leads to may be of gradients, of measures or of a warm-up.
            candidates = joined([pointer(each.place) for each in reduced[:SHOWN]])
            yield sentence(Bold(f"{title}:"), " not determined, candidates: ", candidates, ".")
        else:
            yield sentence(Bold(f"{title}:"), " none found (searched: its wrappers and collectives).")
    placed = _placed(reading)
    if placed:
        yield sentence(Bold("Layers on several devices:"), YES[1], joined(list(map(pointer, placed[:SHOWN]))), ".")


PLACED = re.compile(r"(?:\w+_)?(?:device_map|gpu_split|tensor_split|multi_gpu|layer_devices|layers?_to_devices?)")
"""Names of what says which device has which layer."""
PLACES = frozenset(["infer_auto_device_map", "dispatch_model"])


def _placed(reading: Reading) -> list[Place]:
    """Where layers are put on devices: by a map that is kept, taken or handed on, or by a device chosen in a loop."""
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
        if (STREAMS.match(call.name) and call.name != "stream") or _is_async(study, function.file, call)
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
