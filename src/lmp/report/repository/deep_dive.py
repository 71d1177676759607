"""The LLM deep dive: how a model is run, cached, scheduled and sampled, and with which kernels."""

from __future__ import annotations

from collections.abc import Sequence

from lmp.codebase.facts import Place
from lmp.codebase.graph.records import Function
from lmp.codebase.roles.spine import phases
from lmp.report.document.parts import Block, Bold, Bullets, Inline, Line, Paragraph, Section
from lmp.report.repository.backends import backends
from lmp.report.repository.matters import KV_CACHE, SAMPLING, SCHEDULER, Matter, lines
from lmp.report.repository.nest import Nest, fence
from lmp.report.repository.pieces import joined, plural, pointer, sentence
from lmp.report.repository.study import Study

LOOP = "Prefill vs decode loop (real nesting)"


def deep_dive(study: Study) -> Section:
    title = "LLM deep dive (only if LLM-related)"
    if not study.llm.related:
        return Section(
            title,
            [
                Paragraph(
                    sentence(
                        "The repository is not LLM-related, so that there is nothing to go into here: ",
                        study.llm.line(),
                        ".",
                    )
                )
            ],
        )
    return Section(
        title,
        [],
        [
            _told(study, _loop(study)),
            _told(study, _matter(study, "KV cache", KV_CACHE)),
            _told(study, _matter(study, "Scheduler / batching", SCHEDULER)),
            _told(study, _matter(study, "Sampling / decoding", SAMPLING)),
            _told(study, backends(study)),
        ],
    )


def _told(study: Study, section: Section) -> Section:
    """With what an agent added under this heading."""
    added = study.told.deep_dive(section.title) if study.told else []
    return Section(section.title, [*section.blocks, *([Bullets(added)] if added else [])], section.sections)


def _loop(study: Study) -> Section:
    blocks: list[Block] = []
    if not study.loops:
        blocks.append(Paragraph(_no_loop(study)))
    for title, nest in study.nests:
        blocks += [
            Paragraph(_introduced(title, nest)),
            fence(nest, study.base.files[nest.root.file].language),
            Paragraph(_left(nest)),
        ]
    if len(study.loops) > 1:
        others = [_pointer(each) for each in study.loops[1:7]]
        more = len(study.loops) - 7
        blocks.append(
            Paragraph(
                sentence(
                    "Other loops that lead to attention, sampling or a training step: ",
                    joined(others),
                    f" and {more} more." if more > 0 else ".",
                )
            )
        )
    found = phases(study.reading, study.loops)
    if found:
        blocks.append(Bullets([_phase(kind, each) for kind, each in found]))
    return Section(LOOP, blocks)


def _no_loop(study: Study) -> Line:
    searched = "functions with a loop from which calls lead to attention, sampling, or a step of training"
    attending = [each for each in study.reading.attending if study.base.files[each.file].role != "test"]
    attending.sort(key=lambda each: (not each.loops, each.file, each.line))
    candidates = [_pointer(each) for each in attending if each.qualname and (each.owner is None or each.loops)]
    if candidates:
        return sentence("Loop that runs a model: not determined, candidates: ", joined(candidates[:4]), ".")
    return f"Loop that runs a model: none found (searched: {searched})."


def _pointer(function: Function) -> Inline:
    return pointer(Place(function.file, function.line), function.qualname)


def _phase(kind: str, function: Function) -> Line:
    return sentence(Bold(kind), ": ", _pointer(function))


def _introduced(title: str, nest: Nest) -> Line:
    return sentence(
        *(Bold(title), ": ", _pointer(nest.root), ", with what it calls, nested as in the code."),
        " Each line has its place; an arrow leads to what is not gone into.",
    )


def _left(nest: Nest) -> Line:
    words: list[Inline] = []
    if nest.left_out:
        words += plural(nest.left_out, "call")
        words.append(" of these functions found no room; those furthest from the loop were left out.")
    if nest.open_calls:
        words.append(f"{' ' if words else ''}Remarks in brackets: the code alone does not say what is called there.")
    shown = "attention, sampling, a cache or a kernel"
    return words or f"Shown is every call of these functions that the call graph leads to {shown}."


def _matter(study: Study, title: str, matters: Sequence[Matter]) -> Section:
    return Section(title, [Bullets([line for matter in matters for line in lines(study, matter)])])
