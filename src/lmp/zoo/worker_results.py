"""A worker's result for one family: its entry and files, validated before they are stored."""

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

from lmp.records import OWN_ENGINE, ModelAnalysis, ModuleAnalysis, ZooEntry
from lmp.store.results import FILE_NAME, MODEL_FILE_NAME, strict_json
from lmp.store.schemas import problem
from lmp.zoo.requests import Finished, Request

LARGEST = 1 << 28
"""Limit of a family's uncompressed files, in bytes: a thousand times the usual size."""

_RECORDS: dict[str, type[BaseModel]] = {FILE_NAME: ModuleAnalysis, MODEL_FILE_NAME: ModelAnalysis}
_FOLDER = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*(@[\w.+%-]+)?")


@dataclass(frozen=True)
class WorkerResult:
    """Either ``entry`` with ``files``, or ``refused``: the reason why the worker did not run the family."""

    worker: str
    entry: dict[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """Posix path in the results folder -> text."""
    refused: str = ""

    def pack(self) -> bytes:
        return gzip.compress(json.dumps(vars(self)).encode(), mtime=0)


class InvalidResult(Exception):
    """A result that must not be stored. The text is the reason."""


def unpack(content: bytes) -> WorkerResult:
    """The inverse of `WorkerResult.pack`. Raises InvalidResult for anything else."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
            text = packed.read(LARGEST + 1)
        if len(text) > LARGEST:
            raise InvalidResult(f"it is larger than {LARGEST:,} bytes")
        data = strict_json(text)
        return WorkerResult(**data)
    except (OSError, EOFError, ValueError, RecursionError, TypeError) as error:
        raise InvalidResult(f"it cannot be read: {error}") from error


def validated(result: WorkerResult, request: Request) -> Finished:
    """The entry and files to store in the caller's results folder. Raises InvalidResult.

    Files that are already stored with the same bytes are left out. So are files that would replace an analysis of an
    agent or a person: lmp never replaces one.
    """
    wrong = problem(ZooEntry, result.entry)
    if wrong is not None:
        raise InvalidResult(f"its entry is not valid: {wrong}")
    entry = ZooEntry.model_validate(result.entry)
    asked = (request.family, request.task, request.fingerprint)
    if (entry.family, entry.task, entry.fingerprint) != asked:
        raise InvalidResult("its entry is of something else than was asked for")
    files = {name: text for name, text in result.files.items() if _is_to_store(name, text, request)}
    return Finished(entry, {name: text.encode() for name, text in files.items()})


def _is_to_store(name: str, text: Any, request: Request) -> bool:
    if not isinstance(text, str):
        raise InvalidResult(f"{name} is not text")
    folder, _, file = name.rpartition("/")
    try:
        data = strict_json(text.encode())
    except (ValueError, RecursionError) as error:
        raise InvalidResult(f"{name} is not valid JSON: {error}") from error
    if name == request.config_name:
        return True
    if not _FOLDER.fullmatch(folder) or file not in _RECORDS:
        raise InvalidResult(f"{name} is not a file of a result")
    wrong = problem(_RECORDS[file], data)
    if wrong is not None:
        raise InvalidResult(f"{name} is not valid: {wrong}")
    if folder.partition("@")[0] != data["class_name"] or data["engine"] != OWN_ENGINE:
        raise InvalidResult(f"{name} holds something else than its name says")
    return _may_replace(request.folder / name, text.encode())


def _may_replace(file: Path, content: bytes) -> bool:
    try:
        there = file.read_bytes()
        found = None if there == content else strict_json(there)
    except (OSError, ValueError, RecursionError):
        return True
    if there == content:
        return False
    return not isinstance(found, dict) or found.get("engine") in (None, OWN_ENGINE)
