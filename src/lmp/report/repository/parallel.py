"""Parallelism by the collectives that are called, and by the wrappers of public libraries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from lmp.codebase.facts import Place
from lmp.codebase.graph.records import Call
from lmp.codebase.roles.reach import Reading
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
            yield sentence(Bold(f"{title}:"), " Yes, at ", joined([pointer(place) for place in places[:SHOWN]]), ".")
        elif title == "Tensor Parallelism" and reduced:
            # A sum over GPUs that no call of a model leads to may be of gradients, of measures or of a warm-up.
            candidates = joined([pointer(each.place) for each in reduced[:SHOWN]])
            yield sentence(Bold(f"{title}:"), " not determined, candidates: ", candidates, ".")
        else:
            yield sentence(Bold(f"{title}:"), " none found (searched: its wrappers and collectives).")


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
