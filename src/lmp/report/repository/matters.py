"""Bullets of the deep dive: what plays each part, best first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lmp.codebase.facts import Place
from lmp.codebase.graph.records import Made
from lmp.codebase.roles.attention import SERVES
from lmp.codebase.roles.likely import is_candidate
from lmp.codebase.roles.lines import ARGUMENTS
from lmp.codebase.roles.reach import Row
from lmp.codebase.rows import BY_NAME
from lmp.report.document.parts import Bold, Inline, Line, Link
from lmp.report.repository.appendix import PARTS
from lmp.report.repository.pieces import code, joined, plural, pointer, sentence, with_default
from lmp.report.repository.study import Study
from lmp.report.repository.workflows import anchor

SHOWN = 6


@dataclass(frozen=True)
class Matter:
    title: str
    section: str
    roles: tuple[str, ...]
    control: str = ""
    """Flags and environment variables that control it."""


KV_CACHE = (
    Matter("Layout/data structures", "kv_cache", ("layout", "allocate")),
    Matter("Update path (append, swap, evict)", "kv_cache", ("update", "swap", "evict", "free")),
    Matter("Paging / block tables (if any)", "kv_cache", ("paging",)),
    Matter(
        "Memory accounting",
        "kv_cache",
        ("accounting",),
        r"mem[-_]fraction|kv[-_](cache[-_])?(dtype|bits|size)|page[-_]size|gpu[-_]mem|max[-_]total[-_]token|max[-_]kv",
    ),
)
SCHEDULER = (
    Matter("Queueing + priorities", "scheduler", ("queue", "batch", "priority"), r"schedul\w*[-_]policy|priority"),
    Matter(
        "Chunking / preemption",
        "scheduler",
        ("chunking", "preemption"),
        r"chunked[-_]prefill|prefill[-_]step|(?<![a-z])max[-_]prefill",
    ),
    Matter(
        "Backpressure / admission control",
        "scheduler",
        ("admission",),
        r"max[-_](running|queued|num)[-_](req|seq)|concurren|max[-_]batch|queue[-_](?:size|len|depth)",
    ),
)
SAMPLING = (
    Matter("Logits processing", "sampling", ("logits", "sample")),
    Matter(
        "Parameters: temperature/top_p/top_k/repetition",
        "sampling",
        ("parameters",),
        r"^-*(temp|temperature|top[-_][pk]|min[-_]p|repetition|frequency)",
    ),
    Matter("Determinism / seeds", "sampling", ("seed",), r"^-*(?:\w*[-_])?seed$|determinis"),
)
ATTENTION = Matter("Attention backend(s)", "attention", ("backend", "module", "kernel"))


MOST_GROUPS, MOST_OF_ONE, MOST_LINES = 3, 5, 3
MOST_MADE, MOST_OF_CALL = 3, 12
"""Tensors of one row, and lines of one call."""


def lines(study: Study, matter: Matter) -> list[Line]:
    """The matter's own bullet, one for each place that the code shows to be one, and one for each class or kind of
    name of the others."""
    found = [row for row in study.ranked(matter.section) if row.role in matter.roles]
    candidates = [row for row in found if is_candidate(row)]
    sure = [row for row in found if not is_candidate(row)]
    shown = [row for row in sure if not BY_NAME.match(row.why) and row.why != SERVES]
    named: dict[tuple[str, str], list[Row]] = {}
    for row in sure:
        if row not in shown:
            named.setdefault(_group(row), []).append(row)
    seen: set[Place] = set()
    bullets: list[Line] = [_bullet(study, matter, row, seen) for row in shown[:SHOWN]]
    if bullets and "queue" in matter.roles and not study.queues_requests:
        bullets.insert(0, sentence(Bold(matter.title), ": no queue of requests was found; of batches:"))
    left = len(shown[SHOWN:]) + sum(len(rows) - MOST_OF_ONE for rows in named.values() if len(rows) > MOST_OF_ONE)
    for (what, owner), rows in list(named.items())[:MOST_GROUPS]:
        of: list[Inline] = [" of ", code(owner, 40)] if owner else []
        bullets.append(sentence(Bold(matter.title), f", {what}", *of, ": ", _places(study, rows)))
    left += sum(min(len(rows), MOST_OF_ONE) for rows in list(named.values())[MOST_GROUPS:])
    if candidates:
        further = "further" if bullets else "not determined,"
        bullets.append(sentence(Bold(matter.title), f": {further} candidates: ", _places(study, candidates)))
        left += len(candidates[MOST_OF_ONE:])
    if left:
        bullets.append(
            sentence(Bold(matter.title), ": ", *plural(left, "more place"), " in ", Link(PARTS, anchor(PARTS)), ".")
        )
    if not bullets and "parameters" in matter.roles:
        bullets += _arguments(study, matter)
    controls = _controls(study, matter)
    if controls:
        bullets.append(sentence(Bold(matter.title), ", controlled by: ", joined(controls)))
    searched = f"none found (searched: {study.searched(matter.section)})"
    return bullets or [sentence(Bold(matter.title), ": ", searched)]


def _group(row: Row) -> tuple[str, str]:
    """Why rows stand together that no code of their own shows, and the class that they are methods of."""
    if row.why == SERVES:
        return row.why, ""
    owner = row.why.rpartition("of ")[2] if "of " in row.why else ""
    return ("methods", owner) if owner else ("likely, by names and other signs", "")


def _arguments(study: Study, matter: Matter) -> list[Line]:
    """Parameters that are arguments of what draws."""
    lines = ((row.place.file, line, name) for row in study.sure(matter.section) for line, name in row.lines)
    found = [(Place(file, line), name) for file, line, name in lines if name in ARGUMENTS]
    places = joined([study.pointer(at, name) for at, name in dict.fromkeys(found)][:SHOWN])
    return [sentence(Bold(matter.title), ", arguments of what draws: ", places)] if found else []


def _places(study: Study, rows: Sequence[Row]) -> list[Inline]:
    return joined([study.pointer(row.place, row.symbol) for row in rows[:MOST_OF_ONE]])


def _bullet(study: Study, matter: Matter, row: Row, seen: set[Place]) -> Line:
    """With what the definition says of itself, and what of its code makes it one."""
    definition = study.base.definition(row.place.file, row.symbol)
    told = study.docstring(definition, 100) if definition is not None else []
    why: list[Inline] = [" by ", code(row.why, 90)] if row.why else []
    at = lines_within(study, row, MOST_LINES)
    where: list[Inline] = [", at ", *at] if at else []
    if row.section == "kv_cache" and row.role in ("layout", "allocate"):
        where += _shapes(study, row, seen)
    end: list[Inline] = [" ", *told] if told else []
    return sentence(Bold(matter.title), f" ({row.role}): ", *study.pointer(row.place, row.symbol), *why, *where, *end)


def _shapes(study: Study, row: Row, seen: set[Place]) -> list[Inline]:
    """What makes the tensors that it keeps, with the shape that is written there. Each stands once."""
    made = [(Place(each.file, one.line), one) for each in study.methods(row) for one in each.made if one.on_self]
    shown: list[list[Inline]] = [
        [code(_call(study.base.lines(at.file), one), 150), " at ", pointer(at, one.target)]
        for at, one in made[:MOST_MADE]
        if at not in seen
    ]
    seen.update(at for at, _ in made)
    return ["; makes ", *joined(shown)] if shown else []


def _call(lines: Sequence[str], made: Made) -> str:
    """The call that makes a tensor, from its name to its last bracket."""
    text = " ".join(line.strip() for line in lines[made.line - 1 : made.line - 1 + MOST_OF_CALL])
    start = max(text.find(made.by), 0)
    depth = 0
    for at, letter in enumerate(text[start:], start):
        depth += (letter in "([{") - (letter in ")]}")
        if depth == 0 and letter in ")]}":
            return re.sub(r"(?<=[(\[]) | (?=[)\]])", "", text[start : at + 1])
    return text[start:]


def lines_within(study: Study, row: Row, most: int | None = None) -> list[Inline]:
    """The lines of a function that make it play its part."""
    return joined([study.pointer(Place(row.place.file, line), name) for line, name in row.lines[:most]])


def _controls(study: Study, matter: Matter) -> list[list[Inline]]:
    if not matter.control or (matter.section == "scheduler" and not study.queues_requests):
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
