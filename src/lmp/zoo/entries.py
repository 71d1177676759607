"""The stored entry of each family, RESULTS/.zoo/<task>/<family>.json, from which an interrupted run resumes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from lmp.errors import InvalidAnalysis, UsageError
from lmp.records import ZooEntry, ZooRun, ZooSummary
from lmp.source.auto import Family
from lmp.source.trees import Trees, sha256_of
from lmp.store.files import storage_errors, write_whole
from lmp.store.fingerprint import DERIVING, JUDGING, LINKING, sources_fingerprint
from lmp.store.results import strict_json
from lmp.store.schemas import problem
from lmp.zoo.requests import FOLDER

DECIDING = tuple(dict.fromkeys((*DERIVING, *JUDGING, *LINKING, "zoo")))
"""The parts of lmp that decide a family's entry: a change in one of them makes entries outdated."""


def current_fingerprint(trees: Trees, attention: str, dtype: str) -> str:
    """The fingerprint of new entries: a hash of lmp's rules, the versions of the sources and the options."""
    versions = [f"{tree.distribution} {tree.version}" for tree in trees]
    return sha256_of("\n".join([sources_fingerprint(DECIDING), *versions, attention, dtype]).encode())


class Entries:
    """The entries in one results folder."""

    def __init__(self, results: Path) -> None:
        self.folder = results / FOLDER

    def load(self, family: Family) -> ZooEntry | None:
        """The entry of a family; None if it is missing or unreadable: then it is made again."""
        try:
            data = strict_json(self._file(family.task, family.name).read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        if problem(ZooEntry, data) is not None:
            return None
        entry = ZooEntry.model_validate(data)
        return entry if (entry.family, entry.task) == (family.name, family.task) else None

    def save(self, entry: ZooEntry) -> None:
        file = self._file(entry.task, entry.family)
        with storage_errors(file):
            write_whole(file, json.dumps(entry.model_dump(mode="json", exclude_none=True), indent=2) + "\n")

    def _file(self, task: str, family: str) -> Path:
        return self.folder / task / f"{family}.json"


def summary(
    task: str,
    families: Sequence[Family],
    entries: Sequence[ZooEntry],
    versions: dict[str, str],
    attention: str,
    dtype: str,
    run: ZooRun | None,
) -> ZooSummary:
    """The summary of a task: its families in transformers' order, and the entry of each that has one."""
    from importlib import metadata

    known = {entry.family: entry for entry in entries}
    found = [known[family.name] for family in families if family.name in known]
    return ZooSummary(
        task=task,
        lmp=metadata.version("lmp"),
        sources=versions,
        dtype=dtype,
        attention=attention,
        families=len(families),
        verified=sum(entry.status == "verified" for entry in found),
        not_run=[family.name for family in families if family.name not in known],
        run=run,
        entries=found,
    )


def summary_text(found: ZooSummary) -> str:
    return json.dumps(found.model_dump(mode="json", exclude_none=True), indent=2, ensure_ascii=False) + "\n"


def read_summary(file: Path) -> ZooSummary:
    """Read a summary from a file. Raises UsageError if it cannot be read, InvalidAnalysis if it is no summary."""
    give = "give a summary that `lmp zoo` wrote, as reports/zoo/causal-lm.json"
    try:
        content = file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}\n{give}") from error
    try:
        data = strict_json(content)
    except (ValueError, RecursionError) as error:
        raise InvalidAnalysis(f"{file} is not valid JSON: {error}\n{give}") from error
    wrong = problem(ZooSummary, data)
    if wrong is not None:
        raise InvalidAnalysis(f"{file} is not a summary of the zoo: {wrong}\n{give}")
    return ZooSummary.model_validate(data)
