"""Section 9 of the implementation template: its questions, with what the code says to them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from lmp.codebase.facts import Definition, Place
from lmp.codebase.graph.records import Function
from lmp.report.document.parts import (
    Inline,
    Paragraph,
    Section,
)
from lmp.report.repository.configured import device_guards, is_of_model, setting_value
from lmp.report.repository.kernel_work import is_attention
from lmp.report.repository.parallel import YES, strategies
from lmp.report.repository.performance import some
from lmp.report.repository.pieces import (
    ASIDE,
    code,
    joined,
    plural,
    pointer,
    sentence,
)
from lmp.report.repository.pitfalls import refused_at
from lmp.report.repository.study import Study

_LENGTHS = re.compile(
    r"(?i)cu_?seq_?lens?\w*|\w*indptr\w*|\w*seq_?lens?\w*|b_start_loc|block_tables?|\w*padding\w*|attention_mask|segment_ids|pos_offset"
)
_WHOLE = r"max_?(?:req_?|total_?|model_?|seq_?|input_?|target_?|position_?)"
_MOST = re.compile(
    rf"(?i)(?:--)?(?:\w+[._-])?(?:{_WHOLE}*(?:len|length|embeddings)|{_WHOLE}+\w*(?:len|length|tokens?|token_num|embeddings))"
    r"|n_ctx|block_size|(?:max_)?target_length"
)
"""Settings of a sequence's whole length; a limit of new tokens is none."""
FUSED = re.compile(r"(?i)(?:^|_)fused?(?:_|$)|^fused")
_JOINED = re.compile(r"_and_")
_DEGREES = re.compile(
    r"(?i)(?:--)?(?:\w+[._])?(?:(?:tensor|pipeline|data|context|expert|sequence)_?(?:model_)?parallel\w*|(?:ici|dcn)_\w+_parallelism|[tpdce]p(?:_size|_degree)?|world_size|mesh_shape)"
)


def questions(study: Study) -> Iterator[Section]:
    yield _question("How are variable sequence lengths handled?", list(_lengths(study)))
    yield _question(
        "What is the maximum supported sequence length?", [*_settings(study, _MOST), *list(_refused(study))[:4]]
    )
    kernels = {(each.place.file, each.place.line) for each in study.kernels}
    starting = {(each.place.file, each.inside) for each in study.base.facts.launches}

    def is_fused(each: Definition) -> bool:
        # "_and_" joins two operators only in the name of a kernel, or of what starts one.
        at = each.place.file, each.place.line
        works = at in kernels or (each.place.file, each.qualname) in starting
        return FUSED.search(each.name) is not None or (works and _JOINED.search(each.name) is not None)

    fused = [each for each in study.base.definitions if not ASIDE.search(each.place.file) and is_fused(each)]
    fused.sort(
        key=lambda each: (
            (each.place.file, each.place.line) not in kernels,
            -study.base.imported_by(each),
            each.place.file,
        )
    )
    told: list[list[Inline]] = (
        [["by their names ", *some([pointer(each.place, each.name) for each in fused])]] if fused else []
    )
    whole = [each for each in study.ranked_kernels if is_attention(study.base, each)]
    if whole:
        places = some([pointer(each.place, each.name) for each in whole])
        told.append(["attention with its softmax, as both stand between sums of products in one kernel: ", *places])
    yield _question("What operations are fused?", told)
    yield _question("What hardware is required?", list(_hardware(study)))
    kv = {row.role: row for row in reversed(study.ranked("kv_cache"))}
    told = [
        [f"{row.role}: ", *study.pointer(row.place, row.symbol)] for role in _STEPS if (row := kv.get(role)) is not None
    ]
    yield _question("How does the KV cache work?", told)
    # One source for section 7.1 and this answer.
    used: list[list[Inline]] = [
        list(line[:-1])
        for line in strategies(study)
        if isinstance(line, Sequence) and not isinstance(line, str) and not set(YES).isdisjoint(map(str, line))
    ]
    yield _question("How is parallelism configured?", [*_settings(study, _DEGREES), *used])


_OTHER_DEVICE = re.compile(r"""["'](cpu|mps|xpu|tpu)["']""")


def _hardware(study: Study) -> Iterator[list[Inline]]:
    """What the kernels are written in, and the other devices that the code names: it may run without a kernel."""
    languages = Counter(kernel.language for kernel in study.kernels)
    if languages:
        written = ", ".join(f"{name} ({number})" for name, number in languages.most_common())
        first = study.ranked_kernels[0]
        named = pointer(first.place, first.name)
        yield [f"its kernels, in {written}, as ", named, ", need a device that runs them"]
        others: dict[str, Place] = {}
        for file in study.base.code:
            for at, line in enumerate(study.base.lines(file.file), 1) if file.language == "python" else ():
                for match in _OTHER_DEVICE.finditer(line):
                    others.setdefault(match[1], Place(file.file, at))
        if others:
            shown = joined([[code(name, 10), " at ", pointer(place)] for name, place in sorted(others.items())])
            yield ["the code names other devices too: ", *shown]
    for text, place in device_guards(study)[:4]:
        yield [code(text, 80), " at ", pointer(place)]


_STEPS = ("layout", "allocate", "update", "paging", "evict", "free", "accounting")
"""Parts of a KV cache, in the order in which a token meets them."""


def _question(question: str, answer: Sequence[Sequence[Inline]]) -> Section:
    searched = "names of functions, arguments, settings and kernels"
    text = sentence("A: ", joined(answer, "; "), ".") if answer else f"A: none found (searched: {searched})."
    return Section(f"Q: {question}", [Paragraph(text)])


def _lengths(study: Study) -> Iterator[list[Inline]]:
    """Arguments that carry lengths into functions that lead to attention, those of most functions first."""
    taken: dict[str, list[Function]] = {}
    for function in study.reading.attending:
        if not ASIDE.search(function.file):
            for name in function.params:
                if _LENGTHS.fullmatch(name):
                    taken.setdefault(name, []).append(function)
    for name, found in sorted(taken.items(), key=lambda item: (-len(item[1]), item[0]))[:4]:
        first = min(found, key=lambda each: (each.file, each.line))
        where = pointer(Place(first.file, first.line), first.name)
        yield [
            code(name, 40),
            ", an argument of ",
            *plural(len(found), "function"),
            " that lead to attention, as ",
            where,
        ]


_COMPARED = re.compile(rf"[<>]=?\s*(?:\w+\.)*(?:{_WHOLE}*(?:len|length|embeddings)|n_ctx)\b")


def _refused(study: Study) -> Iterator[list[Inline]]:
    """Refusals of what is longer than a limit."""
    for function in study.reading.functions:
        for each in function.hazards if not ASIDE.search(function.file) else ():
            if each.kind in ("assert", "raise") and _COMPARED.search(each.text):
                place = Place(function.file, each.line)
                yield [*refused_at(study, place, each.text)[1], " at ", pointer(place)]


def _settings(study: Study, wanted: re.Pattern[str]) -> list[list[Inline]]:
    settings = [row for row in study.ranked("configuration") if not ASIDE.search(row.place.file)]
    found = [row for row in settings if wanted.fullmatch(row.symbol.replace("-", "_").lstrip("_"))]
    found = [row for row in found if is_of_model(row, settings)]
    told: list[list[Inline]] = []
    for row in found[:4]:
        value = setting_value(study, row)
        default: list[Inline] = [" = ", code(value, 30)] if value else []
        told.append([code(row.symbol, 60), *default, " at ", pointer(row.place)])
    return told
