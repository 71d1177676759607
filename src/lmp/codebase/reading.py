"""Reads a repository: every file, one at a time, into plain facts with their places. Nothing is imported or run."""

from __future__ import annotations

import ast
import gc
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from lmp.codebase import (
    cpp,
    cuda,
    definitions,
    dsl,
    entries,
    flags,
    install,
    launches,
    metal,
    reads,
    record_flags,
    settings_files,
    triton,
    wrappers,
)
from lmp.codebase.copies import without_copies
from lmp.codebase.cpp_text import Code
from lmp.codebase.facts import FileFacts, Kernel, RepoFacts, Selection, Skipped
from lmp.codebase.file_kinds import CPP, language, role
from lmp.codebase.graph import native_file, python_file
from lmp.codebase.library import Library
from lmp.codebase.reads import Attribute
from lmp.codebase.source import DoesNotParse, Source, parse
from lmp.codebase.texts import Text, Unreadable, decode, printable, read_bytes
from lmp.codebase.walk import Listed, list_files
from lmp.codebase.wrappers import Wrappers

Progress = Callable[[int, int, str], None]
Also = Callable[[Source], object]


def read_repository(root: Path, selection: Selection, progress: Progress, also: Also | None = None) -> RepoFacts:
    """Everything that reading finds, in the order of the files' names.

    ``progress`` is told how many files of how many are read, and the next one's name; ``also`` is given each Python
    file that parses, while its tree is there, and what it returns is kept. A file that cannot be read, is no text or
    does not parse is listed with the reason. Raises UsageError where a pattern of the selection is wrong.
    """
    with no_cycles_looked_for():
        return _read(root, selection, progress, also)


def _read(root: Path, selection: Selection, progress: Progress, also: Also | None) -> RepoFacts:
    every, skipped = list_files(root, selection)
    listed, copies = without_copies(every)
    library = Library(listed, selection.largest)
    python = [each.file for each in listed if each.file.endswith(".py")]
    facts = RepoFacts(printable(root.resolve().name), skipped=[*skipped, *copies])
    found = wrappers.find(library, python)
    reading = _Reading(facts, library, found, record_flags.drivers(library, python), also)
    for at, each in enumerate(listed):
        progress(at, len(listed), each.file)
        reading.file(each, selection.largest)
    progress(len(listed), len(listed), "")
    return reading.finished()


@contextmanager
def no_cycles_looked_for() -> Iterator[None]:
    """Syntax trees and graphs of calls leave no cycles: looking for them in millions of objects takes up to a third of
    the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@dataclass
class _Reading:
    facts: RepoFacts
    library: Library
    wrappers: Wrappers
    drivers: set[str]
    also: Also | None = None
    launches: list[launches.Candidate] = field(default_factory=list)
    attributes: list[Attribute] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.wanted = self.wrappers.attributes()

    def file(self, listed: Listed, largest: int) -> None:
        kind = language(listed.file)
        try:
            text = decode(read_bytes(listed.path, largest), python=kind == "python")
        except Unreadable as why:
            self.skipped(listed.file, str(why))
            return
        if text.note:
            self.skipped(listed.file, text.note)
        imports: tuple[str, ...] = ()
        doc = ""
        if kind == "python":
            try:
                source = parse(listed.file, text.text)
                imports, doc = source.imports, definitions.first_line(source.tree)
                self.python(source)
                self.facts.graphs[listed.file] = python_file.file_graph(source)
                if self.also is not None:
                    self.facts.also[listed.file] = self.also(source)
            except DoesNotParse as why:
                self.skipped(listed.file, f"{why}; its classes and functions are read by its lines")
                self.facts.definitions.extend(definitions.by_lines(listed.file, text.text))
            except RecursionError:
                self.skipped(listed.file, "nested too deeply: what was found in it is not complete")
        elif kind in CPP:
            self.cpp(listed.file, kind, text.text)
        else:
            self.settings(listed.file, kind, text.text)
        self.facts.install.extend(install.install(listed.file, kind, text.text))
        for name, always in install.requires(listed.file, text.text):
            self.facts.requires[name] = always or self.facts.requires.get(name, False)
        self.facts.builds_with.update(install.builds_with(listed.file, text.text))
        self.facts.files.append(_file_facts(listed.file, kind, text, imports, doc))

    def skipped(self, file: str, why: str) -> None:
        self.facts.skipped.append(Skipped(file, why))

    def python(self, source: Source) -> None:
        facts = self.facts
        facts.definitions.extend(definitions.definitions(source))
        made = record_flags.flags(source, self.drivers, self.library)
        every = sorted([*flags.flags(source), *made], key=lambda each: each.place.line)
        facts.flags.extend(replace(each, value=self.library.settled(source, each.default)) for each in every)
        facts.kernels.extend(triton.kernels(source, self.library.imported))
        facts.kernels.extend(dsl.kernels(source))
        facts.kernels.extend(_in_strings(source))
        facts.entries.extend(entries.entries(source))
        facts.commands.extend(entries.command_tables(source))
        facts.entries.extend(entries.setup_scripts(source) if source.file.endswith("setup.py") else [])
        self.launches.extend(launches.candidates(source))
        facts.launches.extend(metal.launches(source))
        found = reads.reads(source, self.wrappers, self.library)
        facts.env.extend(replace(each, value=self.library.settled(source, each.default)) for each in found)
        self.attributes.extend(reads.class_attributes(source, self.wanted, self.library))

    def cpp(self, file: str, kind: str, text: str) -> None:
        facts, code = self.facts, Code(text)
        is_cuda = kind in ("cuda", "hip") or "__global__" in text or "__device__" in text
        found, errors = cpp.definitions(file, text, is_cuda)
        facts.definitions.extend(found)
        facts.graphs[file] = native_file.file_graph(file, code, found)
        if errors:
            self.skipped(file, f"{errors} places are not read as C++: functions there are missing, kernels are not")
        facts.kernels.extend(cuda.kernels(file, code))
        facts.macros.extend(cuda.sizes(file, code))
        facts.env.extend(cuda.environment(file, code))
        facts.flags.extend(cuda.flags(file, text))
        self.launches.extend(cuda.launches(file, code))

    def settings(self, file: str, kind: str, text: str) -> None:
        self.facts.entries.extend(entries.package_scripts(file, text))
        self.facts.told.extend(entries.told_imports(file, text))
        self.facts.shown_imports.extend(entries.shown_imports(file, text))
        self.facts.shown.update(entries.told_paths(file, text))
        found = settings_files.config_file(file, kind, text)
        if found is not None:
            self.facts.config_files.append(found)

    def finished(self) -> RepoFacts:
        self.facts.env.extend(reads.of_attributes(self.wrappers, self.attributes, self._bases()))
        self.facts.env.sort(key=lambda each: (each.place.file, each.place.line))
        self.facts.launches.extend(launches.launches(self.launches, self.facts.kernels, self.library.defining))
        self.facts.launches.sort(key=lambda each: (each.place.file, each.place.line))
        self.facts.skipped.sort(key=lambda each: each.file)
        # Several commands may take the fields of one class.
        self.facts.flags[:] = dict.fromkeys(self.facts.flags)
        return self.facts

    def _bases(self) -> dict[str, list[str]]:
        """By the classes' names: which of those of one name is meant is not followed."""
        bases: dict[str, list[str]] = {}
        for each in self.facts.definitions:
            if each.kind == "class":
                bases.setdefault(each.name, []).extend(base.rpartition(".")[2] for base in each.bases)
        return bases


def _in_strings(source: Source) -> list[Kernel]:
    """CUDA that is kept in strings and compiled when it is wanted; text about kernels is no kernel."""
    if "__global__" not in source.text:
        return []
    return [
        kernel
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "__global__" in node.value
        for kernel in cuda.in_string(source.file, source.text, node.value, node.lineno)
    ]


def _file_facts(file: str, kind: str, text: Text, imports: tuple[str, ...], doc: str) -> FileFacts:
    lines = text.text.count("\n") + (not text.text.endswith("\n") and bool(text.text))
    return FileFacts(file, kind, lines, hashlib.sha256(text.raw).hexdigest(), imports, doc, role(file))
