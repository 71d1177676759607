"""The files of the atlas: an index, and one compressed file for each entry.

FOLDER/index.json          `Index`: what each entry is of, and the sha256 of its file
FOLDER/<name>.zip          model_analysis.json, module_analyses.json, facts.json, held.json
"""

from __future__ import annotations

import functools
import io
import json
import lzma
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmp.errors import InvalidAnalysis, NotFound, Search
from lmp.store.files import storage_errors, write_whole

if TYPE_CHECKING:
    from lmp.atlas.records import Facts, HeldRecord, Index, Listed
    from lmp.records import ModelAnalysis, ModuleAnalysis

PACKAGED = Path(__file__).resolve().parent / "entries"
"""The folder of the atlas that is part of the package."""

INDEX = "index.json"
SUFFIX = ".zip"
MODEL, MODULES, FACTS, HELD = "model_analysis.json", "module_analyses.json", "facts.json", "held.json"
MOST_BYTES = 64 * 2**20
"""Largest size of a part of an entry. A larger one is not decompressed."""

_NAME = re.compile(r"[\w.+-]+", re.ASCII)
_UNREADABLE = (OSError, ValueError, KeyError, RecursionError, zipfile.BadZipFile, lzma.LZMAError, EOFError,
               NotImplementedError, RuntimeError)  # fmt: skip
"""What zipfile, lzma, json and pydantic raise for bytes that are not what they should be."""


class Damaged(InvalidAnalysis):
    """A file of the atlas is not what the build wrote."""

    def __init__(self, file: Path, why: str) -> None:
        super().__init__(
            f"the atlas is damaged: {file} {why}\ninstall lmp again, or build the entry again: lmp atlas build"
        )


@dataclass(frozen=True)
class Entry:
    """The contents of an entry's file, each part read when it is asked for. Raises Damaged."""

    listed: Listed
    file: Path
    content: bytes

    @functools.cached_property
    def model(self) -> ModelAnalysis:
        from lmp.records import ModelAnalysis

        found: ModelAnalysis = self._record(MODEL, ModelAnalysis)
        if (found.class_name, found.config) != (self.listed.class_name, self.listed.origin):
            raise Damaged(self.file, f"is of another model than {INDEX} says")
        return found

    @functools.cached_property
    def modules(self) -> dict[str, ModuleAnalysis]:
        """Class path -> the analysis that the model was linked from."""
        from lmp.records import ModuleAnalysis

        try:
            found = json.loads(self._part(MODULES))
            return {name: ModuleAnalysis.model_validate(data) for name, data in found.items()}
        except _UNREADABLE as error:
            raise Damaged(self.file, f"has no valid {MODULES}") from error

    @functools.cached_property
    def facts(self) -> Facts:
        from lmp.atlas.records import Facts

        return self._record(FACTS, Facts)

    @functools.cached_property
    def held(self) -> HeldRecord | None:
        """None: what the model holds could not be told when the entry was made."""
        from lmp.atlas.records import HeldRecord

        return self._record(HELD, HeldRecord) if HELD in self._names else None

    @functools.cached_property
    def _names(self) -> list[str]:
        try:
            with zipfile.ZipFile(io.BytesIO(self.content)) as archive:
                return archive.namelist()
        except _UNREADABLE as error:
            raise Damaged(self.file, "is not a zip file") from error

    def _record(self, part: str, record: Any) -> Any:
        try:
            return record.model_validate_json(self._part(part))
        except _UNREADABLE as error:
            raise Damaged(self.file, f"has no valid {part}") from error

    def _part(self, name: str) -> bytes:
        with zipfile.ZipFile(io.BytesIO(self.content)) as archive:
            if archive.getinfo(name).file_size > MOST_BYTES:
                raise ValueError(f"{name} is too large")
            return archive.read(name)


class Atlas:
    """The atlas in one folder. ``is_new``: the folder may have no index yet, because entries are to be made."""

    def __init__(self, folder: Path, is_new: bool = False) -> None:
        self.folder, self._is_new = folder.absolute(), is_new

    @functools.cached_property
    def index(self) -> Index:
        """The index; an empty one of a new atlas without a file. Raises Damaged."""
        from lmp.atlas.records import Index

        file = self.folder / INDEX
        try:
            return Index.model_validate_json(file.read_bytes())
        except FileNotFoundError as error:
            if self._is_new:
                return Index()
            raise Damaged(file, "is not there") from error
        except _UNREADABLE as error:
            raise Damaged(file, "is not a valid index") from error

    def entries(self, **fields: object) -> Iterator[Listed]:
        """The lines of the index with these values."""
        for listed in self.index.entries:
            if all(getattr(listed, name) == value for name, value in fields.items()):
                yield listed

    def named(self, name: str) -> Listed:
        """The line of a model id, a family or an entry. Raises NotFound."""
        from lmp.errors import did_you_mean

        wanted = name.lower()
        for listed in self.index.entries:
            if wanted in (listed.name.lower(), (listed.model_id or "").lower()):
                return listed
        import difflib

        known = [listed.model_id or listed.name for listed in self.index.entries]
        close = difflib.get_close_matches(name, known, n=3)
        raise NotFound(
            f"the atlas has no entry {name}\n{did_you_mean(close, 'list its entries: lmp atlas')}",
            [Search(name, str(self.folder / INDEX), "no such entry")],
        )

    def load(self, listed: Listed) -> Entry:
        """The entry of a line. Raises Damaged if its file is missing, or another one than the index says."""
        from lmp.source.trees import sha256_of

        file = self._file(listed.name)
        try:
            content = file.read_bytes()
        except OSError as error:
            raise Damaged(file, f"cannot be read: {error.strerror}") from error
        if sha256_of(content) != listed.sha256:
            raise Damaged(file, f"has another sha256 than {INDEX} says")
        return Entry(listed, file, content)

    def write(self, listed: Listed, parts: Mapping[str, bytes]) -> Listed:
        """Write an entry's file and its line of the index; returns the line, with the sha256 of the file."""
        from lmp.source.trees import sha256_of

        content = packed(parts)
        listed = listed.model_copy(update={"sha256": sha256_of(content)})
        file = self._file(listed.name)
        with storage_errors(file, "--folder"):
            write_whole(file, content)
        index = self._index_now()
        shown = listed.model_id or listed.name
        left_out = {name: why for name, why in index.left_out.items() if name != shown}
        self._write_index([*(entry for entry in index.entries if entry.name != listed.name), listed], left_out)
        return listed

    def leave_out(self, name: str, shown: str, why: str) -> None:
        """Remove an entry, if there is one, and say in the index why its model has none."""
        index = self._index_now()
        kept = [entry for entry in index.entries if entry.name != name]
        self._write_index(kept, {**index.left_out, shown: why})
        file = self._file(name)
        with storage_errors(file, "--folder"):
            file.unlink(missing_ok=True)

    def _index_now(self) -> Index:
        """The index as it is now: another build may have written it."""
        self.__dict__.pop("index", None)
        return self.index

    def _write_index(self, entries: list[Listed], left_out: dict[str, str]) -> None:
        from lmp.atlas.records import Index
        from lmp.store.schemas import problem

        ordered = sorted(entries, key=lambda entry: (entry.model_id is None, entry.name.lower()))
        index = Index(entries=ordered, left_out=dict(sorted(left_out.items())))
        file = self.folder / INDEX
        data = index.model_dump(mode="json")
        wrong = problem(Index, data)
        if wrong is not None:
            raise InvalidAnalysis(f"the index of the atlas is not valid: {wrong}")
        lines = json.dumps(data, indent=1, ensure_ascii=False)
        with storage_errors(file, "--folder"):
            write_whole(file, lines + "\n")
        self.index = index

    def _file(self, name: str) -> Path:
        if not _NAME.fullmatch(name) or name.startswith("."):
            raise Damaged(self.folder / INDEX, f"names an entry {name!r:.60}")
        return self.folder / f"{name}{SUFFIX}"


def packed(parts: Mapping[str, bytes]) -> bytes:
    """The bytes of an entry's file. The same parts give the same bytes: no time is stored."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_LZMA) as archive:
        for name, content in sorted(parts.items()):
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_LZMA)
    return target.getvalue()
