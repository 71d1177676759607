"""Kernel hotspots and backends: kernels with their block sizes, and what stands behind attention and GEMM."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from lmp.codebase.facts import Definition, Place
from lmp.report.document.parts import Block, Bold, Bullets, Code, Inline, Line, Link, Paragraph, Section, Table
from lmp.report.repository.appendix import KERNELS, MACROS, kernel_row
from lmp.report.repository.header import required
from lmp.report.repository.matters import ATTENTION, lines
from lmp.report.repository.pieces import ASIDE, code, count, counted, joined, plural, pointer, sentence
from lmp.report.repository.replacing import replaced
from lmp.report.repository.signs import Note
from lmp.report.repository.study import Study
from lmp.report.repository.workflows import anchor

SHOWN_KERNELS, SHOWN_CLASSES = 24, 12
EVERYWHERE = 10
"""Files that import a package for one that tries to: it is needed."""
COLUMNS = ("Kernel", "BLOCK_M/N/K and other sizes", "NUM_STAGES", "NUM_WARPS", "From")


def backends(study: Study) -> Section:
    bullets = [
        *lines(study, ATTENTION),
        *_classes(
            study,
            "GEMM / quantization backends",
            r"Quant\w*(Config|Method|Linear)$|LinearMethod\w*$|Linear\w*Method$|MoEMethod$|^(Fp8|AWQ|GPTQ|Int8|W8A8|MXFP4|NVFP4)\w*|^Quantized\w+$",
            _gemm(study),
        ),
        *replaced(study),
        *_optional(study),
    ]
    blocks: list[Block] = [Bullets(bullets)]
    blocks += _table(study)
    return Section("Kernel hotspots / backends", blocks)


# --- kernels ---------------------------------------------------------------------------------------------------------


def _table(study: Study) -> list[Block]:
    kernels = study.kernels
    searched = "Triton, CUDA, Metal, TileLang, CuTe, Pallas and Numba kernels in all files"
    if not kernels:
        return [Paragraph(f"Kernels: none found (searched: {searched}).")]
    ranked = study.ranked_kernels
    table = Table(COLUMNS, [kernel_row(study, kernel) for kernel in ranked[:SHOWN_KERNELS]], searched)
    if len(kernels) <= SHOWN_KERNELS:
        words: list[Inline] = [
            *counted(study.base.facts, "kernels", "kernel"),
            ", with what the code says of their configuration.",
        ]
    else:
        words = [
            f"The {SHOWN_KERNELS} kernels with most configurations and launches of attention, GEMM, norm, sampling",
            *("; all ", count(study.base.facts, "kernels"), " are in ", Link(KERNELS, anchor(KERNELS)), "."),
        ]
    if study.base.facts.macros:
        words += [" Sizes set by #define are in ", Link(MACROS, anchor(MACROS)), "."]
    return [Paragraph(words), table]


# --- classes ---------------------------------------------------------------------------------------------------------


def _classes(study: Study, title: str, pattern: str, bases: Sequence[str]) -> list[Line]:
    found: dict[tuple[str, str], Definition] = {}
    for name in bases:
        found.update({(d.place.file, d.qualname): d for d in study.base.subclasses.get(name, ())})
    for each in study.base.definitions:
        is_class = (
            each.kind == "class" and "." not in each.qualname and (each.methods or not each.name.endswith("Config"))
        )
        if is_class and re.search(pattern, each.name):
            found.setdefault((each.place.file, each.qualname), each)
    kept = [d for d in found.values() if not re.search(r"Error$|Test|Mixin$|Cache|Params$", d.name)]
    ranked = sorted(
        kept,
        key=lambda d: (
            bool(ASIDE.search(d.place.file)),
            -study.base.imported_by(d),
            -(d.end - d.place.line),
            d.place.file,
        ),
    )
    shown: list[Line] = [
        sentence(Bold(title), ": ", pointer(d.place, d.name), " ", study.what(d, 100)) for d in ranked[:SHOWN_CLASSES]
    ]
    if len(ranked) > SHOWN_CLASSES:
        rest = [pointer(d.place, d.name) for d in ranked[SHOWN_CLASSES:]]
        shown.append(
            sentence(
                Bold(title),
                ", and ",
                *plural(len(rest), "more class", "more classes"),
                ": ",
                joined(rest[:8]),
                " …" if len(rest) > 8 else "",
            )
        )
    return shown or _functions(study, title)


def _functions(study: Study, title: str) -> list[Line]:
    """Where there is no class of backends: the functions that do it."""
    pattern = r"quant|gemm|matmul"
    found = [
        d
        for d in study.base.definitions
        if d.kind == "function"
        and "." not in d.qualname
        and re.search(pattern, d.name)
        and not ASIDE.search(d.place.file)
    ]
    never = (
        r"^_|^(is|has|get|can|should)_|kernel|_bwd|backward|naive|_ref$|mask|(?<!_)scale(?!d)|scales?$"
        r"|quantize_model|estimate|_names?$|_config|_shape"
    )
    never += "|attn|attention|linear_to|to_linear|cross_entropy|jsd|kl_div|_loss|glu_|layer_norm"
    found = [d for d in found if not re.search(never, d.name)]
    ranked = sorted(found, key=lambda d: (-study.base.imported_by(d), -(d.end - d.place.line), d.place.file))[:6]
    if not ranked:
        none = f"{title}: none found (searched: classes and functions named by backend, quantization, GEMM, matmul)"
        return _of_other_packages(study, title) or [none]
    return [sentence(Bold(title), ": ", pointer(d.place, d.name), " ", study.what(d, 100)) for d in ranked]


ASKS = re.compile(r"load_in_\dbit|quantization(?:_config)?|quantize")
"""Arguments with which another package is asked for quantized weights."""


def _of_other_packages(study: Study, title: str) -> list[Line]:
    found: list[list[Inline]] = []
    for function in study.reading.functions:
        for call in function.calls if not ASIDE.search(function.file) else ():
            given = [*(name for name, _ in call.keywords), *function.params]
            loads = call.name in ("from_pretrained", "LLM") and "Tokenizer" not in call.written
            asked = list(filter(ASKS.fullmatch, given)) if loads else []
            if asked and study.base.is_own(function.file):
                found.append(
                    [code(f"{asked[0]} for {call.written}", 70), " at ", pointer(Place(function.file, call.line))]
                )
    return [sentence(Bold(title), ", of another package: ", joined(found[:SHOWN_CLASSES]))] if found else []


def _gemm(study: Study) -> list[str]:
    return [
        name for name in study.base.subclasses if re.search(r"Quant\w*(Config|MethodBase)$|LinearMethodBase$", name)
    ]


# --- optional packages -----------------------------------------------------------------------------------------------


def _tried(name: str, found: Sequence[tuple[str, Note]]) -> list[Inline]:
    """The package; of one that is not tried itself its parts, as the package may be needed anyway."""
    parts = list(dict.fromkeys(note.text for _, note in found))
    if name in parts:
        return [Code(name)]
    more = f" and {len(parts) - 1} more of {name}" if len(parts) > 1 else ""
    return [Code(parts[0]), more] if more else [Code(parts[0])]


def _plain_import(study: Study, name: str, tried: Sequence[tuple[str, Note]]) -> Place | None:
    """The first import of a package that is not tried, at the top of a file or in a function before one that is: there
    it is not optional."""
    base = study.base
    lines = {(file, note.line) for file, note in tried}
    for file, found in base.signs.items():
        near = [note.line for of, note in tried if of == file]
        for each in found.imports if file.endswith(".py") else ():
            if each.module.split(".")[0] != name or (file, each.line) in lines:
                continue
            text = "".join(base.lines(file)[each.line - 1 : each.line])
            inside = base.around(file, each.line)
            # One below may be what stands in for it.
            before = inside is not None and any(each.line < line <= inside.end for line in near)
            if not text[:1].isspace() or before:
                return Place(file, each.line)
    return None


def _optional(study: Study) -> list[Line]:
    packages: dict[str, list[tuple[str, Note]]] = {}
    needed = required(study.base)
    for file, note in study.base.notes("optional"):
        top = note.text.split(".")[0]
        if (
            top
            and study.base.modules.file(top, file) is None
            and top.lower() not in study.base.tops
            and top not in sys.stdlib_module_names
            and not re.fullmatch(r"typing\w*|importlib\w*|tomli", top)
            # What is tried of a package that is installed anyway is its version.
            and top.lower().replace("_", "-") not in needed
        ):
            packages.setdefault(top, []).append((file, note))
    # Where nearly all of its files import a package, one place asks for its version.
    packages = {
        name: found
        for name, found in packages.items()
        if study.base.packages_used.get(name, 0) < EVERYWHERE * len(found)
    }
    ranked = sorted(packages.items(), key=lambda item: (-len(item[1]), item[0]))
    if not ranked:
        return ["Optional libs: none found (searched: imports inside of try blocks that go on without the package)"]
    lines: list[Line] = []
    for name, found in ranked[:10]:
        file, note = found[0]
        instead: list[Inline] = [" without it: ", code(note.detail, 70)] if note.detail else []
        plain = _plain_import(study, name, found)
        if plain is not None:
            instead = ["; imported without a test at ", pointer(plain)]
        where = pointer(Place(file, note.line), note.text)
        lines.append(
            sentence(
                *(Bold("Optional libs"), ": ", *_tried(name, found), " tried at ", *plural(len(found), "place")),
                *(", first ", where, *instead),
            )
        )
    if len(ranked) > 10:
        rest = joined(
            [[Code(name), " at ", pointer(Place(found[0][0], found[0][1].line))] for name, found in ranked[10:]]
        )
        lines.append(sentence(Bold("Optional libs"), ", tried less often: ", rest))
    return lines
