"""Configs: where one comes from, and its class. Reads files only: neither torch nor transformers is imported."""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lmp.errors import NotFound, Search, UsageError, did_you_mean
from lmp.source import hub
from lmp.source.catalogue import catalogued, close_ids
from lmp.source.locate import class_offered_by_models
from lmp.source.names import Definition, Names
from lmp.source.subject import close_files
from lmp.source.trees import Trees, sha256_of

_PART = r"[A-Za-z0-9](?:[\w.]|-(?!-))*"
_MODEL_ID = re.compile(rf"{_PART}/{_PART}", re.ASCII)
_MAX_ID = 96
"""Length limit of the hub for an id, in characters."""

_GIVE = "Give a Hugging Face config.json."


@dataclass(frozen=True)
class FoundConfig:
    """A config.json and its origin: a file, or a model's id and where its config was found."""

    content: dict[str, Any]
    origin: str
    """Description of the origin: the file's name, or the cache, hub or catalogue."""
    sha256: str
    """sha256 of the file; for the catalogue, of the config as canonical JSON."""
    file: Path | None = None
    model_id: str | None = None
    """The id in the hub's spelling, if it is known."""

    @property
    def architectures(self) -> tuple[str, ...]:
        found = self.content.get("architectures")
        return tuple(str(name) for name in found) if isinstance(found, list) else ()


def resolve_config(config_file: Path | None = None, model_id: str | None = None) -> FoundConfig | None:
    """The config that the user names; None if none is named, so that the class's defaults apply.

    A model's config comes from the local Hugging Face cache, else from the hub, else from lmp's catalogue.
    Raises NotFound if a model has none, UsageError for a file that is missing or holds no JSON object.
    """
    if config_file is not None and model_id is not None:
        raise UsageError(f"two configs are given: {config_file} and, with --model-id, {model_id}\ngive one")
    if model_id is not None:
        return _config_of_model(model_id)
    if config_file is None:
        return None
    content, sha256 = _read_object(config_file, _GIVE)
    return FoundConfig(content, config_file.name, sha256, file=config_file)


def _config_of_model(model_id: str) -> FoundConfig:
    _check_id(model_id)
    cached = hub.cached_config(model_id)
    if cached is not None:
        content, sha256 = _read_object(cached, "Remove it, or give a config.json with --config FILE.")
        return FoundConfig(content, "Hugging Face cache", sha256, model_id=model_id)
    answer = hub.fetch_config(model_id)
    if answer.file is not None:
        content, sha256 = _read_object(answer.file, "Remove it, or give a config.json with --config FILE.")
        return FoundConfig(content, "Hugging Face hub", sha256, model_id=model_id)
    entry = catalogued(model_id)
    if entry is None:
        raise NotFound(_no_config(model_id, answer), _searches(model_id, answer))
    canonical = json.dumps(entry.config, sort_keys=True, separators=(",", ":"))
    origin = f"lmp's catalogue, source: {entry.stated_by}"
    return FoundConfig(entry.config, origin, sha256_of(canonical.encode()), model_id=entry.id)


def _check_id(model_id: str) -> None:
    if _MODEL_ID.fullmatch(model_id) and ".." not in model_id and len(model_id) <= _MAX_ID:
        return
    close = close_ids(model_id)
    hint = did_you_mean(close, "for a file on this machine use --config FILE")
    raise UsageError(
        f"{model_id!r} is not a model id: those have the form org/name, as meta-llama/Llama-3.1-8B\n{hint}"
    )


def _no_config(model_id: str, answer: hub.Answer) -> str:
    why = f"no config of {model_id}: not in the Hugging Face cache, not in lmp's catalogue; the hub: {answer.reason}"
    close = close_ids(model_id)
    like = f"did you mean {' or '.join(close)}? else " if close else ""
    if answer.problem == hub.GATED:
        return (
            f"{why}\n{like}log in as someone with access (`hf auth login`), run "
            f"`hf download {model_id} {hub.CONFIG_NAME}` and then this again, or give the file with --config FILE"
        )
    if answer.problem == hub.MISSING:
        return f"{why}\n{like}check the id, or give a {hub.CONFIG_NAME} with --config FILE"
    return f"{why}\n{like}give a {hub.CONFIG_NAME} with --config FILE, or run again where there is a network"


def _searches(model_id: str, answer: hub.Answer) -> list[Search]:
    what = f"the config of {model_id}"
    return [
        Search(what, "the Hugging Face cache", "not there"),
        Search(what, "the Hugging Face hub", answer.reason),
        Search(what, "lmp's catalogue", "no such id"),
    ]


def _read_object(file: Path, what_to_do: str) -> tuple[dict[str, Any], str]:
    """The JSON object in a file, and the sha256 of its bytes."""
    try:
        with file.open("rb") as stream:
            data = stream.read(hub.MAX_BYTES + 1)
    except OSError as error:
        close = close_files(file) if isinstance(error, FileNotFoundError) else []
        then = did_you_mean(close, what_to_do)
        raise UsageError(f"{file} cannot be read: {error.strerror}\n{then}") from error
    if len(data) > hub.MAX_BYTES:
        raise UsageError(f"{file} has more than {hub.MAX_BYTES:,} bytes, which is not a config\n{what_to_do}")
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is not JSON: {error}\n{what_to_do}") from error
    if not isinstance(content, dict):
        raise UsageError(f"{file} does not hold a JSON object.\n{what_to_do}")
    return content, sha256_of(data)


# --- the class of a config -------------------------------------------------------------------------------------------


def class_of(content: dict[str, Any], trees: Trees) -> str:
    """The class path of the first of the config's ``architectures``, found in the transformers tree.

    Raises UsageError if the config names none, NotFound if the tree has no such class.
    """
    names_given = content.get("architectures")
    if not isinstance(names_given, list) or not names_given:
        raise UsageError(
            "the config names no class: it has no `architectures`\n"
            "give the class too, as in `transformers.models.llama.modeling_llama.LlamaForCausalLM`"
        )
    architecture = names_given[0]
    if not isinstance(architecture, str) or not architecture.isidentifier():
        raise UsageError(f"the config's `architectures` holds {architecture!r}, which is not a class name\n{_GIVE}")
    trees.need("transformers")
    names = Names(trees)
    found = _in_folder_of_type(content.get("model_type"), architecture, names)
    found = found or class_offered_by_models(architecture, names)
    if found is None:
        raise _unknown_architecture(architecture, content, trees, names)
    return found.qualified


def _in_folder_of_type(model_type: object, architecture: str, names: Names) -> Definition | None:
    """The class in the file that transformers' folder layout gives for the model type; None if it is not there."""
    if not isinstance(model_type, str):
        return None
    folder = model_type.replace("-", "_")
    module = names.module(f"transformers.models.{folder}.modeling_{folder}") if folder.isidentifier() else None
    found = names.attribute(module, architecture) if module is not None else None
    return found if isinstance(found, Definition) and found.module == module else None


def _unknown_architecture(architecture: str, content: dict[str, Any], trees: Trees, names: Names) -> NotFound:
    tree = trees.need("transformers")
    of = f" (model_type {content['model_type']})" if isinstance(content.get("model_type"), str) else ""
    why = f"transformers {tree.version} has no class {architecture}, which the config names{of}"
    offered = tree.package_dir / "models" / "auto" / "modeling_auto.py"
    text = offered.read_text(encoding="utf-8", errors="replace") if offered.is_file() else ""
    close = difflib.get_close_matches(
        architecture, set(re.findall(r"""[\"']([A-Z]\w+)[\"']""", text)), n=3, cutoff=0.75
    )
    like = f"; it has {', '.join(close)}" if close else ""
    if "auto_map" in content:
        then = "its code is in the checkpoint, and lmp does not run such code: "
    else:
        written = content.get("transformers_version")
        then = f"it was written by transformers {written}: " if isinstance(written, str) else ""
    return NotFound(
        f"{why}\n{then}give a clone of transformers that has it with `--transformers DIR`{like}", names.searched
    )
