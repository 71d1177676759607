"""The JSON Schemas (draft 2020-12) of lmp's files, generated from the pydantic records."""

from __future__ import annotations

import functools
import importlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmp.errors import UsageError

if TYPE_CHECKING:
    from pydantic import BaseModel

DIALECT = "https://json-schema.org/draft/2020-12/schema"
SUFFIX = ".schema.json"


@dataclass(frozen=True)
class Described:
    """A kind of file, and the record that defines it. ``load`` imports the record late, because pydantic is slow."""

    name: str
    module: str
    record: str
    what: str

    def load(self) -> type[BaseModel]:
        found: type[BaseModel] = getattr(importlib.import_module(self.module), self.record)
        return found


DESCRIBED = {
    entry.name: entry
    for entry in (
        Described("module_analysis", "lmp.records", "ModuleAnalysis", "RESULTS/<class>/module_analysis.json"),
        Described("model_analysis", "lmp.records", "ModelAnalysis", "RESULTS/<class>/model_analysis.json"),
        Described("module_draft", "lmp.records", "Draft", "what `lmp submit` and the agents' submit_analysis take"),
        Described("hand_in", "lmp.records", "HandIn", "what `lmp submit --json` prints"),
        Described("zoo_entry", "lmp.records", "ZooEntry", "RESULTS/.zoo/<task>/<family>.json, for `lmp zoo` to go on"),
        Described("zoo_summary", "lmp.records", "ZooSummary", "reports/zoo/<task>.json"),
        Described("evaluation", "lmp.predict.screen.records", "Answered", "what `lmp evaluate --json` prints"),
        Described("difference", "lmp.link.difference", "Difference", "what `lmp diff --json` prints"),
        Described("capture", "lmp.lab.records", "Capture", "posts/<name>/captures/<id>.json"),
        Described("inspection", "lmp.observe.inspection", "Inspection", "what `lmp inspect --json` prints"),
        Described("atlas_index", "lmp.atlas.records", "Index", "index.json of the atlas"),
        Described("atlas_facts", "lmp.atlas.records", "Facts", "facts.json in an entry of the atlas"),
        Described("atlas_held", "lmp.atlas.records", "HeldRecord", "held.json in an entry of the atlas"),
    )
}


def schema(name: str) -> dict[str, Any]:
    """The schema of one kind of file, as a copy. Raises UsageError for an unknown name."""
    return dict(_schema(_described(name).load()))


def schema_text(name: str) -> str:
    return json.dumps(schema(name), indent=2, ensure_ascii=False) + "\n"


def write_schemas(folder: Path) -> list[Path]:
    """Write every schema to ``folder``; returns the files."""
    from lmp.store.files import storage_errors, write_whole

    written = []
    for name in DESCRIBED:
        path = folder / f"{name}{SUFFIX}"
        with storage_errors(path, "--folder"):
            write_whole(path, schema_text(name))
        written.append(path)
    return written


def _described(name: str) -> Described:
    if name not in DESCRIBED:
        raise UsageError(f"there is no schema {name!r}\nthe schemas are {', '.join(DESCRIBED)}")
    return DESCRIBED[name]


@functools.cache
def _schema(record: type[BaseModel]) -> dict[str, Any]:
    return {"$schema": DIALECT, **record.model_json_schema()}


@functools.cache
def _validator(record: type[BaseModel]) -> Any:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(_schema(record))


def problem(record: type[BaseModel], data: object) -> str | None:
    """What is wrong with ``data``, in one line; None if it is valid. The schema is checked first, then the record."""
    from jsonschema.exceptions import best_match
    from pydantic import ValidationError

    error = best_match(_validator(record).iter_errors(data))
    if error is not None:
        return f"{_place(error.absolute_path)}: {_shorten(error.message)}"
    try:
        record.model_validate(data)
    except ValidationError as failure:
        first = failure.errors(include_url=False)[0]
        return f"{_place(first['loc'])}: {_shorten(first['msg'])}"
    return None


def _place(steps: Any) -> str:
    text = ""
    for step in steps:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text or "the whole"


def _shorten(message: str, most: int = 160) -> str:
    message = " ".join(message.split())
    return message if len(message) <= most else f"{message[: most // 2]} ... {message[-most // 2 :]}"
