"""A run over families: what is known is kept, the rest is made, and each entry is stored as soon as it is there."""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from lmp.pipeline.zoo.entries import Entries, asked, summary
from lmp.pipeline.zoo.requests import Executor, Finished, Request, peak_bytes
from lmp.records import ZooEntry, ZooRun, ZooSummary
from lmp.source.auto import Family, families
from lmp.source.trees import Trees, find_trees
from lmp.store.files import storage_errors, write_whole


@dataclass(frozen=True)
class ZooOptions:
    """What families are analysed with, and where results go."""

    results: Path
    transformers: Path | None = None
    pytorch: Path | None = None
    attention: str | None = None
    dtype: str = "bfloat16"
    fresh: bool = False
    """Make every entry again."""
    retry: bool = False
    """Make those again that were not verified."""

    def trees(self) -> Trees:
        return find_trees(None, self.transformers, self.pytorch, [])


class Watch(Protocol):
    """Told of what goes on."""

    def known(self, entries: Sequence[ZooEntry], to_do: int) -> None: ...

    def started(self, request: Request) -> None: ...

    def ended(self, entry: ZooEntry) -> None: ...


def run_zoo(chosen: Sequence[Family], options: ZooOptions, executor: Executor, watch: Watch) -> list[ZooSummary]:
    """Expand and verify families; the summaries of their tasks, families that were run earlier included.

    An interrupted run leaves the entries that it has made: the same call goes on with the rest.
    """
    trees, entries = options.trees(), Entries(options.results)
    print_of_run = asked(trees, options.attention or "sdpa", options.dtype)
    known = [entry for family in chosen if (entry := _current(family, entries, print_of_run, options)) is not None]
    done = {(entry.task, entry.family) for entry in known}
    requests = [_request(family, options, print_of_run) for family in chosen if (family.task, family.name) not in done]
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
    """A summary of each task, of all entries that are true of lmp and the sources as they are now."""
    trees, entries = options.trees(), Entries(options.results)
    attention = options.attention or "sdpa"
    print_of_run = asked(trees, attention, options.dtype)
    versions = {tree.distribution: tree.version for tree in trees}
    found = []
    for task in tasks:
        all_of_task = families(trees, task)
        loaded = [entry for family in all_of_task if (entry := entries.load(family)) is not None]
        current = [entry for entry in loaded if entry.fingerprint == print_of_run]
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
    """The entry last: where it is, what it tells of is there too."""
    for name, content in finished.files.items():
        file = results / name
        with storage_errors(file):
            write_whole(file, content)
    entries.save(finished.entry)
