"""A run over families: current entries are kept, others are made again, and each is stored on completion."""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from lmp.errors import UsageError
from lmp.records import ZooEntry, ZooRun, ZooSummary
from lmp.source.auto import ALL, TASKS, Family, chosen, families
from lmp.source.trees import Trees, find_trees, say_releases
from lmp.store.files import storage_errors, write_whole
from lmp.zoo.entries import Entries, current_fingerprint, summary
from lmp.zoo.requests import Executor, Finished, Request, peak_bytes


@dataclass(frozen=True)
class ZooOptions:
    """Options of the analysis, and the folder of the results."""

    results: Path
    transformers: Path | None = None
    pytorch: Path | None = None
    attention: str | None = None
    dtype: str = "bfloat16"
    fresh: bool = False
    """True to make every entry again."""
    retry: bool = False
    """True to make unverified entries again."""

    def trees(self) -> Trees:
        found = find_trees(None, self.transformers, self.pytorch, [])
        say_releases(found)
        return found


class Watch(Protocol):
    """Callbacks for the progress of a run."""

    def known(self, entries: Sequence[ZooEntry], to_do: int) -> None: ...

    def started(self, request: Request) -> None: ...

    def ended(self, entry: ZooEntry) -> None: ...


def families_to_run(
    patterns: Sequence[str], tasks: Sequence[str], options: ZooOptions, before: ZooSummary | None
) -> list[Family]:
    """The families that match patterns and tasks. Without tasks, a family is run for its first task only.

    ``before`` is an earlier summary for comparison: without patterns, its verified families are selected. Raises
    UsageError if nothing is selected by name, task or summary.
    """
    if not patterns and not tasks and before is None:
        raise UsageError(
            f"no families are named\ngive names, a pattern as 'qwen*', all, or --task with one of {', '.join(TASKS)}"
        )
    if before is not None and not tasks:
        tasks = [before.task]
    trees = options.trees()
    every = [task for task in TASKS if ALL in tasks or not tasks or task in tasks]
    known = [family for task in every for family in families(trees, task)]
    if before is not None and not patterns:
        verified = {entry.family for entry in before.entries if entry.status == "verified"}
        return [family for family in known if family.name in verified]
    picked = chosen(known, patterns)
    if tasks or ALL in patterns:
        return picked
    first: dict[str, Family] = {}
    for family in picked:
        first.setdefault(family.name, family)
    return list(first.values())


def run_zoo(chosen: Sequence[Family], options: ZooOptions, executor: Executor, watch: Watch) -> list[ZooSummary]:
    """Expand and verify families, and return the summaries of their tasks, which include families from earlier runs.

    The entries of an interrupted run stay stored: the same call continues with the rest.
    """
    trees, entries = options.trees(), Entries(options.results)
    fingerprint = current_fingerprint(trees, options.attention or "sdpa", options.dtype)
    known = [entry for family in chosen if (entry := _current(family, entries, fingerprint, options)) is not None]
    done = {(entry.task, entry.family) for entry in known}
    requests = [_request(family, options, fingerprint) for family in chosen if (family.task, family.name) not in done]
    watch.known(known, len(requests))
    began = time.monotonic()
    try:
        for finished in executor.run(requests, watch.started) if requests else ():
            _store(finished, entries, options.results)
            watch.ended(finished.entry)
    finally:
        executor.close()
    run = ZooRun(
        workers=executor.workers,
        wall_seconds=round(time.monotonic() - began, 1),
        made=len(requests),
        parent_peak_bytes=peak_bytes(resource.getrusage(resource.RUSAGE_SELF)),
    )
    return summaries({f.task: None for f in chosen}, options, run if requests else None)


def summaries(tasks: dict[str, None], options: ZooOptions, run: ZooRun | None) -> list[ZooSummary]:
    """A summary for each task, from all stored entries with the current fingerprint."""
    trees, entries = options.trees(), Entries(options.results)
    attention = options.attention or "sdpa"
    fingerprint = current_fingerprint(trees, attention, options.dtype)
    versions = {tree.distribution: tree.version for tree in trees}
    found = []
    for task in tasks:
        all_of_task = families(trees, task)
        loaded = [entry for family in all_of_task if (entry := entries.load(family)) is not None]
        current = [entry for entry in loaded if entry.fingerprint == fingerprint]
        found.append(summary(task, all_of_task, current, versions, attention, options.dtype, run))
    return found


def _current(family: Family, entries: Entries, fingerprint: str, options: ZooOptions) -> ZooEntry | None:
    entry = None if options.fresh else entries.load(family)
    if entry is None or entry.fingerprint != fingerprint:
        return None
    return None if options.retry and entry.status != "verified" else entry


def _request(family: Family, options: ZooOptions, fingerprint: str) -> Request:
    return Request(
        family=family.name,
        task=family.task,
        class_name=family.class_name,
        results=str(options.results.absolute()),
        transformers=str(options.transformers.absolute()) if options.transformers else None,
        pytorch=str(options.pytorch.absolute()) if options.pytorch else None,
        attention=options.attention,
        dtype=options.dtype,
        fingerprint=fingerprint,
        fresh=options.fresh,
    )


def _store(finished: Finished, entries: Entries, results: Path) -> None:
    """The entry is stored last, so the files of a stored entry exist too."""
    for name, content in finished.files.items():
        file = results / name
        with storage_errors(file):
            write_whole(file, content)
    entries.save(finished.entry)
