"""What `lmp zoo` knows of each family, kept so that a run can be gone on with: RESULTS/.zoo/<task>/<family>.json."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from lmp.errors import InvalidAnalysis, UsageError
from lmp.pipeline.zoo.requests import FOLDER
from lmp.records import ZooEntry, ZooRun, ZooSummary
from lmp.source.auto import Family
from lmp.source.trees import Trees, sha256_of
from lmp.store.files import storage_errors, write_whole
from lmp.store.fingerprint import sources_fingerprint
from lmp.store.results import strict_json
from lmp.store.schemas import problem

DECIDING = ("trace", "workload", "formula", "flops.py", "records.py", "expand", "verify", "pipeline")
"""The parts of lmp whose change may change what becomes of a family."""


def asked(trees: Trees, attention: str, dtype: str) -> str:
    """The fingerprint of entries that are made now: of lmp's rules, the sources' versions and what is asked for."""
    versions = [f"{tree.distribution} {tree.version}" for tree in trees]
    return sha256_of("\n".join([sources_fingerprint(DECIDING), *versions, attention, dtype]).encode())


class Entries:
    """The entries in one results folder."""

    def __init__(self, results: Path) -> None:
        self.folder = results / FOLDER

    def load(self, family: Family) -> ZooEntry | None:
        """The entry of a family; None where there is none, or none that can be read: it is then made again."""
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
    """All families of a task in transformers' order, with what is known of each."""
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
    """A summary in a file. Raises UsageError where it cannot be read, InvalidAnalysis where it is none."""
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
        raise InvalidAnalysis(f"{file} is no summary of the zoo: {wrong}\n{give}")
    return ZooSummary.model_validate(data)
