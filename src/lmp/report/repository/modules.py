"""The module map: every folder with code, what it is for, and what is in it."""

from __future__ import annotations

import re
from collections import Counter

from lmp.codebase.facts import Definition, Place
from lmp.report.document.parts import Code, Inline, Line, Paragraph, Section, Table
from lmp.report.repository.code_base import CODE
from lmp.report.repository.pieces import code, joined, plural, pointer, said, sentence
from lmp.report.repository.study import Study
from lmp.report.repository.units import Unit, units

MOST = 56
MARKED = {
    "test": "tests",
    "vendored": "vendored code",
    "legacy": "legacy code",
    "example": "examples",
    "benchmark": "benchmarks",
    "docs": "documentation",
    "build": "build files",
}


def modules(study: Study) -> Section:
    files = [file for file in study.base.facts.files if file.language in CODE and file.lines]
    parts = units(files, MOST, alone=24)
    rows = [_row(study, unit) for unit in parts]
    other = len(study.base.facts.files) - len(files)
    words: list[Inline] = ["Every file of code is in one row. "]
    if other:
        words += [
            *plural(other, "file"),
            " that were read are no code: settings, texts, empty files." if other > 1 else " that was read is no code.",
        ]
    table = Table(("Path", "Role", "Notes"), rows, "all folders of the repository")
    return Section("Module map (table)", [Paragraph(words), table])


def _row(study: Study, unit: Unit) -> list[Line]:
    role = _role(study, unit)
    # What it defines is said once, with its places.
    return [_path(unit), role, _notes(study, unit, mainly=not isinstance(role, list) or role[0] != _DEFINES)]


def _path(unit: Unit) -> Line:
    if unit.rest == "smaller parts":
        return sentence(Code(unit.title), " (the smaller parts together)")
    return Code(unit.title)


def _role(study: Study, unit: Unit) -> Line:
    """By what all its files are, else by its own docstring, else by the parts of a run that it has, else what it
    defines."""
    kinds = {file.role for file in unit.files}
    if len(kinds) == 1 and (kind := next(iter(kinds))) in MARKED:
        return MARKED[kind]
    if unit.rest == "smaller parts":
        return "several"
    init = next((f for f in unit.files if f.file in (f"{unit.path}/__init__.py", unit.path)), None)
    if init is not None and len(init.doc.split()) >= 3 and not _NO_ROLE.match(init.doc):
        return ["“", said(init.doc, 90), "” (", pointer(Place(init.file, 1)), ")"]
    parts = _parts(study, unit)
    if parts:
        return parts
    return _largest(unit) if unit.rest == "files" else _by_content(study, unit)


_DEFINES = "defines "
_NO_ROLE = re.compile(
    r"(?i)copyright|spdx|coding|licen|adapted|copied|based on|modified|ported|usage|example|run with|this file|http"
)
"""Beginnings of docstrings that say where a file comes from, and not what it does."""
MOST_COMMANDS = 2
HELPER = 4
"""Lines up to which a function or class says nothing of what a file is for."""
LEAST = 2
"""Places of a part of a run from which it is what a folder has."""
PARTS = {
    "kv_cache": "KV cache",
    "scheduler": "scheduling and batches",
    "sampling": "sampling",
    "attention": "attention",
}


def _parts(study: Study, unit: Unit) -> list[Inline]:
    """Which parts of a run stand in it, by the call graph, and how often; and its kernels."""
    inside = {file.file for file in unit.files}
    counted = {name: sum(row.place.file in inside for row in study.ranked(section)) for section, name in PARTS.items()}
    kernels = sum(kernel.place.file in inside for kernel in study.base.facts.kernels)
    found = [plural(kernels, "kernel")] if kernels else []
    ranked = sorted(counted.items(), key=lambda item: -item[1])
    found += [[f"{name} (", *plural(number, "place"), ")"] for name, number in ranked[:3] if number >= LEAST]
    has: list[Inline] = ["has ", *joined(found)] if found else []
    return joined([each for each in (has, _commands(study, inside)) if each], "; ")


def _commands(study: Study, inside: set[str]) -> list[Inline]:
    """What its files are started by: what only users of a library call is among what it defines."""
    started = [row for row in study.ways if row.place.file in inside and row.role in ("cli", "server")]
    if not started:
        return []
    shown = joined([code(study.started(row), 60) for row in started[:MOST_COMMANDS]])
    more = len(started) - MOST_COMMANDS
    return ["started by ", *shown, *([" and ", *plural(more, "more way")] if more > 0 else [])]


def _largest(unit: Unit) -> Line:
    """Files that lie directly in a folder, by name: a name of the folder would say nothing of them."""
    ranked = sorted(unit.files, key=lambda file: (-file.lines, file.file))
    shown = joined([code(file.file.rpartition("/")[2]) for file in ranked[:3]])
    return sentence("files of the folder itself, as ", shown)


def _by_content(study: Study, unit: Unit) -> Line:
    inside = {file.file for file in unit.files}
    if all(file.file.endswith(("__main__.py", "main.py")) for file in unit.files):
        return "entry point"
    best = _main_definitions(study, inside)[:2]
    many = _family(study, inside)
    if many:
        return many
    if best:
        return [_DEFINES, *joined([pointer(each.place, each.name) for each in best])]
    given = [
        name
        for file in inside & set(study.base.signs)
        for each in study.base.signs[file].imports
        for name in each.names
        if study.base.resolve(each.module, name, file) is not None
    ]
    if len(inside) == 1 and unit.path.endswith("__init__.py") and given:
        return sentence("exports ", *plural(len(given), "name"), ", as ", code(given[0], 50))
    return "code without definitions"


def _family(study: Study, inside: set[str]) -> list[Inline]:
    """``35 functions apply_kernel_to_*``: most functions of the files begin with the same two words."""
    every = (each for file in inside for each in study.base.by_file.get(file, ()))
    names = [each.name for each in every if each.qualname == each.name and not each.name.startswith("_")]
    starts = Counter("_".join(name.split("_")[:2]) for name in names if name.count("_") >= 2)
    if not starts:
        return []
    start, number = min(starts.items(), key=lambda item: (-item[1], item[0]))
    if number < 5 or 2 * number < len(names):
        return []
    alike = [name.split("_") for name in names if name.startswith(f"{start}_")]
    shared = [words[0] for words in zip(*alike, strict=False) if len(set(words)) == 1]
    return [*plural(number, "function"), " ", Code("_".join([*shared, "*"]))]


def _main_definitions(study: Study, inside: set[str]) -> list[Definition]:
    top = [
        each
        for file in sorted(inside)
        for each in study.base.by_file.get(file, ())
        if "." not in each.qualname and not each.name.startswith("_") and each.kind != "method"
    ]

    large = [each for each in top if each.end - each.place.line >= HELPER]
    return sorted(
        large or top,
        key=lambda d: (-study.base.imported_by(d), d.kind != "class", -(d.end - d.place.line), d.place.file),
    )


def _notes(study: Study, unit: Unit, mainly: bool) -> Line:
    inside = {file.file for file in unit.files}
    files = [*plural(len(unit.files), "file"), ", "] if unit.title != unit.path else []
    notes: list[list[Inline]] = [[*files, *plural(unit.lines, "line")]]
    importing = {f for file in inside for f in study.base.importers.get(file, ())} - inside
    if importing:
        notes.append(["imported by ", *plural(len(importing), "file"), " outside of it"])
    best = [each for each in _main_definitions(study, inside)[:2] if study.base.is_own(each.place.file)]
    if best and mainly:
        notes.append(["mainly ", *joined([pointer(each.place, each.name) for each in best])])
    marked = {file.role for file in unit.files} & set(MARKED)
    if marked and len({file.role for file in unit.files}) > 1:
        held = [
            sentence(f"{MARKED[m]} ", *plural(sum(f.role == m for f in unit.files), "file")) for m in sorted(marked)
        ]
        notes.append(["of them ", *joined(held)])
    return joined(notes, "; ")
