"""Other files of the repository, parsed when a name of theirs is wanted; a few are kept for the next that asks."""

from __future__ import annotations

import ast
import re
from collections import OrderedDict
from collections.abc import Sequence

from lmp.codebase.modules import Modules
from lmp.codebase.source import Source, parse
from lmp.codebase.templates import no_elsewhere, template, text_of
from lmp.codebase.texts import Unreadable, decode, read_bytes
from lmp.codebase.walk import Listed

NAME = re.compile(r"(?!(?:None|True|False)$)[A-Za-z_][\w.]*")
KEPT = 12
"""Parsed files at a time: what bounds the memory."""
HOPS = 4
"""How often a name that a module only passes on is followed."""


class Library:
    def __init__(self, listed: Sequence[Listed], largest: int) -> None:
        self.modules = Modules(each.file for each in listed)
        self._paths = {each.file: each.path for each in listed if each.file.endswith(".py")}
        self._largest = largest
        self._sources: OrderedDict[str, Source | None] = OrderedDict()
        self._strings: dict[tuple[str, str], str | None] = {}

    def raw(self, file: str) -> bytes:
        """The bytes of a Python file; none where it cannot be read, which is said when its turn comes."""
        try:
            return read_bytes(self._paths[file], self._largest)
        except Unreadable:
            return b""

    def source(self, file: str) -> Source | None:
        """None where the file cannot be read or parsed."""
        if file in self._sources:
            self._sources.move_to_end(file)
            return self._sources[file]
        found: Source | None
        try:
            found = parse(file, decode(read_bytes(self._paths[file], self._largest), python=True).text)
        except Unreadable:
            found = None
        self._sources[file] = found
        if len(self._sources) > KEPT:
            self._sources.popitem(last=False)
        return found

    def imported(self, source: Source, dotted: str) -> tuple[Source, str] | None:
        """The file that defines an imported name, and the name there; None where it is not of this repository."""
        importing = source.file
        for _ in range(HOPS):
            where = self.modules.of_import(dotted, importing)
            if where is None or not where[1] or "." in where[1]:
                return None
            file, name = where
            there = self.source(file)
            if there is None or file == source.file:
                return None
            if name in there.constants or name in there.functions:
                return there, name
            if name not in there.aliases:
                return None
            dotted, importing = there.aliases[name], file
        return None

    def defining(self, dotted: str, importing: str) -> str | None:
        """The file that defines an imported name, through modules that only pass it on; None where it is of none."""
        for _ in range(HOPS):
            where = self.modules.of_import(dotted, importing)
            if where is None or not where[1] or "." in where[1]:
                return None
            there = self.source(where[0])
            if there is None or where[1] not in there.aliases:
                return where[0]
            dotted, importing = there.aliases[where[1]], where[0]
        return None

    def settled(self, source: Source, written: str | None) -> str:
        """What a constant of this or of another file is set to, by its name; empty where that is no plain value."""
        if written is None or not NAME.fullmatch(written):
            return ""
        there, value = source, source.constants.get(written)
        first, _, rest = written.partition(".")
        if value is None and first in source.aliases:
            found = self.imported(source, source.aliases[first] + (f".{rest}" if rest else ""))
            there, value = (found[0], found[0].constants.get(found[1])) if found else (source, None)
        inner = value.operand if isinstance(value, ast.UnaryOp) else value
        return there.written(value) if value is not None and isinstance(inner, ast.Constant) else ""

    def string(self, source: Source, dotted: str) -> str | None:
        """The string constant that an imported name stands for."""
        key = (source.file, dotted)
        if key not in self._strings:
            found = self.imported(source, dotted) if "." in dotted else None
            value = found[0].constants.get(found[1]) if found else None
            self._strings[key] = (
                text_of(template(found[0], value, None, no_elsewhere))
                if found is not None and value is not None
                else None
            )
        return self._strings[key]
