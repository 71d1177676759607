"""The LLM deep dive: how a model is run, cached, scheduled and sampled, and with which kernels."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lmp.codebase.facts import Definition, Place
from lmp.report.document.parts import Block, Bold, Bullets, Inline, Line, Paragraph, Section
from lmp.report.repository.backends import backends
from lmp.report.repository.facets import KV_CACHE, SAMPLING, SCHEDULER, Facet, lines, what
from lmp.report.repository.nesting.callee import attributes
from lmp.report.repository.nesting.drawing import fence
from lmp.report.repository.nesting.exploring import AFTER, SIDE, Nest
from lmp.report.repository.nesting.steps import Step
from lmp.report.repository.pieces import code, joined, plural, pointer, sentence
from lmp.report.repository.roles import ASIDE, DIFFUSION
from lmp.report.repository.study import Study

SPLITS = 6
LAYOUTS = 4
"""Functions by the name of a cache that are named where no class is one."""
PHASES_DEPTH = 1
"""Calls inside of which a phase is looked for."""
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
            _told(study, _kv_cache(study)),
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
        searched = "functions with a loop that calls what is named by prefill, decode, forward, schedule, step, sample"
        blocks.append(Paragraph(f"Loop that runs a model: none found (searched: {searched})."))
    for title, nest in study.nests:
        blocks += [
            Paragraph(_introduced(study, title, nest)),
            fence(nest, study.language(nest.root)),
            Paragraph(_left(nest)),
        ]
    if len(study.loops) > 1:
        others = [pointer(each.place, each.qualname) for each in study.loops[1:7]]
        more = len(study.loops) - 7
        blocks.append(
            Paragraph(
                sentence("Other loops that run a model: ", joined(others), f" and {more} more." if more > 0 else ".")
            )
        )
    split = [*(each for _, nest in study.nests for each in _phases(nest)), *_split(study)]
    if split:
        blocks.append(Bullets(split))
    return Section(LOOP, blocks)


def _introduced(study: Study, title: str, nest: Nest) -> Line:
    return sentence(
        *(
            Bold(title),
            ": ",
            pointer(nest.root.place, nest.root.qualname),
            ", with what it calls, nested as in the code.",
        ),
        " Each line has its place; an arrow leads to what is not gone into.",
    )


def _left(nest: Nest) -> Line:
    ways: dict[str, None] = {}
    for _, _, how in nest.open_calls:
        ways.setdefault(how)
    words: list[Inline] = []
    if nest.left_out:
        words += plural(nest.left_out, "call")
        words.append(" of these functions found no room; those whose names say least were left out first.")
    if ways:
        words.append(f"{' ' if words else ''}Remarks in brackets: the code alone does not say what is called there.")
    return words or "Every call of these functions that leads into the repository is shown."


_PREFILL = re.compile(r"prefill|prompt(?!_cache|_progress)|forward_extend|prepare_for_extend", re.IGNORECASE)
_DECODE = re.compile(r"decode(?!r|_to|_token|_req)|generation_batch", re.IGNORECASE)


def _phases(nest: Nest) -> list[Line]:
    """Where the loop on show begins a prefill, and where a decode: by the names in its own steps."""
    own = [step for step in nest.every() if _depth(step) <= PHASES_DEPTH and not _is_aside(step)]
    prefill = _first(own, _PREFILL)
    if prefill is None:
        return []
    decode = _first([step for step in own if step is not prefill], _DECODE)
    if decode is None and prefill.kind == "loop":
        # The loop that comes after the one through the prompt.
        later = (step for step in nest.steps if step.shown and step.kind == "loop" and step is not prefill)
        decode = next((step for step in later if step.place.line > prefill.place.line), None)
    if decode is None:
        return []
    return [
        sentence(
            *(Bold("Phases"), " of ", code(nest.root.qualname, 60), ": prefill from ", code(prefill.text, 70)),
            *(" at ", pointer(prefill.place), ", decode from ", code(decode.text, 70), " at ", pointer(decode.place)),
        )
    ]


def _first(steps: Sequence[Step], names: re.Pattern[str]) -> Step | None:
    """The first whose loop's condition or called name has one of the words; else that calls a method of such a name."""
    for whole in (False, True):
        for step in steps:
            called = step.text.partition("(")[0] if step.is_call else step.text
            # What it is kept as, and the method's own name.
            kept, _, method = called.rpartition(" = ")
            said = called if whole or not step.is_call else f"{kept} {method.rpartition('.')[2]}"
            if step.kind != "branch" and names.search(said):
                return step
    return None


def _is_aside(step: Step) -> bool:
    """Of a case that most runs do without, or of both phases."""
    called = step.text.partition("(")[0]
    if AFTER.search(called):
        return True
    both = _PREFILL.search(called) is not None and _DECODE.search(called) is not None
    return both or SIDE.search(" ".join([called, *(each.text for each in step.above)])) is not None


def _depth(step: Step) -> int:
    return sum(each.is_call for each in step.above)


def _split(study: Study) -> list[Line]:
    """Where prefill and decode part: definitions in pairs."""
    found: list[Line] = []
    for prefill, decode in (
        (r"forward_extend", r"forward_decode"),
        (r"prefill", r"decode"),
        (r"prompt(?=_)", r"generate|step"),
        (r"chunk", r"fused_recurrent"),
        (r"extend", r"decode"),
    ):
        pairs = [
            (each, other)
            for each in study.base.definitions
            if each.kind != "class" and re.search(rf"(?:^|_){prefill}", each.name)
            if (other := _partner(study, each, prefill, decode)) is not None
        ]
        pairs.sort(key=lambda pair: _importance(study, pair[0]))
        if pairs:
            break
    for each, other in pairs[:SPLITS]:
        places = sentence(
            "prefill in ", pointer(each.place, each.qualname), ", decode in ", pointer(other.place, other.qualname)
        )
        found.append(sentence(Bold("Split"), ": ", places))
    if len(pairs) > SPLITS:
        found.append(sentence("There are ", *plural(len(pairs) - SPLITS, "more such pair"), "."))
    return found


def _importance(study: Study, each: Definition) -> tuple[object, ...]:
    shown = {name for _, nest in study.nests for name in nest.names}
    aside = ASIDE.search(each.place.file) is not None or re.search(DIFFUSION, each.place.file) is not None
    return each.qualname not in shown, aside, -study.base.imported_by(each), each.place.file, each.place.line


def _partner(study: Study, each: Definition, prefill: str, decode: str) -> Definition | None:
    """The same name with the other word, in the same class, file or folder."""
    first = decode.split("|")[0]
    wanted = re.sub(prefill, first, each.name, count=1)
    owner = each.qualname.rpartition(".")[0]
    folder = each.place.file.rpartition("/")[0]
    if re.search(r"kernel|_bwd|test|fwd_", each.name) or not study.base.is_own(each.place.file):
        return None
    for other in study.base.by_name.get(wanted, ()):
        if other.qualname.rpartition(".")[0] == owner and other.place.file.rpartition("/")[0] == folder:
            return other
    return None


# --- caches and matters ----------------------------------------------------------------------------------------------


def _kv_cache(study: Study) -> Section:
    return Section(
        "KV cache", [Bullets([*_layout(study), *(line for facet in KV_CACHE for line in lines(study, facet))])]
    )


def _layout(study: Study) -> list[Line]:
    title = "Layout/data structures"
    component = study.component("KV cache") or study.component("prefix cache")
    if component is None:
        made = [
            each
            for each in study.base.definitions
            if each.kind == "function" and re.search(r"(?i)kv_?cache", each.name) and not ASIDE.search(each.place.file)
        ]
        if made:
            return [
                sentence(Bold(title), ": ", pointer(each.place, each.qualname), " ", what(study, each))
                for each in made[:LAYOUTS]
            ]
        return [
            f"{title}: none found (searched: classes named by KV cache, paged cache, prefix cache, with methods that"
            " allocate, append, update or free)"
        ]
    found: list[Line] = []
    prefixes = study.component("prefix cache")
    of_prefixes = [prefixes.definition] if prefixes else []
    chosen = [component.definition, *component.also[:4], *of_prefixes]
    for each in {(d.place.file, d.qualname): d for d in chosen}.values():
        held = _allocations(study, each)
        parts: list[Inline] = (
            ["; holds ", *joined([[code(text, 90), " at ", pointer(place)] for text, place in held])] if held else []
        )
        names = attributes(study.base, each.place.file, each.qualname)
        if names and not held:
            parts = ["; keeps ", code(", ".join(names[:8]), 80)]
        found.append(sentence(Bold(title), ": ", pointer(each.place, each.qualname), " ", what(study, each), *parts))
    return found


def _allocations(study: Study, definition: Definition) -> list[tuple[str, Place]]:
    """Tensors that a class makes for itself."""
    file = definition.place.file
    inside = [
        note
        for note in study.base.signs[file].notes
        if note.kind == "allocation" and definition.place.line <= note.line <= definition.end
    ]
    named = sorted(
        inside,
        # The addresses of buffers are none themselves.
        key=lambda note: (
            "data_ptr" in note.detail,
            not re.search(r"k_|v_|key|value|kv|buffer|cache|token|page|block", note.text),
            note.line,
        ),
    )
    return [(f"{note.text} = {note.detail}", Place(file, note.line)) for note in named[:2]]


def _matter(study: Study, title: str, facets: Sequence[Facet]) -> Section:
    return Section(title, [Bullets([line for facet in facets for line in lines(study, facet)])])
