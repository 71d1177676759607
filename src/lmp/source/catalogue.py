"""The catalogue: hyperparameters of well-known models, each with its source, in the files of ``lmp/catalogue/``."""

from __future__ import annotations

import difflib
import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "catalogue"


@dataclass(frozen=True)
class Entry:
    """One model: the part of its config.json that decides the architecture, and the source of these values."""

    id: str
    aliases: tuple[str, ...]
    """Other ids of the same model on the hub."""
    source: dict[str, str]
    """Source of the values: repository, path, state (a date or version) and licence."""
    config: dict[str, Any]

    @property
    def stated_by(self) -> str:
        return f"{self.source['repository']}, {self.source['state']}"

    @property
    def architecture(self) -> str:
        return str(self.config["architectures"][0])


def entries() -> tuple[Entry, ...]:
    """All entries, by id. Every call makes new ones, because a model that is built from a config may change it."""
    found = []
    for text in _entry_texts():
        data = json.loads(text)
        found.append(Entry(data["id"], tuple(data.get("aliases", ())), data["source"], data["config"]))
    return tuple(sorted(found, key=lambda entry: entry.id.lower()))


@functools.cache
def _entry_texts() -> tuple[str, ...]:
    return tuple(file.read_text(encoding="utf-8") for file in FOLDER.glob("*.json"))


def catalogued(model_id: str) -> Entry | None:
    """The entry of a model by its id or an alias, ignoring case; None if there is none."""
    wanted = model_id.lower()
    return next((e for e in entries() if wanted in (e.id.lower(), *(a.lower() for a in e.aliases))), None)


def close_ids(model_id: str, most: int = 3) -> list[str]:
    """At most ``most`` similar ids in the catalogue. The organisation may be missing or different."""
    by_key = {key.lower(): e.id for e in entries() for key in (e.id, e.id.partition("/")[2], *e.aliases)}
    name = model_id.lower()
    close = [
        *difflib.get_close_matches(name, by_key, n=most, cutoff=0.6),
        *difflib.get_close_matches(name.rpartition("/")[2], by_key, n=most, cutoff=0.6),
    ]
    return list(dict.fromkeys(by_key[key] for key in close))[:most]
