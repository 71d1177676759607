"""What a worker sends back of one family: its entry and the files that belong to it, checked before they are kept."""

from __future__ import annotations

import gzip
import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from lmp.pipeline.zoo.requests import Finished, Request
from lmp.records import ModelAnalysis, ModuleAnalysis, ZooEntry
from lmp.store.results import FILE_NAME, MODEL_FILE_NAME, OWN_ENGINE, strict_json
from lmp.store.schemas import problem

LARGEST = 1 << 28
"""Bytes that the files of one family may have, unpacked: a thousand times what families have."""

_RECORDS: dict[str, type[BaseModel]] = {FILE_NAME: ModuleAnalysis, MODEL_FILE_NAME: ModelAnalysis}
_FOLDER = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*(@[\w.+%-]+)?")


@dataclass(frozen=True)
class Parcel:
    """Either ``entry`` with ``files``, or ``refused``: why this worker did not run the family."""

    worker: str
    entry: dict[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """Posix path, relative to the results folder -> content."""
    refused: str = ""

    def packed(self) -> bytes:
        return gzip.compress(json.dumps(vars(self)).encode(), mtime=0)


class NotValid(Exception):
    """What came is not what was asked for. Its text says why."""


def unpacked(content: bytes) -> Parcel:
    """Raises NotValid for what no worker of this lmp has packed."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
            text = packed.read(LARGEST + 1)
        if len(text) > LARGEST:
            raise NotValid(f"it is larger than {LARGEST:,} bytes")
        data = strict_json(text)
        return Parcel(**data)
    except (OSError, EOFError, ValueError, RecursionError, TypeError) as error:
        raise NotValid(f"it cannot be read: {error}") from error


def checked(parcel: Parcel, request: Request) -> Finished:
    """The parcel as it may be stored in the caller's results folder. Raises NotValid.

    Left out is what is there already: the same bytes, as of classes that families share, and analyses of agents and
    people, whose place what lmp derives never takes.
    """
    wrong = problem(ZooEntry, parcel.entry)
    if wrong is not None:
        raise NotValid(f"its entry is not valid: {wrong}")
    entry = ZooEntry.model_validate(parcel.entry)
    asked = (request.family, request.task, request.fingerprint)
    if (entry.family, entry.task, entry.fingerprint) != asked:
        raise NotValid("its entry is of something else than was asked for")
    files = {name: text for name, text in parcel.files.items() if _may_be_kept(name, text, request)}
    return Finished(entry, {name: text.encode() for name, text in files.items()})


def _may_be_kept(name: str, text: Any, request: Request) -> bool:
    if not isinstance(text, str):
        raise NotValid(f"{name} is no text")
    folder, _, file = name.rpartition("/")
    try:
        data = strict_json(text.encode())
    except (ValueError, RecursionError) as error:
        raise NotValid(f"{name} is not valid JSON: {error}") from error
    if name == request.config_name:
        return True
    if not _FOLDER.fullmatch(folder) or file not in _RECORDS:
        raise NotValid(f"{name} is no file of a result")
    wrong = problem(_RECORDS[file], data)
    if wrong is not None:
        raise NotValid(f"{name} is not valid: {wrong}")
    if folder.partition("@")[0] != data["class_name"] or data["engine"] != OWN_ENGINE:
        raise NotValid(f"{name} holds something else than its name says")
    return _may_be_written(request.folder / name, text.encode())


def _may_be_written(file: Path, content: bytes) -> bool:
    try:
        there = file.read_bytes()
        found = None if there == content else strict_json(there)
    except (OSError, ValueError, RecursionError):
        return True
    if there == content:
        return False
    return not isinstance(found, dict) or found.get("engine") in (None, OWN_ENGINE)
