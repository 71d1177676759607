"""Reads a repository: every file, one at a time, into plain facts with their places. Nothing is imported or run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from lmp.recon import definitions, dsl, entries, flags, launches, triton
from lmp.recon.environment import accesses
from lmp.recon.facts import EnvRead, FileFacts, Place, RepoFacts, Selection, Skipped
from lmp.recon.library import Library
from lmp.recon.roles import language, role
from lmp.recon.source import DoesNotParse, Source, parse
from lmp.recon.templates import template, text_of
from lmp.recon.texts import Text, Unreadable, decode, read_bytes
from lmp.recon.walk import Listed, list_files

Progress = Callable[[int, int, str], None]


def read_repository(root: Path, selection: Selection, progress: Progress) -> RepoFacts:
    """Everything that reading finds, in the order of the files' names.

    ``progress`` is told how many files of how many are read, and the next one's name. A file that cannot be read, is no
    text or does not parse is listed with the reason. Raises UsageError where a pattern of the selection is wrong.
    """
    listed, skipped = list_files(root, selection)
    reading = _Reading(RepoFacts(root.resolve().name, skipped=list(skipped)), Library(root, listed, selection.largest))
    for at, each in enumerate(listed):
        progress(at, len(listed), each.file)
        reading.file(each, selection.largest)
    progress(len(listed), len(listed), "")
    return reading.finished()


@dataclass
class _Reading:
    facts: RepoFacts
    library: Library
    launches: list[launches.Candidate] = field(default_factory=list)

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
            except DoesNotParse as why:
                self.skipped(listed.file, str(why))
            except RecursionError:
                self.skipped(listed.file, "nested too deeply: what was found in it is not complete")
        else:
            self.facts.entries.extend(entries.package_scripts(listed.file, text.text))
        self.facts.files.append(_file_facts(listed.file, kind, text, imports, doc))

    def skipped(self, file: str, why: str) -> None:
        self.facts.skipped.append(Skipped(file, why))

    def python(self, source: Source) -> None:
        facts = self.facts
        facts.definitions.extend(definitions.definitions(source))
        facts.flags.extend(flags.flags(source))
        facts.kernels.extend(triton.kernels(source, self.library.imported))
        facts.kernels.extend(dsl.kernels(source))
        facts.entries.extend(entries.entries(source))
        facts.entries.extend(entries.setup_scripts(source) if source.file.endswith("setup.py") else [])
        self.launches.extend(launches.candidates(source))
        for access in accesses(source):
            name = text_of(template(source, access.name, access.scope, self.library.string))
            written = source.written(access.name)
            facts.env.append(
                EnvRead(
                    written if name is None else name,
                    Place(source.file, access.name.lineno),
                    source.written(access.default) if access.default is not None else None,
                    derived=name is not None and name not in written,
                    resolved=name is not None,
                    via=access.via,
                )
            )

    def finished(self) -> RepoFacts:
        self.facts.launches.extend(launches.launches(self.launches, self.facts.kernels))
        self.facts.skipped.sort(key=lambda each: each.file)
        return self.facts


def _file_facts(file: str, kind: str, text: Text, imports: tuple[str, ...], doc: str) -> FileFacts:
    lines = text.text.count("\n") + (not text.text.endswith("\n") and bool(text.text))
    return FileFacts(file, kind, lines, hashlib.sha256(text.raw).hexdigest(), imports, doc, role(file))
