"""Bullets of the deep dive: what plays each part, best first; never "none found" where a looser search has it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lmp.codebase.facts import Definition, Place
from lmp.codebase.roles.reach import Row
from lmp.report.document.parts import Bold, Inline, Line
from lmp.report.repository.pieces import code, joined, plural, pointer, sentence, with_default
from lmp.report.repository.study import Study

SHOWN = 6
CANDIDATES = 4


@dataclass(frozen=True)
class Matter:
    title: str
    section: str
    roles: tuple[str, ...]
    looser: str
    """Words of names that a looser search goes by."""
    control: str = ""
    """Flags and environment variables that control it."""


KV_CACHE = (
    Matter("Layout/data structures", "kv_cache", ("layout",), r"kv|cache"),
    Matter("Update path (append, swap, evict)", "kv_cache", ("update", "swap", "evict", "free"), r"kv|cache"),
    Matter("Paging / block tables (if any)", "kv_cache", ("paging", "allocate"), r"page|block_?table|slot|alloc"),
    Matter(
        "Memory accounting",
        "kv_cache",
        ("accounting",),
        r"kv|cache_?size|num_?blocks|free_?blocks",
        r"mem[-_]fraction|kv[-_](cache[-_])?(dtype|bits|size)|page[-_]size|gpu[-_]mem|max[-_]total[-_]token|max[-_]kv",
    ),
)
SCHEDULER = (
    Matter(
        "Queueing + priorities",
        "scheduler",
        ("queue", "batch", "priority"),
        r"queue|schedul|batch",
        r"schedul\w*[-_]policy|priority",
    ),
    Matter(
        "Chunking / preemption",
        "scheduler",
        ("chunking", "preemption"),
        r"chunk|preempt|pause|retract",
        r"chunked[-_]prefill|prefill[-_]step|(?<![a-z])max[-_]prefill",
    ),
    Matter(
        "Backpressure / admission control",
        "scheduler",
        ("admission",),
        r"can_|admit|limit|budget",
        r"max[-_](running|queued|num)[-_](req|seq)|concurren|^-*batch[-_]size",
    ),
)
SAMPLING = (
    Matter("Logits processing", "sampling", ("logits", "sample"), r"logits|sampl"),
    Matter(
        "Parameters: temperature/top_p/top_k/repetition",
        "sampling",
        ("parameters",),
        r"temperature|top_?[pk]|sampl",
        r"^-*(temp|temperature|top[-_][pk]|min[-_]p|repetition|frequency)",
    ),
    Matter("Determinism / seeds", "sampling", ("seed",), r"seed|determin", r"^-*(?:\w*[-_])?seed$|determinis"),
)
ATTENTION = Matter("Attention backend(s)", "attention", ("backend", "module", "kernel"), r"attn|attention")


def lines(study: Study, matter: Matter) -> list[Line]:
    """The matter's own bullet, and one for each place."""
    found = [row for row in study.ranked(matter.section) if row.role in matter.roles]
    controls = _controls(study, matter)
    bullets: list[Line] = [_bullet(study, matter, row) for row in found[:SHOWN]]
    if len(found) > SHOWN:
        bullets.append(sentence(Bold(matter.title), ": there are ", *plural(len(found) - SHOWN, "more place"), "."))
    if controls:
        bullets.append(sentence(Bold(matter.title), ", controlled by: ", joined(controls)))
    return bullets or [_loosely(study, matter)]


def _bullet(study: Study, matter: Matter, row: Row) -> Line:
    what: list[Inline] = [" ", code(row.why, 90)] if row.why else []
    definition = study.base.definition(row.place.file, row.symbol)
    if definition is not None:
        told = study.what(definition, 100)
        what = [" ", *(told if isinstance(told, list) else [told])]
    return sentence(Bold(matter.title), f" ({row.role}): ", pointer(row.place, row.symbol), *what)


def _loosely(study: Study, matter: Matter) -> Line:
    """What the names alone would have: candidates, and no answer."""
    wanted = re.compile(matter.looser, re.IGNORECASE)
    found = [each for each in study.base.definitions if wanted.search(each.name) and not each.name.startswith("__")]
    found.sort(key=lambda each: (-study.base.imported_by(each), each.place.file, each.place.line))
    if found:
        shown = [pointer(each.place, each.qualname) for each in found[:CANDIDATES]]
        return sentence(Bold(matter.title), ": not determined, candidates: ", joined(shown), ".")
    return f"{matter.title}: none found (searched: the call graph, tensors that are kept, names by {matter.looser!r})"


def _controls(study: Study, matter: Matter) -> list[list[Inline]]:
    if not matter.control:
        return []
    wanted = re.compile(matter.control, re.IGNORECASE)
    found: dict[str, tuple[str, Place]] = {}
    for flag in study.base.facts.flags:
        name = flag.names[0]
        if study.base.is_own(flag.place.file) and wanted.search(name):
            found.setdefault(name, (with_default(name, flag), flag.place))
    for read in study.base.facts.env:
        if study.base.is_own(read.place.file) and read.resolved and wanted.search(read.name):
            found.setdefault(read.name, (with_default(read.name, read), read.place))
    return [[code(text, 60), " at ", pointer(place)] for text, place in list(found.values())[:SHOWN]]


def what(study: Study, definition: Definition) -> list[Inline]:
    told = study.what(definition, 100)
    return list(told) if isinstance(told, list) else [told]
