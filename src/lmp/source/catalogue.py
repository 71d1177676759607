"""lmp's own catalogue: the hyperparameters of well-known models, each with its source. Files in ``lmp/catalogue/``."""

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
    """One model: the content of its config.json as far as it decides the architecture, and who states it."""

    id: str
    aliases: tuple[str, ...]
    """Other ids that the hub knows the same model under."""
    source: dict[str, str]
    """Who states it: repository, path, state (a date or version) and licence."""
    config: dict[str, Any]

    @property
    def stated_by(self) -> str:
        return f"{self.source['repository']}, {self.source['state']}"

    @property
    def architecture(self) -> str:
        return str(self.config["architectures"][0])


def entries() -> tuple[Entry, ...]:
    """All entries, by id; made anew in every call, as what is built of a config may put values into it."""
    found = []
    for text in _files():
        data = json.loads(text)
        found.append(Entry(data["id"], tuple(data.get("aliases", ())), data["source"], data["config"]))
    return tuple(sorted(found, key=lambda entry: entry.id.lower()))


@functools.cache
def _files() -> tuple[str, ...]:
    return tuple(file.read_text(encoding="utf-8") for file in FOLDER.glob("*.json"))


def catalogued(model_id: str) -> Entry | None:
    """The entry of a model, by its id or an alias, in any case."""
    wanted = model_id.lower()
    return next((e for e in entries() if wanted in (e.id.lower(), *(a.lower() for a in e.aliases))), None)


def close_ids(model_id: str, most: int = 3) -> list[str]:
    """Ids in the catalogue that look like this one; the organisation may be missing or another."""
    by_key = {key.lower(): e.id for e in entries() for key in (e.id, e.id.partition("/")[2], *e.aliases)}
    name = model_id.lower()
    close = [
        *difflib.get_close_matches(name, by_key, n=most, cutoff=0.6),
        *difflib.get_close_matches(name.rpartition("/")[2], by_key, n=most, cutoff=0.6),
    ]
    return list(dict.fromkeys(by_key[key] for key in close))[:most]
